"""Deliveries of 100 events while loading goes on: speed, memory, lag of the loader, and whether nothing is lost."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.server import EVENTS_PATH, Ledger, Server, fresh_folder, serving_on, stored_rows
from bench.wrk import Burst, burst, write_delivery_bodies

CONNECTIONS = 16
EVENTS_PER_DELIVERY = 100


@dataclass(frozen=True, slots=True)
class Round:
    """One burst, how many events lay unloaded at its end, and how long loading took to catch up."""

    burst: Burst
    cpu_us: float
    behind: int
    catch_up_s: float

    @property
    def events_per_s(self) -> float:
        """Durable events a second."""
        return self.burst.requests_per_s * EVENTS_PER_DELIVERY


def measure(*, seconds: float, rounds: int, root: Path) -> list[Finding]:
    """Events/s, latency, memory and how far loading fell behind.

    Raises:
        BenchError: the ledger does not add up.
    """
    with fresh_folder(root) as folder:
        bodies = write_delivery_bodies(folder.path / "bodies", event_count=EVENTS_PER_DELIVERY)
        with serving_on(folder) as server:
            seen = [_round(server, bodies, seconds=seconds) for _ in range(rounds)]
            memory_mib, ledger = server.child.memory_peak_mib(), server.ledger()
        check_ledger(ledger, stored_rows(folder))
    return _findings(seen, memory_mib, ledger)


def check_ledger(ledger: Ledger, row_count: int) -> None:
    """Raises BenchError unless every accepted event is a row or a duplicate."""
    if ledger.quarantined or ledger.accepted != row_count + ledger.duplicate:
        raise BenchError(
            f"ledger: {ledger.accepted:,} accepted, but {row_count:,} rows and {ledger.duplicate:,} duplicates stored; "
            f"{ledger.quarantined:,} quarantined, where the traffic is all good."
        )


def _round(server: Server, bodies: Path, *, seconds: float) -> Round:
    cpu_s = server.child.cpu_s()
    url = server.child.url + EVENTS_PATH
    seen = burst(url, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)
    behind, catch_up_s = server.ledger().behind, server.catch_up()
    cpu_us = (server.child.cpu_s() - cpu_s) * 1e6 / (seen.request_count * EVENTS_PER_DELIVERY)
    return Round(seen, cpu_us, behind, catch_up_s)


def _findings(rounds: list[Round], memory_mib: float, ledger: Ledger) -> list[Finding]:
    return [
        _median("deliveries of 100", "events/s", [one.events_per_s for one in rounds], Goal(at_least=150_000)),
        _median("deliveries of 100, p50", "ms", [one.burst.p50_us / 1e3 for one in rounds]),
        _median("deliveries of 100, p99", "ms", [one.burst.p99_us / 1e3 for one in rounds]),
        _median("deliveries of 100, processor time with loading", "µs/event", [one.cpu_us for one in rounds]),
        _median("deliveries of 100, unloaded at the end", "events", [float(one.behind) for one in rounds]),
        _median("deliveries of 100, until all was loaded", "s", [one.catch_up_s for one in rounds]),
        Finding("deliveries of 100, memory at its peak", memory_mib, "MiB", goal=Goal(at_most=200)),
        Finding("deliveries of 100, accepted = rows + duplicates", ledger.accepted, "events"),
    ]


def _median(what: str, unit: str, values: list[float], goal: Goal | None = None) -> Finding:
    return Finding(what, median(values), unit, values, goal)
