"""uvicorn's HTTP protocol, with a fast path for ingest requests that arrive in one read.

ASGI starts a task for each request, which can wait for a body and for a slow client. Most ingest requests need neither:
head and body arrive in one read, and the response is short. The fast path passes them to `IngestEndpoint` directly, and
the journal calls back when they are durable (docs/decisions/0006). uvicorn handles all other requests, and ingest
requests whose body is still arriving.

Upgrades to other protocols are ignored (RFC 9110, section 7.8). `curl --http2` requests an upgrade each time.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Sized
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from embedsink.http.cors import INGEST_PATH
from embedsink.http.wire.raw_response import RawResponse

log = logging.getLogger(__name__)

# The maximum number of pipelined requests of a connection. Each takes 3 KiB. Browsers send none.
PIPELINE_MAX = 4
# The maximum bytes of a pipelined request's body, which is not read yet.
PIPELINED_BYTES_MAX = 16_384
# The maximum number of chunks or reads of a body. Each takes the event loop 0.4 µs, independent of its size.
BODY_PARTS_MAX = 4_096
_INGEST_URL = INGEST_PATH.encode()


class IngestProtocol(HttpToolsProtocol):
    """Defers the head of an ingest request until the current read is parsed completely."""

    _deferred: list[bytes] | None = None  # the body parts of the deferred request
    _used_fast_path = False  # whether a request of the current read used the fast path
    _part_count = 0  # the number of parts of the current body
    _body_bytes = 0  # the bytes of bodies in the current read
    _running: Any = None  # the cycle or exchange whose response is next
    _may_be_long = False  # whether the current head may exceed its size limit, and has to be measured
    _idle_since: float | None = None
    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start reading requests."""
        super().connection_made(transport)
        self.parser = _new_parser(self)
        self.flow = _Flow(transport, self.pipeline)
        # Each request gets a copy as its state.
        self.app_state = {**self.app_state, "abort": self._abort, "delay_response": self.delay_response}

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all requests in progress, not only the last."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        cycles: list[Any] = [self._running, *(cycle for cycle, _ in self.pipeline)]
        for cycle in filter(None, cycles):
            cycle.body = b""  # Garbage collection may take minutes to free it.
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Send the pending response of a half-closed connection before it closes."""
        cycle: Any = self.cycle  # None before the first request
        if not isinstance(cycle, _Exchange) or cycle.response_complete or self.scheme == "https":
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse a read. Pass an incomplete ingest request to uvicorn."""
        self._idle_since = None
        self._used_fast_path = False
        self._feed(data)
        if self._deferred is not None and not self.transport.is_closing():
            self._pass_to_uvicorn()

    def on_headers_complete(self) -> None:
        """Handle a complete head."""
        self._part_count = 0
        if self._may_be_long:
            self._check_head()
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) == PIPELINE_MAX:
            self.transport.abort()
            raise ConnectionAbortedError
        if self.url == _INGEST_URL and self._is_simple():
            self._deferred = []
            # A copy, because the parser appends trailers to the list (RFC 9110, section 6.5.1).
            self.scope["headers"] = list(self.headers)
            # The fields that uvicorn would add; `state` is already set.
            self.scope["method"], self.scope["path"] = "POST", INGEST_PATH
            self.scope["raw_path"], self.scope["query_string"] = _INGEST_URL, b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handle a part of a body."""
        self._part_count += 1
        self._body_bytes += len(body)
        if self._part_count > BODY_PARTS_MAX:
            self._refuse(f"The body has more than {BODY_PARTS_MAX:,} parts. Send fewer, larger parts.")
            raise ConnectionAbortedError
        if self._deferred is not None:
            self._deferred.append(body)
        elif not self._is_refused():
            super().on_body(body)
            if self.pipeline and len(self.cycle.body) > PIPELINED_BYTES_MAX:
                self.transport.abort()
                raise ConnectionAbortedError

    def on_message_complete(self) -> None:
        """Handle a complete request."""
        if self.parser.should_upgrade():
            return
        if self._deferred is None:
            super().on_message_complete()
            return
        body, self._deferred = b"".join(self._deferred), None
        self._used_fast_path = True
        exchange = self._running = self.cycle = _Exchange(self)  # type: ignore[assignment]
        self.app_state["events"].ingest(self.scope, body, exchange.reply)

    def on_response_complete(self) -> None:
        """Do what uvicorn does after a response, but with one timer for many responses: a timer takes 2 µs."""
        self.server_state.total_requests += 1
        self._running.body = b""
        self._running = None
        if self.transport.is_closing():
            return
        next_ = self.pipeline.pop() if self.pipeline else None
        self.flow.resume_reading()
        if next_:
            self._start_asgi_task(*next_)
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_when_idle)

    def delay_response(self, delay_s: float, respond: Callable[[], None]) -> None:
        """Call `respond` after a delay."""
        self.loop.call_later(delay_s, respond)

    def _check_head(self) -> None:
        """Check the size of a head; a subclass raises to close the connection."""

    def _is_refused(self) -> bool:
        """Return whether the current request was already refused, so that its body can be dropped."""
        return False

    def _close_when_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # The next response starts the timer again.
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._close_when_idle)
        else:
            self.timeout_keep_alive_handler()

    def _abort(self) -> None:
        """Close at once, and drop unsent bytes, with a linger time of 0 s."""
        if not self.transport.is_closing():
            with socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _is_simple(self) -> bool:
        """Return whether the fast path can handle the request, because nothing has to be waited for.

        It handles at most one request of a read. Refusals are answered at once, and thousands in one read would block
        all other connections.
        """
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return (
            self.parser.get_method() == b"POST"
            and not self._used_fast_path
            and (cycle is None or cycle.response_complete)
            and not (self.expect_100_continue or self.flow.write_paused)
        )

    def _feed(self, data: bytes) -> None:
        rest = data
        while rest:
            data, rest = rest, b""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse("CONNECT: this server is not a proxy. Request a path.")
                else:  # The parser treated it as another protocol.
                    rest = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse("The request is not HTTP/1.1 (RFC 9112). Correct it, and send it on a new connection.")

    def _refuse(self, why: str) -> None:
        """Answer invalid HTTP with 400, and close. A pending response to an earlier request is sent instead."""
        cycle: Any = self.cycle  # None before the first request
        is_waiting = cycle is not None and not cycle.response_complete
        if is_waiting and not cycle.more_body:
            cycle.keep_alive = False
        elif not self.transport.is_closing():
            self._note_refusal(why)
            if is_waiting and cycle.response_started:
                self.transport.close()  # A client would read a status line within a response as part of the response.
            else:
                self.send_400_response(why)

    def _note_refusal(self, why: str) -> None:
        """Count and log a request that is not valid HTTP."""
        if "engine" in self.app_state:
            self.app_state["engine"].counters["not_http"] += 1
        log.warning("not_http", extra={"detail": why})

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _without_upgrade(self) -> bytes:
        """Return the head of the current request without its upgrade, for a new parser."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        self.parser = _new_parser(self)
        return b"\r\n".join([*lines, b"", b""])

    def _pass_to_uvicorn(self) -> None:
        parts, self._deferred = self._deferred or [], None
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)


def _new_parser(protocol: IngestProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    # Ignore bytes after a request with `Connection: close`, and answer the request.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _Flow(FlowControl):
    """uvicorn's flow control, except that reading stays paused while pipelined requests wait."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class _Exchange:
    """A request on the fast path, with the attributes of uvicorn's RequestResponseCycle that uvicorn uses."""

    more_body = False
    body = b""

    def __init__(self, connection: IngestProtocol) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive: bool = connection.parser.get_http_version() != "1.0" and connection.parser.should_keep_alive()
        self._connection = connection

    @property
    def message_event(self) -> asyncio.Event:
        """The event that uvicorn sets when the client disconnects. Nothing waits for it here."""
        return asyncio.Event()

    def reply(self, response: RawResponse) -> None:
        """Write the response, unless the client has disconnected."""
        connection = self._connection
        self.response_complete = True
        # The transport is closing before `connection_lost` is called.
        if connection.transport.is_closing():
            return
        headers: Any = connection.server_state.default_headers
        connection.transport.write(response.encode(headers, keep_alive=self.keep_alive))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()
