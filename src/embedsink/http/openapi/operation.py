"""An operation, which is one method of one path, and its OpenAPI description."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from embedsink.auth.keys import KeyKind
from embedsink.http import problems
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.parts import Schema, content, headers_of, ref
from embedsink.reasons import Reason

READERS = (KeyKind.READ, KeyKind.ADMIN)
NOT_MODIFIED = {304: "Nothing has been loaded since the client stored its response."}
WEAK_ETAG = {"ETag": "Weak. Send it in If-None-Match."}
# Reasons whose problem responses have extra members, with the name of their schema.
_PROBLEM_SCHEMAS = {Reason.NOTHING_ACCEPTED: "NothingAccepted", Reason.INVALID_BODY: "InvalidBody"}
_ERROR_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "The challenge of RFC 6750, section 3."},
    429: {"Retry-After": "Seconds to wait, with jitter."},
    503: {"Retry-After": "Seconds to wait, with jitter."},
}


class Success(NamedTuple):
    """The status, the description and the schemas by media type of a successful response."""

    status: int
    description: str
    content: dict[str, Schema]


@dataclass(frozen=True, slots=True)
class OperationResponse:
    """One status that an operation answers with.

    Args:
        status: the status code.
        meaning: the description; for an error, what to do.
        contents: schemas by media type.
        headers: descriptions by header name.
        reasons: the possible reasons of an error.
    """

    status: int
    meaning: str
    contents: dict[str, Schema]
    headers: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    def as_openapi(self) -> Schema:
        """Return the Response Object (OpenAPI 3.1.0, section 4.8.17)."""
        is_error = bool(self.reasons)
        reasons_text = f"{', '.join(self.reasons)}. " if is_error else ""
        response: Schema = {"description": reasons_text + self.meaning}
        if self.contents:
            response["content"] = content(self.contents)
        headers = headers_of(self.headers)
        if is_error:
            headers["X-Request-Id"] = {"schema": {"type": "string"}}
        if headers:
            response["headers"] = headers
        return response


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Args:
        method: the HTTP method, in lower case.
        path: the path template.
        id: the unique `operationId`.
        summary: one line without a full stop at its end.
        success: the successful response.
        error_reasons: the possible reasons of an error.
        key_kinds: the kinds of keys that may use the operation; empty if the operation needs no key.
        is_key_header_optional: whether the `Authorization` header may be missing, because the key is in the body.
        parameters: the Parameter Objects.
        request_body: schemas of the request body by media type.
        other_statuses: descriptions of other statuses that are not errors.
        response_headers: descriptions of the headers of the successful response.
    """

    method: str
    path: str
    id: str
    summary: str
    success: Success
    error_reasons: Sequence[Reason] = ANY_REQUEST_REASONS
    key_kinds: Sequence[KeyKind] = ()
    is_key_header_optional: bool = False
    parameters: Sequence[Schema] = ()
    request_body: dict[str, Schema] = field(default_factory=dict)
    other_statuses: dict[int, str] = field(default_factory=dict)
    response_headers: dict[str, str] = field(default_factory=dict)

    def as_openapi(self) -> Schema:
        """Return the Operation Object (OpenAPI 3.1.0, section 4.8.10)."""
        security: list[Schema] = [{f"{kind}Key": []} for kind in self.key_kinds]
        if self.is_key_header_optional:
            security.append({})  # An empty requirement allows requests without a key.
        operation: Schema = {
            "operationId": self.id,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "security": security,
            "responses": {str(response.status): response.as_openapi() for response in self.responses()},
        }
        if self.request_body:
            operation["requestBody"] = {"required": True, "content": content(self.request_body)}
        return operation

    def responses(self) -> list[OperationResponse]:
        """Return all responses: the success first, then other statuses without an error, then the errors."""
        success = OperationResponse(
            self.success.status, self.success.description, self.success.content, self.response_headers
        )
        # Only 206 (Partial Content) sends the same content as the success.
        other_responses = [
            OperationResponse(status, meaning, self.success.content if status == HTTPStatus.PARTIAL_CONTENT else {})
            for status, meaning in self.other_statuses.items()
        ]
        return [success, *other_responses, *self._error_responses()]

    def _error_responses(self) -> list[OperationResponse]:
        """Return one response for each status of an error, in the order of the statuses."""
        reasons_by_status: dict[int, list[Reason]] = {}
        for reason in self.error_reasons:
            if reason.status is not None:  # Reasons that concern a single envelope have no status.
                reasons_by_status.setdefault(reason.status, []).append(reason)
        return [_error_response(status, reasons) for status, reasons in sorted(reasons_by_status.items())]


@dataclass(frozen=True, slots=True)
class Group:
    """The operations that share a tag."""

    name: str
    description: str
    operations: Sequence[Operation]


def _error_response(status: int, reasons: Sequence[Reason]) -> OperationResponse:
    """Return the response for an error status: its reasons, the advice on each, and the schema of the problem."""
    reason_names = tuple(sorted({str(reason) for reason in reasons}))
    # An operation has at most one reason whose problem has its own schema.
    schema_name = next((_PROBLEM_SCHEMAS[reason] for reason in reasons if reason in _PROBLEM_SCHEMAS), "Problem")
    members = {"status": {"const": status}, "reason": {"enum": list(reason_names)}}
    schema = {"allOf": [ref(schema_name), {"properties": members}]}
    # dict.fromkeys removes duplicates: several reasons have the same advice.
    advice = " ".join(dict.fromkeys(problems.advice_on(reason) for reason in reasons))
    return OperationResponse(
        status,
        meaning=advice,
        contents={problems.MEDIA_TYPE: schema},
        headers=_ERROR_HEADERS.get(status, {}),
        reasons=reason_names,
    )
