"""Recently ingested events: counts by outcome and type, the newest rows with their envelopes, and rejections."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from embedsink.store.insert import first_ingest_seq
from embedsink.store.reader import Reader

ROWS_MAX = 100
REJECTIONS_MAX = 100
# The maximum bytes of envelopes in one message. The newest row is sent regardless of its length.
ENVELOPES_BYTES_MAX = 262_144
# The outcomes that are counted for each deployment, unlike `duplicate`.
SCOPED_OUTCOMES = ("accepted", "quarantined", "lost", "sync")


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The segments with numbers from `after` + 1 to `last`."""

    after: int
    last: int

    def variables(self) -> dict[str, object]:
        """Return the session variables that select the rows of these segments."""
        # The views select each ingest_seq above `after`, up to and including `up_to`.
        return {"after": _last_ingest_seq(self.after), "up_to": _last_ingest_seq(self.last)}


def _last_ingest_seq(segment: int) -> int:
    """Return the greatest possible `ingest_seq` of a segment."""
    return first_ingest_seq(segment + 1) - 1


@dataclass(slots=True)
class IngestedCounts:
    """The numbers of ingested rows by outcome, and of accepted events and actions by type."""

    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    def by_outcome(self, *, includes_duplicates: bool) -> dict[str, int | None]:
        """Return the counts by outcome. The count of duplicates is None if `includes_duplicates` is false.

        Duplicates are not attributed to deployments and tenants, so a key with a scope must not get their count.
        """
        duplicate_count = self.outcomes["duplicate"] if includes_duplicates else None
        return {"duplicate": duplicate_count} | {outcome: self.outcomes[outcome] for outcome in SCOPED_OUTCOMES}

    @property
    def row_count(self) -> int:
        """The number of accepted and quarantined rows. Rows with other outcomes have no envelope."""
        return self.outcomes["accepted"] + self.outcomes["quarantined"]


def count_ingested(reader: Reader) -> IngestedCounts:
    """Count the ingested rows in the reader's scope."""
    counts = IngestedCounts()
    # Clients see the order of the types. Sort the rows, because DuckDB's order may depend on rows outside the scope.
    for row in sorted(reader.dicts("ingested_count"), key=lambda row: (row["outcome"], row["type"] or "")):
        counts.outcomes[row["outcome"]] += row["row_count"]
        if row["outcome"] == "accepted":
            by_type = counts.events if row["direction"] == "event" else counts.actions
            by_type[row["type"]] += row["row_count"]
    return counts


def newest_ingested(reader: Reader, *, limit: int = ROWS_MAX) -> list[dict[str, Any]]:
    """Return the newest rows in the reader's scope with envelopes, oldest first: at most `limit` rows.

    The envelopes have at most `ENVELOPES_BYTES_MAX` bytes, unless the newest one alone is longer.
    """
    rows = reader.set_variables(row_limit=limit).dicts("ingested_newest")  # oldest first
    newest_first: list[dict[str, Any]] = []
    byte_count = 0
    for row in reversed(rows):
        byte_count += len(row["envelope"].encode())
        if newest_first and byte_count > ENVELOPES_BYTES_MAX:
            break
        newest_first.append(row)
    return newest_first[::-1]


def newest_segment(reader: Reader) -> int:
    """Return the number of the newest segment with a row in the reader's scope; 0 without one."""
    [row] = reader.dicts("ingested_position")
    segment: int | None = row["segment"]
    return segment or 0


def first_rejections(reader: Reader) -> list[dict[str, Any]]:
    """Return the oldest rejections in the reader's scope, at most `REJECTIONS_MAX`, without envelopes."""
    return reader.set_variables(row_limit=REJECTIONS_MAX).dicts("ingested_rejection")
