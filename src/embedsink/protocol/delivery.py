"""A delivery after validation: its context, its accepted envelopes and its rejections."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from embedsink.errors import Refused, redact_keys
from embedsink.protocol.messages import Catalog
from embedsink.protocol.strict_json import encode, has_bad_text
from embedsink.reasons import Reason

REJECTIONS_LISTED_MAX = 20
_ECHOED_ID_CHARACTERS_MAX = 64
_DEPLOYMENT_MISSING = "context.deployment: is missing, and the key covers several deployments. Send the deployment."


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
    """

    index: int | None
    reason: Reason
    detail: str
    raw: bytes
    id: str | None = None

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
    """

    received_at: int
    catalog: Catalog
    context: dict[str, Any] = field(default_factory=dict)
    sent_at: float | None = None
    lost: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    accepted: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)

    @property
    def received_count(self) -> int:
        """The number of envelopes, accepted or rejected."""
        return len(self.accepted) + len(self.rejected)

    @cached_property
    def deployments(self) -> set[int]:
        """The deployments that the context and the `ready` payloads name."""
        deployments = {_ready_deployment(envelope) for envelope in self.accepted}
        deployments.add(self.context.get("deployment"))
        return {deployment for deployment in deployments if deployment is not None}

    def restrict_to(self, allowed: frozenset[int] | None) -> "ParsedDelivery":
        """Return the delivery, restricted to the deployments that the sender's key allows (spec 5.3).

        If the context names no deployment and the key allows only one, the context gets that deployment. If the key
        allows several, the envelopes that name no deployment are rejected.

        Args:
            allowed: the deployments that the key allows; None for all.

        Raises:
            Refused: the delivery names a deployment that the key does not allow (reason `out_of_scope`).
        """
        if allowed is None:
            return self
        self._check_deployments(allowed)
        if self.context.get("deployment") is not None:
            return self
        if len(allowed) == 1:
            [only_deployment] = allowed
            return replace(self, context={**self.context, "deployment": only_deployment})
        return self._reject_without_deployment()

    def _check_deployments(self, allowed: frozenset[int]) -> None:
        """Raise Refused if the context or a `ready` payload names a deployment that is not allowed."""
        forbidden = self.deployments - allowed
        if not forbidden:
            return
        if self.context.get("deployment") in forbidden:
            path, deployment = "context.deployment", self.context["deployment"]
        else:
            path, deployment = "payload.deploymentId", min(forbidden)
        message = f"{path}: {deployment} is outside the key's scope. Use a key for that deployment."
        raise Refused(Reason.OUT_OF_SCOPE, message)

    def with_defaults(self, context: dict[str, Any], sent_at: float | None) -> "ParsedDelivery":
        """Return the delivery, with these values for a missing context and a missing time of sending."""
        return replace(
            self,
            context=self.context if self.context else context,
            sent_at=self.sent_at if self.sent_at is not None else sent_at,
        )

    def _reject_without_deployment(self) -> "ParsedDelivery":
        """Return the delivery after rejecting each envelope that names no deployment.

        Call this only if the context of the delivery names none, because it would apply to all envelopes.
        """
        # Only rejections record their index. The accepted envelopes have the remaining indexes, in order.
        rejected_indexes = {rejection.index for rejection in self.rejected}
        accepted_indexes = [index for index in range(self.received_count) if index not in rejected_indexes]
        accepted = []
        rejected = list(self.rejected)
        for index, envelope in zip(accepted_indexes, self.accepted, strict=True):
            if _ready_deployment(envelope) is None:
                id_ = echoed_id(envelope)
                rejected.append(Rejection(index, Reason.OUT_OF_SCOPE, _DEPLOYMENT_MISSING, encode(envelope), id_))
            else:
                accepted.append(envelope)
        # Restore the order of the body. Only the rejection of a whole body has no index.
        rejected.sort(key=lambda rejection: -1 if rejection.index is None else rejection.index)
        return replace(self, accepted=accepted, rejected=rejected)


def echoed_id(envelope: Any) -> str | None:
    """Return the id of a rejected envelope for the response, even if it is not a UUID. API keys are redacted.

    Return None if the id is not a string, is too long, or contains a NUL or a lone surrogate.
    """
    value = envelope.get("id") if isinstance(envelope, dict) else None
    if not isinstance(value, str) or len(value) > _ECHOED_ID_CHARACTERS_MAX or has_bad_text(value):
        return None
    return redact_keys(value)


def _ready_deployment(envelope: dict[str, Any]) -> int | None:
    """Return the deployment that a valid `ready` event names (spec 6.4); None if it names none, or for other types."""
    if not envelope["type"].endswith(":event:ready"):
        return None
    deployment: int | None = envelope["payload"].get("deploymentId")
    return deployment
