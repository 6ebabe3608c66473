"""uvicorn's HTTP protocol, with a fast path for ingest requests that arrive in one piece.

ASGI starts a task for each request, which can wait for a body and for a slow client. Most ingest requests need neither:
head and body arrive together, and the response is short. The fast path passes them to `IngestEndpoint` directly, and
the journal calls back when they are durable (docs/decisions/0006). uvicorn serves all other requests, and ingest
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
from embedsink.http.transport import connection_transport
from embedsink.http.wire.raw_response import RawResponse

log = logging.getLogger(__name__)

# The maximum number of pipelined requests of a connection. Each takes 3 KiB. Browsers send none.
PIPELINE_MAX = 4
# The maximum bytes of a pipelined request's body, which is not read yet.
PIPELINED_BYTES_MAX = 16_384
# The maximum number of parts in which the parser returns a body. Each takes the event loop 0.4 µs, regardless of size.
BODY_PARTS_MAX = 4_096
_INGEST_URL = INGEST_PATH.encode()
# The socket option SO_LINGER: on, for 0 seconds. Closing then drops all unsent bytes.
_LINGER_0_S = struct.pack("ii", 1, 0)


class IngestProtocol(HttpToolsProtocol):
    """Defers an ingest request until the received data is parsed: the fast path serves it if its body is complete.

    A cycle is a request with its response, as in uvicorn.
    """

    _deferred_parts: list[bytes] | None = None  # the body parts of the deferred request
    _used_fast_path = False  # whether a request in the current data used the fast path
    _part_count = 0  # the number of parts of the current body
    _body_bytes = 0  # the bytes of bodies in the current data
    _active_cycle: Any = None  # the cycle whose response is next
    _may_exceed_head_limit = False  # whether the current head must be measured
    _idle_since: float | None = None  # the time at which the last response ended; None after new data
    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up the connection with a parser and a flow control of this module instead of uvicorn's."""
        super().connection_made(transport)
        self.parser = _new_parser(self)
        self.flow = _PipelineFlowControl(transport, self.pipeline)
        # Each request gets a copy of `app_state` as its state.
        self.app_state = {**self.app_state, "abort": self._abort, "delay_response": self.delay_response}
        if self.client is not None and "transport" in self.app_state:  # A test may use it without the application.
            transport_of_peer = connection_transport(
                self.app_state["transport"], self.app_state["proxies"], self.client[0]
            )
            self.app_state["transport"] = transport_of_peer

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all requests in progress. uvicorn notifies only the last."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        pipelined_cycles = [cycle for cycle, _ in self.pipeline]
        cycles: list[Any] = pipelined_cycles if self._active_cycle is None else [self._active_cycle, *pipelined_cycles]
        for cycle in cycles:
            cycle.body = b""  # Free the body now. Garbage collection may take minutes.
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the transport stays open for a pending response, after the client has closed its side.

        Only requests on the fast path are answered then. uvicorn ends all others.
        """
        cycle: Any = self.cycle  # None before the first request
        is_response_pending = isinstance(cycle, _FastPathCycle) and not cycle.response_complete
        if not is_response_pending or self.scheme == "https":
            return False  # Closes the transport. TLS can't close one side only.
        cycle.keep_alive = False  # Close the connection after the response.
        return True

    def data_received(self, data: bytes) -> None:
        """Parse received data. If the body of a deferred request is incomplete, let uvicorn wait for the rest."""
        self._idle_since = None
        self._used_fast_path = False
        self._feed(data)
        if self._deferred_parts is not None and not self.transport.is_closing():
            self._pass_to_uvicorn(self._deferred_parts)

    def on_headers_complete(self) -> None:
        """Defer a request that may use the fast path until its body is parsed, and pass others to uvicorn.

        Abort the connection if too many requests wait.
        """
        self._part_count = 0
        if self._may_exceed_head_limit:
            self._check_head_size()
        if self.parser.should_upgrade():
            return  # `_feed` parses the head again, without the upgrade.
        if len(self.pipeline) == PIPELINE_MAX:
            self.transport.abort()
            raise ConnectionAbortedError  # Stops the parser.
        if self.url == _INGEST_URL and self._can_use_fast_path():
            self._deferred_parts = []
            # A copy, because the parser appends trailers to the list (RFC 9110, section 6.5.1).
            self.scope["headers"] = list(self.headers)
            # Complete the ASGI scope as uvicorn would. It has already set `state`.
            self.scope["method"] = "POST"
            self.scope["path"] = INGEST_PATH
            self.scope["raw_path"] = _INGEST_URL
            self.scope["query_string"] = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Store a part of a deferred body, drop a part of a refused body, and pass other parts to uvicorn.

        Close the connection if a body has too many parts, or if the body of a pipelined request is too large.
        """
        self._part_count += 1
        self._body_bytes += len(body)
        if self._part_count > BODY_PARTS_MAX:
            self._refuse(f"The body has more than {BODY_PARTS_MAX:,} parts. Send fewer, larger parts.")
            raise ConnectionAbortedError  # Stops the parser.
        if self._deferred_parts is not None:
            self._deferred_parts.append(body)
        elif not self._is_refused():
            super().on_body(body)
            if self.pipeline and len(self.cycle.body) > PIPELINED_BYTES_MAX:
                self.transport.abort()
                raise ConnectionAbortedError  # Stops the parser.

    def on_message_complete(self) -> None:
        """Pass a complete deferred request to the ingest endpoint, and other requests to uvicorn."""
        if self.parser.should_upgrade():
            return  # `_feed` parses the head again, without the upgrade.
        if self._deferred_parts is None:
            super().on_message_complete()
            return
        body = b"".join(self._deferred_parts)
        self._deferred_parts = None
        self._used_fast_path = True
        cycle = _FastPathCycle(self)
        self._active_cycle = cycle
        self.cycle = cycle  # type: ignore[assignment]
        self.app_state["ingest_endpoint"].ingest(self.scope, body, cycle.reply)

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or begin to wait for a request.

        This method replaces uvicorn's, which starts a timer after each response. A timer takes 2 µs.
        """
        self.server_state.total_requests += 1
        self._active_cycle.body = b""  # Free the body: `cycle` still refers to the request.
        self._active_cycle = None
        if self.transport.is_closing():
            return
        # Take the oldest request. uvicorn adds new ones on the left.
        next_request = self.pipeline.pop() if self.pipeline else None
        self.flow.resume_reading()  # This has no effect while further requests wait.
        if next_request is not None:
            self._start_asgi_task(*next_request)
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_when_idle)

    def delay_response(self, delay_s: float, respond: Callable[[], None]) -> None:
        """Call `respond` after a delay."""
        self.loop.call_later(delay_s, respond)

    def _check_head_size(self) -> None:
        """Check the size of a head. A subclass raises to close the connection."""

    def _is_refused(self) -> bool:
        """Return whether the current request was already refused, so that its body can be dropped."""
        return False

    def _close_when_idle(self) -> None:
        """Close the connection if it was idle for the keep-alive timeout. Otherwise check again later."""
        self._idle_timer = None
        if self._idle_since is None:
            return  # The next response starts the timer again.
        remaining_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if remaining_s > 0:
            self._idle_timer = self.loop.call_later(remaining_s, self._close_when_idle)
        else:
            self.timeout_keep_alive_handler()

    def _abort(self) -> None:
        """Close the connection at once. Drop all unsent bytes, including the kernel's buffer."""
        if not self.transport.is_closing():
            descriptor = self.transport.get_extra_info("socket").fileno()
            # A duplicate, so that closing the Python socket does not close the connection's descriptor.
            with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0_S)
        self.transport.abort()

    def _can_use_fast_path(self) -> bool:
        """Return whether the request can be served without waiting for an earlier response or for the client.

        One read may return thousands of requests, and the fast path answers refused requests at once. So only one
        request of a read may use it: thousands of refusals would block all other connections.
        """
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return (
            self.parser.get_method() == b"POST"
            and not self._used_fast_path
            and (cycle is None or cycle.response_complete)
            and not (self.expect_100_continue or self.flow.write_paused)
        )

    def _feed(self, data: bytes) -> None:
        """Parse received data. Ignore upgrades to other protocols."""
        unparsed = data
        while unparsed:
            unparsed = self._parse_until_upgrade(unparsed)

    def _parse_until_upgrade(self, data: bytes) -> bytes:
        """Parse data up to a request with an `Upgrade` header, where the parser expects another protocol and stops.

        This server ignores upgrades (RFC 9110, section 7.8). So return the head of that request without the header, and
        the rest of the data, to be parsed next. Return nothing if all of the data was parsed or refused.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self._refuse("CONNECT: this server is not a proxy. Request a path.")
            else:
                parsed_bytes: int = upgrade.args[0]
                return self._head_without_upgrade() + data[parsed_bytes:]
        except httptools.HttpParserError:
            self._refuse("The request is not HTTP/1.1 (RFC 9112). Correct it, and send it on a new connection.")
        return b""

    def _refuse(self, detail: str) -> None:
        """Answer invalid HTTP with 400, and close. If an earlier response is pending, send only that response."""
        cycle: Any = self.cycle  # None before the first request
        is_answering = cycle is not None and not cycle.response_complete
        if is_answering and not cycle.more_body:  # The cycle is an earlier, complete request.
            cycle.keep_alive = False  # Close after its response.
        elif not self.transport.is_closing():
            self._log_refusal(detail)
            if is_answering and cycle.response_started:
                self.transport.close()  # A client would read a status line within a response as part of the response.
            else:
                self.send_400_response(detail)

    def _log_refusal(self, detail: str) -> None:
        """Count and log a request that is not valid HTTP."""
        if "engine" in self.app_state:  # A test may use the protocol without the application.
            self.app_state["engine"].counters["not_http"] += 1
        log.warning("not_http", extra={"detail": detail})

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the ASGI task of a request whose response is next."""
        self._active_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def _head_without_upgrade(self) -> bytes:
        """Return the head of the current request without the upgrade, and create a new parser to parse the head.

        The old parser expects data of the other protocol.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        self.parser = _new_parser(self)
        return b"\r\n".join([*lines, b"", b""])

    def _pass_to_uvicorn(self, parts: list[bytes]) -> None:
        """Pass the deferred request to uvicorn: its head, and the parts of its body that have arrived."""
        self._deferred_parts = None
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)


def _new_parser(protocol: IngestProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    # Answer a request with `Connection: close` even if more bytes follow it.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _PipelineFlowControl(FlowControl):
    """uvicorn's flow control, except that reading stays paused while pipelined requests wait."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Resume reading, unless pipelined requests wait."""
        if not self._pipeline:
            super().resume_reading()


class _FastPathCycle:
    """A request on the fast path. uvicorn uses these attributes of its own RequestResponseCycle."""

    more_body = False
    body = b""

    def __init__(self, connection: IngestProtocol) -> None:
        self.response_complete = False
        self.disconnected = False
        # As in uvicorn, HTTP/1.0 has no keep-alive.
        self.keep_alive: bool = connection.parser.get_http_version() != "1.0" and connection.parser.should_keep_alive()
        self._connection = connection

    @property
    def message_event(self) -> asyncio.Event:
        """An event for uvicorn to set when the client disconnects. On the fast path, no code waits for it."""
        return asyncio.Event()

    def reply(self, response: RawResponse) -> None:
        """Write the response, unless the client has disconnected."""
        connection = self._connection
        self.response_complete = True
        # Ask the transport: `self.disconnected` is set only later, when the event loop calls `connection_lost`.
        if connection.transport.is_closing():
            return
        headers: Any = connection.server_state.default_headers
        connection.transport.write(response.encode(headers, keep_alive=self.keep_alive))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()
