"""Every error body on the server: RFC 9457 problem details, with the RFC 6750 challenge and CORS where they belong."""

import logging
import random
import uuid
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from embedsink.errors import EmbedsinkError, Refused, Unavailable, quote, without_keys
from embedsink.http.cors import cors_headers
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
ERRORS_LISTED_MAX = 20
# What the sender does, by status; None is the status of a reason that concerns one envelope.
ADVICE: dict[int | None, str] = {
    None: "Fix it; don't resend this envelope: it is quarantined.",
    400: "Fix it; don't resend it as it is.",
    401: "Get a valid key.",
    403: "Use the right key. Nothing is stored.",
    404: "Correct the address.",
    405: "Use a method that `Allow` names.",
    408: "Resend.",
    409: "Use another name, or leave it: what is there stays. Nothing is stored.",
    413: "Split and resend.",
    415: "Send another content type or encoding. Nothing is stored.",
    416: "Ask for a range within the length that `Content-Range` tells, or for the whole file.",
    422: "Fix them; don't resend these envelopes: they are quarantined.",
    429: "Wait as long as `Retry-After` says, then resend. Nothing is stored.",
    500: "Tell the operator the `X-Request-Id`. With ids in the envelopes, resending is safe.",
    503: "Wait as long as `Retry-After` says, then resend.",
}
# Where a reason asks for something else than the others of its status.
_ADVICE_OF = {Reason.INVALID_BODY: "Fix the fields that `errors` names, then send it again. Nothing is stored."}
_CHALLENGES = {
    Reason.NO_CREDENTIAL: 'Bearer realm="embedsink"',
    Reason.BAD_CREDENTIAL: 'Bearer realm="embedsink", error="invalid_token"',
    Reason.TWO_CREDENTIALS: 'Bearer realm="embedsink", error="invalid_request"',
    Reason.OUT_OF_SCOPE: 'Bearer realm="embedsink", error="insufficient_scope"',
    Reason.WRONG_KIND: 'Bearer realm="embedsink", error="insufficient_scope"',
}
_BY_STATUS = {404: Reason.NOT_FOUND, 405: Reason.METHOD_NOT_ALLOWED}


def advice_on(reason: Reason) -> str:
    """What whoever met this reason does next."""
    return _ADVICE_OF.get(reason) or ADVICE[reason.status]


class ProblemResponse(Response):
    """A problem of one reason. `members` are further members of the body (RFC 9457, section 3.2)."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        members: dict[str, Any] | None = None,
    ) -> None:
        body = {
            "type": f"/problems/{reason}",
            "title": reason.sentence,
            "status": reason.status,
            "reason": reason,
            "detail": detail,
        }
        super().__init__(orjson.dumps(body | (members or {})), reason.status or 500, headers)
        if reason in _CHALLENGES:
            self.headers["WWW-Authenticate"] = _CHALLENGES[reason]
        if reason is Reason.BODY_TOO_SLOW:
            # The rest of the body may never come (RFC 9110, section 15.5.9).
            self.headers["Connection"] = "close"


async def answer_refusal(request: Request, error: EmbedsinkError) -> Response:
    """What embedsink raised on purpose, as a problem; counted, and logged in one line without body or secret."""
    return problem_response(request, error)


async def answer_http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own 404 and 405 in the same shape."""
    reason = _BY_STATUS.get(error.status_code, Reason.BAD_PARAMETER)
    detail = f"{request.method} {quote(request.url.path)}: {reason.sentence}"
    return _problem(request, reason, detail, headers=dict(error.headers or {}))


async def ignore_disconnect(request: Request, error: ClientDisconnect) -> None:
    """Nothing: whoever asked has left."""


async def answer_bug(request: Request, error: Exception) -> Response:
    """Anything else is a bug: its traceback goes to the log, and nothing of it to the client."""
    return problem_response(request, error)


def problem_response(request: Request, error: Exception) -> Response:
    """The problem that an exception is to whoever sent the request."""
    if isinstance(error, Unavailable):
        return unavailable_response(request, error)
    if isinstance(error, Refused):
        return _problem(request, error.reason, str(error))
    return _problem(request, Reason.INTERNAL_ERROR, Reason.INTERNAL_ERROR.sentence, bug=error)


def unavailable_response(request: Request, error: Unavailable, *, members: dict[str, Any] | None = None) -> Response:
    """A 429 or 503 with the time to wait."""
    # Jittered, so that the senders of an outage don't all come back at once.
    wait_s = error.retry_after_s + random.randint(0, error.retry_after_s)  # noqa: S311
    headers = {"Retry-After": str(wait_s)}
    return _problem(request, error.reason, str(error), headers=headers, members=members)


def nothing_accepted_response(request: Request, rejected: list[dict[str, Any]], count: int) -> Response:
    """The 422 with the same list that a 202 would carry."""
    members: dict[str, Any] = {"accepted": 0, "rejected": rejected}
    if count > len(rejected):
        members["rejectedCount"] = count
    which, them = ("The envelope was", "it") if count == 1 else (f"All {count:,} envelopes were", "them")
    detail = f"{which} quarantined; `rejected` says why. Fix {them}; don't resend {them} as sent."
    return _problem(request, Reason.NOTHING_ACCEPTED, detail, members=members)


def invalid_body_response(request: Request, errors: list[tuple[str, str]]) -> Response:
    """The 422 with each field that is wrong, and what is wrong with it."""
    listed = [{"field": field, "detail": f"{field}: {sentence}"} for field, sentence in errors[:ERRORS_LISTED_MAX]]
    further = f" {len(errors) - len(listed):,} further ones are not listed." if len(errors) > len(listed) else ""
    detail = " ".join(error["detail"] for error in listed) + further
    return _problem(request, Reason.INVALID_BODY, detail, members={"errors": listed})


def unsatisfiable_range_response(request: Request, size: int) -> Response:
    """The 416 with the length that there is (RFC 9110, section 15.5.17)."""
    asked = quote(request.headers["range"])
    detail = f"range: {asked} holds none of the file's {size:,} bytes. Ask for a part of these, or for all of it."
    return _problem(request, Reason.BAD_RANGE, detail, headers={"Content-Range": f"bytes */{size}"})


async def explain_problem(request: Request) -> Response:
    """What the `type` of a problem leads to: the reason's meaning, and what the sender does about it."""
    name = request.path_params["reason"]
    reason = next((reason for reason in Reason if reason.value == name), None)
    if reason is None:
        raise Refused(Reason.NOT_FOUND, f"reason {quote(name)} does not exist. docs/wire.md lists them all.")
    return JSONResponse(
        {
            "reason": reason,
            "title": reason.sentence,
            "status": reason.status,
            "advice": advice_on(reason),
        }
    )


def _problem(
    request: Request,
    reason: Reason,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    members: dict[str, Any] | None = None,
    bug: Exception | None = None,
) -> Response:
    request_id = uuid.uuid4().hex
    shared = {"X-Request-Id": request_id, "Cache-Control": "no-store", **cors_headers(request)}
    _note(request, reason, request_id, bug)
    return ProblemResponse(reason, detail, headers=shared | (headers or {}), members=members)


def _note(request: Request, reason: Reason, request_id: str, bug: Exception | None) -> None:
    state = request.scope.get("state", {})
    if "engine" in state:
        state["engine"].counters[f"refused.{reason}"] += 1
    log.log(
        logging.WARNING if bug is None else logging.ERROR,
        "refused" if bug is None else "bug",
        exc_info=bug,
        extra={
            "reason": str(reason),
            "status": reason.status,
            "request_id": request_id,
            "key_id": state.get("key_id"),
            "method": request.method,
            "path": without_keys(request.url.path),
        },
    )
