"""Invalid bytes on a real server: always a 4xx or a closed connection, never a hang."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.envelopes import view
from tests.support.servers import RunningServer, running_server

pytestmark = pytest.mark.server

ANSWER_S_MAX = 5.0
MIB = 1_048_576
BODY_TIMEOUT_S = 0.5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data: Path = tmp_path_factory.mktemp("raw") / "data"
    with running_server(data, EMBEDSINK_BODY_TIMEOUT_S=str(BODY_TIMEOUT_S)) as running:
        yield running


@pytest.fixture(scope="module")
def key(server: RunningServer) -> bytes:
    return server.key().encode()


def status_of(server: RunningServer, request: bytes, *, then: bytes = b"") -> int | None:
    """Return the status of the answer; None if the connection was closed without one. A hang fails."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=ANSWER_S_MAX) as connection:
        try:
            connection.sendall(request)
            connection.sendall(then)
            answer = connection.recv(65_536)
        except (ConnectionResetError, BrokenPipeError):
            return None
    return int(answer.split(b" ", 2)[1]) if answer else None


def head(key: bytes, *lines: bytes) -> bytes:
    common = (b"POST /api/v1/events HTTP/1.1", b"Host: x", b"Content-Type: text/plain", b"Authorization: Bearer " + key)
    return b"\r\n".join((*common, *lines)) + b"\r\n\r\n"


def is_refused(status: int | None) -> bool:
    return status is None or 400 <= status < 500


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.1\nHost: x\n\n",
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\x00y\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 1_000,
    ],
    ids=[
        "bare LF",
        "two framings",
        "two lengths",
        "negative length",
        "huge length",
        "length in letters",
        "space before colon",
        "NUL in a header",
        "no target",
        "TLS",
        "HTTP/2",
        "zeros",
    ],
)
def test_invalid_http_is_refused(server: RunningServer, request_: bytes) -> None:
    assert is_refused(status_of(server, request_))


@pytest.mark.parametrize("chunk", [b"zz\r\n[]\r\n", b"-1\r\n[]\r\n", b"fffffffffffffffffff\r\n", b"2\r\n[]]]\r\n"])
def test_a_bad_chunk_is_refused(server: RunningServer, key: bytes, chunk: bytes) -> None:
    assert is_refused(status_of(server, head(key, b"Transfer-Encoding: chunked"), then=chunk))


def test_a_chunked_body_over_the_limit_answers_413_before_it_ends(server: RunningServer, key: bytes) -> None:
    chunk = b"%x\r\n%b\r\n" % (65_536, b" " * 65_536)
    assert status_of(server, head(key, b"Transfer-Encoding: chunked"), then=chunk * 17) == 413


def test_a_declared_length_over_the_limit_answers_413_before_the_body(server: RunningServer, key: bytes) -> None:
    assert status_of(server, head(key, b"Content-Length: 20000000000")) == 413


@pytest.mark.parametrize("first", [b"", b"["])
def test_a_missing_body_answers_408(server: RunningServer, key: bytes, first: bytes) -> None:
    started_at = time.monotonic()
    assert status_of(server, head(key, b"Content-Length: 100"), then=first) == 408
    assert time.monotonic() - started_at < BODY_TIMEOUT_S + 2


@pytest.mark.parametrize(
    ("method", "path", "type_"),
    [
        (b"POST", b"/api/v1/events", b"application/json"),
        (b"PUT", b"/api/v1/deployments/1/dbt-sync/nightly/result", b"application/json"),
        (b"POST", b"/login", b"application/x-www-form-urlencoded"),
    ],
)
def test_a_disconnect_within_a_body_is_not_a_bug(
    server: RunningServer, method: bytes, path: bytes, type_: bytes
) -> None:
    address, key = urlsplit(server.url), server.key("admin").encode()
    head = b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Type: %b\r\n" % (method, path, type_)
    with socket.create_connection((address.hostname, address.port), timeout=ANSWER_S_MAX) as connection:
        connection.sendall(head + b"Authorization: Bearer %b\r\nContent-Length: 100\r\n\r\nkey=" % key)
        time.sleep(BODY_TIMEOUT_S / 5)  # the server is reading the body
    time.sleep(BODY_TIMEOUT_S / 5)
    assert b'embedsink_refused_requests_total{reason="internal_error"} 0.0' in server.get("/metrics").body
    assert b'"bug"' not in server.log.read_bytes()


def test_endless_trailers_are_cut(server: RunningServer) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=ANSWER_S_MAX) as connection:
        connection.sendall(head(b"", b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\nX: ")
        endless = b"a" * 64 * MIB
        with pytest.raises(ConnectionError):
            connection.sendall(endless)


BODY = b"x" * 250_000
WITH_BODY = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize(
    "request_",
    [
        WITH_BODY,
        b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + WITH_BODY,
        b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (4 * len(BODY)) + BODY,
    ],
    ids=["answered", "behind another request", "not whole"],
)
def test_unread_bodies_do_not_stay_in_memory(server: RunningServer, request_: bytes) -> None:
    address, before = urlsplit(server.url), resident_mib(server.pid)
    with ExitStack() as opened:
        for _ in range(500):
            connection = opened.enter_context(socket.create_connection((address.hostname, address.port)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(request_))
            connection.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                connection.send(request_)
        assert server.get("/healthz").status == 200, "the server has read all requests"
        # If the server kept the bodies, they would take 72 MiB.
        assert resident_mib(server.pid) - before < 50


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


def test_the_server_still_works_after_all_these_requests(server: RunningServer, key: bytes) -> None:
    assert server.get("/readyz").status == 200
    assert server.post(view(), key=key.decode()).status == 202
    assert "Traceback" not in server.log.read_text()
