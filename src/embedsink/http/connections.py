"""A connection with limits for what has none in uvicorn: the head of a request, and a body that nobody reads."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from embedsink.http.protocol import IngestProtocol

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 4_096
# A body in chunks of one byte takes six times its size; what goes beyond that is trailers without an end.
REQUEST_BYTES_MAX = 8 * 1_048_576
HEAD_BYTES_MAX = 65_536
HEAD_TIMEOUT_S = 10.0
# What is still read of a body that was answered already: a sender has to finish before it reads a 413.
UNREAD_BYTES_MAX = 8 * 1_048_576
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"  # RFC 6585
)


def bounded_connections(
    *, connections_max: int = CONNECTIONS_MAX, request_bytes_max: int = REQUEST_BYTES_MAX
) -> Callable[..., asyncio.Protocol]:
    """What `uvicorn.Config(http=…)` takes, for one server.

    Args:
        connections_max: how many may be open at once.
        request_bytes_max: how long a request may be as it is written, with what frames its body.
    """
    # Those that have no request on its way, longest first.
    waiting: dict[BoundedConnection, None] = {}
    return partial(
        BoundedConnection, connections_max=connections_max, request_bytes_max=request_bytes_max, waiting=waiting
    )


class BoundedConnection(IngestProtocol):
    """Closes on senders whose head is too large or takes too long, and on those who don't stop after an answer.

    Beyond `connections_max` it closes the connection that has gone longest without a whole request: whoever opens many
    and says nothing must not lock out those who speak.
    """

    _head_bytes = 0
    _open_bytes = 0  # of the reads that brought the head which is not whole yet
    _unread_bytes = 0
    _request_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        *arguments: Any,
        connections_max: int,
        request_bytes_max: int,
        waiting: "dict[BoundedConnection, None]",
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._waiting = waiting
        self._connections_max = connections_max
        self._request_bytes_max = request_bytes_max

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head; close what is too many, which is this one when all others are busy."""
        super().connection_made(transport)
        self._await_head()
        self._waiting[self] = None
        if len(self.connections) > self._connections_max:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse it, and look whether a head is still open afterwards."""
        cycle = self.cycle
        # Only then has the size of a head to be counted, which takes a while.
        self._may_be_long = self._open_bytes + len(data) > HEAD_BYTES_MAX
        super().data_received(data)
        if self.transport.is_closing():
            return  # It could not be parsed, or its answer was the last.
        if self._has_whole_head():
            self._open_bytes = 0
            if self.cycle.response_complete and self.cycle.more_body:
                self._skip(len(data))
                return
            self._unread_bytes = 0
            self._request_bytes = self._request_bytes + len(data) if self.cycle.more_body else 0
            if self._request_bytes > self._request_bytes_max:
                self.transport.close()
            if self._timer is not None:
                self._stop_waiting()
            if not self.cycle.response_complete and not self.cycle.more_body:
                self._waiting.pop(self, None)
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
                self._refuse_head()

    def on_response_complete(self) -> None:
        """An answer was written: wait again, behind all others, unless the next request is here already."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and not self.transport.is_closing():
            self._waiting.pop(self, None)
            self._waiting[self] = None

    def _check_head(self) -> None:
        if self._bytes_of_head() <= HEAD_BYTES_MAX:
            return
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        # Whoever still waits for an answer to what came before gets that, and then the connection is closed.
        if cycle is None or cycle.response_complete:
            self._refuse_head()
        raise ConnectionAbortedError

    def _bytes_of_head(self) -> int:
        first = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return first + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers) + len("\r\n")

    def _refuse_head(self) -> None:
        log.warning("not_http", extra={"detail": f"The head is larger than {HEAD_BYTES_MAX:,} bytes."})
        self.transport.write(_TOO_LARGE)
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
