"""`GET /api/v1/events/live`: what was just loaded or quarantined, as server-sent events (docs/wire.md)."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2s
from typing import Any

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, Unavailable, quote
from embedsink.http.authentication import require_key
from embedsink.http.execute import run_query
from embedsink.http.query_params import EVENT_FILTERS, check_parameters, parse_event_filter, parse_limit, parse_switch
from embedsink.http.security_headers import NO_STORE
from embedsink.http.streaming import Download
from embedsink.reasons import Reason
from embedsink.reports.recent_events import ROWS_MAX, Counts, Span, count_arrivals, newest_arrivals
from embedsink.store.reader import Reader

PARAMETERS = (*EVENT_FILTERS, "rows", "recent", "after")
MEDIA_TYPE = "text/event-stream"
# Proxies close what is silent for a minute, nginx among them.
HEARTBEAT_S = 15.0
# Loads may follow each other in some tens of a second; people can't read faster than this. All look at the same ticks.
PAUSE_S = 0.5
# After a longer absence a stream goes on from here, and says so: what lies before is in the reports.
LOOK_BACK_SEGMENTS = 3_600
# For keys with a scope, whom the count of segments would tell how much others send.
RECENT_DAYS = 7
_NAME = re.compile(r"[0-9a-f]{1,16}")
RETRY_MS = 1_000
_POSITION_MAX = 2**31 - 1
HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}  # nginx would hold messages back


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader wants to be told of: its scope and what narrows it, as session variables, and whether with rows."""

    told_variables: tuple[tuple[str, object], ...]
    is_narrowed: bool
    # Of the key, not of the question: None for a key without a scope, which is told the numbers of segments.
    deployments: frozenset[int] | None = None
    wants_rows: bool = False
    recent: int = 0

    @property
    def variables(self) -> dict[str, object]:
        """The session variables that the views read."""
        return dict(self.told_variables)

    @classmethod
    def of(cls, query: QueryParams, key: Key, service_name: str) -> "Asked":
        """From an address.

        Raises:
            Refused: `bad_parameter`, or `out_of_scope` for a deployment that is not the key's.
        """
        variables = parse_event_filter(query, key) | {"service_name": service_name}
        return cls(
            tuple(sorted(variables.items())),
            is_narrowed=key.deployments is not None or any(name in query for name in EVENT_FILTERS),
            deployments=key.deployments,
            wants_rows=parse_switch(query, "rows", "off"),
            recent=parse_limit("recent", query.get("recent"), default=0, most=ROWS_MAX),
        )


async def show_live(request: Request) -> Response:
    """A stream of messages: one for each load, with its rows where they are asked for."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, PARAMETERS)
    engine: Engine = request.state.engine
    asked = Asked.of(request.query_params, key, engine.settings.service_name)
    had = _position_had(request, engine, key)
    if not engine.store.is_open:
        raise Unavailable(Reason.NOT_READY, "store: is being opened. Ask again.", retry_after_s=2)
    with ExitStack() as stack:
        woken = stack.enter_context(engine.load_notifier.listener(key.key_id))
        if request.method == "HEAD":
            return Response(media_type=MEDIA_TYPE, headers=HEADERS)
        stream = _Stream(engine, key, asked, had, woken)
        may_go_on = partial(engine.keys.is_live, key)
        return Download(stream.messages(), may_go_on, held=stack.pop_all(), media_type=MEDIA_TYPE, headers=HEADERS)


class _Stream:
    """What one reader is told. It keeps no more than how far its reader is: what is new lies in the store."""

    def __init__(self, engine: Engine, key: Key, asked: Asked, had: int | None, woken: asyncio.Event) -> None:
        self._engine = engine
        self._key_id = key.key_id
        self._live = engine.load_notifier
        self._asked = asked
        self._position = engine.load_notifier.position if had is None else had
        self._told_position = self._position if had is not None else _position_of(engine, asked, self._position)
        self._recent_count = asked.recent if had is None else 0  # Whoever comes again has them.
        self._woken = woken
        self._told_at = time.monotonic()

    async def messages(self) -> AsyncGenerator[bytes]:
        """The messages, until the server ends or the stream has lasted as long as one may."""
        until = time.monotonic() + self._engine.settings.live_timeout_s
        yield self._begin()
        if self._recent_count:
            yield self._encode("recent", {"rows": await self._recent()})
        while time.monotonic() < until and not self._live.ended.is_set():
            if message := await self._next_load():
                yield message
            elif time.monotonic() >= self._told_at + HEARTBEAT_S:
                yield self._encode(None, None)
            await self._wait(until)

    async def _next_load(self) -> bytes | None:
        """What was loaded since; None when that is nothing that concerns the reader."""
        self._woken.clear()
        span = Span(self._position, self._live.position)
        if span.last <= span.after:
            return None
        try:
            ask = partial(_ask, self._engine, self._asked, span, key_id=self._key_id)
            loaded = await self._live.answers.answer((self._asked, span), ask)
        except Unavailable:
            return None  # Nothing is missed: the position stays, and the next look finds what is there by then.
        self._position, after = span.last, self._name()
        self._told_position = _position_of(self._engine, self._asked, span.last)
        return self._encode("loaded", {"after": after, "segment": self._name()} | loaded) if loaded else None

    async def _wait(self, until: float) -> None:
        """Until there may be something to say, and until all look again: who looks at one moment shares an answer."""
        await _within(PAUSE_S - time.monotonic() % PAUSE_S, self._live.ended)
        if self._live.position <= self._position and not self._live.ended.is_set():
            await _within(min(until, self._told_at + HEARTBEAT_S) - time.monotonic(), self._woken)

    async def _recent(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        # Of a busy hour not all has to be looked at.
        for before in self._spans_before():
            with suppress(Unavailable):  # Then it begins with what is new.
                rows = await _ask_rows(self._engine, self._asked, before, key_id=self._key_id)
            if len(rows) >= self._recent_count:
                break
        return rows

    def _spans_before(self) -> list[Span]:
        counts = [LOOK_BACK_SEGMENTS // 360, LOOK_BACK_SEGMENTS]
        if self._asked.deployments is not None:
            counts[1] = self._position  # How many segments others fill must not show; RECENT_DAYS bounds it.
        return [Span(max(0, self._position - count), self._position) for count in counts]

    def _name(self) -> int | str:
        """The position as the reader is told it: a key with a scope gets a name that says nothing of other loads."""
        if self._asked.deployments is None:
            return self._told_position
        return f"{self._engine.opaque.hide(self._told_position):016x}"

    def _begin(self) -> bytes:
        told = {"revision": revision_of(self._engine, self._asked.deployments), "segment": self._name()}
        return b"retry: %d\n%b" % (RETRY_MS, self._encode("connected", told))

    def _encode(self, name: str | None, content: Any) -> bytes:
        """One message (HTML Living Standard, section 9.2.5); without a name it is a comment, which nobody is told."""
        self._told_at = time.monotonic()
        if name is None:
            return b":\n\n"
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            str(self._name()).encode(),
            name.encode(),
            orjson.dumps(content, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z),  # in one line
        )


def revision_of(engine: Engine, deployments: frozenset[int] | None) -> str:
    """Another text whenever rows of these deployments may have changed; it says nothing else."""
    return blake2s(engine.store.revisions.of(deployments).encode(), digest_size=8).hexdigest()


def _position_of(engine: Engine, asked: Asked, newest: int) -> int:
    """The newest segment up to `newest` that the reader may know of: behind it was nothing of its deployments."""
    if asked.deployments is None:
        return newest
    return min(newest, max(engine.load_notifier.first_position, engine.store.revisions.last_number(asked.deployments)))


async def _ask(engine: Engine, asked: Asked, span: Span, *, key_id: str) -> dict[str, Any] | None:
    """What a load brought; None where it is nothing of the reader's. Others' loads are none of its business."""
    revision = revision_of(engine, asked.deployments)
    read = partial(_read, wants_rows=asked.wants_rows)
    # Whoever comes again after long asks for much.
    slots = engine.short_query_slots if span.last - span.after <= LOOK_BACK_SEGMENTS else engine.report_slots
    counts, rows = await run_query(engine, slots.place(key_id), asked.variables | span.variables(), read)
    if asked.is_narrowed and not counts.outcomes.total():
        return None
    told = {
        "revision": revision,
        "counts": counts.by_outcome(has_duplicates=not asked.is_narrowed),
        "events": counts.events,
        "actions": counts.actions,
    }
    return told | ({"rows": rows, "droppedCount": counts.row_count - len(rows)} if asked.wants_rows else {})


async def _ask_rows(engine: Engine, asked: Asked, span: Span, *, key_id: str) -> list[dict[str, Any]]:
    # Among the reports: in a long journal what is rare takes as long as one, and no stream must wait for it.
    read = partial(newest_arrivals, limit=asked.recent)
    variables = asked.variables | span.variables()
    if asked.deployments is not None:
        variables["since"] = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=RECENT_DAYS)
    return await run_query(engine, engine.report_slots.place(key_id), variables, read)


def _read(reader: Reader, *, wants_rows: bool) -> tuple[Counts, list[dict[str, Any]]]:
    with reader.consistent():
        return count_arrivals(reader), newest_arrivals(reader) if wants_rows else []


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, seconds))


def _position_had(request: Request, engine: Engine, key: Key) -> int | None:
    """The last message that a reader had, if it had one: it is told what comes behind."""
    had, newest = (
        request.headers.get("last-event-id") or request.query_params.get("after"),
        engine.load_notifier.position,
    )
    if had is None:
        return None
    if key.deployments is not None:
        return _position_named(had, engine)
    if not (had.isascii() and had.isdigit() and len(had) <= len(str(_POSITION_MAX))):
        raise Refused(
            Reason.BAD_PARAMETER, f"after: {quote(had)} is not the id of a message. Leave it out to begin with now."
        )
    return max(0, min(int(had), newest), newest - LOOK_BACK_SEGMENTS)


def _position_named(name: str, engine: Engine) -> int:
    """The position of a name; of one from before the start of this process, where the process began."""
    if not _NAME.fullmatch(name):
        raise Refused(
            Reason.BAD_PARAMETER, f"after: {quote(name)} is not the id of a message. Leave it out to begin with now."
        )
    position = engine.opaque.reveal(int(name, 16))
    return (
        position
        if engine.load_notifier.first_position <= position <= engine.load_notifier.position
        else engine.load_notifier.first_position
    )
