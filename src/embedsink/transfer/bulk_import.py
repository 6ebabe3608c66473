"""Raw events out of one embedsink and into another, or from any file of envelopes.

event table ─▶ export ─▶ NDJSON, a delivery a line ─▶ import ─▶ the same rows, under the same ids
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from embedsink.client.http_client import HttpClient, NotEmbedsink, NothingAccepted, Unreachable, retry
from embedsink.engine import IMPORT_KEY_ID, Engine, now_ms
from embedsink.errors import EmbedsinkError, Refused, Unavailable
from embedsink.ingest.records import body_rejection_line, delivery_lines
from embedsink.journal.writer import OnDurable, wait_for
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.formats import csv_chunks
from embedsink.store.reader import Reader
from embedsink.transfer.import_file import Delivery, with_room

TABLE = "event"
EXPORT_VIEW = "event_export"
# Of journal lines that become durable together.
TOGETHER_BYTES_MAX = 1_048_576
PATIENCE_S = 300.0
PAUSE_S_MAX = 30.0
REASONS_SHOWN_MAX = 10
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


async def import_here(engine: Engine, deliveries: Iterable[Delivery], sums: Sums) -> None:
    """Make everything durable in an open data folder, in order. `sums` grows with what is done.

    Raises:
        Unavailable: the disk is full or failed, and stayed so.
    """
    parts = _together(part for delivery in deliveries for part in _parts(engine, delivery))
    writing: asyncio.Task[None] | None = None
    try:
        # In a thread, while what was read before becomes durable.
        while part := await asyncio.to_thread(next, parts, None):
            if writing:
                await writing
            writing = asyncio.create_task(_write(engine, part, sums))
    finally:
        if writing:
            await writing


def import_there(
    remote: HttpClient, deliveries: Iterable[Delivery], sums: Sums, *, patience_s: float = PATIENCE_S
) -> None:
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Journal lines, and what has become of their envelopes once they are durable."""

    lines: bytes
    sums: Sums


def _parts(engine: Engine, delivery: Delivery) -> Iterator[_Part]:
    if delivery.wrong is not None:
        yield _Part(b"", _left(delivery, delivery.wrong))
        return
    if delivery.raw is not None and len(delivery.raw) > engine.settings.body_bytes_max:
        too_long = f"is longer than {engine.settings.body_bytes_max:,} bytes (EMBEDSINK_BODY_BYTES_MAX). Split it."
        yield _Part(b"", _left(delivery, too_long, Reason.BODY_TOO_LARGE))
        return
    received_at = now_ms() if delivery.received_at is None else delivery.received_at
    try:
        parsed = parse(delivery.body, received_at, with_room(engine.rules))
    except Refused as refusal:
        if len(delivery.events) > 1:
            for half in delivery.halves():
                yield from _parts(engine, half)
        else:
            yield _refused(delivery, refusal, received_at)
    else:
        yield _accepted(delivery, parsed)


def _accepted(delivery: Delivery, parsed: ParsedDelivery) -> _Part:
    # Envelopes have ids by now, so that new ones are those of the rejections.
    ids = iter([delivery.rejection_id(rejection.index) for rejection in parsed.rejected])
    lines = delivery_lines(parsed, key_id=IMPORT_KEY_ID, new_id=partial(next, ids), delivery_id=delivery.names[0])
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


async def _write(engine: Engine, part: _Part, sums: Sums) -> None:
    if part.lines:
        counts = {"accepted": part.sums.accepted, "quarantined": part.sums.rejected}
        await _retry(lambda on_durable: engine.append_counted(part.lines, on_durable, **counts))
    sums.add(part.sums)


async def _retry(keep: Callable[[OnDurable], None]) -> None:
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


def _send(remote: HttpClient, delivery: Delivery, sums: Sums, patience_s: float) -> None:
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


def _post_patiently(remote: HttpClient, delivery: Delivery, patience_s: float) -> dict[str, Any]:
    """Post until there is an answer. Every envelope has an id, so a second post counts nothing twice."""
    try:
        return retry(
            lambda: remote.post("events", members=("accepted", "rejected"), body=delivery.body),
            patience_s=patience_s,
            pause_s_max=PAUSE_S_MAX,
        )
    except (Unavailable, Unreachable, NotEmbedsink) as error:
        raise _where(delivery, error) from error


def _where(delivery: Delivery, error: EmbedsinkError) -> EmbedsinkError:
    advice = "What comes before it was sent. Import the whole file again: nothing counts twice."
    return Unreachable(f"line {delivery.lines[0]:,}: {error} {advice}")
