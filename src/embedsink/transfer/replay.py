"""Kept rejections: reading them, and trying them again after an upgrade or a change of settings."""

import asyncio
import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any
from uuid import UUID, uuid5

from embedsink.engine import IMPORT_KEY_ID, Engine, now_ms
from embedsink.errors import Refused, Unavailable, instead, quote
from embedsink.ingest.records import NewId, journal_lines, replayed_line
from embedsink.journal.writer import wait_for
from embedsink.protocol.validation import Parsed, parse
from embedsink.reasons import Reason
from embedsink.reports.scope import parse_instant
from embedsink.store.duckdb_errors import StoreBroken, StoreRefused
from embedsink.store.purge import PURGED_AT_ONCE, PurgeFilter
from embedsink.store.reader import EVERYTHING, Reader

LIST = "quarantine_in_scope"
REPLAYABLE = "quarantine_replayable"
UNTRIED = "quarantine_untried"
STANDSTILL_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Replay:
    """What trying again came to: inputs that were accepted, that are still wrong, and that can't become right."""

    replayed: int = 0
    rejected: int = 0
    untried: int = 0


def rows(reader: Reader, *, limit: int, quarantine_id: UUID | None = None) -> list[dict[str, Any]]:
    """The newest kept rejections in the reader's scope, at most `limit` (and 1,000).

    Of long ones `raw` is only the beginning, but for the one that is asked for by its id.
    """
    return reader.narrowed(row_limit=limit, quarantine_id=quarantine_id).dicts(LIST)


async def replay(engine: Engine, quarantine_id: UUID | None = None) -> Replay:
    """Validate everything in quarantine again, or one input alone, and journal what is valid now, each input once.

    It waits until everything is loaded that was acknowledged before, rejections and what another replay journaled.

    The envelope and the record that it was replayed are one append, so they become durable together. An input is
    accepted under its own id; where it had none, under one that depends on the quarantine's: replaying twice counts
    once.

    Raises:
        Unavailable: the journal can't write now, loading stands still, or another replay is running; what was replayed
            stays replayed.
    """
    if engine.replaying.locked():
        raise Unavailable(Reason.OVERLOADED, "quarantine: is being replayed. Wait for that.", retry_after_s=10)
    replayed = rejected = 0
    async with engine.replaying:
        await _catch_up(engine)
        after: int | None = None
        # In a thread, some at a time: each may be a whole body, and senders must not wait for it.
        while block := await asyncio.to_thread(_next_block, engine, after, quarantine_id):
            if block.replayed:
                await wait_for(partial(engine.submit, block.lines, accepted=block.envelope_count, quarantined=0))
            replayed += block.replayed
            rejected += block.rejected
            after = block.last_arrival
        untried = await asyncio.to_thread(_untried_count, engine, quarantine_id)
    return Replay(replayed, rejected, untried)


def purge_filter(*, before: str | None, reason: str | None, key_id: str | None) -> PurgeFilter:
    """Which rejections are purged, from what a person typed: a time or an age, a reason, the id of a key.

    Raises:
        Refused: `bad_parameter`.
    """
    reasons = [str(known) for known in Reason]
    if reason is not None and reason not in reasons:
        raise Refused(Reason.BAD_PARAMETER, f"reason: {quote(reason)} does not exist. {instead(reason, reasons)}")
    return PurgeFilter(before=parse_instant("before", before), reason=reason, key_id=key_id)


async def purge(engine: Engine, which: PurgeFilter) -> int:
    """Take kept rejections out of the quarantine; how many. Their counts stay, in ledgers and in `rejections`.

    It waits until everything is loaded that was acknowledged before. The store file has it when this returns.

    Raises:
        Unavailable: loading stands still, or the server is stopping; what was purged stays purged.
    """
    await _catch_up(engine)
    purged = PURGED_AT_ONCE
    total = 0
    while purged == PURGED_AT_ONCE:
        purged = await asyncio.wrap_future(engine.loader.tasks.submit(partial(_purge_some, engine, which)))
        total += purged
    return total


def _purge_some(engine: Engine, which: PurgeFilter) -> int:
    try:
        return engine.loader.quarantine.purge(which)
    except (StoreBroken, StoreRefused) as error:
        raise Unavailable(Reason.NOT_READY, f"store: {error}. Ask again.", retry_after_s=10) from error


async def _catch_up(engine: Engine) -> None:
    acknowledged, position, moved_at = engine.journal.last_number, 0, time.monotonic()
    while engine.load_notifier.position < acknowledged:
        if engine.load_notifier.position != position:
            position, moved_at = engine.load_notifier.position, time.monotonic()
        if time.monotonic() - moved_at > STANDSTILL_S_MAX:
            why = engine.loader.status.trouble or "Loading stands still"
            waits = f"quarantine: is not all loaded yet. {why}. Replay it when that has changed."
            raise Unavailable(Reason.NOT_READY, waits, retry_after_s=10)
        await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class _Block:
    """Journal lines of the inputs that are valid by now, how many are not, and where to go on."""

    lines: bytes
    envelope_count: int
    replayed: int
    rejected: int
    last_arrival: int


def _next_block(engine: Engine, after: int | None, quarantine_id: UUID | None) -> _Block | None:
    with engine.store.reader({**EVERYTHING, "after": after, "quarantine_id": quarantine_id}, is_brief=True) as reader:
        rows = reader.dicts(REPLAYABLE)
    if not rows:
        return None
    valid = [(row, parsed) for row in rows if (parsed := _valid(row, engine))]
    return _Block(
        lines=b"".join(_lines_of(row, parsed) for row, parsed in valid),
        envelope_count=sum(len(parsed.accepted) for _, parsed in valid),
        replayed=len(valid),
        rejected=len(rows) - len(valid),
        last_arrival=rows[-1]["arrival"],
    )


def _untried_count(engine: Engine, quarantine_id: UUID | None) -> int:
    with engine.store.reader({**EVERYTHING, "quarantine_id": quarantine_id}, is_brief=True) as reader:
        [row] = reader.dicts(UNTRIED)
    return int(row["untried_count"])


def _valid(row: Mapping[str, Any], engine: Engine) -> Parsed | None:
    """The input, parsed again; None while anything in it is still wrong, or out of its key's scope."""
    raw = row["raw"].encode()
    body = base64.b64decode(raw) if row["raw_encoding"] == "base64" else raw
    key = engine.keys.by_id(row["key_id"])
    if key is None and row["key_id"] != IMPORT_KEY_ID:
        return None  # Nobody knows any more how far it reached.
    context = {name: row[name] for name in ("deployment", "session", "viewer", "tenant", "page")}
    try:
        parsed = parse(body, row["received_at_ms"], engine.rules)
        known = {name: value for name, value in context.items() if value is not None}
        parsed = parsed.within(known, row["sent_at_ms"]).within_scope(key.deployments if key else None)
    except Refused:
        return None
    return None if parsed.rejected or not parsed.accepted else parsed


def _lines_of(row: Mapping[str, Any], parsed: Parsed) -> bytes:
    name = str(row["quarantine_id"])
    lines = journal_lines(parsed, key_id=row["key_id"], new_id=_ids_from(UUID(name)), delivery_id=name)
    return lines + replayed_line(name, received_at=now_ms())


def _ids_from(quarantine_id: UUID) -> NewId:
    """Ids for the envelopes of an input that have none, in their order: whenever it is replayed, they are the same."""
    return chain([quarantine_id], (uuid5(quarantine_id, str(place)) for place in count(1))).__next__
