"""The quarantine: list rejections, replay them after an upgrade or a change of settings, and purge them."""

import asyncio
import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any
from uuid import UUID, uuid5

import orjson

from embedsink.engine import IMPORT_KEY_ID, Engine, now_ms
from embedsink.errors import Refused, Unavailable, preview, suggestion
from embedsink.ingest.records import NewId, delivery_lines, replay_line
from embedsink.journal.writer import wait_for
from embedsink.protocol.delivery import ParsedDelivery
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.scope import parse_instant
from embedsink.store.duckdb_errors import StoreBroken, StoreRefused
from embedsink.store.purge import PURGED_AT_ONCE, PurgeFilter
from embedsink.store.reader import EVERYTHING, Reader

LIST_VIEW = "quarantine_in_scope"
REPLAYABLE_VIEW = "quarantine_replayable"
UNTRIED_VIEW = "quarantine_not_replayable"
# The time without loading progress after which a replay or a purge fails.
LOADING_STALL_S_MAX = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay, in inputs.

    Args:
        replayed: accepted now.
        rejected: still invalid.
        untried: not parsed, since their reason can't change or only their beginning is stored.
    """

    replayed: int = 0
    rejected: int = 0
    untried: int = 0


def rows_json(reader: Reader, *, limit: int, quarantine_id: UUID | None = None) -> bytes:
    """Return the newest stored rejections in the reader's scope as JSON, an array of objects with times in UTC.

    Args:
        reader: a reader with the scope.
        limit: up to 1,000.
        quarantine_id: selects one rejection, and returns its complete `raw`. In a list, a long `raw` is shortened.
    """
    rows = reader.set_variables(row_limit=limit, quarantine_id=quarantine_id).dicts(LIST_VIEW)
    return orjson.dumps(rows, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)


async def replay(engine: Engine, quarantine_id: UUID | None = None) -> Replay:
    """Validate the quarantine again, or one input of it, and journal the inputs that are valid now.

    It first waits until everything that was acknowledged before is loaded, including rejections and earlier replays.

    An input's envelopes and its replay record are one append to the journal, so they become durable together. An
    envelope keeps its id. One without an id gets one that is derived from the quarantine id, so a second replay counts
    nothing twice.

    Args:
        engine: the open data folder.
        quarantine_id: the one input to replay; None for all.

    Raises:
        Unavailable: the journal can't write, loading stalls, or another replay is running. Inputs that were replayed
            before the error stay replayed.
    """
    if engine.replay_lock.locked():
        raise Unavailable(
            Reason.OVERLOADED, "quarantine: another replay is running. Retry when it has ended.", retry_after_s=10
        )
    replayed = rejected = 0
    async with engine.replay_lock:
        await _wait_until_loaded(engine)
        after: int | None = None
        # Each input may be a whole body. Blocks are parsed in a thread, so that requests are not delayed.
        while block := await asyncio.to_thread(_next_block, engine, after, quarantine_id):
            if block.replayed:
                await wait_for(
                    partial(engine.append_counted, block.lines, accepted=block.envelope_count, quarantined=0)
                )
            replayed += block.replayed
            rejected += block.rejected
            after = block.last_ingest_seq
        untried = await asyncio.to_thread(_untried_count, engine, quarantine_id)
    return Replay(replayed, rejected, untried)


def purge_filter(*, before: str | None, reason: str | None, key_id: str | None) -> PurgeFilter:
    """Parse the filter of a purge.

    Args:
        before: a time or an age such as `7d`: only rejections that were received before it.
        reason: only rejections with this reason.
        key_id: only rejections of this key.

    Raises:
        Refused: `bad_parameter`.
    """
    reasons = [str(known) for known in Reason]
    if reason is not None and reason not in reasons:
        advice = suggestion(reason, reasons, "The report `rejections` lists the reasons in use.")
        raise Refused(Reason.BAD_PARAMETER, f"reason: {preview(reason)} does not exist. {advice}")
    return PurgeFilter(before=parse_instant("before", before), reason=reason, key_id=key_id)


async def purge(engine: Engine, selected: PurgeFilter) -> int:
    """Delete rejections from the quarantine, and return their number. Ledgers and `rejections` keep the counts.

    It first waits until everything that was acknowledged before is loaded. The store file is durable when it returns.

    Raises:
        Unavailable: loading stalls, or the server is stopping. Rejections that were purged before stay purged.
    """
    await _wait_until_loaded(engine)
    purged = PURGED_AT_ONCE
    total = 0
    while purged == PURGED_AT_ONCE:
        purged = await asyncio.wrap_future(engine.loader.tasks.submit(partial(_purge_block, engine, selected)))
        total += purged
    return total


def _purge_block(engine: Engine, selected: PurgeFilter) -> int:
    try:
        return engine.loader.quarantine.purge_batch(selected)
    except (StoreBroken, StoreRefused) as error:
        raise Unavailable(Reason.NOT_READY, f"store: {error}. Retry.", retry_after_s=10) from error


async def _wait_until_loaded(engine: Engine) -> None:
    target, position, progress_at = engine.journal.last_number, 0, time.monotonic()
    while engine.load_notifier.position < target:
        if engine.load_notifier.position != position:
            position, progress_at = engine.load_notifier.position, time.monotonic()
        if time.monotonic() - progress_at > LOADING_STALL_S_MAX:
            cause = engine.loader.status.error or "Loading makes no progress"
            message = f"quarantine: is not loaded completely. {cause}. Retry when loading continues."
            raise Unavailable(Reason.NOT_READY, message, retry_after_s=10)
        await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class _Block:
    """The journal lines of a block's valid inputs, their counts, and the position of the next block."""

    lines: bytes
    envelope_count: int
    replayed: int
    rejected: int
    last_ingest_seq: int


def _next_block(engine: Engine, after: int | None, quarantine_id: UUID | None) -> _Block | None:
    with engine.store.reader(
        {**EVERYTHING, "after": after, "quarantine_id": quarantine_id}, uses_one_thread=True
    ) as reader:
        rows = reader.dicts(REPLAYABLE_VIEW)
    if not rows:
        return None
    valid = [(row, parsed) for row in rows if (parsed := _parse_again(row, engine))]
    return _Block(
        lines=b"".join(_lines_of(row, parsed) for row, parsed in valid),
        envelope_count=sum(len(parsed.accepted) for _, parsed in valid),
        replayed=len(valid),
        rejected=len(rows) - len(valid),
        last_ingest_seq=rows[-1]["ingest_seq"],
    )


def _untried_count(engine: Engine, quarantine_id: UUID | None) -> int:
    with engine.store.reader({**EVERYTHING, "quarantine_id": quarantine_id}, uses_one_thread=True) as reader:
        [row] = reader.dicts(UNTRIED_VIEW)
    return int(row["not_replayable_count"])


def _parse_again(row: Mapping[str, Any], engine: Engine) -> ParsedDelivery | None:
    """Parse an input again. Return None while any envelope is invalid or outside its key's scope."""
    raw = row["raw"].encode()
    body = base64.b64decode(raw) if row["raw_encoding"] == "base64" else raw
    key = engine.keys.by_id(row["key_id"])
    if key is None and row["key_id"] != IMPORT_KEY_ID:
        return None  # The key's scope is unknown since its entry was deleted.
    context = {name: row[name] for name in ("deployment", "session", "viewer", "tenant", "page")}
    try:
        parsed = parse(body, row["received_at_ms"], engine.rules)
        present = {name: value for name, value in context.items() if value is not None}
        parsed = parsed.with_defaults(present, row["sent_at_ms"]).restrict_to(key.deployments if key else None)
    except Refused:
        return None
    return None if parsed.rejected or not parsed.accepted else parsed


def _lines_of(row: Mapping[str, Any], parsed: ParsedDelivery) -> bytes:
    name = str(row["quarantine_id"])
    lines = delivery_lines(parsed, key_id=row["key_id"], new_id=_ids_from(UUID(name)), delivery_id=name)
    return lines + replay_line(name, received_at=now_ms())


def _ids_from(quarantine_id: UUID) -> NewId:
    """Return a source of ids for envelopes without one, in their order. Each replay of the input gives the same ids."""
    return chain([quarantine_id], (uuid5(quarantine_id, str(index)) for index in count(1))).__next__
