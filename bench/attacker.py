"""Hostile load: `python -m bench.attacker HOST PORT KEY ATTACK` sends until it is ended.

Each connection sends its request, reads the answer and goes on. A connection that is closed is opened again.
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
from embedsink.http.cors import INGEST_PATH

KIB, MIB = 1_024, 1_048_576
_RECEIVE_BYTES = 65_536
_ENVELOPE = {
    "source": "svc-embed",
    "direction": "event",
    "type": "svc:event:view",
    "payload": {"surface": "dashboard", "path": "/dashboards/sales", "title": "Sales"},
    "timestamp": 1_763_596_800_000,
    "surface": "dashboard",
}


@dataclass(frozen=True, slots=True)
class Attack:
    """What one kind of attacker sends, on how many connections.

    `pause_s` is between the pieces of a slow body.
    """

    connections: int
    body: Callable[[], bytes]
    has_key: bool = True
    headers: str = ""
    pause_s: float = 0.0


def hostile_json(size: int) -> bytes:
    """An object that has the same key again and again: only the slow reader can say what is wrong with it."""
    return (b"{" + b'"a":1,' * (size // 6))[: size - 8] + b'"a":1}'


def _many_events(count: int) -> bytes:
    return json.dumps({"events": [_ENVELOPE] * count}, separators=(",", ":")).encode()


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
    "stalled readers": Flood(4_500, "/docs", pipelined=5, reads=False),
}


def main() -> None:
    """Run one attack."""
    host, port, key, name = sys.argv[1:]
    attack = ATTACKS[name]
    if isinstance(attack, Flood):
        flood.send((host, int(port)), attack)
        return
    request = request_of(attack, key)
    threads = [
        threading.Thread(target=_send_again_and_again, args=((host, int(port)), request, attack.pause_s), daemon=True)
        for _ in range(attack.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def request_of(attack: Attack, key: str) -> bytes:
    """The bytes of one request."""
    body = attack.body()
    credential = f"Authorization: Bearer {key}\r\n" if attack.has_key else ""
    head = (
        f"POST {INGEST_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{credential}{attack.headers}\r\n"
    )
    return head.encode() + body


def _send_again_and_again(address: Any, request: bytes, pause_s: float) -> None:
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
