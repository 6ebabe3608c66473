"""An operation, which is one method of one path, as OpenAPI describes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedsink.auth.keys import KeyKind
from embedsink.http import problems
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.parts import Schema, content, headers_of, ref
from embedsink.reasons import Reason

READERS = (KeyKind.READ, KeyKind.ADMIN)
NOT_MODIFIED = {304: "Nothing was loaded since the stored response."}
WEAK_ETAG = {"ETag": "Weak. Send it in If-None-Match."}
# Problems with extra members.
_PROBLEM_SCHEMAS = {Reason.NOTHING_ACCEPTED: "NothingAccepted", Reason.INVALID_BODY: "InvalidBody"}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "The challenge of RFC 6750, section 3."},
    429: {"Retry-After": "Seconds to wait, with jitter."},
    503: {"Retry-After": "Seconds to wait, with jitter."},
}


@dataclass(frozen=True, slots=True)
class OperationResponse:
    """One status that an operation answers with.

    Args:
        status: the status code.
        meaning: the description; for an error, what the client does next.
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
        described: Schema = {
            "description": f"{', '.join(self.reasons)}. {self.meaning}" if self.reasons else self.meaning
        }
        if self.contents:
            described["content"] = content(self.contents)
        headers = {"X-Request-Id": {"schema": {"type": "string"}}} if self.reasons else {}
        if headers := headers | headers_of(self.headers):
            described["headers"] = headers
        return described


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Args:
        method: the HTTP method, in lower case.
        path: the path template.
        id: the unique `operationId`.
        summary: one line without a full stop.
        success: the status, the description and the content by media type.
        reasons: the possible reasons of an error.
        kinds: the kinds of keys that may use it; empty if it needs no key.
        is_key_optional: whether the key may be elsewhere, such as in the body.
        parameters: the Parameter Objects.
        body: schemas of the request body by media type.
        others: descriptions of other statuses that are not errors.
        headers: descriptions of the headers of the successful response.
    """

    method: str
    path: str
    id: str
    summary: str
    success: tuple[int, str, dict[str, Schema]]
    reasons: Sequence[Reason] = ANY_REQUEST
    kinds: Sequence[KeyKind] = ()
    is_key_optional: bool = False
    parameters: Sequence[Schema] = ()
    body: dict[str, Schema] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def as_openapi(self) -> Schema:
        """Return the Operation Object (OpenAPI 3.1.0, section 4.8.10)."""
        described: Schema = {
            "operationId": self.id,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "security": [{f"{kind}Key": []} for kind in self.kinds] + [{}] * self.is_key_optional,
            "responses": {str(response.status): response.as_openapi() for response in self.responses()},
        }
        if self.body:
            described["requestBody"] = {"required": True, "content": content(self.body)}
        return described

    def responses(self) -> list[OperationResponse]:
        """Return all responses: the success first, then other statuses without an error, then the errors."""
        status, meaning, contents = self.success
        others = [
            OperationResponse(other, text, contents if other == 206 else {}) for other, text in self.others.items()
        ]
        error_statuses = sorted({reason.status for reason in self.reasons if reason.status})
        return [
            OperationResponse(status, meaning, contents, self.headers),
            *others,
            *(_error(one, [reason for reason in self.reasons if reason.status == one]) for one in error_statuses),
        ]


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that share a tag of the description."""

    name: str
    description: str
    operations: Sequence[Operation]


def _error(status: int, reasons: Sequence[Reason]) -> OperationResponse:
    names = tuple(sorted({str(reason) for reason in reasons}))
    of_this_status = {"properties": {"status": {"const": status}, "reason": {"enum": list(names)}}}
    base = next((_PROBLEM_SCHEMAS[reason] for reason in reasons if reason in _PROBLEM_SCHEMAS), "Problem")
    advice = " ".join(dict.fromkeys(problems.advice_on(reason) for reason in reasons))
    contents = {problems.MEDIA_TYPE: {"allOf": [ref(base), of_this_status]}}
    return OperationResponse(status, advice, contents, _HEADERS.get(status, {}), names)
