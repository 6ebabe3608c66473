"""The responses to deliveries: receipts and errors."""

from functools import lru_cache
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import Scope

from embedsink.http.cors import allow_origin_headers
from embedsink.http.problems import nothing_accepted_response, problem_response
from embedsink.http.wire.raw_response import RawResponse


def receipt_response(
    scope: Scope,
    accepted_count: int,
    rejected_count: int,
    listed_rejections: list[dict[str, Any]],
    *,
    origin: str | None,
) -> RawResponse:
    """Return the response to a durable delivery: 202, or 422 if no envelope was accepted.

    Args:
        scope: the ASGI scope of the request.
        accepted_count: the number of accepted envelopes.
        rejected_count: the number of rejected envelopes.
        listed_rejections: the first rejections, for the list in the response.
        origin: the origin of the page, if any.
    """
    if not rejected_count:
        return _all_accepted_response(accepted_count, origin)
    if not accepted_count:
        return RawResponse.of(nothing_accepted_response(Request(scope), listed_rejections, rejected_count))
    content = {"accepted": accepted_count, "rejected": listed_rejections}
    if rejected_count > len(listed_rejections):
        content["rejectedCount"] = rejected_count
    return _accepted_response(content, origin)


def error_response(scope: Scope, error: Exception) -> RawResponse:
    """Return the response to an error."""
    return RawResponse.of(problem_response(Request(scope), error))


@lru_cache(maxsize=1_024)
def _all_accepted_response(count: int, origin: str | None) -> RawResponse:
    return _accepted_response({"accepted": count, "rejected": []}, origin)


def _accepted_response(content: dict[str, Any], origin: str | None) -> RawResponse:
    """Return a 202 with this JSON, which a page of the origin can read."""
    body = orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if origin is not None:
        cors = allow_origin_headers(origin)
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in cors.items()]
    return RawResponse(202, headers, body)
