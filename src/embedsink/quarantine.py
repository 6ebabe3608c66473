"""Kept rejections: reading them, and trying them again after an upgrade or a change of settings."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uuid_utils import uuid7

from embedsink.envelope import Parsed, journal_lines, parse, replayed_line
from embedsink.errors import Refused
from embedsink.sink import Sink, now_ms
from embedsink.store import EVERYTHING, Reader

LIST = "quarantine_in_scope"
REPLAYABLE = "quarantine_replayable"


@dataclass(frozen=True, slots=True)
class Replay:
    """What trying again came to: inputs that were accepted, and inputs that are still wrong."""

    replayed: int = 0
    rejected: int = 0


def rows(reader: Reader, *, limit: int) -> list[dict[str, Any]]:
    """The newest kept rejections in the reader's scope, at most `limit` (and 1,000), without the rest of long ones."""
    return _dicts(reader, LIST)[:limit]


async def replay_all(sink: Sink) -> Replay:
    """Validate everything in quarantine again, and journal what is valid now, each input once.

    The envelope and the record that it was replayed are one append, so they become durable together. An input is
    accepted under its own id, or under the quarantine's where it had none: replaying twice counts once.

    Raises:
        Unavailable: the journal can't write now; what was replayed before stays replayed.
    """
    replayed = rejected = 0
    for row in _replayable(sink):
        parsed = _parse_again(row, sink)
        if parsed is None:
            rejected += 1
            continue
        lines = journal_lines(parsed, key_id=row["key_id"], new_id=_ids_of(row))
        await sink.journal.append(lines + replayed_line(str(row["quarantine_id"]), received_at=now_ms()))
        sink.counters["accepted"] += len(parsed.accepted)
        replayed += 1
    return Replay(replayed, rejected)


def _replayable(sink: Sink) -> Iterator[dict[str, Any]]:
    """Some at a time: each may be a whole body."""
    after: int | None = None
    while True:
        with sink.store.reader({**EVERYTHING, "after": after}) as reader:
            found = _dicts(reader, REPLAYABLE)
        yield from found
        if not found:
            return
        after = found[-1]["arrival"]


def _dicts(reader: Reader, view: str) -> list[dict[str, Any]]:
    names = [column.name for column in reader.columns(view)]
    return [dict(zip(names, row, strict=True)) for block in reader.rows(view) for row in block]


def _parse_again(row: Mapping[str, Any], sink: Sink) -> Parsed | None:
    """The input as a delivery with the context it came in; None while anything in it is still wrong."""
    raw = row["raw"].encode()
    body = base64.b64decode(raw) if row["raw_encoding"] == "base64" else raw
    try:
        parsed = parse(body, row["received_at_ms"], sink.rules)
    except Refused:
        return None
    key = sink.keys.by_id(row["key_id"])
    reach = key.deployments if key else None
    if parsed.rejected or not parsed.accepted or (reach is not None and not parsed.deployments <= reach):
        return None
    context = {name: row[name] for name in ("deployment", "session", "viewer", "tenant", "page")}
    return parsed.within({name: value for name, value in context.items() if value is not None}, row["sent_at_ms"])


def _ids_of(row: Mapping[str, Any]) -> Any:
    ids = iter([row["quarantine_id"]])
    return lambda: next(ids, None) or uuid7()
