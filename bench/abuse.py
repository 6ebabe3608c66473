"""The latency of honest single events during each attack."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from bench.attacker import ATTACKS
from bench.honest import send_for
from bench.options import REPOSITORY, DataRoot, Seconds
from bench.results import Goal, Result
from bench.server import BenchError, Server, fresh_folder
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind

NO_ATTACK = "no attack"


def measure(
    names: Annotated[list[str] | None, typer.Argument(help="The attacks to run. Default: all.")] = None,
    seconds: Seconds = 5,
    data_root: DataRoot = REPOSITORY,
) -> Iterator[Result]:
    """Latency of honest single events at a steady rate during each attack, and the server's memory."""
    known = [NO_ATTACK, *ATTACKS]
    unknown = sorted(set(names or []) - set(known))
    if unknown:
        raise BenchError(f"abuse: {', '.join(unknown)} does not exist. Choose from: {', '.join(known)}.")
    for name in names or known:
        with fresh_folder(data_root) as folder, Server(folder) as server:
            _, attacker_key = KeyStore(folder.keys).create(KeyKind.INGEST, now=0.0)
            send_for(server.url, server.ingest_key, seconds=1.0)  # Start the lazy parts of the server.
            with _attacking(name, server.port, attacker_key):
                latencies = send_for(server.url, server.ingest_key, seconds=seconds)
                memory_mib = server.tree_memory_peak_mib()
        yield Result(f"{name}: p50 of single events", latencies.percentile_ms(50), "ms", goal=Goal(at_most=50))
        yield Result(f"{name}: p99 of single events", latencies.percentile_ms(99), "ms", goal=Goal(at_most=500))
        yield Result(f"{name}: share answered 202", latencies.share, "", goal=Goal(at_least=0.9))
        yield Result(f"{name}: memory", memory_mib, "MiB", goal=Goal(at_most=256))


@contextmanager
def _attacking(name: str, port: int, key: str) -> Iterator[None]:
    if name == NO_ATTACK:
        yield
        return
    command = [sys.executable, "-m", "bench.attacker", "127.0.0.1", str(port), key, name]
    attacker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(4.0)  # Floods first open thousands of connections.
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()
