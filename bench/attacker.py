"""Hostile load: `python -m bench.attacker HOST PORT KEY ATTACK` sends requests until it is killed.

Each connection repeats one request and reads the responses. Closed connections are opened again.
"""

import contextlib
import gzip
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import flood
from bench.flood import Flood
from bench.traffic import view
from embedsink.http.cors import INGEST_PATH

KIB, MIB = 1_024, 1_048_576
_RECEIVE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Attack:
    """The request of an attack, and the number of connections that send it.

    `pause_s` is the pause between two pieces of a slow body.
    """

    connections: int
    body: Callable[[], bytes]
    has_key: bool = True
    headers: str = ""
    pause_s: float = 0.0


def hostile_json(size: int) -> bytes:
    """Return an object with many duplicate keys: only the slow JSON reader can describe its error."""
    return (b"{" + b'"a":1,' * (size // 6))[: size - 8] + b'"a":1}'


def _many_events(count: int) -> bytes:
    return json.dumps({"events": [view()] * count}, separators=(",", ":")).encode()


ATTACKS: dict[str, Attack | Flood] = {
    "strangers' hostile JSON, 1 MiB": Attack(8, lambda: hostile_json(MIB - 64), has_key=False),
    "hostile JSON, 1 MiB": Attack(8, lambda: hostile_json(MIB - 64)),
    "hostile JSON, 32 KiB": Attack(64, lambda: hostile_json(32 * KIB - 64)),
    "deliveries of 1,000": Attack(16, lambda: _many_events(1_000)),
    "deliveries of 1,000 rejected": Attack(16, lambda: json.dumps({"events": [1] * 1_000}).encode()),
    "unreadable bodies": Attack(16, lambda: b"x" * (MIB - 64)),
    "gzip bombs": Attack(16, lambda: gzip.compress(bytes(64 * MIB)), headers="Content-Encoding: gzip\r\n"),
    "slow bodies": Attack(256, lambda: b" " * (MIB - 64), pause_s=0.5),
    "wrong keys": Attack(64, lambda: b"{}", headers="Authorization: Bearer es_ingest_x\r\n", has_key=False),
    "GET flood, 64 connections": Flood(64, "/nothing"),
    "GET flood, 400 connections": Flood(400, "/nothing"),
    "GET flood, 4,000 connections": Flood(4_000, "/nothing"),
    "GET /healthz flood, 400 connections": Flood(400, "/healthz"),
    "stalled readers": Flood(4_500, "/docs/api/reading", pipelined=5, reads=False),
}


def main() -> None:
    """Run one attack, endlessly."""
    host, port, key, name = sys.argv[1:]
    attack = ATTACKS[name]
    if isinstance(attack, Flood):
        flood.send((host, int(port)), attack)
        return
    request = request_of(attack, key)
    threads = [
        threading.Thread(target=_repeat, args=((host, int(port)), request, attack.pause_s), daemon=True)
        for _ in range(attack.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def request_of(attack: Attack, key: str) -> bytes:
    """Return the bytes of one request."""
    body = attack.body()
    credential = f"Authorization: Bearer {key}\r\n" if attack.has_key else ""
    head = (
        f"POST {INGEST_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{credential}{attack.headers}\r\n"
    )
    return head.encode() + body


def _repeat(address: Any, request: bytes, pause_s: float) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=30) as connection:
            while True:
                _send(connection, request, pause_s)
                if not _receive(connection):
                    break


def _send(connection: socket.socket, request: bytes, pause_s: float) -> None:
    if not pause_s:
        connection.sendall(request)
        return
    for start in range(0, len(request), 16 * KIB):
        connection.sendall(request[start : start + 16 * KIB])
        time.sleep(pause_s)


def _receive(connection: socket.socket) -> bool:
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(_RECEIVE_BYTES)
        if not part:
            return False
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        part = connection.recv(_RECEIVE_BYTES)
        if not part:
            return False
        body += part
    return b"connection: close" not in head.lower()


if __name__ == "__main__":
    main()
