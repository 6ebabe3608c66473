"""The latency of honest single events during each attack."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.attacker import ATTACKS
from bench.honest import Latencies, send_for
from bench.results import Goal, Result
from bench.server import BenchError, Server, fresh_folder
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind

MEMORY_MIB_MAX = 256
NO_ATTACK = "no attack"


def measure(*, seconds: float, root: Path, only: list[str]) -> list[Result]:
    """Return the latency and the success rate of honest senders without and during each attack.

    Raises:
        BenchError: an attack does not exist.
    """
    known = [NO_ATTACK, *ATTACKS]
    unknown = sorted(set(only) - set(known))
    if unknown:
        raise BenchError(f"abuse: there is no attack {', '.join(unknown)}. Choose from: {', '.join(known)}.")
    results: list[Result] = []
    for name in only or known:
        with fresh_folder(root) as folder, Server(folder) as server:
            _, attacker_key = KeyStore(folder.keys).create(KeyKind.INGEST, now=0.0)
            results += _measure(name, server, attacker_key, seconds)
    return results


def _measure(name: str, server: Server, attacker_key: str, seconds: float) -> list[Result]:
    send_for(server.url, server.ingest_key, seconds=1.0)  # Warm up what starts lazily.
    with _attacking(name, server.port, attacker_key):
        latencies = send_for(server.url, server.ingest_key, seconds=seconds)
        memory_mib = server.tree_memory_peak_mib()
    return [*_results(name, latencies), Result(f"{name}: memory", memory_mib, "MiB", goal=Goal(at_most=MEMORY_MIB_MAX))]


def _results(name: str, latencies: Latencies) -> list[Result]:
    return [
        Result(f"{name}: p50 of single events", latencies.percentile_ms(50), "ms", goal=Goal(at_most=50)),
        Result(f"{name}: p99 of single events", latencies.percentile_ms(99), "ms", goal=Goal(at_most=500)),
        Result(f"{name}: share answered 202", latencies.share, "", goal=Goal(at_least=0.9)),
    ]


@contextmanager
def _attacking(name: str, port: int, key: str) -> Iterator[None]:
    if name == NO_ATTACK:
        yield
        return
    command = [sys.executable, "-m", "bench.attacker", "127.0.0.1", str(port), key, name]
    attacker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(4.0)  # Until the attack is at full strength: floods first open thousands of connections.
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()
