"""The size of an event in the store and as JSON."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.deliveries import check_ledger
from bench.results import Goal, Result
from bench.server import Server, fresh_folder, stored_rows
from bench.traffic import Session, sessions
from embedsink.data_folder import DataFolder

# A quarter of a million events, then a million in all: the blocks that a checkpoint frees and the next one reuses are
# some megabytes, at any size of the store.
STEPS = (10_000, 33_000)


def measure(*, root: Path) -> list[Result]:
    """Return the bytes of `store.duckdb` for each event, after a clean end, which checkpoints."""
    start_ms = time.time_ns() // 1_000_000 - 86_400_000
    coming = sessions(2, start_ms=start_ms)
    results: list[Result] = []
    sent_bytes = 0
    with fresh_folder(root) as folder:
        for session_count in STEPS:
            sent_bytes += _send(folder, islice(coming, session_count))
            row_count, store_bytes = stored_rows(folder), folder.store.stat().st_size
            goal = Goal(at_most=60) if session_count == STEPS[-1] else None
            results += [
                Result("store, events", row_count, "events"),
                Result("store, events as JSON", sent_bytes / row_count, "bytes/event"),
                Result("store, size", store_bytes / row_count, "bytes/event", goal=goal),
            ]
    return results


def _send(folder: DataFolder, some_sessions: Iterator[Session]) -> int:
    """Send sessions to a server, stop it, and return the bytes sent.

    Raises:
        BenchError: the ledger does not add up.
    """
    before, sent_bytes = stored_rows(folder) if folder.snapshot.exists() else 0, 0
    with Server(folder) as server, server.client() as client:
        for session in some_sessions:
            body = {"context": session.context, "events": session.envelopes}
            server.send(client, body)
            sent_bytes += len(json.dumps(body, separators=(",", ":")))
        server.catch_up()
        ledger = server.ledger()
    check_ledger(ledger, stored_rows(folder) - before)
    return sent_bytes
