"""A delivery after validation: its context, its accepted envelopes and its rejections."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from embedsink.errors import Refused, preview, redact_keys
from embedsink.key_scope import KeyScope
from embedsink.protocol.messages import Catalog
from embedsink.protocol.strict_json import encode, has_bad_text
from embedsink.reasons import Reason

REJECTIONS_LISTED_MAX = 20
_ECHOED_ID_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of validation: the vendor's service name, and limits. The defaults are those of the settings."""

    service_name: str = "svc"
    events_max: int = 1_000
    envelope_bytes_max: int = 65_536
    # The journal repeats the context for each of up to `events_max` envelopes, so it has to be small.
    context_bytes_max: int = 8_192
    depth_max: int = 32


DEFAULT_RULES = Rules()


class Problem(NamedTuple):
    """A problem that makes an envelope or a field invalid. `detail` names the path and the value."""

    reason: Reason
    detail: str


class _ScopeMember(NamedTuple):
    """A member of the context that a key's scope limits. A `ready` event may name it too, as `ready_name`."""

    name: str
    ready_name: str

    @property
    def missing(self) -> str:
        """The detail of a rejection for a missing value."""
        return f"context.{self.name}: is missing, and the key covers several {self.name}s. Send the {self.name}."


_DEPLOYMENT = _ScopeMember("deployment", "deploymentId")
_TENANT = _ScopeMember("tenant", "embedTenant")


@dataclass(slots=True)
class Rejection:
    """A rejected envelope or body.

    Args:
        index: the index of the envelope in the body; None for a whole body.
        reason: the reason.
        detail: the explanation for the client.
        raw: the bytes to store: a body or NDJSON line as sent, or an envelope encoded again. If a field of the
            delivery is invalid, a delivery of this envelope alone.
        id: the id of the envelope, if it is short text.
        omitted_bytes: the size of the input if privacy rules omit a part of it, so that it can't be replayed; else 0.
    """

    index: int | None
    reason: Reason
    detail: str
    raw: bytes
    id: str | None = None
    omitted_bytes: int = 0

    def without_content(self, detail: str) -> "Rejection":
        """Return the rejection without its input, of which only the size remains. `detail` replaces the explanation."""
        return replace(self, detail=detail, raw=b"", omitted_bytes=self.omitted_bytes or len(self.raw))

    def response_entry(self) -> dict[str, Any]:
        """Return the entry for the `rejected` list of the response (docs/wire.md)."""
        return {"index": self.index, "id": self.id, "reason": self.reason, "detail": self.detail}


# It is not frozen, because that would cost 5 µs a request. Only the parser changes an instance.
@dataclass
class ParsedDelivery:
    """A request body after validation.

    Args:
        received_at: the time of the server's clock, in epoch milliseconds.
        catalog: the message types of the vendor.
        context: the validated context. If the context is invalid, only its deployment, if that is valid.
        sent_at: the time of the client's clock, in epoch milliseconds.
        lost: the number of lost events by reason, without zeros.
        key: the API key in the body.
        accepted: the valid envelopes, unchanged and in the order of the body.
        rejected: the rejections, in the order of the body.
        is_opted_out: whether the viewer has opted out, by the field `optedOut`.
        is_internal: whether the delivery is of internal people.
    """

    received_at: int
    catalog: Catalog
    context: dict[str, Any] = field(default_factory=dict)
    sent_at: float | None = None
    lost: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    accepted: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    is_opted_out: bool = False
    is_internal: bool = False

    @property
    def received_count(self) -> int:
        """The number of envelopes, accepted or rejected."""
        return len(self.accepted) + len(self.rejected)

    def restrict_to(self, scope: KeyScope) -> "ParsedDelivery":
        """Return the delivery, restricted to the scope of the sender's key (spec 5.3).

        If the context names no deployment and the key allows only one, the context gets that deployment. If the key
        allows several, the envelopes that name no deployment are rejected. The same applies to tenants.

        Raises:
            Refused: the delivery names a deployment or a tenant that the key does not allow (reason `out_of_scope`).
        """
        restricted = self
        if scope.deployments is not None:
            restricted = restricted._restrict(_DEPLOYMENT, scope.deployments)
        if scope.tenants is not None:
            restricted = restricted._restrict(_TENANT, scope.tenants)
        return restricted

    def _restrict(self, member: "_ScopeMember", allowed: frozenset[Any]) -> "ParsedDelivery":
        """Return the delivery, restricted to these deployments or tenants.

        Raises:
            Refused: the context or a `ready` payload names another one.
        """
        named = self.context.get(member.name)
        if named is not None and named not in allowed:
            raise _scope_error(f"context.{member.name}", member, named)
        for envelope in self.accepted:
            ready_value = _ready_value(envelope, member)
            if ready_value is not None and ready_value not in allowed:
                raise _scope_error(f"payload.{member.ready_name}", member, ready_value)
        if named is not None:
            return self
        if len(allowed) == 1:
            [only_value] = allowed
            return replace(self, context={**self.context, member.name: only_value})
        return self._reject_without(member)

    def with_defaults(self, context: dict[str, Any], sent_at: float | None) -> "ParsedDelivery":
        """Return the delivery, with these values for a missing context and a missing time of sending."""
        return replace(
            self,
            context=self.context if self.context else context,
            sent_at=self.sent_at if self.sent_at is not None else sent_at,
        )

    def reject_all(self, reason: Reason, detail: str) -> "ParsedDelivery":
        """Return the delivery with all envelopes rejected, without content. Only the deployment and tenant remain."""
        accepted = [
            Rejection(index, reason, detail, encode(envelope), echoed_id(envelope)).without_content(detail)
            for index, envelope in self._indexed_accepted()
        ]
        rejected = [replace(rejection, reason=reason).without_content(detail) for rejection in self.rejected]
        context = {name: value for name, value in self.context.items() if name in (_DEPLOYMENT.name, _TENANT.name)}
        return replace(self, context=context, accepted=[], rejected=_in_order([*accepted, *rejected]))

    def _reject_without(self, member: "_ScopeMember") -> "ParsedDelivery":
        """Return the delivery after rejecting each envelope that names no deployment, or no tenant.

        Call this only if the context of the delivery names none, because it would apply to all envelopes.
        """
        accepted = []
        rejected = list(self.rejected)
        for index, envelope in self._indexed_accepted():
            if _ready_value(envelope, member) is None:
                id_ = echoed_id(envelope)
                rejected.append(Rejection(index, Reason.OUT_OF_SCOPE, member.missing, encode(envelope), id_))
            else:
                accepted.append(envelope)
        return replace(self, accepted=accepted, rejected=_in_order(rejected))

    def _indexed_accepted(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the accepted envelopes with their indexes in the body."""
        # Only rejections record their index. The accepted envelopes have the remaining indexes, in order.
        rejected_indexes = {rejection.index for rejection in self.rejected}
        indexes = (index for index in range(self.received_count) if index not in rejected_indexes)
        return zip(indexes, self.accepted, strict=True)


def _in_order(rejections: list[Rejection]) -> list[Rejection]:
    """Return rejections in the order of the body. Only the rejection of a whole body has no index."""
    return sorted(rejections, key=lambda rejection: -1 if rejection.index is None else rejection.index)


def echoed_id(envelope: Any) -> str | None:
    """Return the id of a rejected envelope for the response, even if it is not a UUID. API keys are redacted.

    Return None if the id is not a string, is too long, or contains a NUL or a lone surrogate.
    """
    value = envelope.get("id") if isinstance(envelope, dict) else None
    if not isinstance(value, str) or len(value) > _ECHOED_ID_CHARACTERS_MAX or has_bad_text(value):
        return None
    return redact_keys(value)


def _ready_value(envelope: dict[str, Any], member: "_ScopeMember") -> Any:
    """Return the value that a valid `ready` event names (spec 6.4); None if it names none, or for other types."""
    if not envelope["type"].endswith(":event:ready"):
        return None
    return envelope["payload"].get(member.ready_name)


def _scope_error(path: str, member: "_ScopeMember", value: Any) -> Refused:
    message = f"{path}: {preview(value)} is outside the key's scope. Use a key for that {member.name}."
    return Refused(Reason.OUT_OF_SCOPE, message)
