"""Load from wrk, with bodies that we write: envelopes of all event types, and an id of its own for each event."""

import itertools
import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.child import BenchError
from bench.traffic import sessions

BODIES_OF_ONE = 4_000
BODIES_OF_MANY = 200
# wrk counts ids in 32 bits. Each run begins this much further on, so that no run repeats the ids of another.
IDS_PER_RUN = 2**25
_SCRIPT = Path(__file__).with_name("load.lua")
_MARK = "@@@@@@@@"
_INSTALL = "wrk is missing. It makes the load: `apt-get install wrk` on Debian and Ubuntu, `brew install wrk` on macOS."

_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class Burst:
    """What one run of wrk saw."""

    duration_us: int
    request_count: int
    p50_us: int
    p99_us: int
    refused_count: int
    broken_count: int

    @property
    def requests_per_s(self) -> float:
        """Answers a second."""
        return self.request_count * 1e6 / self.duration_us


def require_wrk() -> None:
    """Raises BenchError when wrk is not installed."""
    if shutil.which("wrk") is None:
        raise BenchError(_INSTALL)


def write_single_bodies(path: Path) -> Path:
    """Bodies of one bare envelope each."""
    envelopes = (envelope for session in _sessions() for envelope in session.envelopes)
    return _write(path, islice(envelopes, BODIES_OF_ONE))


def write_delivery_bodies(path: Path, *, event_count: int) -> Path:
    """Deliveries of so many events, one session each, as a forwarder sends them."""
    deliveries = (
        {"sentAt": session.envelopes[-1]["timestamp"], "context": session.context, "events": session.envelopes}
        for session in _sessions(range(event_count, event_count + 1))
    )
    return _write(path, islice(deliveries, BODIES_OF_MANY))


def burst(url: str, bodies: Path, *, key: str, connections: int, seconds: float) -> Burst:
    """Load one address for so many seconds.

    Raises:
        BenchError: wrk failed, or an answer was not a 2xx: then the numbers mean nothing.
    """
    length = f"{max(1, round(seconds))}s"
    first_id = str(next(_runs) * IDS_PER_RUN)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{length}", "--timeout", "10s", "-s", str(_SCRIPT), url]
    finished = subprocess.run(
        [*command, "--", str(bodies), first_id, key], capture_output=True, text=True, timeout=seconds + 60
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if finished.returncode != 0 or not lines:
        raise BenchError(f"wrk: {finished.stderr.strip() or finished.stdout.strip()}")
    seen = Burst(**json.loads(lines[0].removeprefix("RESULT ")))
    if seen.refused_count or seen.broken_count:
        raise BenchError(f"{url}: {seen.refused_count:,} requests refused, {seen.broken_count:,} broken.")
    return seen


def _sessions(length: range = range(8, 40)) -> Iterator[Any]:
    chance = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    return sessions(1, start_ms=now_ms - 3_600_000, length=length, new_id=lambda: _marked_id(chance))


def _marked_id(chance: random.Random) -> str:
    rest = f"{chance.getrandbits(96):024x}"
    return "-".join((_MARK, rest[:4], rest[4:8], rest[8:12], rest[12:]))


def _write(path: Path, bodies: Iterator[Any]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for body in bodies:
            file.write(json.dumps(body, separators=(",", ":")) + "\n")
    return path
