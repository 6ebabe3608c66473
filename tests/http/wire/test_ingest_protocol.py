"""The fast path for requests in one read, compared with ASGI, on a real server."""

import contextlib
import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from embedsink.http.wire.ingest_protocol import PIPELINE_MAX
from tests.support.envelopes import view
from tests.support.servers import RunningServer, running_server, wait_until

pytestmark = pytest.mark.server

ANSWER_S_MAX = 5.0
KEEP_ALIVE_S = 5.0  # uvicorn's default
PAGE = b"https://app.example.com"
GOOD = json.dumps(view()).encode()
# Header lines that differ between any two responses.
_ITS_OWN = re.compile(rb"(?m)^(?:date|x-request-id): .*\r\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("protocol") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def key(server: RunningServer) -> bytes:
    return server.key(origins=[PAGE.decode()]).encode()


def head(body: bytes, *lines: bytes, type_: bytes = b"application/json", version: bytes = b"1.1") -> bytes:
    length = b"Content-Length: %d" % len(body)
    first = (b"POST /api/v1/events HTTP/" + version, b"Host: x", b"Content-Type: " + type_, length)
    return b"\r\n".join((*first, *lines)) + b"\r\n\r\n"


@contextmanager
def connected(server: RunningServer) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=ANSWER_S_MAX) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def answer_on(connection: socket.socket) -> bytes:
    """Read one response, by its Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65_536)
        assert part, received
        received += part
    length = int(re.search(rb"content-length: (\d+)", received)[1])  # type: ignore[index]
    end = received.index(b"\r\n\r\n") + 4 + length
    while len(received) < end:
        received += connection.recv(65_536)
    assert len(received) == end, "more than one response"
    return received


def status_on(connection: socket.socket) -> int:
    return int(answer_on(connection).split(b" ", 2)[1])


def in_pieces(server: RunningServer, *pieces: bytes) -> bytes:
    """Return the response to a request that arrives in pieces, without its unique headers."""
    with connected(server) as connection:
        for number, piece in enumerate(pieces):
            if number:
                # When a probe is answered, the server has read all earlier bytes. So each piece is a separate read.
                assert server.get("/healthz").status == 200
            connection.sendall(piece)
        return _ITS_OWN.sub(b"", answer_on(connection))


BODIES = {
    "a good one": (GOOD, (), b"application/json", 202),
    "partly good": (json.dumps([view(), {}]).encode(), (), b"application/json", 202),
    "all bad": (b"[{}]", (), b"application/json", 422),
    "no JSON": (b"{", (), b"application/json", 400),
    "empty": (b"", (), b"application/json", 400),
    "too many": (json.dumps([view()] * 1_001).encode(), (), b"application/json", 413),
    "gzip": (gzip.compress(GOOD), (b"Content-Encoding: gzip",), b"text/plain", 202),
    "no gzip": (GOOD, (b"Content-Encoding: gzip",), b"text/plain", 415),
    "another encoding": (GOOD, (b"Content-Encoding: br",), b"text/plain", 415),
    "lines": (GOOD + b"\n" + GOOD, (), b"application/x-ndjson", 202),
    "a form": (GOOD, (), b"multipart/form-data", 415),
    "of the page": (GOOD, (b"Origin: " + PAGE,), b"application/json", 202),
    "of another page": (GOOD, (b"Origin: https://evil.example.com",), b"application/json", 403),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_fast_path_and_asgi_answer_alike(server: RunningServer, key: bytes, name: str) -> None:
    body, lines, type_, status = BODIES[name]
    whole_head = head(body, b"Authorization: Bearer " + key, *lines, type_=type_)
    whole = in_pieces(server, whole_head + body)
    assert int(whole.split(b" ", 2)[1]) == status
    assert in_pieces(server, whole_head, body) == whole
    assert in_pieces(server, whole_head[:30], whole_head[30:] + body[:7], body[7:]) == whole


H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")


def test_an_upgrade_is_ignored_and_the_body_is_read(server: RunningServer, key: bytes) -> None:
    credential = b"Authorization: Bearer " + key
    plain, asking = head(GOOD, credential), head(GOOD, credential, *H2C)
    expected = in_pieces(server, plain + GOOD)
    assert expected.startswith(b"HTTP/1.1 202")
    for pieces in ((asking + GOOD,), (asking, GOOD), (asking[:-9], asking[-9:] + GOOD[:5], GOOD[5:])):
        assert in_pieces(server, *pieces) == expected

    with connected(server) as connection:
        for _ in range(3):
            connection.sendall(asking + GOOD)
            assert status_on(connection) == 202


def test_an_upgrade_with_connection_close_is_closed(server: RunningServer) -> None:
    websocket = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(websocket)
        assert status_on(connection) == 200
        assert connection.recv(1) == b""


@pytest.mark.parametrize("lines", [b"", b"Connection: Upgrade\r\nUpgrade: x\r\n"], ids=["plain", "upgrade"])
def test_pipelined_requests_are_answered_up_to_a_maximum(server: RunningServer, lines: bytes) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n"
    with connected(server) as connection:
        connection.sendall(request * PIPELINE_MAX)
        received = b""
        while received.count(b"HTTP/1.1 200") < PIPELINE_MAX:
            part = connection.recv(1_048_576)
            assert part
            received += part
    with connected(server) as connection:
        connection.sendall(request * 2_000)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1_048_576) == b""
    assert server.get("/healthz").status == 200


def test_waiting_requests_pause_reading(server: RunningServer) -> None:
    waiting = b"POST /api/v1/events?a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    before = memory_bytes(server.pid)
    with connected(server) as connection, contextlib.suppress(OSError):
        connection.settimeout(0.5)
        for _ in range(40):
            connection.sendall(waiting * 20_000)
    assert memory_bytes(server.pid) - before < 64 * 1_048_576


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4_096


@pytest.mark.parametrize(
    "lines", [(), (b"Connection: close",), (b"Connection: close, Upgrade", b"Upgrade: h2c")], ids=repr
)
def test_invalid_bytes_after_a_valid_request_do_not_affect_its_answer(
    server: RunningServer, key: bytes, lines: tuple[bytes, ...]
) -> None:
    with connected(server) as connection:
        connection.sendall(head(GOOD, b"Authorization: Bearer " + key, *lines) + GOOD + b"\0\0 no HTTP \r\n\r\n")
        assert status_on(connection) == 202
        assert connection.recv(1) == b""


def test_a_half_closed_client_gets_its_answer(server: RunningServer, key: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(head(GOOD, b"Authorization: Bearer " + key) + GOOD)
        connection.shutdown(socket.SHUT_WR)
        assert status_on(connection) == 202
        assert connection.recv(1) == b""


def test_connect_is_refused(server: RunningServer) -> None:
    for target in (b"/", b"example.com:443"):
        with connected(server) as connection:
            connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status_on(connection) == 400
            assert connection.recv(1) == b""


@pytest.mark.parametrize("given", ["none", "wrong", "twice", "in the body", "in the address"])
def test_the_fast_path_and_asgi_use_the_same_credential(server: RunningServer, key: bytes, given: str) -> None:
    credential = b"Authorization: Bearer " + key
    lines = {"wrong": [credential[:-1]], "twice": [credential] * 2}.get(given, [])
    body = json.dumps({"events": [view()], "key": key.decode()}).encode() if given == "in the body" else GOOD
    whole_head = head(body, *lines)
    if given == "in the address":
        whole_head = whole_head.replace(b"/api/v1/events ", b"/api/v1/events?key=" + key + b" ")
    whole = in_pieces(server, whole_head + body)
    assert int(whole.split(b" ", 2)[1]) == {"in the body": 202, "twice": 400}.get(given, 401)
    assert in_pieces(server, whole_head, body) == whole


def test_a_credential_in_a_trailer_is_ignored(server: RunningServer, key: bytes) -> None:
    lines = (b"POST /api/v1/events HTTP/1.1", b"Host: x", b"Content-Type: text/plain", b"Transfer-Encoding: chunked")
    chunked_head = b"\r\n".join(lines) + b"\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % (len(GOOD), GOOD, key)
    for pieces in ((chunked_head + body,), (chunked_head, body)):
        assert in_pieces(server, *pieces).startswith(b"HTTP/1.1 401 ")


def test_pipelined_requests_are_answered_in_order(server: RunningServer, key: bytes) -> None:
    valid = head(GOOD, b"Authorization: Bearer " + key) + GOOD
    without_key = head(GOOD) + GOOD
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(valid + without_key + get + valid)
        received = b""
        while received.count(b"HTTP/1.1 ") < 4 or not received.endswith(b'{"accepted":1,"rejected":[]}'):
            received += connection.recv(65_536)
    assert re.findall(rb"HTTP/1\.1 (\d+)", received) == [b"202", b"401", b"200", b"202"]


def test_one_connection_serves_many_requests(server: RunningServer, key: bytes) -> None:
    request = head(GOOD, b"Authorization: Bearer " + key)
    with connected(server) as connection:
        for pieces in ([request + GOOD], [request, GOOD], [request + GOOD], [request + GOOD[:9], GOOD[9:]]):
            for piece in pieces:
                connection.sendall(piece)
                assert server.get("/healthz").status == 200
            assert status_on(connection) == 202


@pytest.mark.parametrize(("version", "lines"), [(b"1.0", ()), (b"1.1", (b"Connection: close",))])
def test_connection_close_closes_the_connection(
    server: RunningServer, key: bytes, version: bytes, lines: tuple[bytes, ...]
) -> None:
    with connected(server) as connection:
        connection.sendall(head(GOOD, b"Authorization: Bearer " + key, *lines, version=version) + GOOD)
        answer = answer_on(connection)
        assert b"\r\nconnection: close\r\n" in answer
        assert connection.recv(1) == b""


def test_expect_100_continue_is_answered(server: RunningServer, key: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(head(GOOD, b"Authorization: Bearer " + key, b"Expect: 100-continue"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(GOOD)
        assert status_on(connection) == 202


def test_an_event_is_stored_if_the_client_disconnects_after_sending_it(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        key, read_key = server.key().encode(), server.key("read")
        for _ in range(20):
            with connected(server) as connection:
                connection.sendall(head(GOOD, b"Authorization: Bearer " + key) + GOOD)
        wait_until(
            lambda: sum(row["view_count"] for row in server.get("/api/v1/reports/views", key=read_key).json()) == 20,
            description="20 views are counted",
        )
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("schemes", "status"),
    [([b"https"], 202), ([b"HTTPS"], 202), ([], 403), ([b"http"], 403), ([b"https", b"http"], 403), ([b"wss"], 403)],
)
def test_behind_a_proxy_x_forwarded_proto_counts(proxied: RunningServer, schemes: list[bytes], status: int) -> None:
    key = proxied.key().encode() if status == 202 else b"es_ingest_any"
    request = head(GOOD, b"Authorization: Bearer " + key, *[b"X-Forwarded-Proto: " + scheme for scheme in schemes])
    for pieces in ([request + GOOD], [request, GOOD]):
        assert int(in_pieces(proxied, *pieces).split(b" ", 2)[1]) == status


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("proxied") / "data", arguments=["--behind-proxy"]) as running:
        yield running


def test_a_body_cut_off_by_a_shutdown_is_answered(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SHUTDOWN_TIMEOUT_S="1") as server:
        key = server.key().encode()
        with connected(server) as connection:
            connection.sendall(head(GOOD, b"Authorization: Bearer " + key) + GOOD[:9])
            assert server.get("/healthz").status == 200
            assert server.stop() == 0
            answer = answer_on(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in answer
        assert "Traceback" not in server.log.read_text()


def test_only_an_idle_connection_is_closed_after_its_timeout(server: RunningServer, key: bytes) -> None:
    request = head(GOOD, b"Authorization: Bearer " + key) + GOOD
    with connected(server) as connection:
        connection.settimeout(KEEP_ALIVE_S + 3)
        started_at = time.monotonic()
        while time.monotonic() - started_at < KEEP_ALIVE_S + 1:
            connection.sendall(request)
            assert status_on(connection) == 202
            time.sleep(0.5)
        idle_since = time.monotonic()
        assert connection.recv(1) == b""
        assert KEEP_ALIVE_S - 1 < time.monotonic() - idle_since < KEEP_ALIVE_S + 2
