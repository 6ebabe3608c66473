"""Load from wrk: envelopes of all event types, with a unique id for each event."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.results import Goal, Result, median_of, ratio_of
from bench.server import BenchError, MeasuredServer
from bench.traffic import visits
from embedsink.demo.visits import Envelope
from embedsink.http.cors import INGEST_PATH

SINGLE_BODIES = 4_000
DELIVERY_BODIES = 200
# Most visits of this length have more than 100 envelopes.
LONG_VISITS = 20.0
# load.lua counts ids in 32 bits. Each run has a separate range, so that no two runs send the same id.
IDS_PER_RUN = 2**25
_SCRIPT = Path(__file__).with_name("load.lua")
# The placeholder for the unique part of an id.
_PLACEHOLDER = "@@@@@@@@"

_run_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Burst:
    """The results of one run of wrk, and the server's CPU time for each request."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    loop_cpu_us: float


def write_single_bodies(path: Path) -> Path:
    """Write bodies with one bare envelope each."""
    envelopes = (envelope for visit in visits(1) for envelope in _with_placeholders(visit.envelopes))
    return _write(path, islice(envelopes, SINGLE_BODIES))


def write_delivery_bodies(path: Path, *, event_count: int) -> Path:
    """Write deliveries with this number of events each, as a forwarder sends them."""
    deliveries = (
        {
            "sentAt": visit.envelopes[event_count - 1]["timestamp"],
            "context": visit.context,
            "events": _with_placeholders(visit.envelopes[:event_count]),
        }
        for visit in visits(1, length_factor=LONG_VISITS)
        if len(visit.envelopes) >= event_count
    )
    return _write(path, islice(deliveries, DELIVERY_BODIES))


def burst(server: MeasuredServer, bodies: Path, *, key: str, connections: int, seconds: float) -> Burst:
    """Send requests to a server for this number of seconds.

    Raises:
        BenchError: wrk failed, or a response was not a 2xx.
    """
    url = server.url + INGEST_PATH
    length = f"{max(1, round(seconds))}s"
    first_id = str(next(_run_numbers) * IDS_PER_RUN)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{length}", "--timeout", "10s", "-s", str(_SCRIPT), url]
    cpu_s_before, loop_cpu_s_before = server.cpu_s(), server.loop_cpu_s()
    finished = subprocess.run(
        [*command, "--", str(bodies), first_id, key], capture_output=True, text=True, timeout=seconds + 60
    )
    cpu_s = server.cpu_s() - cpu_s_before
    loop_cpu_s = server.loop_cpu_s() - loop_cpu_s_before
    output = re.search(r"^RESULT (.*)", finished.stdout, re.MULTILINE)
    if finished.returncode != 0 or not output:
        raise BenchError(f"wrk: {finished.stderr.strip() or finished.stdout.strip()}")
    result = json.loads(output[1])
    if result["refused_count"] or result["broken_count"]:
        raise BenchError(
            f"{url}: {result['refused_count']:,} requests refused, {result['broken_count']:,} without a response."
        )
    count = result["request_count"]
    return Burst(
        requests_per_s=count * 1e6 / result["duration_us"],
        p50_ms=result["p50_us"] / 1e3,
        p99_ms=result["p99_us"] / 1e3,
        cpu_us=cpu_s * 1e6 / count,
        loop_cpu_us=loop_cpu_s * 1e6 / count,
    )


def speed_and_latency(name: str, bursts: list[Burst]) -> Iterator[Result]:
    """Yield the medians of requests/s, p50 and p99."""
    yield median_of(name, "requests/s", [one.requests_per_s for one in bursts])
    yield median_of(f"{name}, p50", "ms", [one.p50_ms for one in bursts])
    yield median_of(f"{name}, p99", "ms", [one.p99_ms for one in bursts])


def ratios(
    name: str, bursts: list[Burst], base: list[Burst], *, speed: Goal | None = None, p99: Goal | None = None
) -> Iterator[Result]:
    """Yield the ratios of requests/s and p99 to those of the bursts `base`, with their goals."""
    speeds, base_speeds = [one.requests_per_s for one in bursts], [one.requests_per_s for one in base]
    yield ratio_of(f"{name}, requests/s", speeds, base_speeds, speed)
    p99s_ms, base_p99s_ms = [one.p99_ms for one in bursts], [one.p99_ms for one in base]
    yield ratio_of(f"{name}, p99", p99s_ms, base_p99s_ms, p99)


def _with_placeholders(envelopes: list[Envelope]) -> list[Envelope]:
    """Replace the first part of each id with the placeholder."""
    return [envelope | {"id": _PLACEHOLDER + envelope["id"][len(_PLACEHOLDER) :]} for envelope in envelopes]


def _write(path: Path, bodies: Iterator[Any]) -> Path:
    if shutil.which("wrk") is None:
        raise BenchError("wrk: is not installed. On Debian: apt-get install wrk. On macOS: brew install wrk.")
    path.write_text("".join(json.dumps(body, separators=(",", ":")) + "\n" for body in bodies), encoding="utf-8")
    return path
