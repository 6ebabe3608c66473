"""Streams: revoked keys and slow clients."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.types import Message

from embedsink.auth.key_store import KeyStore
from embedsink.http.streaming import Download
from tests.support.envelopes import view
from tests.support.servers import running_server, wait_until


class Stream:
    """A download of ten chunks, and the chunks that its client has received."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.is_closed = False

    async def content(self) -> AsyncGenerator[bytes]:
        try:
            for number in range(10):
                yield b"%d" % number
        finally:
            self.is_closed = True

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.received.append(message["body"])


def test_a_stream_arrives_completely() -> None:
    stream = Stream()
    asyncio.run(Download(stream.content(), lambda: True).stream_response(stream.send))
    assert stream.received == [*(b"%d" % number for number in range(10)), b""]
    assert stream.is_closed


def test_a_stream_is_cut_when_its_key_is_revoked() -> None:
    stream = Stream()
    download = Download(stream.content(), lambda: len(stream.received) < 3)
    asyncio.run(download.stream_response(stream.send))
    assert stream.received == [b"0", b"1", b"2"]
    assert stream.is_closed


@pytest.mark.server
def test_a_client_that_stops_reading_is_cut(tmp_path: Path) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with running_server(tmp_path / "data", EMBEDSINK_READ_TIMEOUT_S="1") as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        address = urlsplit(server.url)
        connection.connect((address.hostname, address.port))
        ends = f":{address.port:04X} 0100007F:{connection.getsockname()[1]:04X} 01 "
        assert ends in Path("/proc/net/tcp").read_text(), "the server has the connection"
        connection.sendall(request * 60)
        # Read /proc, because a client that does not read does not detect the end of the connection.
        wait_until(
            lambda: ends not in Path("/proc/net/tcp").read_text(), description="the server cuts it", timeout_s=20
        )
        assert server.get("/healthz").status == 200


@pytest.mark.server
def test_a_revoked_reader_gets_no_more_bytes_from_buffers(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, socket.socket() as connection:
        events = [view({"title": "x" * 2_000, "path": f"/{number}"}) for number in range(400)]
        ingest, key = server.key("ingest"), server.key("read")
        for _ in range(20):
            assert server.post(events, key=ingest).status == 202
        wait_until(
            lambda: b",8000," in server.get("/api/v1/reports/views.csv", key=key).body, description="all is loaded"
        )
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(10)
        address = urlsplit(server.url)
        connection.connect((address.hostname, address.port))
        head = f"GET /api/v1/events.ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")

        keys = KeyStore(server.data / "keys.json")
        keys.revoke(key, now=time.time())
        time.sleep(1.5)
        with pytest.raises(ConnectionResetError):
            read_to_the_end(connection)
        assert '"level": "error"' not in server.log.read_text()


def read_to_the_end(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass
