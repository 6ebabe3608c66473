"""Client faults log no errors: requests cut off in each state, and invalid bytes."""

import contextlib
import itertools
import json
import random
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from embedsink.http.wire.ingest_protocol import PIPELINE_MAX
from tests.http.test_server import PRIVATE_KEY, pem
from tests.support.envelopes import view
from tests.support.servers import READY_TIMEOUT_S, STOP_TIMEOUT_S, RunningServer, free_port, running_server, wait_until

pytestmark = pytest.mark.server

READ_S_MAX = 0.02
Leave = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("faults") / "data") as running:
        yield running


def reset(connection: socket.socket) -> None:
    """Disconnect with a RST, which drops unread bytes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(READ_S_MAX)
        connection.recv(65_536)
    connection.close()


def read_then_reset(connection: socket.socket) -> None:
    connection.settimeout(READ_S_MAX)
    with contextlib.suppress(OSError):
        connection.recv(10)
    reset(connection)


WAYS_TO_LEAVE: tuple[Leave, ...] = (reset, socket.socket.close, half_close, read_then_reset)


def connected(server: RunningServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def assert_no_error(server: RunningServer) -> None:
    """Assert that the server responds, and that its log has no error and no traceback."""
    assert server.get("/healthz").status == 200
    assert_log_has_no_error(server.log)


def assert_log_has_no_error(log: Path) -> None:
    text = log.read_text()
    errors = [line for line in text.splitlines() if not line.startswith("{") or json.loads(line)["level"] == "error"]
    assert errors == []
    assert "Traceback" not in text


def request(first: str, *fields: str, key: str | None = None, body: bytes = b"") -> bytes:
    lines = [f"{first} HTTP/1.1", "Host: x", *fields]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def good_requests(ingest_key: str, read_key: str) -> list[bytes]:
    """Return one request of each kind: immediate, after an fsync, after a report, as a stream, and as a file."""
    paths = ("reports/views.csv", "reports", "events/live", "analytics.duckdb", "inspect?session=a")
    event = json.dumps(view()).encode()
    form = "Content-Type: application/x-www-form-urlencoded"
    return [
        request("POST /api/v1/events", "Content-Type: application/json", key=ingest_key, body=event),
        request("POST /api/v1/events?a", "Content-Type: application/json", key=ingest_key, body=event),
        request("POST /api/v1/events", "Content-Type: application/json", body=event),
        request("POST /login", form, body=b"key=x"),
        *(request(f"GET {path}") for path in ("/healthz", "/readyz", "/nothing", "/login", "/docs")),
        *(request(f"GET /api/v1/{path}", key=read_key) for path in paths),
        *(request(f"HEAD /api/v1/{path}", key=read_key) for path in paths[1:]),
    ]


def test_aborted_requests_in_any_state_log_no_error(server: RunningServer) -> None:
    requests = good_requests(server.key(), server.key("read"))
    counts = (1, PIPELINE_MAX, PIPELINE_MAX + 2)
    for complete_request, count, disconnect in itertools.product(requests, counts, WAYS_TO_LEAVE):
        connection = connected(server)
        connection.sendall(complete_request * count)
        disconnect(connection)
    for complete_request, disconnect in itertools.product(requests, WAYS_TO_LEAVE):
        for end in (5, complete_request.index(b"\r\n\r\n"), len(complete_request) - 1):
            connection = connected(server)
            connection.sendall(complete_request + complete_request[:end])
            disconnect(connection)
    assert_no_error(server)


STRANGE = (
    *(f"GET {path}" for path in ("*", "?a", "//x/y", "http://[/", "http://x", "/%", "/%ff%00%zz", "/dashboards/%ff")),
    *(f"OPTIONS {path}" for path in ("*", "/", "/api/v1/events", "/login")),
    *(f"{method} /api/v1/events" for method in ("HEAD", "DELETE", "QUERY", "PROPFIND", "TRACE", "CONNECT", "BREW")),
    "GET /login?next=/dashboards/%ed%a0%80%0d%0aX:y",
    "GET /dashboards/?\xff\xfe",
    "GET /api/v1/reports/%ed%a0%80.csv?timezone=%00&columns=%ff&since=%00",
    "GET /api/v1/reports/ai_query?limit=1&cursor=%ff%ed%a0%80",
    "GET /api/v1/quarantine?id=%EF%BC%91&limit=%EF%BC%91",
    "GET /api/v1/deployments/%ff/dbt-sync/%00%0a%ff/result",
    "GET /api/v1/dashboards/%ed%a0%80/sections/%00",
    "GET /problems/%ff",
    "GET /pages/%2e%2e%2f%00",
)
ODD_FIELDS = (
    ("Host: [",),
    ("Host: x:99999999999", "Host: \xff"),
    ("Origin: \xff[",),
    ("Origin: a\tb", "Sec-Fetch-Site: \xff"),
    ("Origin: http://[::1", "Cookie: embedsink_login=\xff.\xff.\xff"),
    ('Cookie: embedsink_login="\\377.a.b"', "Accept: text/html"),
    ("Range: bytes=-0", "If-Range: \xff", "If-None-Match: \xff"),
    ("Last-Event-ID: \xb2",),
    ("Content-Type: \xff;charset=\xff", "Content-Encoding: \xff", "Content-Length: 3"),
    ("Content-Length: 99999999999999999",),
    ("Transfer-Encoding: chunked", "Content-Length: 3"),
    ("Transfer-Encoding: gzip, chunked",),
    ("Expect: 100-continue", "Content-Length: 3"),
    ("Connection: Upgrade", "Upgrade: websocket"),
    ("Authorization: Basic \xff",),
    ("X-Forwarded-Proto: \xff", "Accept-Encoding: \xff;q=\xff"),
)


def test_unusual_requests_log_no_error(server: RunningServer) -> None:
    key = server.key("admin")
    for first, fields in itertools.product(STRANGE, ODD_FIELDS):
        connection = connected(server)
        connection.sendall(request(first, *fields, key=key) + b"zz\r\n")
        connection.close()
    for first, fields in itertools.product(STRANGE, ((), *ODD_FIELDS[:8])):
        connection = connected(server)
        with contextlib.suppress(ConnectionError):
            connection.sendall(request(first, *fields, "Connection: close", key=key))
            assert connection.recv(65_536)[:9] in (b"HTTP/1.1 ", b"")
        connection.close()
    assert_no_error(server)


CHUNKED = (b"zz\r\n", b"1\r\naa\r\n", b"-1\r\n", b"1\r\na\r\nzz\r\n", b"1;x=\0\r\n", b"0\r\nA: b\r\n\r\nGET", b"f" * 40)


def test_truncated_bodies_and_broken_framing_log_no_error(server: RunningServer) -> None:
    keys = {"": server.key("read"), "POST": server.key(), "PUT": server.key("admin")}
    for first in (
        "POST /api/v1/events",
        "POST /login",
        "PUT /api/v1/deployments/1/dbt-sync/a/result",
        "GET /api/v1/events/live",
        "GET /api/v1/reports/views.csv",
        "GET /healthz",
    ):
        for kind, body, leave in itertools.product(("json", "x-www-form-urlencoded"), CHUNKED, WAYS_TO_LEAVE):
            fields = (f"Content-Type: application/{kind}", "Transfer-Encoding: chunked")
            connection = connected(server)
            connection.sendall(request(first, *fields, key=keys.get(first[:4].strip(), keys[""])) + body)
            leave(connection)
    assert_no_error(server)


def test_random_changes_of_valid_requests_log_no_error(server: RunningServer) -> None:
    requests = good_requests(server.key(), server.key("read"))
    rng = random.Random(7)
    for _ in range(400):
        raw = bytearray(rng.choice(requests) + rng.choice(requests))
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        connection = connected(server)
        with contextlib.suppress(ConnectionError):
            connection.sendall(raw)
        rng.choice(WAYS_TO_LEAVE)(connection)
    assert_no_error(server)


def test_an_aborted_download_logs_no_error(server: RunningServer) -> None:
    key, read_key = server.key(), server.key("read")
    long = view({"title": "x" * 50_000})
    assert server.post([long] * 15, key=key).status == 202
    path = "/api/v1/events.ndjson"
    wait_until(lambda: len(server.get(path, key=read_key).body) > 700_000, description="the events are loaded")
    for leave, size in itertools.product(WAYS_TO_LEAVE, (1, 70_000)):
        connection = connected(server)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(request(f"GET {path}", key=read_key))
        connection.recv(size)
        leave(connection)
    assert_no_error(server)


def test_failed_handshakes_log_no_error(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    words = [sys.executable, "-m", "embedsink", "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
    with log.open("wb") as file, subprocess.Popen([*words, *pem(tmp_path, PRIVATE_KEY)], stderr=file) as server:
        try:
            wait_until(lambda: serves_https(port), description="the server listens", timeout_s=READY_TIMEOUT_S)
            break_handshakes(port)
            break_encrypted_connections(port)
            assert serves_https(port)
            assert_log_has_no_error(log)
            server.terminate()
            assert server.wait(STOP_TIMEOUT_S) == 0
        finally:
            server.kill()


def break_handshakes(port: int) -> None:
    hello = hello_of()
    for raw in (b"", b"\x16", hello[:20], hello, hello[:-9] + b"\xff" * 9, request("GET /healthz"), b"\0" * 500):
        for leave in WAYS_TO_LEAVE:
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            connection.sendall(raw)
            leave(connection)


def break_encrypted_connections(port: int) -> None:
    after = (b"", b"\x17\x03\x03\x00\x05hello", b"\x15\x03\x03\x00\x02\x02\x28", b"\0\0\0")
    sent = (b"", b"GET /he", request("GET /healthz") * 20, request("GET /login") * (PIPELINE_MAX + 2))
    for encrypted, plain, leave in itertools.product(sent, after, WAYS_TO_LEAVE):
        with secured(port) as secure:
            secure.sendall(encrypted)
            connection = socket.socket(fileno=secure.detach())
        connection.sendall(plain)
        leave(connection)


def serves_https(port: int) -> bool:
    try:
        with secured(port) as connection:
            connection.sendall(request("GET /healthz"))
            return connection.recv(65_536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def secured(port: int) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    try:
        return ssl._create_unverified_context().wrap_socket(plain)
    except OSError:
        plain.close()
        raise


def hello_of() -> bytes:
    """Return the first message of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
