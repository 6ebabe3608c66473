"""How many bytes an event takes in the store, and on the wire, with traffic like the demo's."""

import json
import time
from itertools import islice
from pathlib import Path

from bench.deliveries import check_ledger
from bench.finding import Finding, Goal
from bench.server import fresh_folder, serving_on, stored_rows
from bench.traffic import sessions

SESSIONS = 10_000
SESSION_LENGTH = range(8, 40)


def measure(*, root: Path) -> list[Finding]:
    """Bytes of `store.duckdb` for each event, after a clean end, which checkpoints."""
    sent_bytes = 0
    start_ms = time.time_ns() // 1_000_000 - 86_400_000
    with fresh_folder(root) as folder:
        with serving_on(folder) as server, server.child.client() as client:
            for session in islice(sessions(2, start_ms=start_ms, length=SESSION_LENGTH), SESSIONS):
                body = {"context": session.context, "events": session.envelopes}
                server.send(client, body)
                sent_bytes += len(json.dumps(body, separators=(",", ":")))
            server.catch_up()
            ledger = server.ledger()
        row_count, store_bytes = stored_rows(folder), folder.store.stat().st_size
    check_ledger(ledger, row_count)
    return [
        Finding("store, events in it", row_count, "events"),
        Finding("store, the same as JSON", sent_bytes / row_count, "bytes/event"),
        Finding("store, size", store_bytes / row_count, "bytes/event", goal=Goal(at_most=60)),
    ]
