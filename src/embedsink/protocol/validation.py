"""From a request body to what was accepted and what was not. Pure: no clock, disk, network or environment."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import Refused, preview, redact_keys
from embedsink.protocol.error_messages import place, sentence
from embedsink.protocol.messages import (
    CONTEXT_FIELDS,
    DELIVERY_FIELDS,
    EVERYWHERE,
    LOST_REASONS_MAX,
    Catalog,
    catalog_for,
    delivery_validator,
)
from embedsink.protocol.strict_json import (
    Document,
    check_depth,
    decode,
    decode_plain,
    encode,
    has_bad_text,
    may_hold_bad_text,
    shallow,
)
from embedsink.reasons import Reason

REJECTIONS_LISTED_MAX = 20
_ECHOED_ID_CHARACTERS_MAX = 64
_BESIDE_BYTES_MAX = 4 * 1_048_576
_OF_READY = "payload.deploymentId"
_BAD_TEXT = "a string holds a NUL or a lone surrogate. Remove it."

Wrong = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class Rules:
    """What `parse` holds a body against. The defaults are those of the settings."""

    service_name: str = "svc"
    events_max: int = 1_000
    envelope_bytes_max: int = 65_536
    # The context is written beside each of up to `events_max` envelopes, so it has to be small.
    context_bytes_max: int = 8_192
    depth_max: int = 32


@dataclass(slots=True)
class Rejection:
    """One input that was not accepted: where it stood, why, and what it was. `index` is None for a whole body."""

    index: int | None
    reason: Reason
    detail: str
    raw: bytes
    id: str | None = None

    def listed(self) -> dict[str, Any]:
        """The entry in the answer's `rejected` list (docs/wire.md)."""
        return {"index": self.index, "id": self.id, "reason": self.reason, "detail": self.detail}


@dataclass
class Parsed:
    """A delivery after validation. `received_at` and `sent_at` are epoch milliseconds by server and client clock.

    `accepted` are the valid envelopes as they were sent, in the order of the body.
    Only `parse` fills it in; on the hot path a frozen one would cost 5 µs a request.
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
        """How many envelopes came in, whatever their outcome."""
        return len(self.accepted) + len(self.rejected)

    @cached_property
    def deployments(self) -> set[int]:
        """Every deployment that the delivery names, in its context or in a `ready` payload."""
        named = {_deployment_of(envelope) for envelope in self.accepted}
        return {number for number in named | {self.context.get("deployment")} if number is not None}

    def within_scope(self, deployments: frozenset[int] | None) -> "Parsed":
        """The delivery as far as a key for these deployments reaches (spec 5.3, design section 6); None is all of them.

        Raises:
            Refused: `out_of_scope` when it names another one.
        """
        if deployments is None:
            return self
        outside = self.deployments - deployments
        if outside:
            of_context = self.context.get("deployment")
            place, number = ("deployment", of_context) if of_context in outside else (_OF_READY, min(outside))
            raise Refused(Reason.OUT_OF_SCOPE, f"{place}: {number} is outside the key's scope. Use its own key.")
        return self._in_deployment(min(deployments)) if len(deployments) == 1 else self._reject_undeployed()

    def _in_deployment(self, deployment: int) -> "Parsed":
        """The same delivery, told its deployment where its context names none."""
        if self.context.get("deployment") is not None:
            return self
        return replace(self, context={**self.context, "deployment": deployment})

    def within(self, context: dict[str, Any], sent_at: float | None) -> "Parsed":
        """The same envelopes in the context that they were once delivered in, where they bring none of their own."""
        return replace(self, context=self.context or context, sent_at=sent_at if self.sent_at is None else self.sent_at)

    def _reject_undeployed(self) -> "Parsed":
        """The same delivery, its envelopes that name no deployment rejected as `out_of_scope`."""
        if self.context.get("deployment") is not None:
            return self
        rejected_at = {rejection.index for rejection in self.rejected}
        accepted_at = [index for index in range(self.received_count) if index not in rejected_at]
        detail = "context.deployment: is missing, and the key is scoped to several. Name the deployment."
        rejected = [
            Rejection(index, Reason.OUT_OF_SCOPE, detail, encode(envelope), _echoed_id(envelope))
            for index, envelope in zip(accepted_at, self.accepted, strict=True)
            if _deployment_of(envelope) is None
        ]
        return replace(
            self,
            accepted=[envelope for envelope in self.accepted if _deployment_of(envelope) is not None],
            rejected=sorted(self.rejected + rejected, key=lambda rejection: rejection.index or 0),
        )


def parse(body: bytes, received_at: int, rules: Rules = Rules(), *, ndjson: bool = False) -> Parsed:
    """Validate a request body: one envelope, an array, NDJSON or a delivery (docs/wire.md).

    Args:
        body: the bytes, decompressed.
        received_at: the server's clock, epoch milliseconds.
        rules: the vendor's service name and the limits.
        ndjson: whether each line is an envelope of its own.

    Returns:
        what was accepted and what was rejected; together as many as came in.

    Raises:
        Refused: the body as a whole is not acceptable (`not_json`, `too_many_events`, `empty`, …).
    """
    if not body.strip():
        raise Refused(Reason.EMPTY, "body: is empty. Send at least one envelope.")
    if ndjson:
        return _parse_lines(body, received_at, rules)
    plain = parse_plain(body, received_at, rules)
    if plain is not None:
        return plain
    document, parsed = decode(body, depth_max=rules.depth_max), Parsed(received_at, catalog_for(rules.service_name))
    value = document.value
    if _is_delivery(value):
        return _parse_delivery(document, parsed, rules)
    envelopes = value if isinstance(value, list) else [] if value is None else [value]
    return _validate_all(envelopes, document, parsed, rules)


def parse_plain(body: bytes, received_at: int, rules: Rules = Rules()) -> Parsed | None:
    """Validate a body of valid envelopes by the fast path alone; None for every body that needs a closer look.

    It looks at no value one by one, so a body of 32 KiB takes less than a millisecond, whatever is in it.
    """
    document = decode_plain(body)
    if document is None or may_hold_bad_text(body):
        return None
    parsed, value = Parsed(received_at, catalog_for(rules.service_name)), document.value
    if _is_delivery(value):
        narrowed = _narrowed(value, DELIVERY_FIELDS)
        if not _is_sound(narrowed, rules):
            return None
        _set_parts(parsed, narrowed)
        envelopes = value["events"]
        if not envelopes and parsed.lost:
            return parsed
    else:
        envelopes = value if isinstance(value, list) else [value]
    if not 0 < len(envelopes) <= rules.events_max or not _is_plain(envelopes, document, parsed.catalog, rules):
        return None
    parsed.accepted = envelopes
    return parsed


def _is_delivery(value: Any) -> bool:
    # An envelope names its source, a delivery never does: so an envelope may grow a field named `events`.
    return isinstance(value, dict) and "events" in value and "source" not in value


def _parse_delivery(document: Document, parsed: Parsed, rules: Rules) -> Parsed:
    """The delivery's own fields first: where one is wrong, so is every event. The others are kept as they are."""
    value: dict[str, Any] = document.value
    narrowed = _narrowed(value, DELIVERY_FIELDS)
    wrong = _wrong_parts(narrowed, document.body, rules)
    sound = _other_parts(narrowed, wrong)
    _set_parts(parsed, sound)
    parsed.context = parsed.context or _told_deployment(value.get("context"))
    if wrong:
        check_depth(value, depth_max=rules.depth_max)
        return _reject_all(value, parsed, wrong, rules)
    if not value["events"] and parsed.lost:
        return parsed
    return _validate_all(value["events"], document, parsed, rules)


def _set_parts(parsed: Parsed, sound: dict[str, Any]) -> None:
    """Fill in what a delivery says beside its events."""
    parsed.context = sound.get("context") or {}
    parsed.sent_at = sound.get("sentAt")
    parsed.lost = {reason: count for reason, count in (sound.get("lost") or {}).items() if count}
    parsed.key = sound.get("key")


def _wrong_parts(value: dict[str, Any], body: bytes, rules: Rules) -> dict[str, Wrong]:
    """What is wrong with each part of a delivery, its events aside: they are judged one by one."""
    wrong: dict[str, Wrong] = {}
    if may_hold_bad_text(body):
        check_depth(value, depth_max=rules.depth_max)
        bad = [name for name, part in value.items() if name != "events" and has_bad_text({name: part})]
        wrong = {name: (Reason.BAD_TEXT, f"{place((name,))}: {_BAD_TEXT}") for name in bad}
    try:
        delivery_validator.validate_python(_bounded(_other_parts(value, wrong)))
    except ValidationError as error:
        for one in error.errors(include_url=False):
            detail = f"{place(one['loc'])}: {sentence(one)}"
            wrong.setdefault(str(one["loc"][0]), (Reason.BAD_FIELD, detail))
    context_bytes = len(encode(_other_parts(value, wrong).get("context")))
    if context_bytes > rules.context_bytes_max:
        limit = f"{rules.context_bytes_max:,} (EMBEDSINK_CONTEXT_BYTES_MAX)"
        detail = f"context: {context_bytes:,} bytes; the limit is {limit}. Shorten its strings."
        wrong["context"] = Reason.TOO_LARGE, detail
    return wrong


def _is_sound(value: dict[str, Any], rules: Rules) -> bool:
    """Whether nothing is wrong with the parts of a delivery whose texts are good, its events aside."""
    try:
        delivery_validator.validate_python(_bounded(value))
    except ValidationError:
        return False
    return len(encode(value.get("context"))) <= rules.context_bytes_max


def _told_deployment(context: Any) -> dict[str, Any]:
    """What a wrong context says soundly of where it belongs: who may see it, and whether its key may say so."""
    deployment = context.get("deployment") if isinstance(context, dict) else None
    return {"deployment": deployment} if type(deployment) is int and abs(deployment) < 2**53 else {}


def _bounded(parts: dict[str, Any]) -> dict[str, Any]:
    """The parts of a delivery without more members than it takes to see that there are too many."""
    context, lost = parts.get("context"), parts.get("lost")
    if isinstance(context, dict):
        parts = parts | {"context": _narrowed(context, CONTEXT_FIELDS)}
    if isinstance(lost, dict):
        parts = parts | {"lost": dict(islice(lost.items(), LOST_REASONS_MAX + 1))}
    return parts


def _narrowed(members: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The known members, and of the others the first: each would cost a sentence, and a body has room for 100,000."""
    other = next((name for name in members if name not in known), None)
    return {name: part for name, part in members.items() if name in known or name == other}


def _other_parts(value: dict[str, Any], wrong: dict[str, Wrong]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name not in wrong}


def _validate_all(envelopes: list[Any], document: Document, parsed: Parsed, rules: Rules) -> Parsed:
    """Look at the envelopes one by one."""
    _check_count(len(envelopes), rules)
    check_depth(document.value, depth_max=rules.depth_max)
    for index, envelope in enumerate(envelopes):
        _validate(index, envelope, parsed, rules)
    return parsed


def _is_plain(envelopes: list[Any], document: Document, catalog: Catalog, rules: Rules) -> bool:
    """Whether all envelopes are valid, and the bytes rule out too much depth."""
    try:
        catalog.many.validate_python(envelopes)
    except ValidationError:
        return False
    # A valid envelope and its payload are two objects; the delivery, its context and its array three more.
    if not shallow(document.body, explained=2 * len(envelopes), depth_max=rules.depth_max - 2):
        return False
    bytes_max = rules.envelope_bytes_max
    return document.compact_bytes <= bytes_max or all(len(encode(envelope)) <= bytes_max for envelope in envelopes)


def _validate(index: int, envelope: Any, parsed: Parsed, rules: Rules) -> None:
    """Add an envelope to those that are accepted, or its rejection to those."""
    encoded = encode(envelope)
    wrong = _what_is_wrong(envelope, len(encoded), parsed.catalog, rules)
    if wrong is None:
        parsed.accepted.append(envelope)
    else:
        parsed.rejected.append(Rejection(index, *wrong, encoded, _echoed_id(envelope)))


def _what_is_wrong(envelope: Any, encoded_bytes: int, catalog: Catalog, rules: Rules) -> Wrong | None:
    """The first thing wrong with an envelope, from the outside in; None when it is valid."""
    if not isinstance(envelope, dict):
        return Reason.NOT_AN_OBJECT, f"envelope: {preview(envelope)} is not an object. Send what `event.data` holds."
    if encoded_bytes > rules.envelope_bytes_max:
        limit = f"{rules.envelope_bytes_max:,} (EMBEDSINK_ENVELOPE_BYTES_MAX)"
        return Reason.TOO_LARGE, f"envelope: {encoded_bytes:,} bytes; the limit is {limit}. Shorten its strings."
    if has_bad_text(envelope):
        return Reason.BAD_TEXT, f"envelope: {_BAD_TEXT}"
    if envelope.get("source") != catalog.source:
        seen = preview(envelope.get("source"))
        return Reason.WRONG_SOURCE, f'source: {seen} is not "{catalog.source}" (EMBEDSINK_SERVICE_NAME).'
    direction = envelope.get("direction")
    if direction not in ("event", "action"):
        return Reason.WRONG_DIRECTION, f"direction: {preview(direction)} is not one of event, action."
    name = envelope.get("type")
    kind = catalog.kinds.get(name) if isinstance(name, str) else None
    if kind is None or kind.direction != direction:
        return Reason.UNKNOWN_TYPE, f"type: {preview(name)} is not an {direction} of the catalog."
    return _first_wrong_field(envelope, str(name), catalog)


def _first_wrong_field(envelope: dict[str, Any], name: str, catalog: Catalog) -> Wrong | None:
    surface, kind = envelope.get("surface"), catalog.kinds[name]
    if kind.surfaces and isinstance(surface, str) and surface in EVERYWHERE and surface not in kind.surfaces:
        allowed = ", ".join(sorted(kind.surfaces))
        return Reason.WRONG_SURFACE, f"surface: {name} never happens on {preview(surface)}, only on {allowed}."
    if not kind.surfaces and surface is not None:
        return Reason.WRONG_SURFACE, f"surface: {preview(surface)} stands on an action; actions have none."
    try:
        catalog.one[name].validate_python(envelope)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = Reason.BAD_TIMESTAMP if first["loc"] == ("timestamp",) else Reason.BAD_FIELD
        return reason, f"{place(first['loc'])}: {sentence(first)}"
    return None


def _reject_all(value: dict[str, Any], parsed: Parsed, wrong: dict[str, Wrong], rules: Rules) -> Parsed:
    """Each envelope is kept as a delivery of its own: what is wrong beside it, and sound, belongs to it."""
    first_wrong = next(iter(wrong.values()))
    envelopes = value["events"] if isinstance(value["events"], list) else [value["events"]]
    if not envelopes:
        raise Refused(Reason.EMPTY, f"body: holds no envelope, and {first_wrong[1]}")
    _check_count(len(envelopes), rules)
    elsewhere = {"events", "key"} | ({"lost"} if "lost" not in wrong else set())
    beside = encode({name: part for name, part in value.items() if name not in elsewhere})[1:-1]
    # Of much of it there is one whole copy: a thousand times a megabyte would be a way to fill the disk.
    is_long = len(beside) * len(envelopes) > _BESIDE_BYTES_MAX
    short = encode({"context": beside[: rules.context_bytes_max].decode(errors="replace")})[1:-1] if is_long else beside
    rejected = [
        Rejection(index, *first_wrong, _delivery_of(envelope, short if index else beside), _echoed_id(envelope))
        for index, envelope in enumerate(envelopes)
    ]
    return replace(parsed, rejected=rejected)


def _delivery_of(envelope: Any, beside: bytes) -> bytes:
    return b'{%b%b"events":[%b]}' % (beside, b"," if beside else b"", encode(envelope))


def _parse_lines(body: bytes, received_at: int, rules: Rules) -> Parsed:
    lines = [line for line in body.split(b"\n") if line.strip()]
    _check_count(len(lines), rules)
    parsed, refusals = Parsed(received_at, catalog_for(rules.service_name)), []
    for index, line in enumerate(lines):
        try:
            _validate(index, _read_line(line, rules), parsed, rules)
        except Refused as refusal:
            refusals.append(refusal)
            parsed.rejected.append(Rejection(index, refusal.reason, str(refusal), line))
    if len(refusals) == len(lines):
        raise refusals[0]
    return parsed


def _read_line(line: bytes, rules: Rules) -> Any:
    envelope = decode(line, depth_max=rules.depth_max).value
    if not shallow(line, explained=0, depth_max=rules.depth_max):
        check_depth(envelope, depth_max=rules.depth_max)
    return envelope


def _check_count(count: int, rules: Rules) -> None:
    if count == 0:
        raise Refused(Reason.EMPTY, "body: holds no envelope. Send at least one.")
    if count > rules.events_max:
        raise Refused(
            Reason.TOO_MANY_EVENTS,
            f"events: {count:,}; the limit is {rules.events_max:,} (EMBEDSINK_EVENTS_MAX). Split and resend.",
        )


def _deployment_of(envelope: dict[str, Any]) -> int | None:
    """The deployment that a `ready` payload names (spec 6.4)."""
    number = envelope["payload"].get("deploymentId") if envelope["type"].endswith(":event:ready") else None
    return number if isinstance(number, int) else None


def _echoed_id(envelope: Any) -> str | None:
    """The id to find a rejected envelope by; a wrong one is echoed only where it is short text."""
    value = envelope.get("id") if isinstance(envelope, dict) else None
    if not isinstance(value, str) or len(value) > _ECHOED_ID_CHARACTERS_MAX or has_bad_text(value):
        return None
    return redact_keys(value)
