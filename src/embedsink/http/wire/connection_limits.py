"""Connections with limits that uvicorn lacks: on the head of a request, and on bodies that are not read."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from embedsink.http.wire.connection_registry import ConnectionRegistry
from embedsink.http.wire.ingest_protocol import IngestProtocol

CONNECTIONS_MAX = 4_096
REQUEST_BYTES_MAX = 8 * 1_048_576
# The maximum bytes of a head, chunk lengths and trailers of one request. The parser copies a trailer with each read
# that extends it.
FRAMING_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 16_384
# The maximum number of fields in a head and in trailers. Browsers send about 20, and proxies add some.
FIELDS_MAX = 100
HEAD_TIMEOUT_S = 10.0
# The maximum bytes to read of a body after its response: clients finish sending before they read a 413. Each MiB takes
# the event loop 0.8 ms.
UNREAD_BYTES_MAX = 2 * 1_048_576
# A connection with more unsent bytes counts as stalled.
UNSENT_BYTES_HIGH = 16_384
_TOO_LONG = f"The head is larger than {HEAD_BYTES_MAX:,} bytes."
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"  # RFC 6585
)


def limited_connections(
    *, connections_max: int = CONNECTIONS_MAX, request_bytes_max: int = REQUEST_BYTES_MAX
) -> Callable[..., asyncio.Protocol]:
    """Return the protocol factory of a server, for `uvicorn.Config(http=…)`.

    Args:
        connections_max: the maximum number of open connections.
        request_bytes_max: the maximum encoded size of a request, with its head and the framing of its body.
    """
    return partial(LimitedConnection, request_bytes_max=request_bytes_max, registry=ConnectionRegistry(connections_max))


class LimitedConnection(IngestProtocol):
    """Closes connections whose head is too large or too slow, and connections that continue to send after a response.

    A new connection beyond `connections_max` closes the connection that has waited longest: for a complete request, for
    its client to read, or with a delayed response. So clients with many connections can't block new connections.
    """

    _head_bytes = 0
    _open_bytes = 0  # the bytes of the reads with the incomplete head
    _unread_bytes = 0
    _request_bytes = 0
    _framing_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _delayed_response: Callable[[], None] | None = None
    _delay_timer: asyncio.TimerHandle | None = None
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
        """Wait for the first head. Close a connection beyond the maximum: this one if all others are busy."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._await_head()
        self._registry.add_waiting(self)
        self._registry.evict_beyond_limit(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and send no delayed response."""
        self._stop_waiting()
        self._registry.remove(self)
        super().connection_lost(exc)
        self._send_delayed()

    def shutdown(self) -> None:
        """Close after all responses. Send a delayed response now, and delay no further responses."""
        self._is_ending = True
        super().shutdown()
        self._send_delayed()

    def evict(self) -> None:
        """Close at once, and drop bytes that the client has not read."""
        if self.flow.write_paused:
            self._abort()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read: the connection may be evicted."""
        super().pause_writing()
        self._registry.add_stalled(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._registry.remove_stalled(self)
        self._registry.add_waiting(self)
        self._mark_busy()

    def delay_response(self, delay_s: float, respond: Callable[[], None]) -> None:
        """Call `respond` after a delay, or when the connection ends. Until then the connection may be evicted."""
        if self._is_ending:
            respond()
            return
        self._running.body = b""  # Free the body during the delay.
        self._delayed_response = respond
        self._delay_timer = self.loop.call_later(delay_s, self._send_delayed)
        self._registry.add_waiting(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header field or trailer, up to the maximum number."""
        if len(self.headers) == FIELDS_MAX:
            self._end_head(f"The head has more than {FIELDS_MAX} fields.")
        # Copied from uvicorn: a call would take 0.1 µs per field.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _feed(self, data: bytes) -> None:
        """Parse a read in parts, and track whether a head is incomplete afterwards."""
        if len(data) > HEAD_BYTES_MAX:
            for start in range(0, len(data), HEAD_BYTES_MAX):
                if not self.transport.is_closing():
                    self._feed(data[start : start + HEAD_BYTES_MAX])
            return
        cycle = self.cycle
        # Measuring a head is slow, so it is done only for heads in large or several reads.
        self._may_be_long = self._open_bytes + len(data) > HEAD_BYTES_MAX
        self._body_bytes = 0
        super()._feed(data)
        if self.transport.is_closing():
            return  # The request was invalid, or its response closes the connection.
        if self._deferred is not None:
            self._open_bytes = self._unread_bytes = 0
            self._stop_waiting()  # The head is complete, and its body is arriving.
        elif self._has_complete_head():
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
            self._mark_busy()
        elif self._timer is None or self.cycle is not cycle or self._unread_bytes:
            # `_head_bytes` starts with the next read: this one may begin with other requests.
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
        """Wait again after a response, unless the next request has already arrived."""
        is_last = not self.pipeline
        super().on_response_complete()
        if not is_last:
            self._mark_busy()
        elif not self.transport.is_closing():
            self._registry.add_waiting(self)

    def _mark_busy(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_complete = cycle is not None and not cycle.response_complete and not cycle.more_body
        if is_complete and self._delayed_response is None and not self.flow.write_paused:
            self._registry.remove_waiting(self)

    def _send_delayed(self) -> None:
        if self._delayed_response is not None and self._delay_timer is not None:
            self._delay_timer.cancel()
            respond, self._delayed_response = self._delayed_response, None
            respond()

    def _check_head(self) -> None:
        if self._head_size() > HEAD_BYTES_MAX:
            self._end_head(_TOO_LONG)

    def _end_head(self, why: str) -> NoReturn:
        """Stop reading. If an earlier request is still being answered, send its response instead of a refusal."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete:
            self._refuse_head(why)
        raise ConnectionAbortedError

    def _is_refused(self) -> bool:
        return self._delayed_response is not None and self.cycle is self._running

    def _head_size(self) -> int:
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
            self._await_head()  # uvicorn has cancelled its timer, and the rest may never arrive.

    def _has_complete_head(self) -> bool:
        # uvicorn creates the scope with the first byte of a request, and adds the method when the head is complete.
        scope: Mapping[str, object] | None = self.scope  # None before the first request
        return scope is not None and "method" in scope

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._on_head_timeout)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_head_timeout(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._await_head()  # An earlier request is still being answered.
        else:
            self.transport.close()
