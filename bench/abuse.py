"""Honest single events beside each attack: what their senders notice."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.attacker import ATTACKS
from bench.child import BenchError, Child, memory_peak_mib
from bench.finding import Finding, Goal
from bench.honest import Aggregator, send_for
from bench.server import Server, fresh_folder, serving_on
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind

MEMORY_MIB_MAX = 256


def measure(*, seconds: float, root: Path, only: list[str]) -> list[Finding]:
    """The latency and the share of honest senders alone, and beside each attack.

    Raises:
        BenchError: there is no such attack.
    """
    unknown = set(only) - {"nobody", *ATTACKS}
    if unknown:
        raise BenchError(f"{', '.join(sorted(unknown))}: is no attack. There are {', '.join(ATTACKS)}.")
    findings: list[Finding] = []
    for name in only or ["nobody", *ATTACKS]:
        with fresh_folder(root) as folder, serving_on(folder) as server:
            _, attacker_key = KeyStore(folder.keys).create(KeyKind.INGEST, now=0.0)
            findings += _beside(name, server, attacker_key, seconds)
    return findings


def _beside(name: str, server: Server, attacker_key: str, seconds: float) -> list[Finding]:
    url = server.child.url
    send_for(url, server.ingest_key, seconds=1.0)  # Everything that is started lazily is there.
    with _attacking(name, server.child.port, attacker_key):
        seen = send_for(url, server.ingest_key, seconds=seconds)
        memory = memory_mib(server.child)
    goal = Goal(at_most=MEMORY_MIB_MAX)
    return [*_findings(name, seen), Finding(f"beside {name}: memory with its worker", memory, "MiB", goal=goal)]


def _findings(name: str, seen: Aggregator) -> list[Finding]:
    return [
        Finding(f"beside {name}: p50 of single events", seen.percentile_ms(50), "ms", goal=Goal(at_most=50)),
        Finding(f"beside {name}: p99 of single events", seen.percentile_ms(99), "ms", goal=Goal(at_most=500)),
        Finding(f"beside {name}: answered 202, of those that were due", seen.share, "", goal=Goal(at_least=0.9)),
    ]


@contextmanager
def _attacking(name: str, port: int, key: str) -> Iterator[None]:
    if name == "nobody":
        yield
        return
    command = [sys.executable, "-m", "bench.attacker", "127.0.0.1", str(port), key, name]
    attacker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(4.0)  # The attack is at its height then: floods open thousands of connections first.
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()


def memory_mib(child: Child) -> float:
    """The most memory that a server and its worker have had in RAM."""
    task = Path(f"/proc/{child.popen.pid}/task")
    children = [pid for path in task.glob("*/children") for pid in path.read_text(encoding="ascii").split()]

    return child.memory_peak_mib() + sum(memory_peak_mib(int(pid)) for pid in children)
