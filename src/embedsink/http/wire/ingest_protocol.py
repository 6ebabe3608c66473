"""uvicorn's HTTP protocol, with a short way for ingest requests that arrive whole.

ASGI starts a task for each request, so that it can wait for a body and for a slow reader. Most ingest requests need
neither: head and body come in one read, and the answer is short. They are handed to `Events` at once, and the journal
calls back when they are durable (docs/decisions/0006). Every other request goes uvicorn's usual way, and so does an
ingest request whose body is still coming.

An upgrade to another protocol is ignored (RFC 9110, section 7.8): `curl --http2` asks for one with each request.
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

# Requests that wait on one connection until those before them are answered: each keeps 3 KiB. Browsers send none.
PIPELINE_MAX = 4
# Of the body of a request that waits for those before it. Nobody reads it yet.
PIPELINED_BYTES_MAX = 16_384
# Chunks of one body, or reads that bring it: each costs 0.4 µs of the event loop, however small it is.
BODY_PARTS_MAX = 4_096
_INGEST_URL = INGEST_PATH.encode()


class IngestProtocol(HttpToolsProtocol):
    """Holds the head of an ingest request back until the read that brought it is parsed to its end."""

    _held: list[bytes] | None = None  # the body so far, of a request that is held
    _has_taken = False  # whether a request of the current read went the short way
    _part_count = 0  # of the current body
    _body_bytes = 0  # of the bodies in what is parsed
    _running: Any = None  # the cycle or exchange whose answer is next
    _may_be_long = False  # whether the head that is parsed came in so many bytes that its size has to be looked at
    _idle_since: float | None = None
    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read requests."""
        super().connection_made(transport)
        self.parser = _new_parser(self)
        self.flow = _Flow(transport, self.pipeline)
        # Each request gets a copy of it as its state.
        self.app_state = {**self.app_state, "abort": self._abort, "delay_answer": self.delay_answer}

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for no further request, and tell all that are still being answered, not only the last."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        cycles: list[Any] = [self._running, *(cycle for cycle, _ in self.pipeline)]
        for cycle in filter(None, cycles):
            cycle.body = b""  # The collector of cycles may take minutes to find it.
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The sender has said all: an answer that is still on its way to it is sent before the connection closes."""
        cycle: Any = self.cycle  # None before the first request
        if not isinstance(cycle, _Exchange) or cycle.response_complete or self.scheme == "https":
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; what is not whole by then goes the usual way."""
        self._idle_since = None
        self._has_taken = False
        self._feed(data)
        if self._held is not None and not self.transport.is_closing():
            self._release()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._part_count = 0
        if self._may_be_long:
            self._check_head()
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) == PIPELINE_MAX:
            self.transport.abort()
            raise ConnectionAbortedError
        if self.url == _INGEST_URL and self._is_simple():
            self._held = []
            # Not the list that is still open: trailers would be added to it (RFC 9110, section 6.5.1).
            self.scope["headers"] = list(self.headers)
            # What the usual way would add; `state` is there.
            self.scope["method"], self.scope["path"] = "POST", INGEST_PATH
            self.scope["raw_path"], self.scope["query_string"] = _INGEST_URL, b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body is there."""
        self._part_count += 1
        self._body_bytes += len(body)
        if self._part_count > BODY_PARTS_MAX:
            self._refuse(f"The body comes in more than {BODY_PARTS_MAX:,} parts. Send it in fewer, larger ones.")
            raise ConnectionAbortedError
        if self._held is not None:
            self._held.append(body)
        elif not self._is_refused():
            super().on_body(body)
            if self.pipeline and len(self.cycle.body) > PIPELINED_BYTES_MAX:
                self.transport.abort()
                raise ConnectionAbortedError

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.parser.should_upgrade():
            return
        if self._held is None:
            super().on_message_complete()
            return
        body, self._held = b"".join(self._held), None
        self._has_taken = True
        exchange = self._running = self.cycle = _Exchange(self)  # type: ignore[assignment]
        self.app_state["events"].ingest(self.scope, body, exchange.reply)

    def on_response_complete(self) -> None:
        """What uvicorn does after an answer, but with one timer for many of them: each would cost 2 µs."""
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

    def delay_answer(self, delay_s: float, answer: Callable[[], None]) -> None:
        """Call `answer` after so long."""
        self.loop.call_later(delay_s, answer)

    def _check_head(self) -> None:
        """For whoever bounds heads: raise, and the connection is closed."""

    def _is_refused(self) -> bool:
        """For whoever holds answers back: whether the body that is parsed is of no use."""
        return False

    def _close_when_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # The answer to what is on its way arms it again.
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._close_when_idle)
        else:
            self.timeout_keep_alive_handler()

    def _abort(self) -> None:
        """Close at once, with what the system still has to send: on a connection that lingers for 0 s it sends none."""
        if not self.transport.is_closing():
            with socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _is_simple(self) -> bool:
        """Nothing before it is still being answered, and nobody has to be waited for.

        One request of a read at most: a refusal is answered at once, so thousands of them in one read would hold all
        other connections up.
        """
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return (
            self.parser.get_method() == b"POST"
            and not self._has_taken
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
                    self._refuse("CONNECT: this server is no proxy. Ask it for a path.")
                else:  # The parser took it for another protocol.
                    rest = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse("The request is not HTTP/1.1 (RFC 9112). Send it anew on another connection.")

    def _refuse(self, why: str) -> None:
        """Answer what is not HTTP, and close. Whoever waits for an answer to what came before it gets that instead."""
        cycle: Any = self.cycle  # None before the first request
        is_waiting = cycle is not None and not cycle.response_complete
        if is_waiting and not cycle.more_body:
            cycle.keep_alive = False
        elif not self.transport.is_closing():
            self._note_refusal(why)
            if is_waiting and cycle.response_started:
                self.transport.close()  # A status line within a response would be read as a part of it.
            else:
                self.send_400_response(why)

    def _note_refusal(self, why: str) -> None:
        """Count and log a request that could not be read."""
        if "engine" in self.app_state:
            self.app_state["engine"].counters["not_http"] += 1
        log.warning("not_http", extra={"detail": why})

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _without_upgrade(self) -> bytes:
        """The head of the request that was just read, as one that does not ask; the parser begins with it again."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        self.parser = _new_parser(self)
        return b"\r\n".join([*lines, b"", b""])

    def _release(self) -> None:
        parts, self._held = self._held or [], None
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)


def _new_parser(protocol: IngestProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    # Whatever comes behind a request that asked to close is nobody's: that request is answered all the same.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _Flow(FlowControl):
    """uvicorn's, but nothing more is read while requests wait: each of them would ask for its body, and so for more."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class _Exchange:
    """A request on the short way, in the place of uvicorn's RequestResponseCycle, with what uvicorn asks of that."""

    more_body = False
    body = b""

    def __init__(self, connection: IngestProtocol) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive: bool = connection.parser.get_http_version() != "1.0" and connection.parser.should_keep_alive()
        self._connection = connection

    @property
    def message_event(self) -> asyncio.Event:
        """What uvicorn sets when the client has left; here nobody waits for it."""
        return asyncio.Event()

    def reply(self, answer: RawResponse) -> None:
        """Write the answer. A client that has left gets none."""
        connection = self._connection
        self.response_complete = True
        # Asked of the transport: it is closed before the connection is told that it is lost.
        if connection.transport.is_closing():
            return
        headers: Any = connection.server_state.default_headers
        connection.transport.write(answer.encode(headers, keep_alive=self.keep_alive))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()
