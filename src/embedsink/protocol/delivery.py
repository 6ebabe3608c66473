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
_NO_DEPLOYMENT = "context.deployment: is missing, and the key covers several deployments. Send the deployment."


@dataclass(frozen=True, slots=True)
class Rules:
    """The service name of the vendor and the limits. The defaults are those of the settings."""

    service_name: str = "svc"
    events_max: int = 1_000
    envelope_bytes_max: int = 65_536
    # The journal repeats the context for each of up to `events_max` envelopes, so it has to be small.
    context_bytes_max: int = 8_192
    depth_max: int = 32


DEFAULT_RULES = Rules()


class Problem(NamedTuple):
    """Why an envelope or a field is invalid. `detail` names the path and the value."""

    reason: Reason
    detail: str


@dataclass(slots=True)
class Rejection:
    """A rejected envelope or body.

    Args:
        index: the index of the envelope in the body; None for a whole body.
        reason: the reason.
        detail: the explanation for the client.
        raw: the rejected bytes.
        id: the id of the envelope, if it is short text.
    """

    index: int | None
    reason: Reason
    detail: str
    raw: bytes
    id: str | None = None

    def listed(self) -> dict[str, Any]:
        """Return the entry for the `rejected` list of the answer (docs/wire.md)."""
        return {"index": self.index, "id": self.id, "reason": self.reason, "detail": self.detail}


# Not frozen: on the hot path, a frozen dataclass would cost 5 µs a request. Only `parse` changes it.
@dataclass
class ParsedDelivery:
    """A request body after validation.

    Args:
        received_at: the time of the server's clock, in epoch milliseconds.
        catalog: the message types of the vendor.
        context: the validated context; of an invalid context, only a valid deployment.
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
        """Every deployment in the context or in a `ready` payload."""
        numbers = {_ready_deployment(envelope) for envelope in self.accepted}
        return {number for number in numbers | {self.context.get("deployment")} if number is not None}

    def restrict_to(self, deployments: frozenset[int] | None) -> "ParsedDelivery":
        """Return the delivery restricted to the deployments of its key (spec 5.3); None allows all.

        If the key has one deployment, it becomes the deployment of the context. If the key has several, envelopes
        without a deployment are rejected.

        Raises:
            Refused: `out_of_scope` when the delivery names another deployment.
        """
        if deployments is None:
            return self
        outside = self.deployments - deployments
        if outside:
            number = self.context.get("deployment")
            if number in outside:
                path = "context.deployment"
            else:
                path, number = "payload.deploymentId", min(outside)
            raise Refused(
                Reason.OUT_OF_SCOPE, f"{path}: {number} is outside the key's scope. Use a key for that deployment."
            )
        if self.context.get("deployment") is not None:
            return self
        if len(deployments) == 1:
            return replace(self, context={**self.context, "deployment": min(deployments)})
        return self._reject_without_deployment()

    def with_default_context(self, context: dict[str, Any], sent_at: float | None) -> "ParsedDelivery":
        """Return the delivery with this context and time as defaults."""
        return replace(self, context=self.context or context, sent_at=sent_at if self.sent_at is None else self.sent_at)

    def _reject_without_deployment(self) -> "ParsedDelivery":
        rejected_indexes = {rejection.index for rejection in self.rejected}
        accepted_indexes = [index for index in range(self.received_count) if index not in rejected_indexes]
        rejected = [
            Rejection(index, Reason.OUT_OF_SCOPE, _NO_DEPLOYMENT, encode(envelope), echoed_id(envelope))
            for index, envelope in zip(accepted_indexes, self.accepted, strict=True)
            if _ready_deployment(envelope) is None
        ]
        return replace(
            self,
            accepted=[envelope for envelope in self.accepted if _ready_deployment(envelope) is not None],
            rejected=sorted(self.rejected + rejected, key=lambda rejection: rejection.index or 0),
        )


def echoed_id(envelope: Any) -> str | None:
    """Return the id of a rejected envelope, for the answer. An invalid id is included if it is short text."""
    value = envelope.get("id") if isinstance(envelope, dict) else None
    if not isinstance(value, str) or len(value) > _ECHOED_ID_CHARACTERS_MAX or has_bad_text(value):
        return None
    return redact_keys(value)


def _ready_deployment(envelope: dict[str, Any]) -> int | None:
    """Return the deployment in the payload of a `ready` event (spec 6.4); None for other types."""
    number = envelope["payload"].get("deploymentId") if envelope["type"].endswith(":event:ready") else None
    return number if isinstance(number, int) else None
