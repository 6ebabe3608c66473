"""A live stream: its filter, its position, and its messages (HTML Living Standard, section 9.2)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2s
from typing import Any

import orjson
from starlette.datastructures import QueryParams

from embedsink.auth.keys import Key
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.execute import run_query
from embedsink.http.query_params import EVENT_FILTERS, parse_event_filter, parse_limit, parse_switch
from embedsink.reports.recent_events import ROWS_MAX, IngestedCounts, SegmentRange, count_ingested, newest_ingested
from embedsink.store.reader import Reader

# nginx and other proxies close a connection that is silent for a minute.
HEARTBEAT_S = 15.0
# Loads may follow each other every few tenths of a second, and people don't read faster than this. All streams poll at
# the same ticks, so that they share queries.
POLL_INTERVAL_S = 0.5
# A client that resumes after more segments gets the newest of them, and its next message shows the gap.
RESUME_SEGMENTS_MAX = 3_600
# The bound for keys with a scope. A bound in segments would show them how much other deployments send.
RECENT_DAYS = 7
RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class LiveFilter:
    """The events that a stream shows.

    Args:
        filter_variables: the scope and the filter, as sorted session variables.
        is_narrowed: whether the stream shows less than all events.
        deployments: the key's scope; None for a key without a scope, whose message ids are segment numbers.
        wants_rows: whether messages contain the loaded rows.
        recent_count: the number of rows to begin with.
    """

    filter_variables: tuple[tuple[str, object], ...]
    is_narrowed: bool
    deployments: frozenset[int] | None = None
    wants_rows: bool = False
    recent_count: int = 0

    @property
    def variables(self) -> dict[str, object]:
        """The session variables for the views."""
        return dict(self.filter_variables)

    @classmethod
    def parse(cls, query: QueryParams, key: Key, service_name: str) -> "LiveFilter":
        """Parse the query.

        Raises:
            Refused: `bad_parameter`, or `out_of_scope` for a deployment outside the key's scope.
        """
        variables = parse_event_filter(query, key) | {"service_name": service_name}
        return cls(
            tuple(sorted(variables.items())),
            is_narrowed=key.deployments is not None or any(name in query for name in EVENT_FILTERS),
            deployments=key.deployments,
            wants_rows=parse_switch(query, "rows", "off"),
            recent_count=parse_limit("recent", query.get("recent"), default=0, maximum=ROWS_MAX),
        )


class LiveStream:
    """The stream of one client. It stores only the client's position, because the store contains the events.

    Args:
        engine: the open data folder.
        key: the client's key.
        filter: the events to show.
        resume_after: the position after which the client resumes; None for a new client.
        wakeup: set after each load.
    """

    def __init__(
        self, engine: Engine, key: Key, filter: LiveFilter, resume_after: int | None, wakeup: asyncio.Event
    ) -> None:
        self._engine = engine
        self._key_id = key.key_id
        self._notifier = engine.load_notifier
        self._filter = filter
        is_new = resume_after is None
        self._position = self._notifier.position if resume_after is None else resume_after
        self._shown_position = _shown_position(engine, filter, self._position) if is_new else self._position
        self._recent_count = filter.recent_count if is_new else 0  # A client that resumes already has these rows.
        self._wakeup = wakeup
        self._sent_at = time.monotonic()

    async def messages(self) -> AsyncGenerator[bytes]:
        """Yield messages until the server stops, or the stream reaches its maximum duration."""
        until = time.monotonic() + self._engine.settings.live_timeout_s
        yield self._connected_message()
        if self._recent_count:
            yield self._encode("recent", {"rows": await self._recent_rows()})
        while time.monotonic() < until and not self._notifier.closed.is_set():
            if message := await self._next_message():
                yield message
            elif time.monotonic() >= self._sent_at + HEARTBEAT_S:
                yield self._encode(None, None)
            await self._wait(until)

    async def _next_message(self) -> bytes | None:
        """Return the message about the loads since the last one; None if they contain nothing for this client."""
        self._wakeup.clear()
        span = SegmentRange(self._position, self._notifier.position)
        if span.last <= span.after:
            return None
        try:
            query = partial(_query_load, self._engine, self._filter, span, key_id=self._key_id)
            loaded = await self._notifier.queries.run((self._filter, span), query)
        except Unavailable:
            return None  # The position stays, so the next poll includes these events.
        self._position, after = span.last, self._message_id()
        self._shown_position = _shown_position(self._engine, self._filter, span.last)
        return self._encode("loaded", {"after": after, "segment": self._message_id()} | loaded) if loaded else None

    async def _wait(self, until: float) -> None:
        """Wait until the next tick, and then until the next load, the next heartbeat or the end."""
        await _wait_for(self._notifier.closed, POLL_INTERVAL_S - time.monotonic() % POLL_INTERVAL_S)
        if self._notifier.position <= self._position and not self._notifier.closed.is_set():
            await _wait_for(self._wakeup, min(until, self._sent_at + HEARTBEAT_S) - time.monotonic())

    async def _recent_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        # In a busy hour the few newest segments contain enough rows.
        for span in self._recent_spans():
            with suppress(Unavailable):  # On an error, the stream begins with new events.
                rows = await _query_recent(self._engine, self._filter, span, key_id=self._key_id)
            if len(rows) >= self._recent_count:
                break
        return rows

    def _recent_spans(self) -> list[SegmentRange]:
        counts = [RESUME_SEGMENTS_MAX // 360, RESUME_SEGMENTS_MAX]
        if self._filter.deployments is not None:
            counts[1] = self._position  # The number of other deployments' segments is secret; RECENT_DAYS is the bound.
        return [SegmentRange(max(0, self._position - count), self._position) for count in counts]

    def _message_id(self) -> int | str:
        """Return the position as a message id; opaque for a key with a scope, to hide other deployments' loads."""
        if self._filter.deployments is None:
            return self._shown_position
        return f"{self._engine.number_cipher.encrypt(self._shown_position):016x}"

    def _connected_message(self) -> bytes:
        content = {"revision": revision_of(self._engine, self._filter.deployments), "segment": self._message_id()}
        return b"retry: %d\n%b" % (RETRY_MS, self._encode("connected", content))

    def _encode(self, name: str | None, content: Any) -> bytes:
        """Return one message. Without a name it is a comment, which browsers ignore."""
        self._sent_at = time.monotonic()
        if name is None:
            return b":\n\n"
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            str(self._message_id()).encode(),
            name.encode(),
            orjson.dumps(content, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z),  # in one line
        )


def revision_of(engine: Engine, deployments: frozenset[int] | None) -> str:
    """Return a text that changes whenever rows of these deployments may have changed, and reveals nothing else."""
    return blake2s(engine.store.revisions.of(deployments).encode(), digest_size=8).hexdigest()


def _shown_position(engine: Engine, filter: LiveFilter, newest: int) -> int:
    """Return the newest segment, at most `newest`, with rows of the key's deployments. Later ones stay hidden."""
    if filter.deployments is None:
        return newest
    last = engine.store.revisions.last_number(filter.deployments)
    return min(newest, max(engine.load_notifier.first_position, last))


async def _query_load(engine: Engine, filter: LiveFilter, span: SegmentRange, *, key_id: str) -> dict[str, Any] | None:
    """Return the content of a `loaded` message; None if the filter excludes the whole load."""
    revision = revision_of(engine, filter.deployments)
    read = partial(_read, wants_rows=filter.wants_rows)
    # A client that resumes after a long absence runs a long query.
    is_short = span.last - span.after <= RESUME_SEGMENTS_MAX
    slots = engine.limiters.live if is_short else engine.limiters.reports
    counts, rows = await run_query(engine, slots.slot(key_id), filter.variables | span.variables(), read)
    if filter.is_narrowed and not counts.outcomes.total():
        return None
    content = {
        "revision": revision,
        "counts": counts.by_outcome(includes_duplicates=not filter.is_narrowed),
        "events": counts.events,
        "actions": counts.actions,
    }
    return content | ({"rows": rows, "droppedCount": counts.row_count - len(rows)} if filter.wants_rows else {})


async def _query_recent(engine: Engine, filter: LiveFilter, span: SegmentRange, *, key_id: str) -> list[dict[str, Any]]:
    # Uses a report's slot: in a long journal a search for rare events takes as long as a report.
    read = partial(newest_ingested, limit=filter.recent_count)
    variables = filter.variables | span.variables()
    if filter.deployments is not None:
        variables["since"] = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=RECENT_DAYS)
    return await run_query(engine, engine.limiters.reports.slot(key_id), variables, read)


def _read(reader: Reader, *, wants_rows: bool) -> tuple[IngestedCounts, list[dict[str, Any]]]:
    with reader.consistent():
        return count_ingested(reader), newest_ingested(reader) if wants_rows else []


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, timeout_s))
