"""Single events on 64 connections, interleaved with the empty handler, because a machine's speed drifts."""

from dataclasses import dataclass
from pathlib import Path

from bench.results import Goal, Result, median_of, ratio_of
from bench.server import EVENTS_PATH, MeasuredServer, Server, fresh_folder
from bench.wrk import Burst, burst, write_single_bodies

CONNECTIONS = 64
WARM_UP_S = 1


@dataclass(frozen=True, slots=True)
class Round:
    """One burst, and the server's CPU time for each request in microseconds."""

    burst: Burst
    cpu_us: float
    loop_cpu_us: float


def measure(*, seconds: float, rounds: int, root: Path) -> list[Result]:
    """Return requests/s, latency and CPU time of both servers, and their ratios."""
    empty_rounds, our_rounds = [], []
    with (
        fresh_folder(root) as folder,
        MeasuredServer(["bench.baseline"], ready_path="/healthz") as empty,
        Server(folder) as server,
    ):
        bodies = write_single_bodies(folder.path / "bodies")
        for length in [WARM_UP_S] + [seconds] * rounds:
            empty_rounds.append(_round(empty, bodies, key=server.ingest_key, seconds=length))
            our_rounds.append(_round(server, bodies, key=server.ingest_key, seconds=length))
            # Loading continues during our rounds, but must not slow the next round of the empty handler.
            server.catch_up()
    return _results(empty_rounds[1:], our_rounds[1:])


def _round(server: MeasuredServer, bodies: Path, *, key: str, seconds: float) -> Round:
    cpu_s, loop_cpu_s = server.cpu_s(), server.loop_cpu_s()
    result = burst(server.url + EVENTS_PATH, bodies, key=key, connections=CONNECTIONS, seconds=seconds)
    cpu_s, loop_cpu_s = server.cpu_s() - cpu_s, server.loop_cpu_s() - loop_cpu_s
    return Round(result, cpu_s * 1e6 / result.request_count, loop_cpu_s * 1e6 / result.request_count)


def _results(empty: list[Round], ours: list[Round]) -> list[Result]:
    our_speed, empty_speed = ([one.burst.requests_per_s for one in rounds] for rounds in (ours, empty))
    our_p99_ms, empty_p99_ms = ([one.burst.p99_us / 1e3 for one in rounds] for rounds in (ours, empty))
    return [
        median_of("empty handler", "requests/s", empty_speed),
        median_of("empty handler, p50", "ms", [one.burst.p50_us / 1e3 for one in empty]),
        median_of("empty handler, p99", "ms", empty_p99_ms),
        median_of("empty handler, CPU time", "µs/request", [one.cpu_us for one in empty]),
        median_of("ingest", "requests/s", our_speed),
        median_of("ingest, p50", "ms", [one.burst.p50_us / 1e3 for one in ours]),
        median_of("ingest, p99", "ms", our_p99_ms),
        median_of("ingest, CPU time", "µs/request", [one.cpu_us for one in ours]),
        median_of("ingest, CPU time of the event loop", "µs/request", [one.loop_cpu_us for one in ours]),
        ratio_of("ingest / empty handler, requests/s", our_speed, empty_speed, Goal(at_least=0.6)),
        ratio_of("ingest / empty handler, p99", our_p99_ms, empty_p99_ms, Goal(at_most=3)),
    ]
