"""Hostile load: `python -m bench.attacker HOST PORT KEY ATTACK` sends requests until it is killed.

Each connection repeats one request and reads the responses. Closed connections are opened again. One thread serves all
connections, so that the attacker leaves the CPU to the server.
"""

import gzip
import json
import resource
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.traffic import view
from embedsink.http.cors import INGEST_PATH

KIB, MIB = 1_024, 1_048_576
_RECEIVE_BYTES = MIB
# The bytes that a slow client sends at once.
_SLOW_CHUNK_BYTES = 16 * KIB
# Bodies stay this far below a size limit, so that none exceeds the limit.
_MARGIN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Attack:
    """The request of an attack, and the number of connections that send it.

    Args:
        body: returns the body of a POST; None for a flood of GET requests.
        pipelined: the number of requests that a connection sends at once.
        pause_s: the pause between two chunks of a slow body.
        reads_responses: whether clients read. Otherwise connections stay open until the server closes them.
    """

    connections: int
    body: Callable[[], bytes] | None = None
    path: str = INGEST_PATH
    has_key: bool = True
    headers: str = ""
    pipelined: int = 1
    pause_s: float = 0.0
    reads_responses: bool = True

    def request(self, key: str) -> bytes:
        """Return the bytes that a connection sends repeatedly."""
        if self.body is None:
            return f"GET {self.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * self.pipelined
        body = self.body()
        credential = f"Authorization: Bearer {key}\r\n" if self.has_key else ""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{credential}{self.headers}\r\n"
        )
        return head.encode() + body


def hostile_json(size: int) -> bytes:
    """Return an object with many duplicate keys. Only the slow JSON reader can describe its error."""
    return (b"{" + b'"a":1,' * (size // 6))[: size - 8] + b'"a":1}'


def _many_events(count: int) -> bytes:
    return json.dumps({"events": [view()] * count}, separators=(",", ":")).encode()


ATTACKS: dict[str, Attack] = {
    "hostile JSON without a key, 1 MiB": Attack(8, lambda: hostile_json(MIB - _MARGIN_BYTES), has_key=False),
    "hostile JSON, 1 MiB": Attack(8, lambda: hostile_json(MIB - _MARGIN_BYTES)),
    "hostile JSON, 32 KiB": Attack(64, lambda: hostile_json(32 * KIB - _MARGIN_BYTES)),
    "deliveries of 1,000": Attack(16, lambda: _many_events(1_000)),
    "deliveries of 1,000 rejected": Attack(16, lambda: json.dumps({"events": [1] * 1_000}).encode()),
    "unreadable bodies": Attack(16, lambda: b"x" * (MIB - _MARGIN_BYTES)),
    "gzip bombs": Attack(16, lambda: gzip.compress(bytes(64 * MIB)), headers="Content-Encoding: gzip\r\n"),
    "slow bodies": Attack(256, lambda: b" " * (MIB - _MARGIN_BYTES), pause_s=0.5),
    "wrong keys": Attack(64, lambda: b"{}", headers="Authorization: Bearer es_ingest_x\r\n", has_key=False),
    "GET flood, 64 connections": Attack(64, path="/nothing"),
    "GET flood, 400 connections": Attack(400, path="/nothing"),
    "GET flood, 4,000 connections": Attack(4_000, path="/nothing"),
    "GET /healthz flood, 400 connections": Attack(400, path="/healthz"),
    "stalled readers": Attack(4_500, path="/docs/api/reading", pipelined=5, reads_responses=False),
}


def send(address: tuple[str, int], attack: Attack, key: str) -> None:
    """Send until the process is killed."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (attack.connections + 64, hard_limit))
    request = attack.request(key)
    epoll = select.epoll()
    clients: dict[int, _Client] = {}

    def connect() -> None:
        client = _Client(address, attack, request)
        clients[client.connection.fileno()] = client
        epoll.register(client.connection, select.EPOLLOUT)

    for _ in range(attack.connections):
        connect()
    while True:
        for descriptor, _ in epoll.poll():
            try:
                epoll.modify(descriptor, clients[descriptor].step())
            except OSError:
                clients.pop(descriptor).connection.close()
                connect()
        time.sleep(attack.pause_s)


class _Client:
    """A connection that repeats one request."""

    def __init__(self, address: tuple[str, int], attack: Attack, request: bytes) -> None:
        self._request = self._unsent = memoryview(request)
        self._chunk_bytes = _SLOW_CHUNK_BYTES if attack.pause_s else len(request)
        self._reads_responses = attack.reads_responses
        self._response_head = b""
        self._unread_body_bytes = 0
        self.connection = socket.socket()
        if not attack.reads_responses:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.connection.setblocking(False)
        self.connection.connect_ex(address)

    def step(self) -> int:
        """Send or receive. Return the epoll events to wait for. Epoll always reports a closed connection too.

        Raises:
            OSError: the connection is closed.
        """
        if not self._unsent and self._has_response():
            self._unsent = self._request
        if self._unsent:
            self._unsent = self._unsent[self.connection.send(self._unsent[: self._chunk_bytes]) :]
        if self._unsent:
            return select.EPOLLOUT
        return select.EPOLLIN if self._reads_responses else 0

    def _has_response(self) -> bool:
        """Receive a part of the response. Return whether the response is complete."""
        received = self.connection.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError
        if not self._unread_body_bytes:
            self._response_head += received
            head, separator, received = self._response_head.partition(b"\r\n\r\n")
            if not separator:
                return False
            content_length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._unread_body_bytes = int(content_length or 0)
            self._response_head = b""
        self._unread_body_bytes -= len(received)
        return self._unread_body_bytes <= 0


if __name__ == "__main__":
    send((sys.argv[1], int(sys.argv[2])), ATTACKS[sys.argv[4]], sys.argv[3])
