"""Load from wrk: envelopes of all event types, with a unique id for each event."""

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

from bench.server import BenchError
from bench.traffic import LENGTHS, Session, sessions

SINGLE_BODIES = 4_000
DELIVERY_BODIES = 200
# wrk counts ids in 32 bits. Each run has a range of its own, so that no run repeats the ids of another.
IDS_PER_RUN = 2**25
_SCRIPT = Path(__file__).with_name("load.lua")
_MARK = "@@@@@@@@"
_INSTALL = "wrk: is not installed. On Debian and Ubuntu: apt-get install wrk. On macOS: brew install wrk."

_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class Burst:
    """The results of one run of wrk."""

    duration_us: int
    request_count: int
    p50_us: int
    p99_us: int
    refused_count: int
    broken_count: int

    @property
    def requests_per_s(self) -> float:
        """The responses per second."""
        return self.request_count * 1e6 / self.duration_us


def require_wrk() -> None:
    """Raise BenchError if wrk is not installed."""
    if shutil.which("wrk") is None:
        raise BenchError(_INSTALL)


def write_single_bodies(path: Path) -> Path:
    """Write bodies with one bare envelope each."""
    envelopes = (envelope for session in _sessions() for envelope in session.envelopes)
    return _write(path, islice(envelopes, SINGLE_BODIES))


def write_delivery_bodies(path: Path, *, event_count: int) -> Path:
    """Write deliveries with so many events each, as a forwarder sends them."""
    deliveries = (
        {"sentAt": session.envelopes[-1]["timestamp"], "context": session.context, "events": session.envelopes}
        for session in _sessions(range(event_count, event_count + 1))
    )
    return _write(path, islice(deliveries, DELIVERY_BODIES))


def burst(url: str, bodies: Path, *, key: str, connections: int, seconds: float) -> Burst:
    """Send requests to a URL for so many seconds.

    Raises:
        BenchError: wrk failed, or a response was not a 2xx.
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
    result = Burst(**json.loads(lines[0].removeprefix("RESULT ")))
    if result.refused_count or result.broken_count:
        raise BenchError(
            f"{url}: {result.refused_count:,} requests refused, {result.broken_count:,} without a response."
        )
    return result


def _sessions(lengths: range = LENGTHS) -> Iterator[Session]:
    rng = random.Random(7)
    start_ms = time.time_ns() // 1_000_000 - 3_600_000
    return sessions(1, start_ms=start_ms, lengths=lengths, new_id=lambda: _marked_id(rng))


def _marked_id(rng: random.Random) -> str:
    rest = f"{rng.getrandbits(96):024x}"
    return "-".join((_MARK, rest[:4], rest[4:8], rest[8:12], rest[12:]))


def _write(path: Path, bodies: Iterator[Any]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for body in bodies:
            file.write(json.dumps(body, separators=(",", ":")) + "\n")
    return path
