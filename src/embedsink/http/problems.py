"""Error responses: RFC 9457 problem details, with the RFC 6750 challenge and CORS headers."""

import logging
import random
import uuid
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from embedsink.errors import Refused, Unavailable, preview, redact_keys
from embedsink.http.cors import cors_headers
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
SCIM_PREFIX = "/api/scim/v2"
SCIM_MEDIA_TYPE = "application/scim+json"
_SCIM_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
ERRORS_LISTED_MAX = 20
# What to do, by status. None is the status of reasons for rejecting one envelope.
ADVICE: dict[int | None, str] = {
    None: "Fix the sender. Don't resend this envelope: it is quarantined.",
    400: "Fix the request. Don't resend it unchanged.",
    401: "Get a valid key.",
    403: "Use the right key. Nothing is stored.",
    404: "Correct the URL.",
    405: "Use a method listed in `Allow`.",
    408: "Resend.",
    409: "Use another id. The stored content stays unchanged, and nothing new is stored.",
    413: "Split and resend.",
    415: "Send another content type or encoding. Nothing is stored.",
    416: "Request a range within the length in `Content-Range`, or the whole file.",
    422: "Fix the sender. Don't resend these envelopes: they are quarantined.",
    429: "Wait for the time in `Retry-After`, then resend. Nothing is stored.",
    500: "Report the `X-Request-Id` to the operator. Resending is safe if the envelopes have ids.",
    503: "Wait for the time in `Retry-After`, then resend.",
}
# Reasons whose advice differs from that of their status.
_ADVICE_BY_REASON = {
    Reason.INVALID_BODY: "Fix the fields in `errors`, then resend. Nothing is stored.",
    Reason.PLAIN_HTTP: "Use HTTPS, and replace the key. Nothing is stored.",
}
_CHALLENGES = {
    Reason.NO_CREDENTIAL: 'Bearer realm="embedsink"',
    Reason.BAD_CREDENTIAL: 'Bearer realm="embedsink", error="invalid_token"',
    Reason.TWO_CREDENTIALS: 'Bearer realm="embedsink", error="invalid_request"',
    Reason.OUT_OF_SCOPE: 'Bearer realm="embedsink", error="insufficient_scope"',
    Reason.WRONG_KIND: 'Bearer realm="embedsink", error="insufficient_scope"',
}
_REASON_BY_STATUS = {404: Reason.NOT_FOUND, 405: Reason.METHOD_NOT_ALLOWED}


def advice_on(reason: Reason) -> str:
    """Return the advice to a client: the advice for the reason if there is one, or else for its status."""
    if reason in _ADVICE_BY_REASON:
        return _ADVICE_BY_REASON[reason]
    return ADVICE[reason.status]


class ProblemResponse(Response):
    """A response with problem details.

    Args:
        reason: the reason.
        detail: the error message.
        headers: extra headers.
        extra_members: extension members of the body (RFC 9457, section 3.2).
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        extra_members: dict[str, Any] | None = None,
    ) -> None:
        body = self._body(reason, detail)
        if extra_members is not None:
            body |= extra_members
        # A reason without a status rejects one envelope, and no response has it. 500 satisfies the type checker.
        super().__init__(orjson.dumps(body), 500 if reason.status is None else reason.status, headers)
        if reason in _CHALLENGES:
            self.headers["WWW-Authenticate"] = _CHALLENGES[reason]
        if reason is Reason.BODY_TOO_SLOW:
            # The rest of the body may never arrive (RFC 9110, section 15.5.9).
            self.headers["Connection"] = "close"

    @staticmethod
    def _body(reason: Reason, detail: str) -> dict[str, Any]:
        """Return the members of the body."""
        return {
            "type": f"/problems/{reason}",
            "title": reason.sentence,
            "status": reason.status,
            "reason": reason,
            "detail": detail,
        }


class ScimErrorResponse(ProblemResponse):
    """A problem in the format of the SCIM API (RFC 7644, section 3.12)."""

    media_type = SCIM_MEDIA_TYPE

    @staticmethod
    def _body(reason: Reason, detail: str) -> dict[str, Any]:
        """Return the members of the body."""
        return {"schemas": [_SCIM_ERROR], "status": str(reason.status), "detail": detail}


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an expected error with its problem, and any other exception with 500.

    The log line contains no body and no secret. The traceback of a bug is logged and never sent to the client.
    """
    return problem_response(request, error)


async def answer_http_error(request: Request, error: HTTPException) -> Response:
    """Answer Starlette's own errors, such as 404 and 405, with a problem."""
    # Any other error of Starlette is about an invalid request.
    reason = _REASON_BY_STATUS.get(error.status_code, Reason.BAD_PARAMETER)
    detail = f"{request.method} {preview(request.url.path)}: {reason.sentence}"
    headers = {} if error.headers is None else dict(error.headers)
    return _report_problem(request, reason, detail, headers=headers)


async def ignore_disconnect(request: Request, error: ClientDisconnect) -> None:
    """Answer nothing, because the client has disconnected."""


def problem_response(request: Request, error: Exception) -> Response:
    """Count and log an error, and return its response. An error other than Refused and Unavailable is a bug."""
    if isinstance(error, Unavailable):
        return unavailable_response(request, error)
    if isinstance(error, Refused):
        return _report_problem(request, error.reason, str(error))
    return _report_problem(request, Reason.INTERNAL_ERROR, Reason.INTERNAL_ERROR.sentence, bug=error)


def unavailable_response(
    request: Request, error: Unavailable, *, extra_members: dict[str, Any] | None = None
) -> Response:
    """Count and log an error. Return a 429 or 503 with `Retry-After`, and with `extra_members` in the body."""
    # The jitter spreads the retries after an outage.
    jitter_s = random.randint(0, error.retry_after_s)  # noqa: S311
    headers = {"Retry-After": str(error.retry_after_s + jitter_s)}
    return _report_problem(request, error.reason, str(error), headers=headers, extra_members=extra_members)


def nothing_accepted_response(
    request: Request, listed_rejections: list[dict[str, Any]], rejected_count: int
) -> Response:
    """Return the 422 for a request whose envelopes were all rejected. The body lists the rejections, as a 202 does."""
    members: dict[str, Any] = {"accepted": 0, "rejected": listed_rejections}
    if rejected_count > len(listed_rejections):
        members["rejectedCount"] = rejected_count
    if rejected_count == 1:
        what_happened = "The envelope was rejected; `rejected` lists the reasons."
        advice = "Fix it. Don't resend it unchanged."
    else:
        what_happened = f"All {rejected_count:,} envelopes were rejected; `rejected` lists the reasons."
        advice = "Fix them. Don't resend them unchanged."
    return _report_problem(request, Reason.NOTHING_ACCEPTED, f"{what_happened} {advice}", extra_members=members)


def invalid_body_response(request: Request, errors: list[tuple[str, str]]) -> Response:
    """Return the 422 that lists the first invalid fields, each with a sentence about its error."""
    entries = [{"field": field, "detail": f"{field}: {sentence}"} for field, sentence in errors[:ERRORS_LISTED_MAX]]
    detail = " ".join(entry["detail"] for entry in entries)
    if len(errors) > len(entries):
        detail += f" Errors not listed: {len(errors) - len(entries):,}."
    return _report_problem(request, Reason.INVALID_BODY, detail, extra_members={"errors": entries})


def unsatisfiable_range_response(request: Request, size: int) -> Response:
    """Return the 416 with the length of the file (RFC 9110, section 15.5.17)."""
    requested = preview(request.headers["range"])
    detail = f"range: {requested} contains none of the file's {size:,} bytes. Request a valid range or the whole file."
    return _report_problem(request, Reason.BAD_RANGE, detail, headers={"Content-Range": f"bytes */{size}"})


def _report_problem(
    request: Request,
    reason: Reason,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    extra_members: dict[str, Any] | None = None,
    bug: Exception | None = None,
) -> Response:
    """Count and log a problem, and return its response. The log line and the response have the same request id.

    `bug` is the exception if the problem is a bug.
    """
    request_id = uuid.uuid4().hex
    _count_and_log(request, reason, request_id, bug)
    all_headers = {"X-Request-Id": request_id, "Cache-Control": "no-store", **cors_headers(request)}
    if headers is not None:
        all_headers |= headers
    response_class = ScimErrorResponse if request.url.path.startswith(f"{SCIM_PREFIX}/") else ProblemResponse
    return response_class(reason, detail, headers=all_headers, extra_members=extra_members)


def _count_and_log(request: Request, reason: Reason, request_id: str, bug: Exception | None) -> None:
    """Count a problem by reason, and log one line: an error with the traceback for a bug, otherwise a warning."""
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
            "path": redact_keys(request.url.path),
        },
    )
