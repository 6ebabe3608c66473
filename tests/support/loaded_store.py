"""A store, and the segments that a test loads into it."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from embedsink.ingest.records import delivery_lines
from embedsink.journal.segment import inspect, trailer
from embedsink.protocol.validation import parse
from embedsink.store.ledger import LoadCounts
from embedsink.store.limits import StoreLimits
from embedsink.store.sql_files import read_sql
from tests.support.envelopes import RECEIVED_AT
from tests.support.redaction import storable
from tests.support.stores import open_store


class LoadedStore:
    """A store into which each call loads one segment."""

    def __init__(self, folder: Path, limits: StoreLimits | None = None) -> None:
        self.folder = folder
        self.store = open_store(folder / "store.duckdb", limits)
        self.count = 0

    def bodies(self, *bodies: object, received_at: int = RECEIVED_AT) -> LoadCounts:
        """Parse these bodies and load them."""
        parsed = [parse(json.dumps(body).encode(), received_at) for body in bodies]
        return self.lines(*[delivery_lines(storable(delivery), key_id="k_1", new_id=uuid4) for delivery in parsed])

    def lines(self, *lines: bytes) -> LoadCounts:
        """Load these journal lines."""
        self.count += 1
        segment = self.folder / f"{self.count:012d}-00000000.ndjson"
        segment.write_bytes(b"".join(line + trailer(line) for line in lines))
        return self.store.load(inspect(segment))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the store."""
        return self.store._load_connection().execute(sql).fetchall()

    def failed_checks(self) -> dict[str, int]:
        """Return the number of offending rows of each check of `sql/checks` that returns rows."""
        row_counts = {name: len(self.query(sql)) for name, sql in read_sql("checks").items()}
        return {name: count for name, count in row_counts.items() if count}


def ledger(
    received: int, *, accepted: int = 0, duplicate: int = 0, quarantined: int = 0, conflict: int = 0
) -> LoadCounts:
    return LoadCounts(1, received, accepted, duplicate, quarantined, conflict)
