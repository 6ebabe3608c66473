"""Single events on 64 connections, interleaved with the empty handler, because a machine's speed drifts."""

from collections.abc import Iterator

from bench import baseline
from bench.options import REPOSITORY, DataRoot, Rounds, Seconds
from bench.results import Goal, Result, median_of
from bench.server import MeasuredServer, Server, fresh_folder
from bench.wrk import Burst, burst, ratios, speed_and_latency, write_single_bodies

CONNECTIONS = 64
WARM_UP_S = 1


def measure(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Throughput, latency and CPU time of single events on 64 connections, against an empty handler."""
    baseline_bursts: list[Burst] = []
    server_bursts: list[Burst] = []
    with (
        fresh_folder(data_root) as folder,
        MeasuredServer(baseline.COMMAND, ready_path="/healthz") as empty,
        Server(folder) as server,
    ):
        bodies, key = write_single_bodies(folder.path / "bodies"), server.ingest_key
        for length in [WARM_UP_S] + [seconds] * rounds:
            baseline_bursts.append(burst(empty, bodies, key=key, connections=CONNECTIONS, seconds=length))
            server_bursts.append(burst(server, bodies, key=key, connections=CONNECTIONS, seconds=length))
            # The server loads during its own rounds. It must not load during the next round of the empty handler.
            server.catch_up()
    del baseline_bursts[0], server_bursts[0]  # of the warm-up
    for name, bursts in (("empty handler", baseline_bursts), ("ingest", server_bursts)):
        yield from speed_and_latency(name, bursts)
        yield median_of(f"{name}, CPU time", "µs/request", [one.cpu_us for one in bursts])
        yield median_of(f"{name}, CPU time of the event loop", "µs/request", [one.loop_cpu_us for one in bursts])
    name = "ingest / empty handler"
    yield from ratios(name, server_bursts, baseline_bursts, speed=Goal(at_least=0.6), p99=Goal(at_most=3))
