"""A connection with limits for what has none in uvicorn: the head of a request, and a body that nobody reads."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from embedsink.http.wire.connection_registry import ConnectionRegistry
from embedsink.http.wire.ingest_protocol import IngestProtocol

CONNECTIONS_MAX = 4_096
REQUEST_BYTES_MAX = 8 * 1_048_576
# What frames one body, with its head: the lengths of its chunks, and trailers. The parser copies a trailer with each
# read that makes it longer.
FRAMING_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 16_384
# Of a head, and of the trailers behind its body. Browsers send some 20, and proxies add some.
FIELDS_MAX = 100
HEAD_TIMEOUT_S = 10.0
# What is still read of a body that was answered already: a sender has to finish before it reads a 413. Each MiB costs
# 0.8 ms of the event loop.
UNREAD_BYTES_MAX = 2 * 1_048_576
# Beyond it a connection has stalled. Connections keep no more than this each without being counted.
UNSENT_BYTES_HIGH = 16_384
_TOO_LONG = f"The head is larger than {HEAD_BYTES_MAX:,} bytes."
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"  # RFC 6585
)


def limited_connections(
    *, connections_max: int = CONNECTIONS_MAX, request_bytes_max: int = REQUEST_BYTES_MAX
) -> Callable[..., asyncio.Protocol]:
    """What `uvicorn.Config(http=…)` takes, for one server.

    Args:
        connections_max: how many may be open at once.
        request_bytes_max: how long a request may be as it is written, with what frames its body.
    """
    return partial(LimitedConnection, request_bytes_max=request_bytes_max, registry=ConnectionRegistry(connections_max))


class LimitedConnection(IngestProtocol):
    """Closes on senders whose head is too large or takes too long, and on those who don't stop after an answer.

    A new connection beyond `connections_max` closes the one that has waited longest: for a whole request, for its
    client to read, or with an answer that is held back. Clients that open many connections lock nobody out.
    """

    _head_bytes = 0
    _open_bytes = 0  # of the reads that brought the head which is not whole yet
    _unread_bytes = 0
    _request_bytes = 0
    _framing_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _held_answer: Callable[[], None] | None = None
    _held_timer: asyncio.TimerHandle | None = None
    _is_ending = False

    def __init__(
        self,
        *arguments: Any,
        request_bytes_max: int,
        registry: ConnectionRegistry,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._registry = registry
        self._request_bytes_max = request_bytes_max

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head; close what is too many, which is this one when all others are busy."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._await_head()
        self._registry.add_waiting(self)
        self._registry.evict_beyond_limit(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more, and hold no answer back."""
        self._stop_waiting()
        self._registry.remove(self)
        super().connection_lost(exc)
        self._answer_held()

    def shutdown(self) -> None:
        """Close when all is answered. An answer that is held back is sent now, and no further one is held back."""
        self._is_ending = True
        super().shutdown()
        self._answer_held()

    def evict(self) -> None:
        """Close at once. What a client does not read is not sent any more."""
        if self.flow.write_paused:
            self._abort()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read: others may have its place."""
        super().pause_writing()
        self._registry.add_stalled(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._registry.remove_stalled(self)
        self._registry.add_waiting(self)
        self._work_if_busy()

    def delay_answer(self, delay_s: float, answer: Callable[[], None]) -> None:
        """Call `answer` after so long, or when the connection ends. Until then others may have its place."""
        if self._is_ending:
            answer()
            return
        self._running.body = b""
        self._held_answer = answer
        self._held_timer = self.loop.call_later(delay_s, self._answer_held)
        self._registry.add_waiting(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of a head, or a trailer, until there are too many."""
        if len(self.headers) == FIELDS_MAX:
            self._end_head(f"The head has more than {FIELDS_MAX} fields.")
        # What uvicorn does; calling it would cost 0.1 µs for each field.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _feed(self, data: bytes) -> None:
        """Parse it, and look whether a head is still open afterwards. No more than one part of it is kept before."""
        if len(data) > HEAD_BYTES_MAX:
            for start in range(0, len(data), HEAD_BYTES_MAX):
                if not self.transport.is_closing():
                    self._feed(data[start : start + HEAD_BYTES_MAX])
            return
        cycle = self.cycle
        # Only then has the size of a head to be counted, which takes a while.
        self._may_be_long = self._open_bytes + len(data) > HEAD_BYTES_MAX
        self._body_bytes = 0
        super()._feed(data)
        if self.transport.is_closing():
            return  # It could not be parsed, or its answer was the last.
        if self._held is not None:
            self._open_bytes = self._unread_bytes = 0
            self._stop_waiting()  # The head is whole, and its body is on its way.
        elif self._has_whole_head():
            self._open_bytes = 0
            if self.cycle.more_body:
                self._count_request(len(data))
                if self.cycle.response_complete:
                    self._skip(len(data))
                    return
            else:
                self._request_bytes = self._framing_bytes = 0
            self._unread_bytes = 0
            if self._timer is not None:
                self._stop_waiting()
            self._work_if_busy()
        elif self._timer is None or self.cycle is not cycle or self._unread_bytes:
            # Not counted: it may begin with the end of the body before, or with whole requests.
            self._open_bytes = len(data)
            self._unread_bytes = 0
            self._stop_waiting()
            self._await_head()
        else:
            self._head_bytes += len(data)
            self._open_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse_head(_TOO_LONG)

    def on_response_complete(self) -> None:
        """An answer was written: wait again, behind all others, unless the next request is here already."""
        is_last = not self.pipeline
        super().on_response_complete()
        if not is_last:
            self._work_if_busy()
        elif not self.transport.is_closing():
            self._registry.add_waiting(self)

    def _work_if_busy(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_asking = cycle is not None and not cycle.response_complete and not cycle.more_body
        if is_asking and self._held_answer is None and not self.flow.write_paused:
            self._registry.remove_waiting(self)

    def _answer_held(self) -> None:
        if self._held_answer is not None and self._held_timer is not None:
            self._held_timer.cancel()
            answer, self._held_answer = self._held_answer, None
            answer()

    def _check_head(self) -> None:
        if self._bytes_of_head() > HEAD_BYTES_MAX:
            self._end_head(_TOO_LONG)

    def _end_head(self, why: str) -> NoReturn:
        """Read no further. Whoever waits for an answer to what came before gets that instead of a refusal."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete:
            self._refuse_head(why)
        raise ConnectionAbortedError

    def _is_refused(self) -> bool:
        return self._held_answer is not None and self.cycle is self._running

    def _bytes_of_head(self) -> int:
        first = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return first + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers) + len("\r\n")

    def _refuse_head(self, why: str) -> None:
        self._note_refusal(why)
        self.transport.write(_TOO_LARGE)
        self.transport.close()

    def _count_request(self, byte_count: int) -> None:
        self._request_bytes += byte_count
        self._framing_bytes += byte_count - self._body_bytes
        if self._request_bytes > self._request_bytes_max or self._framing_bytes > FRAMING_BYTES_MAX:
            self.transport.close()

    def _skip(self, byte_count: int) -> None:
        self._unread_bytes += byte_count
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self.transport.close()
        elif self._timer is None:
            self._await_head()  # uvicorn has put its own timer off, and the rest may never come.

    def _has_whole_head(self) -> bool:
        # uvicorn begins a scope with a request's first byte, and adds the method when its head is whole.
        scope: Mapping[str, object] | None = self.scope  # None before the first request
        return scope is not None and "method" in scope

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._await_head()  # An answer to an earlier request is still on its way.
        else:
            self.transport.close()
