"""Limits of connections: heads, unread bodies, and the number of connections."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.http.wire import connection_limits, connection_registry
from embedsink.http.wire.connection_limits import FIELDS_MAX, HEAD_BYTES_MAX, limited_protocol_factory
from embedsink.http.wire.ingest_protocol import BODY_PARTS_MAX

MIB = 1_048_576
TIMEOUT_S = 0.3
REQUEST_BYTES_MAX = 8 * MIB
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def empty_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        patch.setattr(connection_limits, "HEAD_TIMEOUT_S", TIMEOUT_S)
        bounded = limited_protocol_factory(connections_max=4_096, request_bytes_max=REQUEST_BYTES_MAX)
        config = uvicorn.Config(empty_answer, http=bounded, log_config=None, lifespan="off")  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


def answer_to(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Return all received bytes until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=2 * TIMEOUT_S + 1) as connection:
        received = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s)
            while piece := connection.recv(65_536):
                received += piece
        return received


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20 * MIB + b"\r\n\r\n",
        b"GET /" + b"x" * MIB + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    ],
    ids=["20 MB in a header", "1 MB in the address", "100,000 headers"],
)
def test_a_huge_head_is_refused_and_the_connection_closed(port: int, request_: bytes) -> None:
    # The answer may be lost when the connection is closed while the sender is still sending.
    assert answer_to(port, request_)[:12] in (b"HTTP/1.1 431", b"")


def test_an_endless_body_is_cut_after_its_answer(port: int) -> None:
    chunk = b"%x\r\n%b\r\n" % (MIB, b" " * MIB)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 204")
        endless = chunk * 64
        with pytest.raises(ConnectionError):
            connection.sendall(endless)


def test_a_body_that_stops_after_its_answer_does_not_keep_the_connection_open(port: int) -> None:
    partial_request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    started_at = time.monotonic()
    assert answer_to(port, partial_request, b" ", pause_s=0.1).startswith(b"HTTP/1.1 204")
    assert time.monotonic() - started_at < TIMEOUT_S + 1


def test_the_rest_of_an_answered_body_does_not_affect_the_next_request(port: int) -> None:
    first = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    last = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert answer_to(port, first, b" " * 100_000, last, pause_s=0.05).count(b"HTTP/1.1 204") == 2


def test_the_end_of_an_answered_body_does_not_count_as_the_next_head(port: int) -> None:
    body = 3 * HEAD_BYTES_MAX
    beginning = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % body
    last = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    parts = [beginning + b" " * 9, b" " * 9, b" " * (body - 18) + last[:9], last[9:]]
    assert answer_to(port, *parts, pause_s=TIMEOUT_S / 10).count(b"HTTP/1.1 204") == 2


def test_a_head_within_the_limit_is_accepted(port: int) -> None:
    head = b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES_MAX - 1_000) + b"\r\nConnection: close\r\n\r\n"
    assert answer_to(port, head[:100], head[100:], pause_s=0.05).startswith(b"HTTP/1.1 204")


def head_of(byte_count: int, where: str) -> bytes:
    """Return a request of this size without a body."""
    head = b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: %b\r\n\r\n"
    long = b"x" * (byte_count - len(head % (b"", b"")))
    return head % ((long, b"") if where == "in the address" else (b"", long))


@pytest.mark.parametrize("where", ["in the address", "in a header"])
@pytest.mark.parametrize("cut_at", [None, 100, 15_000, -2])
def test_the_limit_of_a_head_is_independent_of_its_packets(port: int, where: str, cut_at: int | None) -> None:
    for byte_count, status in ((HEAD_BYTES_MAX, b"204"), (HEAD_BYTES_MAX + 1, b"431")):
        head = head_of(byte_count, where)
        assert len(head) == byte_count
        parts = [head] if cut_at is None else [head[:cut_at], head[cut_at:]]
        assert answer_to(port, *parts, pause_s=0.05 if cut_at else 0)[:12] == b"HTTP/1.1 " + status


@pytest.mark.parametrize("cut_at", [None, 20, -2])
def test_a_head_has_at_most_100_fields_independent_of_its_packets(port: int, cut_at: int | None) -> None:
    for count, status in ((FIELDS_MAX, b"204"), (FIELDS_MAX + 1, b"431")):
        head = b"GET / HTTP/1.1\r\nConnection: close\r\n" + b"a:\r\n" * (count - 1) + b"\r\n"
        parts = [head] if cut_at is None else [head[:cut_at], head[cut_at:]]
        assert answer_to(port, *parts, pause_s=0.05 if cut_at else 0)[:12] == b"HTTP/1.1 " + status


def test_an_endless_head_is_refused_before_much_of_it_is_in_memory(port: int) -> None:
    partial_head = b"GET / HTTP/1.1\r\nX: " + b"x" * 3 * HEAD_BYTES_MAX
    started_at = time.monotonic()
    assert answer_to(port, REQUEST + partial_head).endswith(b"connection: close\r\n\r\n")
    assert time.monotonic() - started_at < TIMEOUT_S, "the server did not wait for more bytes"


def test_trailers_count_as_fields(port: int) -> None:
    request_start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    assert b"HTTP/1.1 204" in answer_to(port, request_start + b"a:\r\n" * (FIELDS_MAX - 1) + b"\r\n")
    assert answer_to(port, request_start + b"a:\r\n" * FIELDS_MAX + b"\r\n").startswith(b"HTTP/1.1 400")


def test_a_body_of_too_many_chunks_is_refused() -> None:
    chunks = b"1\r\nx\r\n" * BODY_PARTS_MAX
    request_start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with crowded(reading_answer) as (first, second):
        first.sendall(request_start + chunks + b"0\r\n\r\n")
        assert first.recv(65_536).startswith(b"HTTP/1.1 204")
        second.sendall(request_start + chunks + b"1\r\nx\r\n0\r\n\r\n")
        answered = b""
        while piece := second.recv(65_536):
            answered += piece
        assert answered.startswith(b"HTTP/1.1 400")
        assert answered.endswith(b"Send fewer, larger parts.")


def test_the_size_of_a_head_excludes_bodies_and_earlier_requests(port: int) -> None:
    body = b" " * 2 * HEAD_BYTES_MAX
    first = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    last = head_of(HEAD_BYTES_MAX, "in a header")
    assert answer_to(port, first + body + REQUEST * 3 + last).count(b"HTTP/1.1 204") == 5


def test_a_pending_answer_is_sent_before_a_huge_head_closes_the_connection() -> None:
    with crowded(slow_answer) as (connection, _):
        connection.sendall(REQUEST + head_of(HEAD_BYTES_MAX + 1, "in a header"))
        answered = b""
        while piece := connection.recv(65_536):
            answered += piece
        assert (answered.count(b"HTTP/1.1"), answered[:12]) == (1, b"HTTP/1.1 204")


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_slow_head_is_cut(port: int, begun: bytes) -> None:
    started_at = time.monotonic()
    assert answer_to(port, begun) == b""
    assert TIMEOUT_S * 0.9 < time.monotonic() - started_at < TIMEOUT_S + 1


def test_trickling_bytes_do_not_extend_the_timeout_of_a_head(port: int) -> None:
    assert answer_to(port, *[b"G"] + [b"x"] * 20, pause_s=0.05) == b""


def test_the_second_request_has_the_same_timeout(port: int) -> None:
    started_at = time.monotonic()
    assert answer_to(port, REQUEST, REQUEST, b"GET ", pause_s=0.2).count(b"HTTP/1.1 204") == 2
    assert time.monotonic() - started_at < 0.6 + TIMEOUT_S + 1


def test_consecutive_requests_are_not_cut(port: int) -> None:
    last = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answered = answer_to(port, *[REQUEST] * 4, last, pause_s=TIMEOUT_S / 2)
    assert answered.count(b"HTTP/1.1 204") == 5


async def slow_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(1)
    await empty_answer(scope, receive, send)


@contextmanager
def crowded(application: ASGIApp) -> Iterator[list[socket.socket]]:
    """Open two connections to a server that allows two, in order."""
    bounded = limited_protocol_factory(connections_max=2, request_bytes_max=REQUEST_BYTES_MAX)
    config = uvicorn.Config(
        application,
        http=bounded,  # type: ignore[arg-type]
        log_config=None,
        lifespan="off",
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with ExitStack() as stack:
                address = listener.getsockname()
                yield [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(2)]
        finally:
            server.should_exit = True
            thread.join()


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_answered(connection: socket.socket) -> bool:
    connection.sendall(REQUEST)
    return connection.recv(65_536).startswith(b"HTTP/1.1 204")


def test_beyond_the_maximum_the_longest_waiting_connection_is_closed() -> None:
    with crowded(empty_answer) as (first, second):
        assert is_answered(second)
        assert is_answered(first), "the second connection now waits longest"
        second.sendall(REQUEST[:9])  # A partial head does not count as a request.
        with socket.create_connection(first.getpeername(), timeout=5) as third:
            assert is_closed(second)
            assert is_answered(third)
            assert is_answered(first)


def test_a_connection_whose_second_request_is_being_answered_is_busy() -> None:
    with crowded(slow_after_the_first()) as (first, second):
        first.sendall(REQUEST * 2)
        assert first.recv(65_536).startswith(b"HTTP/1.1 204")
        with socket.create_connection(first.getpeername(), timeout=5) as third:
            assert is_closed(second)
            assert is_answered(third)
        assert first.recv(65_536).startswith(b"HTTP/1.1 204")


def slow_after_the_first() -> ASGIApp:
    responses = iter([empty_answer, slow_answer])

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await next(responses, empty_answer)(scope, receive, send)

    return answer


def test_incomplete_bodies_do_not_block_new_connections() -> None:
    with crowded(reading_answer) as (first, second):
        for slow in (first, second):
            slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nx")
        time.sleep(0.2)
        with socket.create_connection(first.getpeername(), timeout=5) as third:
            assert is_closed(first)
            assert is_answered(third)
        second.close()  # Otherwise, the server would wait for the rest of the body at shutdown.


async def reading_answer(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await empty_answer(scope, receive, send)


ANSWER_BYTES = 24 * MIB


async def large_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % ANSWER_BYTES)]})
    await send({"type": "http.response.body", "body": bytes(ANSWER_BYTES)})


def received_bytes(connection: socket.socket) -> int:
    """Return the number of received bytes until the server closes or is silent."""
    count = 0
    connection.settimeout(0.5)
    with contextlib.suppress(ConnectionError, TimeoutError):
        while part := connection.recv(MIB):
            count += len(part)
    return count


def test_clients_that_do_not_read_do_not_block_new_connections() -> None:
    with crowded(large_answer) as (first, second):
        for stalled in (first, second):
            stalled.sendall(REQUEST * 2)
            time.sleep(0.2)
        with socket.create_connection(first.getpeername(), timeout=5) as third:
            third.sendall(REQUEST)
            assert received_bytes(third) > ANSWER_BYTES
        assert received_bytes(first) < ANSWER_BYTES, "this client has stalled longest"
        assert received_bytes(second) > ANSWER_BYTES


def test_a_client_that_resumes_reading_keeps_its_connection() -> None:
    with crowded(large_answer) as (first, second):
        first.sendall(REQUEST)
        time.sleep(0.2)
        second.sendall(REQUEST)
        time.sleep(0.2)
        assert received_bytes(first) > ANSWER_BYTES
        with socket.create_connection(first.getpeername(), timeout=5) as third:
            assert received_bytes(second) < ANSWER_BYTES
            assert third.send(REQUEST)


def test_beyond_the_limit_of_unsent_bytes_the_longest_stalled_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_registry, "UNSENT_BYTES_MAX", ANSWER_BYTES * 3 // 2)
    with crowded(large_answer) as (first, second):
        for stalled in (first, second):
            stalled.sendall(REQUEST)
            time.sleep(0.2)
        assert received_bytes(first) < ANSWER_BYTES
        assert received_bytes(second) > ANSWER_BYTES


async def held_answer(scope: Scope, receive: Receive, send: Send) -> None:
    held = asyncio.get_running_loop().create_future()
    scope["state"]["delay_response"](60.0, lambda: held.set_result(None))
    await held
    await empty_answer(scope, receive, send)


def test_delayed_answers_do_not_block_new_connections_and_are_sent_at_shutdown() -> None:
    with crowded(held_answer) as (first, second):
        for held in (first, second):
            held.sendall(REQUEST * 3)
            time.sleep(0.1)
        with socket.create_connection(first.getpeername(), timeout=5):
            assert is_closed(first)
        duplicate = second.dup()
        started_at = time.monotonic()
    assert time.monotonic() - started_at < 5
    answered = b""
    with duplicate:
        while part := duplicate.recv(65_536):
            answered += part
    assert answered.count(b"HTTP/1.1 204") == 3


def test_a_new_connection_is_closed_at_once_when_all_others_are_busy() -> None:
    with crowded(slow_answer) as (first, second):
        for busy in (first, second):
            busy.sendall(REQUEST)
        time.sleep(0.2)
        with socket.create_connection(first.getpeername(), timeout=0.5) as third:
            assert is_closed(third)
        for busy in (first, second):
            assert busy.recv(65_536).startswith(b"HTTP/1.1 204")
