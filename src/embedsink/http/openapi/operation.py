"""One method of one path, and how OpenAPI describes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedsink.auth.keys import KeyKind
from embedsink.http import problems
from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.parts import Schema, content, headers_of, ref
from embedsink.reasons import Reason

# The problems that have members of their own.
_PROBLEMS = {Reason.NOTHING_ACCEPTED: "NothingAccepted", Reason.INVALID_BODY: "InvalidBody"}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "The challenge of RFC 6750, section 3."},
    429: {"Retry-After": "Seconds to wait, jittered."},
    503: {"Retry-After": "Seconds to wait, jittered."},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One status of an operation: what it means, and of a failure its reasons.

    `contents` are schemas by media type, `headers` what each means.
    """

    status: int
    meaning: str
    contents: dict[str, Schema]
    headers: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    def described(self) -> Schema:
        """It as a Response Object (OpenAPI 3.1.0, section 4.8.17)."""
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
            "responses": {str(outcome.status): outcome.described() for outcome in self.outcomes()},
        }
        if self.body:
            described["requestBody"] = {"required": True, "content": content(self.body)}
        return described

    def outcomes(self) -> list[Outcome]:
        """Every status that it may answer with: the success first, then what is no failure, then the failures."""
        status, meaning, contents = self.success
        others = [Outcome(other, said, contents if other == 206 else {}) for other, said in self.others.items()]
        failures = sorted({reason.status for reason in self.reasons if reason.status})
        return [
            Outcome(status, meaning, contents, self.headers),
            *others,
            *(_failure(one, [reason for reason in self.reasons if reason.status == one]) for one in failures),
        ]


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that belong together: a tag of the description."""

    name: str
    description: str
    operations: Sequence[Operation]


def _failure(status: int, reasons: Sequence[Reason]) -> Outcome:
    names = tuple(sorted({str(reason) for reason in reasons}))
    of_this_status = {"properties": {"status": {"const": status}, "reason": {"enum": list(names)}}}
    base = next((_PROBLEMS[reason] for reason in reasons if reason in _PROBLEMS), "Problem")
    advice = " ".join(dict.fromkeys(problems.advice_on(reason) for reason in reasons))
    contents = {problems.MEDIA_TYPE: {"allOf": [ref(base), of_this_status]}}
    return Outcome(status, advice, contents, _HEADERS.get(status, {}), names)
