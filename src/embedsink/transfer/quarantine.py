"""The quarantine: list rejections, replay them after an upgrade or a change of settings, and purge them."""

import asyncio
import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid5

import orjson

from embedsink.engine import IMPORT_KEY_ID, Engine, now_ms
from embedsink.errors import Refused, Unavailable, preview, suggestion
from embedsink.ingest.records import delivery_lines, replay_line
from embedsink.journal.writer import as_future
from embedsink.key_scope import EVERYTHING
from embedsink.privacy.redaction import CheckedDelivery, Privacy
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.scope import parse_instant
from embedsink.store.duckdb_errors import StoreBroken, StoreRefused
from embedsink.store.purge import PURGED_AT_ONCE, PurgeFilter
from embedsink.store.reader import Reader

LIST_VIEW = "quarantine_in_scope"
REPLAYABLE_VIEW = "quarantine_replayable"
UNTRIED_VIEW = "quarantine_not_replayable"
_CONTEXT_FIELDS = ("deployment", "session", "viewer", "tenant", "page", "vendor")
# The time without loading progress after which a replay or a purge fails.
LOADING_STALL_S_MAX = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """The numbers of rejections by the result of a replay.

    Args:
        replayed: rejections that were accepted now.
        rejected: rejections that are still invalid.
        untried: rejections that were not validated: their reason is permanent, or only their beginning is stored.
    """

    replayed: int = 0
    rejected: int = 0
    untried: int = 0


def rejections_json(reader: Reader, *, limit: int, quarantine_id: UUID | None = None) -> bytes:
    """Return the newest stored rejections in the reader's scope as JSON, an array of objects with times in UTC.

    Args:
        reader: a reader with the scope.
        limit: up to 1,000.
        quarantine_id: selects one rejection, and returns its complete `raw`. In a list, a long `raw` is shortened.
    """
    rows = reader.set_variables(row_limit=limit, quarantine_id=quarantine_id).dicts(LIST_VIEW)
    return orjson.dumps(rows, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)


async def replay(engine: Engine, quarantine_id: UUID | None = None) -> ReplayCounts:
    """Validate stored rejections again, and write those that are valid now to the journal.

    The replay first waits until all acknowledged events are loaded, including rejections and earlier replays. The
    envelopes of a rejection become durable together with the mark that the rejection was replayed. An envelope without
    an id gets an id that is derived from the quarantine id, so a second replay counts no event twice.

    Args:
        engine: the engine of the open data folder.
        quarantine_id: the rejection to replay; None for all.

    Raises:
        Unavailable: another replay is running (reason `overloaded`), loading stalls (`not_ready`), or the journal
            can't write. Rejections that were replayed before the error stay replayed.
    """
    if engine.replay_lock.locked():
        raise Unavailable(
            Reason.OVERLOADED, "quarantine: another replay is running. Retry when it finishes.", retry_after_s=10
        )
    replayed = rejected = 0
    async with engine.replay_lock:
        await _wait_until_loaded(engine)
        last_ingest_seq: int | None = None
        # A rejection may be a whole body, and parsing it would block the event loop for long. So a thread parses it.
        while batch := await asyncio.to_thread(_next_batch, engine, last_ingest_seq, quarantine_id):
            if batch.privacy is not engine.privacy:
                continue  # An erasure has begun. It may concern this batch.
            if batch.lines:
                append = partial(engine.submit_counted, batch.lines, accepted=batch.envelope_count, quarantined=0)
                await as_future(append)
            replayed += batch.replayed
            rejected += batch.rejected
            last_ingest_seq = batch.last_ingest_seq
        untried = await asyncio.to_thread(_untried_count, engine, quarantine_id)
    return ReplayCounts(replayed, rejected, untried)


def purge_filter(*, before: str | None, reason: str | None, key_id: str | None) -> PurgeFilter:
    """Return the filter of a purge with these conditions. None means no condition.

    Args:
        before: a time, or an age such as `7d`; only rejections that were received earlier.
        reason: only rejections with this reason.
        key_id: only rejections of this key.

    Raises:
        Refused: the reason does not exist, or `before` is not a time (reason `bad_parameter`).
    """
    reasons = [str(known_reason) for known_reason in Reason]
    if reason is not None and reason not in reasons:
        advice = suggestion(reason, reasons, "The report `rejections` lists the reasons in use.")
        raise Refused(Reason.BAD_PARAMETER, f"reason: {preview(reason)} does not exist. {advice}")
    return PurgeFilter(before=parse_instant("before", before), reason=reason, key_id=key_id)


async def purge(engine: Engine, selected: PurgeFilter) -> int:
    """Delete the rejections that match the filter `selected` durably, and return their number.

    The table `loaded_segment` and the report `rejections` keep the counts. The purge first waits until all acknowledged
    events are loaded.

    Raises:
        Unavailable: loading stalls, the store can't be written, or the server is stopping. Rejections that were purged
            before the error stay purged.
    """
    await _wait_until_loaded(engine)
    total = 0
    while True:
        # Only the loader's thread writes to the store.
        purged = await asyncio.wrap_future(engine.loader.tasks.submit(partial(_purge_batch, engine, selected)))
        total += purged
        if purged < PURGED_AT_ONCE:
            return total


def _purge_batch(engine: Engine, selected: PurgeFilter) -> int:
    """Delete a batch of matching rejections. Return their number. Raise Unavailable if the store can't be written."""
    try:
        return engine.loader.quarantine.purge_batch(selected)
    except (StoreBroken, StoreRefused) as error:
        raise Unavailable(Reason.NOT_READY, f"store: {error}. Retry.", retry_after_s=10) from error


async def _wait_until_loaded(engine: Engine) -> None:
    """Wait until the loader has loaded the newest segment of the journal.

    Raises:
        Unavailable: loading makes no progress for `LOADING_STALL_S_MAX` (reason `not_ready`).
    """
    newest_segment = engine.journal.last_number  # The positions below are segment numbers too.
    last_position = 0
    progress_at = time.monotonic()
    while engine.load_notifier.position < newest_segment:
        if engine.load_notifier.position != last_position:
            last_position = engine.load_notifier.position
            progress_at = time.monotonic()
        if time.monotonic() - progress_at > LOADING_STALL_S_MAX:
            cause = engine.loader.status.error or "Loading makes no progress."
            message = f"quarantine: is not completely loaded yet. {cause} Retry when loading continues."
            raise Unavailable(Reason.NOT_READY, message, retry_after_s=10)
        await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The journal lines of a batch's valid rejections, and the counts. The next batch follows `last_ingest_seq`.

    The lines are redacted by `privacy`.
    """

    privacy: Privacy
    lines: bytes
    envelope_count: int
    replayed: int
    rejected: int
    last_ingest_seq: int


def _next_batch(engine: Engine, last_ingest_seq: int | None, quarantine_id: UUID | None) -> _Batch | None:
    """Parse the next batch of rejections again. Return None after the last batch.

    `last_ingest_seq` is that of the previous batch, or None for the first batch.
    """
    privacy = engine.privacy
    variables = {**EVERYTHING.variables(), "after": last_ingest_seq, "quarantine_id": quarantine_id}
    with engine.store.reader(variables, is_short=True) as reader:
        rows = reader.dicts(REPLAYABLE_VIEW)  # The view limits the size of a batch.
    if not rows:
        return None
    lines = []  # one item per valid rejection, with all of its lines
    envelope_count = 0
    for row in rows:
        if parsed := _parse_again(row, engine):
            lines.append(_journal_lines(row, parsed, engine))
            envelope_count += len(parsed.accepted)
    return _Batch(
        privacy=privacy,
        lines=b"".join(lines),
        envelope_count=envelope_count,
        replayed=len(lines),
        rejected=len(rows) - len(lines),
        last_ingest_seq=rows[-1]["ingest_seq"],
    )


def _untried_count(engine: Engine, quarantine_id: UUID | None) -> int:
    """Return the number of stored rejections that a replay does not validate (`ReplayCounts.untried`)."""
    with engine.store.reader({**EVERYTHING.variables(), "quarantine_id": quarantine_id}, is_short=True) as reader:
        [row] = reader.dicts(UNTRIED_VIEW)
    return int(row["not_replayable_count"])


def _parse_again(row: Mapping[str, Any], engine: Engine) -> CheckedDelivery | None:
    """Parse a rejected delivery again.

    Return None if an envelope is still invalid or outside the scope of the delivery's key, or the scope is unknown.
    """
    raw = row["raw"].encode()
    body = base64.b64decode(raw) if row["raw_encoding"] == "base64" else raw
    key = engine.keys.by_id(row["key_id"])
    is_import = row["key_id"] == IMPORT_KEY_ID  # An import has no key, and may contain all deployments.
    if key is None and not is_import:
        return None  # The key was deleted, or the credential was an access token.
    # The raw text of a rejected envelope lacks the context of its delivery. These columns have the context.
    context = {name: row[name] for name in _CONTEXT_FIELDS if row[name] is not None}
    try:
        parsed = parse(body, row["received_at_ms"], engine.rules)
        parsed = parsed.with_defaults(context, row["sent_at_ms"])
        scope = key.scope if key else EVERYTHING
        if parsed.context.get("tenant") is not None:
            scope = engine.privacy.stored_scope(scope)  # The stored tenant may be a hash.
        delivery = engine.privacy.reject_erased(parsed.restrict_to(scope))
    except Refused:
        return None
    is_valid = delivery.accepted and not delivery.rejected
    return delivery if is_valid else None


def _journal_lines(row: Mapping[str, Any], parsed: CheckedDelivery, engine: Engine) -> bytes:
    """Return the journal lines of a parsed rejection: the envelopes, and a mark that the rejection was replayed."""
    quarantine_id = str(row["quarantine_id"])
    # The ids are the same in each replay, so that the loader deduplicates the envelopes and the losses.
    new_id = partial(next, _stable_ids(UUID(quarantine_id)))
    storable = engine.privacy.redact(parsed)
    lines = delivery_lines(storable, key_id=row["key_id"], new_id=new_id, delivery_id=quarantine_id)
    return lines + replay_line(quarantine_id, received_at=now_ms())


def _stable_ids(quarantine_id: UUID) -> Iterator[UUID]:
    """Yield ids, endlessly, for envelopes that lack one. Each replay of the same rejection yields the same ids.

    An envelope that was rejected alone gets the id of its rejection. A rejected body may need more ids.
    """
    yield quarantine_id
    for number in count(1):
        yield uuid5(quarantine_id, str(number))
