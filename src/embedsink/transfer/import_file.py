"""The file reader of an import: lines with envelopes, grouped into deliveries.

Consecutive envelopes with the same context and times share a delivery. An envelope without an id gets an id that is
derived from its line, and so does a rejection. So importing the same file again counts no event twice. A server gives
rejections new ids, so each import through a server stores them again.
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
from embedsink.protocol.validation import is_delivery

# Half of a server's default limits, in events and in bytes.
EVENTS_MAX = 500
DELIVERY_BYTES_MAX = 524_288
# Greater differences of clocks are corrected, as in sql/load/02_incoming.sql.
SKEW_MS_MIN = 60_000
# The maximum bytes that an import or an export adds to an envelope: an id; in a `ready` event, also the tenant of the
# context.
ADDED_BYTES_MAX = 8_192
# The levels of nesting around an envelope: the object of the delivery and the array of its events.
ADDED_LEVELS = 2

# The first bytes of a gzip file (RFC 1952). No JSON begins with them.
_GZIP_MAGIC = b"\x1f\x8b"
# The namespace of ids that are derived from lines.
_ID_NAMESPACE = UUID("6f2f4b1e-3a53-4c39-9a0e-4a5e1d0f7c11")
_YEAR_1_MS = -62_135_596_800_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request body.

    Args:
        line_numbers: the line of each event, from 1. Without events, the line of the delivery.
        id_seeds: the text from which the id of each event is derived: the number of its line, its index in the line,
            and the digest of the line. Without events, the text for the id of the delivery.
        events: the envelopes.
        shared: the other members of the body, such as the context.
        received_at: the time of the first receipt, in epoch milliseconds. None means now.
        skew_ms: the server's clock minus the client's clock at that time. Only for deliveries to a server.
        raw: the body, if the line could not be parsed.
        loss_id: the id of an archived loss; None otherwise.
        problem: the reason why the line can't be imported; None if it can.
    """

    line_numbers: list[int]
    id_seeds: list[str]
    events: list[Any]
    shared: dict[str, Any] = field(default_factory=dict)
    received_at: int | None = None
    skew_ms: float | None = None
    raw: bytes | None = None
    loss_id: str | None = None
    problem: str | None = None

    @property
    def body(self) -> bytes:
        """The request body (docs/wire.md)."""
        if self.raw is not None:
            return self.raw
        # The server subtracts `sentAt` from its own time to get the skew, and corrects the times of the events by it.
        clock = {} if self.skew_ms is None else {"sentAt": now_ms() - self.skew_ms}
        return encode(self.shared | clock | {"events": self.events})

    def halves(self) -> tuple["Delivery", "Delivery"]:
        """Return two deliveries with half of the events each. Only the first has `lost`, so lost events count once."""
        middle = len(self.events) // 2
        without_lost = {name: member for name, member in self.shared.items() if name != "lost"}
        return self._slice(slice(middle), self.shared), self._slice(slice(middle, None), without_lost)

    def _slice(self, indexes: slice, shared: dict[str, Any]) -> "Delivery":
        """Return a delivery of the events with these indexes."""
        return replace(
            self,
            line_numbers=self.line_numbers[indexes],
            id_seeds=self.id_seeds[indexes],
            events=self.events[indexes],
            shared=shared,
        )

    def rejection_id(self, index: int | None) -> UUID:
        """Return the quarantine id of an event, or of the whole delivery if `index` is None. The id is stable."""
        # A delivery is rejected as a whole only if it has one event, so it shares the id of that event.
        event_index = 0 if index is None else index
        return uuid5(_ID_NAMESPACE, f"rejected:{self.id_seeds[event_index]}")

    def describe(self, index: int | None, reason: str, detail: str) -> str:
        """Return the error message for an event, or for the whole delivery if `index` is None, with the line number."""
        line = self.line_numbers[0]
        # An unparsed line has one line number, but the receiver may find several events in it.
        if index is not None and index < len(self.line_numbers):
            line = self.line_numbers[index]
        return f"line {line:,}: {reason}: {detail}"


def read_lines(file: BinaryIO, *, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the content of each line that is not blank. Decompress gzip, detected by content.

    Args:
        file: a file that is open for reading, at the start.
        bytes_max: the maximum length of a line. A longer line is cut to `bytes_max + 1` bytes, enough to reject it.

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
            f"line {number + 1:,}: the gzip file is damaged or cut off here ({error}). The import is incomplete. "
            "Import a complete copy of the file: no event counts twice."
        ) from None


def _numbered_lines(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each line that is not blank.

    A line that is longer than `bytes_max` is cut to `bytes_max + 1` bytes, enough to reject it.
    """
    number = 0
    while line := file.readline(bytes_max + len(b"\r\n")):
        number += 1
        if not line.endswith(b"\n"):  # a part of a longer line, or the last line
            _skip_line(file, bytes_max)
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(content) > bytes_max:
            yield number, content[: bytes_max + 1]
        elif content.strip():
            yield number, content.strip()


def _skip_line(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> None:
    """Skip the rest of the line. Read at most `bytes_max` bytes at a time."""
    while part := file.readline(bytes_max):
        if part.endswith(b"\n"):
            return


def read_deliveries(lines: Iterable[tuple[int, bytes]], rules: Rules, *, is_remote: bool) -> Iterator[Delivery]:
    """Yield the deliveries of a file. Consecutive events with the same context and times share a delivery.

    Args:
        lines: numbered lines. Each is an envelope, an array of envelopes or a delivery.
        rules: the limits of nesting, and of events in a delivery.
        is_remote: whether the deliveries are sent to a server, which sets the time of receipt.
    """
    current: Delivery | None = None
    current_bytes = 0
    for number, line in lines:
        delivery = _parse_line(number, line, import_rules(rules))
        if is_remote:
            delivery = _with_skew(delivery)
        if current and _can_merge(current, delivery, rules) and current_bytes + len(line) <= DELIVERY_BYTES_MAX:
            current.line_numbers.extend(delivery.line_numbers)
            current.id_seeds.extend(delivery.id_seeds)
            current.events.extend(delivery.events)
            current_bytes += len(line)
            continue
        if current:
            yield current
        current, current_bytes = delivery, len(line)
    if current:
        yield current


def import_rules(rules: Rules) -> Rules:
    """Return rules with higher limits of bytes and nesting, so that exported envelopes are accepted again.

    An export adds an id to an envelope, and puts it into the `events` of a delivery.
    """
    return replace(
        rules,
        envelope_bytes_max=rules.envelope_bytes_max + ADDED_BYTES_MAX,
        depth_max=rules.depth_max + ADDED_LEVELS,
    )


def _parse_line(number: int, line: bytes, rules: Rules) -> Delivery:
    """Return the delivery of a line, with an id for each envelope."""
    try:
        value = decode(line, depth_max=rules.depth_max).value
    except Refused:
        return _unparsed_delivery(number, line)
    if is_delivery(value):
        return _parse_delivery(number, line, value)
    return _delivery_of(number, line, value if isinstance(value, list) else [value])


def _parse_delivery(number: int, line: bytes, body: dict[str, Any]) -> Delivery:
    """Return the delivery of a line that is a request body, such as a line of an export."""
    # Omit the key of the first sender. An import sends another key, in the header.
    shared = {name: member for name, member in body.items() if name not in ("events", "key")}
    events = body["events"]
    if not isinstance(events, list):  # The receiver quarantines it.
        without_key = encode(shared | {"events": events}) if "key" in body else line
        return _unparsed_delivery(number, without_key)
    # A delivery without events may report losses.
    delivery = _delivery_of(number, line, events) if events else Delivery([number], _id_seeds(number, line, 1), [])
    received_at = _pop_received_at(shared)
    loss_id = _pop_loss_id(shared)
    problem = None
    if "receivedAt" in shared:  # It is invalid: `_pop_received_at` removes a valid one.
        quoted = preview(shared["receivedAt"])
        problem = f"receivedAt: {quoted} is not a past time in epoch milliseconds. Correct the file."
    return replace(delivery, shared=shared, received_at=received_at, loss_id=loss_id, problem=problem)


def _delivery_of(number: int, line: bytes, envelopes: list[Any]) -> Delivery:
    """Return a delivery with the envelopes of a line, each with an id. Without envelopes, return the unparsed line."""
    if not envelopes:
        return _unparsed_delivery(number, line)
    id_seeds = _id_seeds(number, line, len(envelopes))
    events = [_with_id(envelope, seed) for envelope, seed in zip(envelopes, id_seeds, strict=True)]
    return Delivery([number] * len(events), id_seeds, events)


def _unparsed_delivery(number: int, line: bytes) -> Delivery:
    """Return a delivery whose body is the line. The receiver parses the line, and quarantines it if it is invalid.

    The number of its events is unknown, so the delivery has one event, None.
    """
    return Delivery([number], _id_seeds(number, line, 1), [None], raw=line)


def _id_seeds(number: int, line: bytes, event_count: int) -> list[str]:
    """Return the text from which the id of each event of a line is derived."""
    digest = sha256(line).hexdigest()
    return [f"{number}:{index}:{digest}" for index in range(event_count)]


def _pop_received_at(shared: dict[str, Any]) -> int | None:
    """Remove a valid `receivedAt` from `shared` and return it; None if it is missing or invalid.

    An invalid value stays in `shared`, so that the caller can report it. Without `receivedAt`, remove `sentAt` too: the
    skew of the client's clock is the difference between the two.
    """
    received_at = shared.get("receivedAt")
    is_bool = isinstance(received_at, bool)  # a subclass of int
    if isinstance(received_at, int) and not is_bool and _YEAR_1_MS <= received_at <= now_ms():
        del shared["receivedAt"]
        return received_at
    if received_at is None:
        shared.pop("receivedAt", None)
        shared.pop("sentAt", None)
    return None


def _pop_loss_id(shared: dict[str, Any]) -> str | None:
    """Remove a valid `lossId` with one loss from `shared` and return it. An invalid one stays, and is rejected."""
    loss_id = shared.get("lossId")
    lost = shared.get("lost")
    if not isinstance(loss_id, str) or not isinstance(lost, dict) or len(lost) != 1:
        return None
    try:
        UUID(loss_id)
    except ValueError:
        return None
    del shared["lossId"]
    return loss_id


def _with_id(envelope: Any, seed: str) -> Any:
    """Return an envelope with an id that is derived from `seed`, unless it has an id or is not an object."""
    if isinstance(envelope, dict) and envelope.get("id") is None:
        return envelope | {"id": str(uuid5(_ID_NAMESPACE, seed))}
    return envelope


def _with_skew(delivery: Delivery) -> Delivery:
    """Replace the recorded `receivedAt` and `sentAt` with the clock skew between them.

    The server that imports the delivery sets a new time of receipt.
    """
    if delivery.received_at is None:
        return delivery
    sent_at = delivery.shared.get("sentAt", delivery.received_at)  # Without `sentAt`, assume that there is no skew.
    if isinstance(sent_at, bool) or not isinstance(sent_at, int | float):  # True is an int in Python.
        return replace(delivery, received_at=None)  # The server rejects the invalid `sentAt`.
    shared_members = {name: member for name, member in delivery.shared.items() if name != "sentAt"}
    skew_ms = delivery.received_at - sent_at
    is_skewed = abs(skew_ms) > SKEW_MS_MIN  # Smaller differences may be transit time, and are not corrected.
    return replace(delivery, shared=shared_members, received_at=None, skew_ms=skew_ms if is_skewed else None)


def _can_merge(first: Delivery, second: Delivery, rules: Rules) -> bool:
    """Return whether the second delivery may join the first.

    Both must be parsed, without a problem, with the same context and times, and together within the limit of events.
    A delivery with `lost` is never merged.
    """
    return (
        first.raw is None
        and second.raw is None
        and len(first.events) > 0
        and len(second.events) > 0
        and first.problem is None
        and "lost" not in first.shared
        and (first.received_at, first.skew_ms) == (second.received_at, second.skew_ms)
        # Compared as JSON, because True == 1 in Python. The first has no `lost`, and no invalid `receivedAt` (the only
        # cause of a problem), so the second has neither.
        and encode(first.shared) == encode(second.shared)
        and len(first.events) + len(second.events) <= min(EVENTS_MAX, rules.events_max)
    )
