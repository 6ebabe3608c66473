"""Connections with limits that uvicorn lacks: on the head of a request, and on a body after its response."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from embedsink.http.wire.connection_registry import ConnectionRegistry
from embedsink.http.wire.ingest_protocol import IngestProtocol

# The maximum bytes of a head, chunk lengths and trailers of one request. The parser copies a trailer whenever more of
# it arrives.
FRAMING_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 16_384
# The maximum number of fields in the head and the trailers of a request together. Browsers send about 20, and proxies
# add some.
FIELDS_MAX = 100
HEAD_TIMEOUT_S = 10.0
# The maximum bytes of a body to receive and drop after its response: clients finish sending before they read a 413.
# Each MiB takes the event loop 0.8 ms.
DROPPED_BYTES_MAX = 2 * 1_048_576
# A connection with more unsent bytes counts as stalled.
UNSENT_BYTES_HIGH = 16_384
_HEAD_TOO_LARGE = f"The request head is larger than {HEAD_BYTES_MAX:,} bytes."
_RESPONSE_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"  # RFC 6585
)


def limited_protocol_factory(*, connections_max: int, request_bytes_max: int) -> Callable[..., asyncio.Protocol]:
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

    # The size of an incomplete head is known roughly: the chunk with its first bytes may also contain other requests.
    _head_bytes_at_least = 0  # without that chunk
    _head_bytes_at_most = 0  # with that chunk
    _dropped_bytes = 0  # the bytes of the current body that arrived after its response
    _request_bytes = 0  # the bytes of the current request, from the chunk in which its head ends
    _framing_bytes = 0  # the part of `_request_bytes` that is not in the body
    _receive_timer: asyncio.TimerHandle | None = None  # for a head, or for a body after its response
    _delayed_response: Callable[[], None] | None = None
    _delay_timer: asyncio.TimerHandle | None = None
    _is_shutting_down = False

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
        """Wait for the first head. Beyond the maximum, evict the longest waiting connection, possibly this one."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._start_receive_timer()
        self._registry.add_waiting(self)
        self._registry.evict_beyond_limit(len(self.connections))  # all connections of the server

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, leave the registry, and end the delay of a response, so that its request ends."""
        self._stop_receive_timer()
        self._registry.remove(self)
        super().connection_lost(exc)
        self._end_delay()

    def shutdown(self) -> None:
        """Close after all responses. Send a delayed response now, and delay no further responses."""
        self._is_shutting_down = True
        super().shutdown()
        self._end_delay()

    def evict(self) -> None:
        """Close the connection at once. A client that reads still gets a complete response."""
        is_stalled = self.flow.write_paused
        if is_stalled:
            self._abort()  # Frees the kernel's buffer, which this client may never read.
        else:
            self.transport.abort()  # The kernel still sends its buffer.

    def pause_writing(self) -> None:
        """Stop writing because the client does not read, and allow the eviction of the connection."""
        super().pause_writing()
        self._registry.add_stalled(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue writing, because the client reads again."""
        super().resume_writing()
        self._registry.remove_stalled(self)
        # The connection now waits for the rest of a request, or for the next one, unless a request is being processed.
        self._registry.add_waiting(self)
        self._stop_waiting_if_busy()

    def delay_response(self, delay_s: float, respond: Callable[[], None]) -> None:
        """Call `respond` after a delay, or earlier if the connection ends or the server stops.

        Until then the registry may close the connection, to make room for others.
        """
        if self._is_shutting_down:
            respond()
            return
        self._active_cycle.body = b""  # Free the body during the delay.
        self._delayed_response = respond
        self._delay_timer = self.loop.call_later(delay_s, self._end_delay)
        self._registry.add_waiting(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header field or trailer. Refuse a request with too many fields."""
        if len(self.headers) == FIELDS_MAX:
            self._stop_parsing(f"The request has more than {FIELDS_MAX} header and trailer fields.")
        # Copied from uvicorn: calling its method would take 0.1 µs per field.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _feed(self, data: bytes) -> None:
        """Parse received data in chunks, so that a head is refused soon after it exceeds its limit."""
        if len(data) <= HEAD_BYTES_MAX:
            self._feed_chunk(data)
            return
        for start in range(0, len(data), HEAD_BYTES_MAX):
            if not self.transport.is_closing():
                self._feed_chunk(data[start : start + HEAD_BYTES_MAX])

    def _feed_chunk(self, data: bytes) -> None:
        """Parse a chunk, then apply the limits to the request in which the chunk ends.

        A cycle is a request with its response. Deferred parts are the first parts of the body of an ingest request.
        """
        previous_cycle = self.cycle
        # Measuring a head is slow, so it is done only if the head may exceed the limit.
        self._may_exceed_head_limit = self._head_bytes_at_most + len(data) > HEAD_BYTES_MAX
        self._body_bytes = 0  # `on_body` adds the body bytes of this chunk.
        super()._feed(data)
        if self.transport.is_closing():
            return  # The request was invalid, or its response closes the connection.
        if self._deferred_parts is not None:
            self._head_bytes_at_most = self._dropped_bytes = 0
            self._stop_receive_timer()  # The head is complete, and its body is arriving.
        elif self._has_complete_head():
            self._head_bytes_at_most = 0
            self._limit_body(len(data))
        else:
            # A running timer belongs to this head, unless another request or a dropped body ended in this chunk.
            is_new_head = self._receive_timer is None or self.cycle is not previous_cycle or self._dropped_bytes > 0
            if is_new_head:
                self._begin_head(len(data))
            else:
                self._continue_head(len(data))

    def _begin_head(self, byte_count: int) -> None:
        """Start the limits of size and time for a request head that is still incomplete.

        Args:
            byte_count: the size of the chunk in which the head begins. The head so far is at most this large.
        """
        self._head_bytes_at_most = byte_count
        self._dropped_bytes = 0  # The body of the previous request has ended.
        self._stop_receive_timer()
        self._start_receive_timer()

    def _continue_head(self, byte_count: int) -> None:
        """Add bytes to both bounds on the size of an incomplete head. Refuse the head if the lower one is too large."""
        self._head_bytes_at_least += byte_count
        self._head_bytes_at_most += byte_count
        if self._head_bytes_at_least > HEAD_BYTES_MAX:
            self._refuse_head(_HEAD_TOO_LARGE)

    def _limit_body(self, byte_count: int) -> None:
        """Apply the limits to a request whose head is complete, and whose body may be complete."""
        if not self.cycle.more_body:
            self._request_bytes = self._framing_bytes = 0  # The body is complete, so count the next request.
        else:
            self._limit_request_size(byte_count)
            if self.cycle.response_complete:
                self._count_dropped(byte_count)
                return
        # The receive timer is only for incomplete heads and dropped bodies.
        self._dropped_bytes = 0
        self._stop_receive_timer()
        self._stop_waiting_if_busy()

    def on_response_complete(self) -> None:
        """Wait for the next request. If it has already arrived, protect the connection from eviction instead."""
        has_next = bool(self.pipeline)  # The call below removes the next request from the pipeline.
        super().on_response_complete()
        if has_next:
            self._stop_waiting_if_busy()
        elif not self.transport.is_closing():
            self._registry.add_waiting(self)

    def _stop_waiting_if_busy(self) -> None:
        """Protect the connection from eviction while the server computes the response to a complete request."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        # With a delayed response or a client that does not read, the connection still waits.
        if is_answering and self._delayed_response is None and not self.flow.write_paused:
            self._registry.remove_waiting(self)

    def _end_delay(self) -> None:
        """Send the delayed response now, if there is one, and cancel its timer."""
        if self._delayed_response is not None and self._delay_timer is not None:
            self._delay_timer.cancel()
            respond = self._delayed_response
            self._delayed_response = None
            respond()

    def _check_head_size(self) -> None:
        """Refuse a head that is too large."""
        if self._head_size() > HEAD_BYTES_MAX:
            self._stop_parsing(_HEAD_TOO_LARGE)

    def _stop_parsing(self, detail: str) -> NoReturn:
        """Stop the parser with an exception. Refuse the head first, unless an earlier request has no response yet."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete:
            self._refuse_head(detail)
        raise ConnectionAbortedError  # Stops the parser.

    def _is_refused(self) -> bool:
        """Return whether the current request exceeded a rate. Its response is delayed, and its body can be dropped.

        `cycle` is the request that is being received, and `_active_cycle` is the one with the next response.
        """
        return self._delayed_response is not None and self.cycle is self._active_cycle

    def _head_size(self) -> int:
        """Return the size of the current head in bytes."""
        request_line_bytes = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        field_bytes = sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
        return request_line_bytes + field_bytes + len("\r\n")

    def _refuse_head(self, detail: str) -> None:
        """Answer with 431, and close."""
        self._log_refusal(detail)
        self.transport.write(_RESPONSE_431)
        self.transport.close()

    def _limit_request_size(self, byte_count: int) -> None:
        """Close the connection if the request is too large, or if its head and the framing of its body are."""
        self._request_bytes += byte_count
        self._framing_bytes += byte_count - self._body_bytes  # without the body bytes of the same chunk
        if self._request_bytes > self._request_bytes_max or self._framing_bytes > FRAMING_BYTES_MAX:
            self.transport.close()

    def _count_dropped(self, byte_count: int) -> None:
        """Limit the bytes and the duration of a body that still arrives after its response, and is dropped."""
        self._dropped_bytes += byte_count
        if self._dropped_bytes > DROPPED_BYTES_MAX:
            self.transport.close()
        elif self._receive_timer is None:
            self._start_receive_timer()  # The idle timer has stopped, and the rest may never arrive.

    def _has_complete_head(self) -> bool:
        # uvicorn creates the scope with the first byte of a request, and adds the method when the head is complete.
        scope: Mapping[str, object] | None = self.scope  # None before the first request
        return scope is not None and "method" in scope

    def _start_receive_timer(self) -> None:
        """Start the time limit of a head, or of a body after its response."""
        self._head_bytes_at_least = 0  # `_continue_head` adds the chunks that follow.
        self._receive_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._on_receive_timeout)

    def _stop_receive_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _on_receive_timeout(self) -> None:
        """Close the connection. If an earlier request has no response yet, wait longer instead."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._start_receive_timer()
        else:
            self.transport.close()
