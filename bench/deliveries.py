"""Deliveries of 100 events while the loader runs: speed, memory, backlog, and the ledger."""

from collections.abc import Iterator

from bench.options import REPOSITORY, DataRoot, Rounds, Seconds
from bench.results import Goal, Result, median_of
from bench.server import BenchError, Ledger, Server, fresh_folder, stored_rows
from bench.wrk import Burst, burst, write_delivery_bodies

CONNECTIONS = 16
EVENTS_PER_DELIVERY = 100
NAME = "deliveries of 100"


def measure(seconds: Seconds = 6, rounds: Rounds = 3, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Throughput, memory and loader backlog of deliveries with 100 events, and a check that no event is lost."""
    bursts: list[Burst] = []
    cpu_us_per_event: list[float] = []
    backlogs: list[float] = []
    catch_up_s: list[float] = []
    with fresh_folder(data_root) as folder:
        bodies = write_delivery_bodies(folder.path / "bodies", event_count=EVENTS_PER_DELIVERY)
        with Server(folder) as server:
            for _ in range(rounds):
                cpu_s_before, accepted_before = server.cpu_s(), server.ledger().accepted
                bursts.append(burst(server, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds))
                backlogs.append(float(server.ledger().backlog))
                catch_up_s.append(server.catch_up())
                accepted_count = server.ledger().accepted - accepted_before
                cpu_us_per_event.append((server.cpu_s() - cpu_s_before) * 1e6 / accepted_count)
            memory_mib, ledger = server.memory_peak_mib(), server.ledger()
        check_ledger(ledger, stored_rows(folder))
    events_per_s = [one.requests_per_s * EVENTS_PER_DELIVERY for one in bursts]
    yield median_of(NAME, "events/s", events_per_s, Goal(at_least=150_000))
    yield median_of(f"{NAME}, p50", "ms", [one.p50_ms for one in bursts])
    yield median_of(f"{NAME}, p99", "ms", [one.p99_ms for one in bursts])
    yield median_of(f"{NAME}, CPU time with loading", "µs/event", cpu_us_per_event)
    yield median_of(f"{NAME}, backlog at the end", "events", backlogs)
    yield median_of(f"{NAME}, until all were loaded", "s", catch_up_s)
    yield Result(f"{NAME}, memory at its peak", memory_mib, "MiB", goal=Goal(at_most=200))
    yield Result(f"{NAME}, accepted = rows + duplicates", ledger.accepted, "events")


def check_ledger(ledger: Ledger, row_count: int) -> None:
    """Raise BenchError unless every accepted event is a row or a duplicate."""
    if ledger.quarantined or ledger.accepted != row_count + ledger.duplicate:
        raise BenchError(
            f"ledger: {ledger.accepted:,} accepted, but {row_count:,} rows and {ledger.duplicate:,} duplicates stored; "
            f"{ledger.quarantined:,} quarantined. Expected: accepted = rows + duplicates, 0 quarantined."
        )
