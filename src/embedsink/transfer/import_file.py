"""The file reader of an import: lines with envelopes, grouped into deliveries.

Neighbouring envelopes with the same context and clock share a delivery. An envelope without an id gets one that is
derived from its line, and so does a rejection. Importing the same file again therefore counts nothing twice. A server
gives rejections its own ids: each import through a server stores them again.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, BinaryIO
from uuid import UUID, uuid5

from embedsink.engine import now_ms
from embedsink.errors import EmbedsinkError, Refused, preview
from embedsink.protocol.delivery import Rules
from embedsink.protocol.strict_json import decode, encode

# Half of a server's default limits, in events and in bytes.
EVENTS_MAX = 500
DELIVERY_BYTES_MAX = 524_288
SKEW_MS = 60_000
# The maximum bytes that an import or an export adds to an envelope: an id, and the tenant of the context to a ready
# event.
ADDED_BYTES_MAX = 8_192
# The levels of nesting around an envelope: the object of the delivery and the array of its events.
ADDED_LEVELS = 2

# The first bytes of a gzip file (RFC 1952). No JSON begins with them.
_GZIP_MAGIC = b"\x1f\x8b"
_IDS = UUID("6f2f4b1e-3a53-4c39-9a0e-4a5e1d0f7c11")
_YEAR_1_MS = -62_135_596_800_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request body.

    Args:
        line_numbers: the line of each event, from 1.
        id_names: for each event the name from which its id is derived. It depends on its line and index alone.
        events: the envelopes.
        shared: the other members of the body, such as the context.
        received_at: when the events were first received, in epoch milliseconds. None means now.
        skew_ms: how far the client's clock was off; only for a server, which sets its own `received_at`.
        raw: the body of a line that could not be parsed.
        problem: why the line can't be imported, if the file alone shows it.
    """

    line_numbers: list[int]
    id_names: list[str]
    events: list[Any]
    shared: dict[str, Any] = field(default_factory=dict)
    received_at: int | None = None
    skew_ms: float | None = None
    raw: bytes | None = None
    problem: str | None = None

    @property
    def body(self) -> bytes:
        """The request body (docs/wire.md)."""
        if self.raw is not None:
            return self.raw
        clock = {} if self.skew_ms is None else {"sentAt": now_ms() - self.skew_ms}
        return encode(self.shared | clock | {"events": self.events})

    def halves(self) -> tuple["Delivery", "Delivery"]:
        """Split the delivery in two. Only the first half reports lost events, so they count once."""
        middle = len(self.events) // 2
        shared = {name: member for name, member in self.shared.items() if name != "lost"}
        return self._slice(slice(middle), self.shared), self._slice(slice(middle, None), shared)

    def _slice(self, part: slice, shared: dict[str, Any]) -> "Delivery":
        return replace(
            self,
            line_numbers=self.line_numbers[part],
            id_names=self.id_names[part],
            events=self.events[part],
            shared=shared,
        )

    def rejection_id(self, index: int | None) -> UUID:
        """Return the quarantine id of an event. It is stable, so importing the file again stores no second copy."""
        return uuid5(_IDS, f"rejected:{self.id_names[index or 0]}")

    def describe(self, index: int | None, reason: str, detail: str) -> str:
        """Return the error message for an event, with the line of the file."""
        line = self.line_numbers[index if index is not None and index < len(self.line_numbers) else 0]
        return f"line {line:,}: {reason}: {detail}"


def read_lines(file: BinaryIO, *, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank, with its number from 1. Gzip is detected by content, not by file name.

    Args:
        file: open for reading, at its start.
        bytes_max: the longest line. A longer one is cut after one more byte.

    Raises:
        EmbedsinkError: the gzip stream is damaged or cut off.
    """
    is_compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    if not is_compressed:
        yield from _numbered_lines(file, bytes_max)
        return
    number = 0
    try:
        with gzip.open(file) as uncompressed:
            for number, line in _numbered_lines(uncompressed, bytes_max):
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EmbedsinkError(
            f"line {number + 1:,}: the gzip file is damaged or cut off here ({error}). Earlier lines were imported. "
            "Import a complete copy of the file: no event counts twice."
        ) from None


def _numbered_lines(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(bytes_max + 2):
        number += 1
        content, is_complete = line.removesuffix(b"\n").removesuffix(b"\r"), line.endswith(b"\n")
        while not is_complete and (rest := file.readline(bytes_max)):
            is_complete = rest.endswith(b"\n")
        if content.strip():
            yield number, content.strip() if len(content) <= bytes_max else content[: bytes_max + 1]


def read_deliveries(lines: Iterable[tuple[int, bytes]], rules: Rules, *, is_remote: bool) -> Iterator[Delivery]:
    """Yield the deliveries of a file. Neighbouring events with the same context and clock share one.

    Args:
        lines: numbered lines, each an envelope, an array of envelopes or a delivery.
        rules: the limits of nesting and number.
        is_remote: whether a server receives them, which sets `received_at` itself.
    """
    current: Delivery | None = None
    current_bytes = 0
    for number, line in lines:
        parsed = _parse_line(number, line, relaxed(rules))
        delivery = _for_server_clock(parsed) if is_remote else parsed
        if current and _can_merge(current, delivery, rules) and current_bytes + len(line) <= DELIVERY_BYTES_MAX:
            current.line_numbers.extend(delivery.line_numbers)
            current.id_names.extend(delivery.id_names)
            current.events.extend(delivery.events)
            current_bytes += len(line)
            continue
        if current:
            yield current
        current, current_bytes = delivery, len(line)
    if current:
        yield current


def relaxed(rules: Rules) -> Rules:
    """Return rules under which every envelope that was accepted once is accepted again after an export."""
    return replace(
        rules,
        envelope_bytes_max=rules.envelope_bytes_max + ADDED_BYTES_MAX,
        depth_max=rules.depth_max + ADDED_LEVELS,
    )


def _parse_line(number: int, line: bytes, rules: Rules) -> Delivery:
    digest = sha256(line).hexdigest()
    try:
        value = decode(line, depth_max=rules.depth_max).value
    except Refused:
        # The receiver parses it again, and quarantines it with the reason.
        return Delivery([number], [f"{number}:0:{digest}"], [None], raw=line)
    shared: dict[str, Any] = {}
    received_at, problem = None, None
    if isinstance(value, dict) and "events" in value and "source" not in value:
        shared, value = {name: member for name, member in value.items() if name != "events"}, value["events"]
        received_at = _pop_received_at(shared)
        if "receivedAt" in shared:
            quoted = preview(shared["receivedAt"])
            problem = f"receivedAt: {quoted} is not a past time in epoch milliseconds. Correct the file."
        shared.pop("key", None)  # The key of the first sender. This import sends its own in the header.
    elif not isinstance(value, list):
        value = [value]
    if not isinstance(value, list) or not value:
        return Delivery([number], [f"{number}:0:{digest}"], [None], shared, raw=line)
    id_names = [f"{number}:{index}:{digest}" for index in range(len(value))]
    events = [_with_id(event, name) for event, name in zip(value, id_names, strict=True)]
    return Delivery([number] * len(events), id_names, events, shared, received_at, problem=problem)


def _pop_received_at(shared: dict[str, Any]) -> int | None:
    """Remove and return a valid `receivedAt`. Without one, remove `sentAt` too: the file may be a year old."""
    received_at = shared.get("receivedAt")
    if type(received_at) is int and _YEAR_1_MS <= received_at <= now_ms():
        return int(shared.pop("receivedAt"))
    if received_at is None:
        shared.pop("receivedAt", None)
        shared.pop("sentAt", None)
    return None


def _with_id(event: Any, name: str) -> Any:
    return event | {"id": str(uuid5(_IDS, name))} if isinstance(event, dict) and event.get("id") is None else event


def _for_server_clock(delivery: Delivery) -> Delivery:
    """Replace `receivedAt` and `sentAt` by the skew of the client's clock, since the server sets the time itself."""
    if delivery.received_at is None:
        return delivery
    shared = dict(delivery.shared)
    sent_at = shared.pop("sentAt", None)
    skew_ms = delivery.received_at - sent_at if isinstance(sent_at, int | float) else 0
    is_skewed = abs(skew_ms) > SKEW_MS
    return replace(delivery, shared=shared, received_at=None, skew_ms=skew_ms if is_skewed else None)


def _can_merge(first: Delivery, second: Delivery, rules: Rules) -> bool:
    return (
        first.raw is None
        and second.raw is None
        and first.problem is None
        and "lost" not in first.shared
        and (first.received_at, first.skew_ms) == (second.received_at, second.skew_ms)
        # Compared as JSON, since True == 1 in Python.
        and encode(first.shared) == encode(second.shared)
        and len(first.events) + len(second.events) <= min(EVENTS_MAX, rules.events_max)
    )
