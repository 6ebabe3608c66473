"""One method of one path, and how OpenAPI describes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedsink.http import problems
from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.parts import Schema, content, headers_of, ref
from embedsink.keys import KeyKind
from embedsink.reasons import Reason

# The problems that have members of their own.
_PROBLEMS = {Reason.NOTHING_ACCEPTED: "NothingAccepted", Reason.INVALID_BODY: "InvalidBody"}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "The challenge of RFC 6750, section 3."},
    429: {"Retry-After": "Seconds to wait, jittered."},
    503: {"Retry-After": "Seconds to wait, jittered."},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `success` is its status with its content by media type; `reasons` why it may fail.

    `others` are further answers that are no failures, `headers` those of the success.
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

    def described(self) -> Schema:
        """It as an Operation Object (OpenAPI 3.1.0, section 4.8.10)."""
        described: Schema = {
            "operationId": self.id,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "security": [{f"{kind}Key": []} for kind in self.kinds] + [{}] * self.is_key_optional,
            "responses": self._successes() | self._failures(),
        }
        if self.body:
            described["requestBody"] = {"required": True, "content": content(self.body)}
        return described

    def _successes(self) -> Schema:
        status, meaning, schemas = self.success
        first: Schema = {"description": meaning}
        if schemas:
            first["content"] = content(schemas)
        if self.headers:
            first["headers"] = headers_of(self.headers)
        responses = {str(status): first}
        for other, meaning in self.others.items():
            part = {"content": content(schemas)} if other == 206 else {}
            responses[str(other)] = {"description": meaning} | part
        return responses

    def _failures(self) -> Schema:
        statuses = sorted({reason.status for reason in self.reasons if reason.status})
        return {
            str(status): _problem_response(status, [reason for reason in self.reasons if reason.status == status])
            for status in statuses
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that belong together: a tag of the description."""

    name: str
    description: str
    operations: Sequence[Operation]


def _problem_response(status: int, reasons: Sequence[Reason]) -> Schema:
    names = sorted(str(reason) for reason in reasons)
    of_this_status = {"properties": {"status": {"const": status}, "reason": {"enum": names}}}
    base = next((_PROBLEMS[reason] for reason in reasons if reason in _PROBLEMS), "Problem")
    advice = " ".join(dict.fromkeys(problems.advice_on(reason) for reason in reasons))
    return {
        "description": f"{', '.join(names)}. {advice}",
        "headers": {"X-Request-Id": {"schema": {"type": "string"}}} | headers_of(_HEADERS.get(status, {})),
        "content": {problems.MEDIA_TYPE: {"schema": {"allOf": [ref(base), of_this_status]}}},
    }
