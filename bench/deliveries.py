"""Deliveries of 100 events while the loader runs: speed, memory, backlog, and the ledger."""

from dataclasses import dataclass
from pathlib import Path

from bench.results import Goal, Result, median_of
from bench.server import EVENTS_PATH, BenchError, Ledger, Server, fresh_folder, stored_rows
from bench.wrk import Burst, burst, write_delivery_bodies

CONNECTIONS = 16
EVENTS_PER_DELIVERY = 100


@dataclass(frozen=True, slots=True)
class Round:
    """One burst, the number of unloaded events at its end, and the time until they were loaded."""

    burst: Burst
    cpu_us: float
    behind: int
    catch_up_s: float

    @property
    def events_per_s(self) -> float:
        """The durable events per second."""
        return self.burst.requests_per_s * EVENTS_PER_DELIVERY


def measure(*, seconds: float, rounds: int, root: Path) -> list[Result]:
    """Return events/s, latency, memory and the loader's backlog.

    Raises:
        BenchError: the ledger does not add up.
    """
    with fresh_folder(root) as folder:
        bodies = write_delivery_bodies(folder.path / "bodies", event_count=EVENTS_PER_DELIVERY)
        with Server(folder) as server:
            measured = [_round(server, bodies, seconds=seconds) for _ in range(rounds)]
            memory_mib, ledger = server.memory_peak_mib(), server.ledger()
        check_ledger(ledger, stored_rows(folder))
    return _results(measured, memory_mib, ledger)


def check_ledger(ledger: Ledger, row_count: int) -> None:
    """Raise BenchError unless every accepted event is a row or a duplicate."""
    if ledger.quarantined or ledger.accepted != row_count + ledger.duplicate:
        raise BenchError(
            f"ledger: {ledger.accepted:,} accepted, but {row_count:,} rows and {ledger.duplicate:,} duplicates stored; "
            f"{ledger.quarantined:,} quarantined. Expected: accepted = rows + duplicates, 0 quarantined."
        )


def _round(server: Server, bodies: Path, *, seconds: float) -> Round:
    cpu_s = server.cpu_s()
    url = server.url + EVENTS_PATH
    result = burst(url, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)
    behind, catch_up_s = server.ledger().behind, server.catch_up()
    cpu_us = (server.cpu_s() - cpu_s) * 1e6 / (result.request_count * EVENTS_PER_DELIVERY)
    return Round(result, cpu_us, behind, catch_up_s)


def _results(rounds: list[Round], memory_mib: float, ledger: Ledger) -> list[Result]:
    name = "deliveries of 100"
    return [
        median_of(name, "events/s", [one.events_per_s for one in rounds], Goal(at_least=150_000)),
        median_of(f"{name}, p50", "ms", [one.burst.p50_us / 1e3 for one in rounds]),
        median_of(f"{name}, p99", "ms", [one.burst.p99_us / 1e3 for one in rounds]),
        median_of(f"{name}, CPU time with loading", "µs/event", [one.cpu_us for one in rounds]),
        median_of(f"{name}, backlog at the end", "events", [float(one.behind) for one in rounds]),
        median_of(f"{name}, until all were loaded", "s", [one.catch_up_s for one in rounds]),
        Result(f"{name}, memory at its peak", memory_mib, "MiB", goal=Goal(at_most=200)),
        Result(f"{name}, accepted = rows + duplicates", ledger.accepted, "events"),
    ]
