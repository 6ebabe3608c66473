"""Raw events out of one embedsink and into another, or from any file of envelopes.

    event table ─▶ export ─▶ NDJSON, a delivery a line ─▶ import ─▶ the same rows, under the same ids

An envelope without an id gets one that depends on its line alone, and so does a rejection: importing a file again
counts nothing twice. (Through a server a rejection has the server's id: it is kept each time that it is sent.)
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID, uuid5

from embedsink.envelope import Parsed, Rejection, Rules, body_rejection_line, journal_lines, parse
from embedsink.envelope.body import decode, encode
from embedsink.errors import EmbedsinkError, Refused, Unavailable, quote
from embedsink.journal import Settled, wait_for
from embedsink.reasons import Reason
from embedsink.remote import NotEmbedsink, NothingAccepted, Remote, Unreachable, patiently
from embedsink.reports import csv_chunks
from embedsink.sink import IMPORT_KEY_ID, Sink, now_ms
from embedsink.store import Reader

TABLE = "event"
EXPORT_VIEW = "event_export"
# Of journal lines that become durable together.
TOGETHER_BYTES_MAX = 1_048_576
# Half of what a server takes by default, in events and in bytes.
EVENTS_MAX = 500
DELIVERY_BYTES_MAX = 524_288
PATIENCE_S = 300.0
PAUSE_S_MAX = 30.0
REASONS_SHOWN_MAX = 10
SKEW_MS = 60_000
# What an import or an export may have added to an envelope: its id, and to a ready event the tenant of its context.
ADDED_BYTES_MAX = 8_192
# And around it: the object of the delivery and the array of its events.
ADDED_LEVELS = 2

_IDS = UUID("6f2f4b1e-3a53-4c39-9a0e-4a5e1d0f7c11")
_YEAR_1_MS = -62_135_596_800_000
_TOO_MUCH = (Reason.BODY_TOO_LARGE, Reason.TOO_MANY_EVENTS)
# The key is good, but not for this delivery: others may pass.
_NOT_THIS_ONE = (Reason.BODY_TOO_LARGE, Reason.TOO_MANY_EVENTS, Reason.OUT_OF_SCOPE)

OnWritten = Callable[[int], None]


@dataclass(slots=True)
class Sums:
    """What became of the envelopes of a file. `unsent` ones are neither here nor there: they are in the file alone."""

    accepted: int = 0
    rejected: int = 0
    unsent: int = 0
    repeated: int = 0
    reasons: list[str] = field(default_factory=list)

    def reject(self, count: int, *reasons: str) -> None:
        """Count what was quarantined, and keep the first reasons."""
        self.rejected += count
        self._keep(reasons)

    def leave(self, count: int, *reasons: str) -> None:
        """Count what could not be sent, and keep the first reasons."""
        self.unsent += count
        self._keep(reasons)

    def add(self, other: "Sums") -> None:
        """Count what became of others, too."""
        self.accepted += other.accepted
        self.rejected += other.rejected
        self.unsent += other.unsent
        self.repeated += other.repeated
        self._keep(other.reasons)

    def _keep(self, reasons: Iterable[str]) -> None:
        self.reasons += list(reasons)[: REASONS_SHOWN_MAX - len(self.reasons)]


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


def export_ndjson(reader: Reader, file: BinaryIO, on_written: OnWritten) -> None:
    """Write every event and action as a delivery, one a line; `import` takes them back with their ids and times."""
    for rows in reader.rows(EXPORT_VIEW):
        on_written(file.write("".join([f"{delivery}\n" for (delivery,) in rows]).encode()))


def export_csv(reader: Reader, file: BinaryIO, on_written: OnWritten) -> None:
    """Write the rows of the event table; text that a spreadsheet would take for a formula gets an apostrophe."""
    for chunk in csv_chunks(reader, TABLE):
        on_written(file.write(chunk))


def export_parquet(reader: Reader, path: Path) -> None:
    """Write the rows of the event table."""
    reader.write_parquet(TABLE, path)


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
        read = _read_line(number, line, _with_room(rules))
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


async def import_here(sink: Sink, deliveries: Iterable[Delivery], sums: Sums) -> None:
    """Make everything durable in an open data folder, in order. `sums` grows with what is done.

    Raises:
        Unavailable: the disk is full or failed, and stayed so.
    """
    parts = _together(part for delivery in deliveries for part in _parts(sink, delivery))
    writing: asyncio.Task[None] | None = None
    try:
        # In a thread, while what was read before becomes durable.
        while part := await asyncio.to_thread(next, parts, None):
            if writing:
                await writing
            writing = asyncio.create_task(_write(sink, part, sums))
    finally:
        if writing:
            await writing


def import_there(remote: Remote, deliveries: Iterable[Delivery], sums: Sums, *, patience_s: float = PATIENCE_S) -> None:
    """Send everything to a server, in order. `sums` grows with what is done.

    Raises:
        Refused: the key is not good for this.
        Unreachable: the server was away or overloaded for longer than `patience_s`, or what answers is another.
    """
    for delivery in deliveries:
        if delivery.wrong is None:
            _send(remote, delivery, sums, patience_s)
        else:
            sums.add(_left(delivery, delivery.wrong))


def _left(delivery: Delivery, wrong: str, reason: Reason = Reason.BAD_FIELD) -> Sums:
    return Sums(unsent=len(delivery.events), reasons=[delivery.reason(None, reason, wrong)])


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
            seen = quote(around["receivedAt"])
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Journal lines, and what has become of their envelopes once they are durable."""

    lines: bytes
    sums: Sums


def _parts(sink: Sink, delivery: Delivery) -> Iterator[_Part]:
    if delivery.wrong is not None:
        yield _Part(b"", _left(delivery, delivery.wrong))
        return
    if delivery.raw is not None and len(delivery.raw) > sink.settings.body_bytes_max:
        too_long = f"is longer than {sink.settings.body_bytes_max:,} bytes (EMBEDSINK_BODY_BYTES_MAX). Split it."
        yield _Part(b"", _left(delivery, too_long, Reason.BODY_TOO_LARGE))
        return
    received_at = now_ms() if delivery.received_at is None else delivery.received_at
    try:
        parsed = parse(delivery.body, received_at, _with_room(sink.rules))
    except Refused as refusal:
        if len(delivery.events) > 1:
            for half in delivery.halves():
                yield from _parts(sink, half)
        else:
            yield _refused(delivery, refusal, received_at)
    else:
        yield _accepted(delivery, parsed)


def _with_room(rules: Rules) -> Rules:
    """What was accepted once is accepted again."""
    return replace(
        rules,
        envelope_bytes_max=rules.envelope_bytes_max + ADDED_BYTES_MAX,
        depth_max=rules.depth_max + ADDED_LEVELS,
    )


def _accepted(delivery: Delivery, parsed: Parsed) -> _Part:
    # Envelopes have ids by now, so that new ones are those of the rejections.
    ids = iter([delivery.rejection_id(rejection.index) for rejection in parsed.rejected])
    lines = journal_lines(parsed, key_id=IMPORT_KEY_ID, new_id=partial(next, ids), delivery_id=delivery.names[0])
    sums = Sums(accepted=len(parsed.accepted))
    sums.reject(len(parsed.rejected), *(delivery.reason(one.index, one.reason, one.detail) for one in parsed.rejected))
    return _Part(lines, sums)


def _refused(delivery: Delivery, refusal: Refused, received_at: int) -> _Part:
    line = body_rejection_line(
        Rejection(None, refusal.reason, str(refusal), delivery.body),
        received_at=received_at,
        key_id=IMPORT_KEY_ID,
        new_id=lambda: delivery.rejection_id(None),
    )
    return _Part(line, Sums(rejected=1, reasons=[delivery.reason(None, refusal.reason, str(refusal))]))


def _together(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Neighbours as one, as far as they are small: so they share an fsync, and none overtakes another."""
    lines: list[bytes] = []
    byte_count, sums = 0, Sums()
    for part in parts:
        if lines and byte_count + len(part.lines) > TOGETHER_BYTES_MAX:
            yield _Part(b"".join(lines), sums)
            lines, byte_count, sums = [], 0, Sums()
        lines.append(part.lines)
        byte_count += len(part.lines)
        sums.add(part.sums)
    yield _Part(b"".join(lines), sums)


async def _write(sink: Sink, part: _Part, sums: Sums) -> None:
    if part.lines:
        counts = {"accepted": part.sums.accepted, "quarantined": part.sums.rejected}
        await _patiently(lambda settled: sink.submit(part.lines, settled, **counts))
    sums.add(part.sums)


async def _patiently(keep: Callable[[Settled], None]) -> None:
    """Write again while the journal has no room: the loader makes some."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            await wait_for(keep)
        except Unavailable as error:
            if error.reason is Reason.STORAGE_FAILED or time.monotonic() > end:
                raise
            await asyncio.sleep(0.2)
        else:
            return


def _send(remote: Remote, delivery: Delivery, sums: Sums, patience_s: float) -> None:
    count = len(delivery.events)
    try:
        answer = _post_patiently(remote, delivery, patience_s)
    except NothingAccepted as refusal:
        _count(delivery, refusal.answer, sums)
    except Refused as refusal:
        if count > 1 and (refusal.reason in _TOO_MUCH or refusal.reason.status == 400):
            for half in delivery.halves():
                _send(remote, half, sums, patience_s)
        elif refusal.reason in _NOT_THIS_ONE:
            sums.leave(count, delivery.reason(None, refusal.reason, str(refusal)))
        elif refusal.reason.status == 400:
            sums.reject(count, delivery.reason(None, refusal.reason, str(refusal)))
        else:
            raise
    else:
        _count(delivery, answer, sums)


def _count(delivery: Delivery, answer: dict[str, Any], sums: Sums) -> None:
    rejected = answer["rejected"]
    sums.accepted += answer["accepted"]
    sums.reject(
        answer.get("rejectedCount", len(rejected)),
        *(delivery.reason(one["index"], one["reason"], one["detail"]) for one in rejected),
    )


def _post_patiently(remote: Remote, delivery: Delivery, patience_s: float) -> dict[str, Any]:
    """Post until there is an answer. Every envelope has an id, so a second post counts nothing twice."""
    try:
        return patiently(
            lambda: remote.post("events", members=("accepted", "rejected"), body=delivery.body),
            patience_s=patience_s,
            pause_s_max=PAUSE_S_MAX,
        )
    except (Unavailable, Unreachable, NotEmbedsink) as error:
        raise _where(delivery, error) from error


def _where(delivery: Delivery, error: EmbedsinkError) -> EmbedsinkError:
    advice = "What comes before it was sent. Import the whole file again: nothing counts twice."
    return Unreachable(f"line {delivery.lines[0]:,}: {error} {advice}")
