"""Single events at 64 connections, durable, against the empty handler: by turns, since a machine's speed drifts."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.child import Child, running
from bench.finding import Finding, Goal
from bench.server import EVENTS_PATH, fresh_folder, serving_on
from bench.wrk import Burst, burst, write_single_bodies

CONNECTIONS = 64
WARM_UP_S = 1


@dataclass(frozen=True, slots=True)
class Round:
    """One burst, and what it cost the server per request, in microseconds of processor time."""

    burst: Burst
    cpu_us: float
    loop_cpu_us: float


def measure(*, seconds: float, rounds: int, root: Path) -> list[Finding]:
    """Requests/s, latency and processor time, ours and the empty handler's, and their ratios."""
    empty_rounds, our_rounds = [], []
    with (
        fresh_folder(root) as folder,
        running(["bench.baseline"], ready_path="/healthz") as empty,
        serving_on(folder) as server,
    ):
        bodies = write_single_bodies(folder.path / "bodies")
        for length in [WARM_UP_S] + [seconds] * rounds:
            empty_rounds.append(_round(empty, bodies, key=server.ingest_key, seconds=length))
            our_rounds.append(_round(server.child, bodies, key=server.ingest_key, seconds=length))
            # Loading goes on while we are measured, but must not slow the empty handler's next turn.
            server.catch_up()
    return _findings(empty_rounds[1:], our_rounds[1:])


def _round(child: Child, bodies: Path, *, key: str, seconds: float) -> Round:
    cpu_s, loop_cpu_s = child.cpu_s(), child.loop_cpu_s()
    seen = burst(child.url + EVENTS_PATH, bodies, key=key, connections=CONNECTIONS, seconds=seconds)
    cpu_s, loop_cpu_s = child.cpu_s() - cpu_s, child.loop_cpu_s() - loop_cpu_s
    return Round(seen, cpu_s * 1e6 / seen.request_count, loop_cpu_s * 1e6 / seen.request_count)


def _findings(empty: list[Round], ours: list[Round]) -> list[Finding]:
    speed = [one.burst.requests_per_s for one in ours], [one.burst.requests_per_s for one in empty]
    p99_ms = [one.burst.p99_us / 1e3 for one in ours], [one.burst.p99_us / 1e3 for one in empty]
    return [
        _median("empty handler", "requests/s", speed[1]),
        _median("empty handler, p50", "ms", [one.burst.p50_us / 1e3 for one in empty]),
        _median("empty handler, p99", "ms", p99_ms[1]),
        _median("empty handler, processor time", "µs/request", [one.cpu_us for one in empty]),
        _median("ingest", "requests/s", speed[0]),
        _median("ingest, p50", "ms", [one.burst.p50_us / 1e3 for one in ours]),
        _median("ingest, p99", "ms", p99_ms[0]),
        _median("ingest, processor time", "µs/request", [one.cpu_us for one in ours]),
        _median("ingest, of that the event loop", "µs/request", [one.loop_cpu_us for one in ours]),
        _ratio("ingest / empty handler, requests/s", *speed, Goal(at_least=0.6)),
        _ratio("ingest / empty handler, p99", *p99_ms, Goal(at_most=3)),
    ]


def _median(what: str, unit: str, values: list[float]) -> Finding:
    return Finding(what, median(values), unit, values)


def _ratio(what: str, ours: list[float], empty: list[float], goal: Goal) -> Finding:
    each = [mine / other for mine, other in zip(ours, empty, strict=True)]
    return Finding(what, median(ours) / median(empty), "×", each, goal)
