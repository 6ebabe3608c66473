"""How many bytes an event takes in the store, and on the wire, with traffic like the demo's."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.deliveries import check_ledger
from bench.finding import Finding, Goal
from bench.server import fresh_folder, serving_on, stored_rows
from bench.traffic import Session, sessions
from embedsink.data_folder import DataFolder

# A quarter of a million events, and then a million in all: the blocks that a checkpoint frees and the next one takes
# are some megabytes, whatever the store holds.
STEPS = (10_000, 33_000)
SESSION_LENGTH = range(8, 40)


def measure(*, root: Path) -> list[Finding]:
    """Bytes of `store.duckdb` for each event, after a clean end, which checkpoints."""
    start_ms = time.time_ns() // 1_000_000 - 86_400_000
    coming = sessions(2, start_ms=start_ms, length=SESSION_LENGTH)
    findings: list[Finding] = []
    sent_bytes = 0
    with fresh_folder(root) as folder:
        for session_count in STEPS:
            sent_bytes += _send(folder, islice(coming, session_count))
            row_count, store_bytes = stored_rows(folder), folder.store.stat().st_size
            goal = Goal(at_most=60) if session_count == STEPS[-1] else None
            findings += [
                Finding("store, events in it", row_count, "events"),
                Finding("store, the same as JSON", sent_bytes / row_count, "bytes/event"),
                Finding("store, size", store_bytes / row_count, "bytes/event", goal=goal),
            ]
    return findings


def _send(folder: DataFolder, some: Iterator[Session]) -> int:
    """Send sessions to a server that ends then; how many bytes they are.

    Raises:
        BenchError: the ledger does not add up.
    """
    had, sent_bytes = stored_rows(folder) if folder.snapshot.exists() else 0, 0
    with serving_on(folder) as server, server.child.client() as client:
        for session in some:
            body = {"context": session.context, "events": session.envelopes}
            server.send(client, body)
            sent_bytes += len(json.dumps(body, separators=(",", ":")))
        server.catch_up()
        ledger = server.ledger()
    check_ledger(ledger, stored_rows(folder) - had)
    return sent_bytes
