"""The size of an event in the store and as JSON."""

from collections.abc import Iterator
from itertools import islice

from bench.deliveries import check_ledger
from bench.options import REPOSITORY, DataRoot
from bench.results import Goal, Result
from bench.server import Server, fresh_folder, stored_rows
from bench.traffic import delivery_of, visits
from embedsink.data_folder import DataFolder
from embedsink.demo.traffic import Delivery

# Visits with about 250,000 events, then with 750,000 more. Free blocks, which the next checkpoint reuses, take some
# megabytes at any size of the store, so the smaller store has more bytes per event.
STEPS = (10_000, 33_000)


def measure(data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Bytes of an event in the store, after a quarter of a million and after a million events."""
    deliveries = map(delivery_of, visits(2))
    sent_bytes = 0
    with fresh_folder(data_root) as folder:
        for visit_count in STEPS:
            sent_bytes += _send(folder, list(islice(deliveries, visit_count)))
            # A clean shutdown checkpoints the store.
            row_count, store_bytes = stored_rows(folder), folder.store.stat().st_size
            goal = Goal(at_most=60) if visit_count == STEPS[-1] else None
            yield Result("store, events", row_count, "events")
            yield Result("store, events as JSON", sent_bytes / row_count, "bytes/event")
            yield Result("store, size", store_bytes / row_count, "bytes/event", goal=goal)


def _send(folder: DataFolder, deliveries: list[Delivery]) -> int:
    """Send deliveries to a server, stop it, and return the bytes sent.

    Raises:
        BenchError: the ledger does not add up.
    """
    rows_before = stored_rows(folder) if folder.snapshot.exists() else 0
    with Server(folder) as server:
        server.browsers.send_visit(deliveries)
        server.catch_up()
        ledger = server.ledger()
    check_ledger(ledger, stored_rows(folder) - rows_before)
    return sum(len(delivery.body(0, "")) for delivery in deliveries)
