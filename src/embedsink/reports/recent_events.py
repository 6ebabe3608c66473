"""Recent events: counts by outcome and type, the newest rows with their envelopes, and rejections."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from embedsink.store.reader import Reader

ROWS_MAX = 100
REJECTED_MAX = 100
# The maximum bytes of envelopes in one message. The newest row is sent regardless of its length.
ENVELOPES_BYTES_MAX = 262_144
_SEGMENT_LINES = 2**32
OUTCOMES = ("accepted", "quarantined", "lost", "sync")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of segment numbers: those above `after`, up to `last`."""

    after: int
    last: int

    def variables(self) -> dict[str, object]:
        """Return the session variables that select the rows of these segments."""
        return {"after": (self.after + 1) * _SEGMENT_LINES - 1, "up_to": (self.last + 1) * _SEGMENT_LINES - 1}


@dataclass(slots=True)
class Counts:
    """Row counts by outcome, and of accepted envelopes by type."""

    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    def by_outcome(self, *, has_duplicates: bool) -> dict[str, int | None]:
        """Return the counts by outcome. Duplicates are not attributed to deployments, so a scoped key gets None."""
        duplicate = self.outcomes["duplicate"] if has_duplicates else None
        return {"duplicate": duplicate} | {outcome: self.outcomes[outcome] for outcome in OUTCOMES}

    @property
    def row_count(self) -> int:
        """The number of rows that have an envelope."""
        return self.outcomes["accepted"] + self.outcomes["quarantined"]


def count_arrivals(reader: Reader) -> Counts:
    """Count the rows in the reader's scope."""
    counts = Counts()
    # Sorted, since DuckDB's order would depend on what other deployments send.
    for row in sorted(reader.dicts("ingested_count"), key=lambda row: (row["outcome"], row["type"] or "")):
        counts.outcomes[row["outcome"]] += row["row_count"]
        if row["outcome"] == "accepted":
            by_type = counts.events if row["direction"] == "event" else counts.actions
            by_type[row["type"]] += row["row_count"]
    return counts


def newest_arrivals(reader: Reader, *, limit: int = ROWS_MAX) -> list[dict[str, Any]]:
    """Return the newest rows in the reader's scope with their envelopes, oldest first, as many as fit in a message."""
    rows = reader.set_variables(row_limit=limit).dicts("ingested_newest")
    byte_count = 0
    for index in range(len(rows) - 1, -1, -1):
        byte_count += len(rows[index]["envelope"].encode())
        if byte_count > ENVELOPES_BYTES_MAX:
            return rows[min(index + 1, len(rows) - 1) :]
    return rows


def rejected_arrivals(reader: Reader) -> list[dict[str, Any]]:
    """Return the first rejections in the reader's scope, without their envelopes."""
    return reader.set_variables(row_limit=REJECTED_MAX).dicts("ingested_rejection")
