"""Honest senders next to hostile ones, with default settings. `scripts/bench abuse` has tighter goals."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bench.attacker import ATTACKS
from bench.honest import send_for

from tests.support.servers import RunningServer, running_server

pytestmark = [pytest.mark.server, pytest.mark.alone]

# A quiet machine needs far less. When the event loop parsed all bodies, the latency was far higher.
P50_MS_MAX = 150.0
SHARE_MIN = 0.5


@contextmanager
def attacked(server: RunningServer, name: str, key: str) -> Iterator[None]:
    port = str(urlsplit(server.url).port)
    command = [sys.executable, "-m", "bench.attacker", "127.0.0.1", port, key, name]
    is_flood = ATTACKS[name].body is None
    # One flood uses enough connections; two floods would fill the system's listen queue.
    attackers = [subprocess.Popen(command) for _ in range(1 if is_flood else 2)]
    try:
        time.sleep(4.0 if is_flood else 1.0)  # A flood first opens its connections, so wait until it sends.
        yield
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait()


@pytest.mark.parametrize(
    "name",
    [
        "hostile JSON without a key, 1 MiB",
        "hostile JSON, 1 MiB",
        "deliveries of 1,000",
        "GET flood, 4,000 connections",
        "stalled readers",
    ],
)
def test_honest_senders_have_low_latency_during_an_attack(tmp_path: Path, name: str) -> None:
    assert name in ATTACKS
    with running_server(tmp_path / "data") as server:
        honest, attacker = server.key(), server.key()
        send_for(server.url, honest, seconds=0.2, per_s=50)
        with attacked(server, name, attacker):
            latencies = send_for(server.url, honest, seconds=2.0, per_s=100)
    assert latencies.percentile_ms(50) < P50_MS_MAX
    assert latencies.share > SHARE_MIN


def test_a_stopping_server_answers_the_bodies_that_its_worker_has_not_read_yet(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        request = ATTACKS["hostile JSON, 1 MiB"].request(server.key())
        address = urlsplit(server.url)
        with ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=20))
                for _ in range(6)
            ]
            for connection in connections:
                connection.sendall(request)
            # The worker starts for the first body. When that is answered, the server has received the other bodies.
            assert select.select(connections, [], [], 20.0)[0]
            started_at = time.monotonic()
            code = server.stop()
            answers = [connection.recv(65_536) for connection in connections]
    assert code == 0
    assert time.monotonic() - started_at < 15
    assert {answer[:13] for answer in answers} <= {b"HTTP/1.1 400 ", b"HTTP/1.1 429 ", b"HTTP/1.1 503 "}
