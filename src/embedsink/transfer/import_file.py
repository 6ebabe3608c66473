"""A file of envelopes as deliveries: neighbours with the same context and clock travel together.

An envelope without an id gets one that depends on its line alone, and so does a rejection: importing a file again
counts nothing twice. (Through a server a rejection has the server's id: it is kept each time that it is sent.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from embedsink.engine import now_ms
from embedsink.errors import Refused, preview
from embedsink.protocol.delivery import Rules
from embedsink.protocol.strict_json import decode, encode

# Half of what a server takes by default, in events and in bytes.
EVENTS_MAX = 500
DELIVERY_BYTES_MAX = 524_288
SKEW_MS = 60_000
# What an import or an export may have added to an envelope: its id, and to a ready event the tenant of its context.
ADDED_BYTES_MAX = 8_192
# And around it: the object of the delivery and the array of its events.
ADDED_LEVELS = 2

_IDS = UUID("6f2f4b1e-3a53-4c39-9a0e-4a5e1d0f7c11")
_YEAR_1_MS = -62_135_596_800_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is sent at once.

    Args:
        lines: for each event the number of its line, from 1.
        names: for each what it is called by its place and the content of its line: the same whenever it is read.
        events: the envelopes.
        around: the other members of the body.
        received_at: when they first arrived, epoch milliseconds; None for now.
        skew_ms: how wrong the client's clock was, where that counts and the arrival can't be told.
        raw: the body, where it could not be read.
        wrong: why it stays in the file, where that is plain from the file alone.
    """

    lines: list[int]
    names: list[str]
    events: list[Any]
    around: dict[str, Any] = field(default_factory=dict)
    received_at: int | None = None
    skew_ms: float | None = None
    raw: bytes | None = None
    wrong: str | None = None

    @property
    def body(self) -> bytes:
        """The request body (docs/wire.md)."""
        if self.raw is not None:
            return self.raw
        clock = {} if self.skew_ms is None else {"sentAt": now_ms() - self.skew_ms}
        return encode(self.around | clock | {"events": self.events})

    def halves(self) -> tuple["Delivery", "Delivery"]:
        """The same in two deliveries. What was lost is told once."""
        middle = len(self.events) // 2
        first = replace(self, lines=self.lines[:middle], names=self.names[:middle], events=self.events[:middle])
        without_loss = {name: part for name, part in self.around.items() if name != "lost"}
        rest = replace(
            self,
            lines=self.lines[middle:],
            names=self.names[middle:],
            events=self.events[middle:],
            around=without_loss,
        )
        return first, rest

    def rejection_id(self, index: int | None) -> UUID:
        """The id of a rejection in quarantine, so that importing the file again keeps it once."""
        return uuid5(_IDS, f"rejected:{self.names[index or 0]}")

    def reason(self, index: int | None, reason: str, detail: str) -> str:
        """A rejection as a sentence that names the line of the file."""
        line = self.lines[index if index is not None and index < len(self.lines) else 0]
        return f"line {line:,}: {reason}: {detail}"


def read_deliveries(lines: Iterable[tuple[int, bytes]], rules: Rules, *, is_remote: bool) -> Iterator[Delivery]:
    """What the lines hold, neighbours with the same context and clock in one delivery.

    Args:
        lines: numbered; each an envelope, an array of them or a delivery.
        rules: the limits of depth and number.
        is_remote: whether the receiver has a clock of its own.
    """
    waiting: Delivery | None = None
    waiting_bytes = 0
    for number, line in lines:
        read = _read_line(number, line, with_room(rules))
        delivery = _by_the_clock_there(read) if is_remote else read
        if waiting and _belong_together(waiting, delivery, rules) and waiting_bytes + len(line) <= DELIVERY_BYTES_MAX:
            waiting.lines.extend(delivery.lines)
            waiting.names.extend(delivery.names)
            waiting.events.extend(delivery.events)
            waiting_bytes += len(line)
            continue
        if waiting:
            yield waiting
        waiting, waiting_bytes = delivery, len(line)
    if waiting:
        yield waiting


def with_room(rules: Rules) -> Rules:
    """What was accepted once is accepted again."""
    return replace(
        rules,
        envelope_bytes_max=rules.envelope_bytes_max + ADDED_BYTES_MAX,
        depth_max=rules.depth_max + ADDED_LEVELS,
    )


def _read_line(number: int, line: bytes, rules: Rules) -> Delivery:
    digest = sha256(line).hexdigest()
    try:
        value = decode(line, depth_max=rules.depth_max).value
    except Refused:
        # Whoever stores it says why, and quarantines it.
        return Delivery([number], [f"{number}:0:{digest}"], [None], raw=line)
    around: dict[str, Any] = {}
    received_at, wrong = None, None
    if isinstance(value, dict) and "events" in value and "source" not in value:
        around, value = {name: part for name, part in value.items() if name != "events"}, value["events"]
        received_at = _take_clock(around)
        if "receivedAt" in around:
            seen = preview(around["receivedAt"])
            wrong = f"receivedAt: {seen} is no moment up to now in epoch milliseconds. Correct the file."
        around.pop("key", None)  # It was the first sender's; ours is in the header.
    elif not isinstance(value, list):
        value = [value]
    if not isinstance(value, list) or not value:
        return Delivery([number], [f"{number}:0:{digest}"], [None], around, raw=line)
    names = [f"{number}:{index}:{digest}" for index in range(len(value))]
    events = [_with_id(event, name) for event, name in zip(value, names, strict=True)]
    return Delivery([number] * len(events), names, events, around, received_at, wrong=wrong)


def _take_clock(around: dict[str, Any]) -> int | None:
    """Take `receivedAt` out, if it is an instant. `sentAt` means nothing without it: the file may be a year old."""
    received_at = around.get("receivedAt")
    if type(received_at) is int and _YEAR_1_MS <= received_at <= now_ms():
        return int(around.pop("receivedAt"))
    if received_at is None:
        around.pop("receivedAt", None)
        around.pop("sentAt", None)
    return None


def _with_id(event: Any, name: str) -> Any:
    return event | {"id": str(uuid5(_IDS, name))} if isinstance(event, dict) and event.get("id") is None else event


def _by_the_clock_there(delivery: Delivery) -> Delivery:
    """The server takes the time itself. What it must still learn is by how much the client's clock was wrong."""
    if delivery.received_at is None:
        return delivery
    around = dict(delivery.around)
    sent_at = around.pop("sentAt", None)
    skew_ms = delivery.received_at - sent_at if isinstance(sent_at, int | float) else 0
    is_skewed = abs(skew_ms) > SKEW_MS
    return replace(delivery, around=around, received_at=None, skew_ms=skew_ms if is_skewed else None)


def _belong_together(one: Delivery, other: Delivery, rules: Rules) -> bool:
    return (
        one.raw is None
        and other.raw is None
        and one.wrong is None
        and "lost" not in one.around
        and (one.received_at, one.skew_ms) == (other.received_at, other.skew_ms)
        # As JSON: to Python, `true` and 1 are the same.
        and encode(one.around) == encode(other.around)
        and len(one.events) + len(other.events) <= min(EVENTS_MAX, rules.events_max)
    )
