"""The import of deliveries from a file, into an open data folder or through a server."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

from embedsink.client.http_client import HttpClient, NotEmbedsink, NothingAccepted, Unreachable, retry
from embedsink.engine import IMPORT_KEY_ID, Engine, now_ms
from embedsink.errors import EmbedsinkError, Refused, Unavailable
from embedsink.ingest.records import body_rejection_line, delivery_lines
from embedsink.journal.writer import OnDurable, as_future
from embedsink.privacy.redaction import CheckedDelivery
from embedsink.protocol.delivery import Rejection
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.transfer.import_file import Delivery, import_rules

# The maximum bytes of journal lines that share an fsync.
WRITE_BYTES_MAX = 1_048_576
RETRY_TIMEOUT_S = 300.0
RETRY_PAUSE_S_MAX = 30.0
_JOURNAL_RETRY_PAUSE_S = 0.2
# How long an import waits for the loader to load the events of earlier processes, and how often it checks.
EARLIER_EVENTS_S_MAX = 300.0
_LOADING_CHECK_S = 0.2
# The maximum number of error messages of an import.
MESSAGES_MAX = 10
_TOO_LARGE_REASONS = (Reason.BODY_TOO_LARGE, Reason.TOO_MANY_EVENTS)
# With these reasons, the server refuses one delivery, and may accept others with the same key.
_ONE_DELIVERY_REASONS = (*_TOO_LARGE_REASONS, Reason.OUT_OF_SCOPE)


@dataclass(slots=True)
class ImportCounts:
    """The outcomes of a file's envelopes.

    Args:
        accepted: envelopes that were accepted, duplicates included.
        rejected: envelopes that were quarantined.
        unsent: envelopes that are only in the file, because they were neither accepted nor quarantined.
        duplicate: envelopes that the loader did not count again. Only the loader finds them.
        conflict: rejected envelopes with the id of an earlier, different one. Only the loader finds them.
        messages: the first error messages.
    """

    accepted: int = 0
    rejected: int = 0
    unsent: int = 0
    duplicate: int = 0
    conflict: int = 0
    messages: list[str] = field(default_factory=list)

    def add_rejected(self, count: int, *messages: str) -> None:
        """Count quarantined envelopes, and add their error messages."""
        self.rejected += count
        self._add_messages(messages)

    def add_unsent(self, count: int, *messages: str) -> None:
        """Count envelopes that were neither accepted nor quarantined, and add their error messages."""
        self.unsent += count
        self._add_messages(messages)

    def add_loaded(self, *, duplicate_count: int, conflict_count: int) -> None:
        """Count what the loader found: duplicates, and id conflicts, which become rejected instead of accepted."""
        self.duplicate += duplicate_count
        self.accepted -= conflict_count
        self.rejected += conflict_count
        self.conflict += conflict_count

    def add(self, other: "ImportCounts") -> None:
        """Add the counts and messages of another part of the file, which is not loaded yet."""
        self.accepted += other.accepted
        self.rejected += other.rejected
        self.unsent += other.unsent
        self._add_messages(other.messages)

    def _add_messages(self, messages: Iterable[str]) -> None:
        """Add messages until there are `MESSAGES_MAX`; drop the others."""
        self.messages += list(messages)[: MESSAGES_MAX - len(self.messages)]


async def import_to_folder(engine: Engine, deliveries: Iterable[Delivery], counts: ImportCounts) -> None:
    """Write deliveries to the journal of a data folder, in order.

    Args:
        engine: the engine of the open data folder.
        deliveries: the deliveries from `read_deliveries`.
        counts: updated after each durable write, so they are also correct after an error.

    Raises:
        Unavailable: the journal stays full for `RETRY_TIMEOUT_S`, or writing fails (reason `storage_failed`).
    """
    batches = _join_small(batch for delivery in deliveries for batch in _line_batches_of(engine, delivery))
    writing: asyncio.Task[None] | None = None
    try:
        # Parsing runs in a thread while the previous batch becomes durable.
        while batch := await asyncio.to_thread(next, batches, None):
            if writing:
                await writing
            writing = asyncio.create_task(_append_durably(engine, batch, counts))
    finally:
        if writing:
            await writing  # Also after an error, so that `counts` includes every durable batch.


def has_loaded_journal(engine: Engine) -> bool:
    """Return whether the loader has loaded all segments of the journal."""
    return engine.loader.last_number >= engine.journal.last_number


async def wait_for_earlier_events(engine: Engine) -> None:
    """Wait until the journal is loaded or loading fails, at most `EARLIER_EVENTS_S_MAX`. Call this before an import."""
    give_up_at = time.monotonic() + EARLIER_EVENTS_S_MAX
    while not has_loaded_journal(engine):
        if engine.loader.status.error or time.monotonic() > give_up_at:
            return
        await asyncio.sleep(_LOADING_CHECK_S)


def import_to_server(
    remote: HttpClient,
    deliveries: Iterable[Delivery],
    counts: ImportCounts,
    *,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
) -> None:
    """Send deliveries to a server, in order.

    Args:
        remote: the client of the server, with an ingest key.
        deliveries: the deliveries from `read_deliveries`.
        counts: updated after each response, so they are also correct after an error.
        retry_timeout_s: how long an unreachable or overloaded server is retried, for each delivery.

    Raises:
        Refused: the key does not allow imports.
        Unreachable: the retries timed out, or the response is not embedsink's.
    """
    for delivery in deliveries:
        if delivery.problem is None:
            _send(remote, delivery, counts, retry_timeout_s)
        else:
            counts.add(_unsent_counts(delivery, Reason.BAD_FIELD, delivery.problem))


def _unsent_counts(delivery: Delivery, reason: Reason, problem: str) -> ImportCounts:
    """Return the counts of a delivery that is not imported because of a problem."""
    return ImportCounts(unsent=len(delivery.line_numbers), messages=[delivery.describe(None, reason, problem)])


@dataclass(frozen=True, slots=True)
class _LineBatch:
    """Journal lines, and the counts to add once they are durable."""

    lines: bytes
    counts: ImportCounts


def _line_batches_of(engine: Engine, delivery: Delivery) -> Iterator[_LineBatch]:
    """Yield the journal lines of a delivery.

    One invalid event, such as one that nests too deeply, can make the whole delivery invalid. So an invalid delivery is
    halved until the invalid event is alone, and only that event is quarantined.
    """
    if delivery.problem is not None:
        yield _LineBatch(b"", _unsent_counts(delivery, Reason.BAD_FIELD, delivery.problem))
        return
    # `read_lines` has cut this line, because it is too long. The quarantine would lack the rest, so only count it.
    if delivery.raw is not None and len(delivery.raw) > engine.settings.body_bytes_max:
        problem = f"is longer than {engine.settings.body_bytes_max:,} bytes (EMBEDSINK_BODY_BYTES_MAX). Split it."
        yield _LineBatch(b"", _unsent_counts(delivery, Reason.BODY_TOO_LARGE, problem))
        return
    received_at = now_ms() if delivery.received_at is None else delivery.received_at
    try:
        parsed = parse(delivery.body, received_at, import_rules(engine.rules))
    except Refused as refusal:
        if len(delivery.events) > 1:
            for half in delivery.halves():
                yield from _line_batches_of(engine, half)
        else:
            yield _batch_of_rejection(engine, delivery, refusal, received_at)
    else:
        yield _batch_of_parsed(engine, delivery, engine.privacy.reject_erased(parsed))


def _batch_of_parsed(engine: Engine, delivery: Delivery, parsed: CheckedDelivery) -> _LineBatch:
    """Return the journal lines of a parsed delivery: the accepted envelopes and the rejections."""
    storable = engine.privacy.redact(parsed)
    # Each envelope has an id already, so only rejections need new ids.
    rejection_ids = iter([delivery.rejection_id(rejection.index) for rejection in parsed.rejected])
    # The counts of lost events are deduplicated by `delivery_id`, so it is the same at each import.
    lines = delivery_lines(
        storable,
        key_id=IMPORT_KEY_ID,
        new_id=partial(next, rejection_ids),
        delivery_id=delivery.id_seeds[0],
        loss_id=delivery.loss_id,
    )
    messages = [delivery.describe(entry.index, entry.reason, entry.detail) for entry in parsed.rejected]
    counts = ImportCounts(accepted=len(parsed.accepted))
    counts.add_rejected(len(parsed.rejected), *messages)
    return _LineBatch(lines, counts)


def _batch_of_rejection(engine: Engine, delivery: Delivery, refusal: Refused, received_at: int) -> _LineBatch:
    """Return the journal line that quarantines a delivery as a whole, with its counts and message."""
    rejection = Rejection(index=None, reason=refusal.reason, detail=str(refusal), raw=delivery.body)
    line = body_rejection_line(
        engine.privacy.redact_unreadable(rejection),
        received_at=received_at,
        key_id=IMPORT_KEY_ID,
        new_id=lambda: delivery.rejection_id(index=None),  # the same at each import, so that it counts once
    )
    message = delivery.describe(None, refusal.reason, str(refusal))
    return _LineBatch(line, ImportCounts(rejected=1, messages=[message]))


def _join_small(batches: Iterable[_LineBatch]) -> Iterator[_LineBatch]:
    """Join batches in order, up to `WRITE_BYTES_MAX` bytes of lines, so that small batches share an fsync.

    The last batch may have no lines, only the counts of deliveries that are not imported.
    """
    lines: list[bytes] = []
    byte_count = 0
    counts = ImportCounts()
    for batch in batches:
        if lines and byte_count + len(batch.lines) > WRITE_BYTES_MAX:
            yield _LineBatch(b"".join(lines), counts)
            lines = []
            byte_count = 0
            counts = ImportCounts()
        lines.append(batch.lines)
        byte_count += len(batch.lines)
        counts.add(batch.counts)
    yield _LineBatch(b"".join(lines), counts)


async def _append_durably(engine: Engine, batch: _LineBatch, counts: ImportCounts) -> None:
    """Append lines to the journal, wait until they are durable, and add the counts of these lines to `counts`."""
    if batch.lines:
        accepted, quarantined = batch.counts.accepted, batch.counts.rejected
        await _append_with_retries(
            lambda on_durable: engine.submit_counted(
                batch.lines, on_durable, accepted=accepted, quarantined=quarantined
            )
        )
    counts.add(batch.counts)


async def _append_with_retries(submit: Callable[[OnDurable], None]) -> None:
    """Submit lines to the journal and wait until they are durable. Retry while the journal is full.

    The loader frees space in the journal. Raise Unavailable after `RETRY_TIMEOUT_S`, or if writing fails.
    """
    give_up_at = time.monotonic() + RETRY_TIMEOUT_S
    while True:
        try:
            await as_future(submit)
        except Unavailable as error:
            if error.reason is Reason.STORAGE_FAILED or time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(_JOURNAL_RETRY_PAUSE_S)
        else:
            return


def _send(remote: HttpClient, delivery: Delivery, counts: ImportCounts, retry_timeout_s: float) -> None:
    """Send a delivery, and count the outcomes. If the server refuses it as invalid or too large, send it in halves.

    Raises:
        Refused: the reason concerns the key, so no other delivery would be accepted either.
        Unreachable: the retries timed out, or the response is not embedsink's.
    """
    count = len(delivery.line_numbers)  # A delivery without events counts as one.
    try:
        response = _post_with_retries(remote, delivery, retry_timeout_s)
    except NothingAccepted as refusal:  # All envelopes were rejected, and the response lists the rejections.
        _count_response(delivery, refusal.response, counts)
    except Refused as refusal:
        message = delivery.describe(None, refusal.reason, str(refusal))
        is_invalid = refusal.reason.status == HTTPStatus.BAD_REQUEST
        if count > 1 and (is_invalid or refusal.reason in _TOO_LARGE_REASONS):
            for half in delivery.halves():
                _send(remote, half, counts, retry_timeout_s)
        elif is_invalid:
            counts.add_rejected(count, message)  # The server quarantines an invalid body.
        elif refusal.reason in _ONE_DELIVERY_REASONS:
            counts.add_unsent(count, message)  # The server stores nothing.
        else:
            raise
    else:
        _count_response(delivery, response, counts)


def _count_response(delivery: Delivery, response: dict[str, Any], counts: ImportCounts) -> None:
    """Count the outcomes of a response, which lists the first rejections, and has `rejectedCount` if there are more."""
    rejected = response["rejected"]
    messages = [delivery.describe(entry["index"], entry["reason"], entry["detail"]) for entry in rejected]
    counts.accepted += response["accepted"]
    counts.add_rejected(response.get("rejectedCount", len(rejected)), *messages)


def _post_with_retries(remote: HttpClient, delivery: Delivery, retry_timeout_s: float) -> dict[str, Any]:
    """Post a delivery, and retry until the server answers. Each envelope has an id, so a retry counts no event twice.

    Raises:
        Refused: the server refuses the delivery.
        Unreachable: the retries timed out, or the response is not embedsink's.
    """
    try:
        return retry(
            lambda: remote.post("events", required_members=("accepted", "rejected"), body=delivery.body),
            timeout_s=retry_timeout_s,
            pause_s_max=RETRY_PAUSE_S_MAX,
        )
    except (Unavailable, Unreachable, NotEmbedsink) as error:
        raise _unreachable_error(delivery, error) from error


def _unreachable_error(delivery: Delivery, error: EmbedsinkError) -> Unreachable:
    """Return the error for a delivery that can't be sent, with the line of the file."""
    advice = "Earlier lines were sent. Import the whole file again: no event counts twice."
    return Unreachable(f"line {delivery.line_numbers[0]:,}: {error} {advice}")
