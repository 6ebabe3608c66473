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
from embedsink.http.query_params import EVENT_FILTERS, parse_bounded_integer, parse_event_filter
from embedsink.key_scope import KeyScope
from embedsink.reports.parameters import parse_switch
from embedsink.reports.recent_events import (
    ROWS_MAX,
    IngestedCounts,
    SegmentRange,
    count_ingested,
    newest_ingested,
    newest_segment,
)
from embedsink.store.reader import Reader
from embedsink.store.timezones import naive_utc

# nginx and other proxies close a connection that is silent for a minute.
HEARTBEAT_S = 15.0
# Loads may follow each other every few tenths of a second, and people don't read faster than this. All streams poll at
# the same ticks, so that they share queries.
POLL_INTERVAL_S = 0.5
# A client that has missed more segments gets this many of the newest, and its next message shows the gap.
RESUME_SEGMENTS_MAX = 3_600
# The limit of the recent rows for keys with a scope. A limit in segments would reveal how much other deployments send.
RECENT_DAYS = 7
# In a busy hour, this many of the newest segments contain all recent rows that a client requests.
NEWEST_SEGMENTS = 10
RETRY_MS = 1_000  # the time after which browsers reconnect


@dataclass(frozen=True, slots=True)
class LiveFilter:
    """The events that a stream shows.

    Args:
        filter_variables: the session variables of the scope and the filter, sorted by name, so that streams with the
            same filter share queries.
        is_narrowed: whether the stream shows less than all events.
        scope: the scope of the key. Without a limit, message ids are segment numbers.
        wants_rows: whether messages contain the loaded rows.
        recent_count: the number of rows to begin with.
    """

    filter_variables: tuple[tuple[str, object], ...]
    is_narrowed: bool
    scope: KeyScope
    wants_rows: bool = False
    recent_count: int = 0

    @property
    def variables(self) -> dict[str, object]:
        """The session variables for the views."""
        return dict(self.filter_variables)

    @classmethod
    def parse(cls, query: QueryParams, key: Key, engine: Engine) -> "LiveFilter":
        """Return the filter of a request.

        Raises:
            Refused: a parameter is invalid (`bad_parameter`), or a deployment is outside the key's scope
                (`out_of_scope`).
        """
        variables = parse_event_filter(query, engine.privacy.stored_scope(key.scope))
        variables["service_name"] = engine.settings.service_name
        return cls(
            filter_variables=tuple(sorted(variables.items())),  # hashable, so that equal filters share queries
            is_narrowed=key.scope.is_limited or any(name in query for name in EVENT_FILTERS),
            scope=key.scope,
            wants_rows=parse_switch("rows", query.get("rows"), default=False),
            recent_count=parse_bounded_integer("recent", query.get("recent"), default=0, maximum=ROWS_MAX),
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
        # `_position` is the last segment whose events were sent or filtered out. Message ids contain
        # `_visible_position`, which changes only with a message: the newest segment that the key may learn of.
        if resume_after is None:
            self._position = self._notifier.position
            self._visible_position = self._position  # `start` limits it.
            self._recent_count = filter.recent_count
        else:
            self._position = self._visible_position = resume_after
            self._recent_count = 0  # A client that resumes already has the recent rows.
        self._is_new = resume_after is None
        self._wakeup = wakeup
        self._last_activity_at = time.monotonic()  # when a message or a heartbeat was last sent

    async def start(self) -> None:
        """Find the position that a new client may learn of. Call this before the response starts.

        Raises:
            Unavailable: the query fails, so the client gets a 503.
        """
        if self._is_new:
            span = SegmentRange(0, self._position)
            newest = await _find_newest_segment(self._engine, self._filter, span, key_id=self._key_id)
            self._visible_position = _visible_position(self._engine, span, newest)

    async def messages(self) -> AsyncGenerator[bytes]:
        """Yield messages until the server stops, or the stream reaches its maximum duration."""
        ends_at = time.monotonic() + self._engine.settings.live_timeout_s
        yield self._connected_message()
        if self._recent_count:
            yield self._message("recent", {"rows": await self._recent_rows()})
        while time.monotonic() < ends_at and not self._notifier.closed.is_set():
            if message := await self._loaded_message():
                yield message
            elif time.monotonic() >= self._last_activity_at + HEARTBEAT_S:
                yield self._heartbeat()
            await self._wait(ends_at)

    async def _loaded_message(self) -> bytes | None:
        """Return a message about the loads since the last message.

        Return None if nothing was loaded, if the loads contain nothing for this client, or if the query fails.
        """
        # Clear before reading the position, so that no load is missed.
        self._wakeup.clear()
        span = SegmentRange(self._position, self._notifier.position)
        if span.last <= span.after:
            return None
        try:
            query = partial(_query_load, self._engine, self._filter, span, key_id=self._key_id)
            # Streams with the same filter and span share one query.
            loaded = await self._engine.live_queries.run((self._filter, span), query)
        except Unavailable:
            return None  # The position is unchanged, so the next poll includes these events.
        self._position = span.last
        if loaded is None:
            # Keep the visible position: clients detect gaps by comparing `after` with the id of their last message.
            return None
        previous_id = self._message_id()
        content, newest = loaded
        self._visible_position = _visible_position(self._engine, span, newest)
        ids = {"after": previous_id, "segment": self._message_id()}
        if self._filter.scope.tenants is not None:
            content = content | {"revision": self._revision()}
        return self._message("loaded", ids | content)

    async def _wait(self, ends_at: float) -> None:
        """Wait until the next poll. If nothing was loaded, wait longer: for a load, a heartbeat or the end."""
        # All streams poll at multiples of the interval, so that they share queries.
        until_poll_s = POLL_INTERVAL_S - time.monotonic() % POLL_INTERVAL_S
        await _wait_for_event(self._notifier.closed, until_poll_s)
        if self._notifier.position <= self._position and not self._notifier.closed.is_set():
            heartbeat_at = self._last_activity_at + HEARTBEAT_S
            await _wait_for_event(self._wakeup, min(ends_at, heartbeat_at) - time.monotonic())

    async def _recent_rows(self) -> list[dict[str, Any]]:
        """Return the newest rows, oldest first; fewer if a query fails. First search only the newest few segments."""
        rows: list[dict[str, Any]] = []
        for span in self._recent_spans():
            with suppress(Unavailable):  # On an error, the stream begins with new events.
                rows = await _query_recent(self._engine, self._filter, span, key_id=self._key_id)
            if len(rows) >= self._recent_count:
                break
        return rows

    def _recent_spans(self) -> list[SegmentRange]:
        """Return two ranges to search for recent rows: the newest few segments, and then the largest allowed range."""
        newest = SegmentRange(max(0, self._position - NEWEST_SEGMENTS), self._position)
        if not self._filter.scope.is_limited:
            return [newest, SegmentRange(max(0, self._position - RESUME_SEGMENTS_MAX), self._position)]
        # A limit in segments would reveal how much others send. `_query_recent` limits the days instead.
        return [newest, SegmentRange(0, self._position)]

    def _message_id(self) -> int | str:
        """Return the visible position as a message id.

        For a key with a scope, encrypt the position: the plain number would show how much was loaded for others.
        """
        if not self._filter.scope.is_limited:
            return self._visible_position
        return f"{self._engine.number_cipher.encrypt(self._visible_position):016x}"

    def _connected_message(self) -> bytes:
        """Return the first message, which also sets the time after which browsers reconnect."""
        content = {"revision": self._revision(), "segment": self._message_id()}
        return b"retry: %d\n%b" % (RETRY_MS, self._message("connected", content))

    def _revision(self) -> str:
        """Return a text that changes whenever rows in the key's scope may have changed, and reveals nothing else."""
        if self._filter.scope.tenants is not None:
            return _digest_of(str(self._message_id()))  # The revisions of the store are those of deployments.
        return _digest_of(self._engine.store.revisions.of(self._filter.scope.deployments))

    def _message(self, name: str, content: Any) -> bytes:
        """Return a message in the format of server-sent events, with the content as one line of JSON."""
        self._last_activity_at = time.monotonic()
        data = orjson.dumps(content, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (str(self._message_id()).encode(), name.encode(), data)

    def _heartbeat(self) -> bytes:
        """Return a comment, which browsers ignore. Without it, proxies would close a silent connection."""
        self._last_activity_at = time.monotonic()
        return b":\n\n"


def _visible_position(engine: Engine, span: SegmentRange, newest: int | None) -> int:
    """Return the newest segment of a span that the key may learn of.

    Without a scope (`newest` is None), this is the end of the span. With a scope, this is the newest segment with rows
    in the scope, because later segments contain only rows of others. Without such a segment since the start of the
    server, this is the position at the start.
    """
    if newest is None:
        return span.last
    # Segments after the span may already be loaded.
    return min(span.last, max(engine.load_notifier.position_at_start, newest))


async def _find_newest_segment(engine: Engine, filter: LiveFilter, span: SegmentRange, *, key_id: str) -> int | None:
    """Return the newest segment of a span with rows in scope: 0 without one; None for a key without a scope."""
    if filter.scope.tenants is None:
        return _last_change(engine, filter.scope)
    # The revisions of the store are those of deployments, so query the store.
    variables = {
        **filter.scope.variables(),
        **span.variables(),
        "internal": "include",
        "since": naive_utc(datetime.now(UTC)) - timedelta(days=RECENT_DAYS),
    }
    return await run_query(
        engine, engine.limiters.reports.slot(key_id), partial(engine.store.reader, variables), newest_segment
    )


def _last_change(engine: Engine, scope: KeyScope) -> int | None:
    """Return the newest segment that changed a deployment of a scope; None without a limit to deployments."""
    return None if scope.deployments is None else engine.store.revisions.segment_of_last_change(scope.deployments)


async def _query_load(
    engine: Engine, filter: LiveFilter, span: SegmentRange, *, key_id: str
) -> tuple[dict[str, Any], int | None] | None:
    """Return the content of a `loaded` message, and the result of `_find_newest_segment` for its span.

    Return None if the filter excludes the whole load.
    """
    # Read this before the query: later loads must change the revision.
    revision = _digest_of(engine.store.revisions.of(filter.scope.deployments))
    is_tenant_limited = filter.scope.tenants is not None
    read = partial(_read_load, wants_rows=filter.wants_rows, wants_position=is_tenant_limited)
    # After a long absence of the client, the query takes as long as a report.
    is_short_span = span.last - span.after <= RESUME_SEGMENTS_MAX
    limiter = engine.limiters.live if is_short_span else engine.limiters.reports
    open_reader = partial(engine.store.reader, filter.variables | span.variables())
    counts, rows, newest = await run_query(engine, limiter.slot(key_id), open_reader, read)
    if filter.is_narrowed and not counts.outcomes.total():
        return None
    content: dict[str, Any] = {
        "revision": revision,
        # The scope of a duplicate is not stored, so a narrowed stream gets no count of duplicates.
        "counts": counts.by_outcome(includes_duplicates=not filter.is_narrowed),
        "events": counts.events,
        "actions": counts.actions,
    }
    if filter.wants_rows:
        content |= {"rows": rows, "droppedCount": counts.row_count - len(rows)}
    return content, newest if is_tenant_limited else _last_change(engine, filter.scope)


async def _query_recent(engine: Engine, filter: LiveFilter, span: SegmentRange, *, key_id: str) -> list[dict[str, Any]]:
    """Return the newest rows of a span that the filter includes, oldest first."""
    # Use a report's slot: in many segments, a search for rare events takes as long as a report.
    read = partial(newest_ingested, limit=filter.recent_count)
    variables = filter.variables | span.variables()
    if filter.scope.is_limited:  # The span may contain all segments, so limit the search by days.
        variables["since"] = naive_utc(datetime.now(UTC)) - timedelta(days=RECENT_DAYS)
    return await run_query(engine, engine.limiters.reports.slot(key_id), partial(engine.store.reader, variables), read)


def _read_load(
    reader: Reader, *, wants_rows: bool, wants_position: bool
) -> tuple[IngestedCounts, list[dict[str, Any]], int | None]:
    """Return the counts, the newest rows and the newest segment of a load, read in one transaction.

    Without `wants_rows`, return no rows, and without `wants_position`, no segment.
    """
    with reader.consistent():
        counts = count_ingested(reader)
        rows = newest_ingested(reader) if wants_rows else []
        position = newest_segment(reader) if wants_position else None
    return counts, rows, position


def _digest_of(text: str) -> str:
    return blake2s(text.encode(), digest_size=8).hexdigest()


async def _wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until the event is set, or until the timeout."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, timeout_s))
