"""What arrived: counts by outcome and type, the newest rows with their envelopes, and what was rejected."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from embedsink.store.reader import Reader

ROWS_MAX = 100
REJECTED_MAX = 100
# Of the envelopes of one message; the newest row goes out whatever its length.
ENVELOPES_BYTES_MAX = 262_144
_SEGMENT_LINES = 2**32
OUTCOMES = ("accepted", "quarantined", "lost", "sync")


@dataclass(frozen=True, slots=True)
class Span:
    """Segments by their numbers: those after one, up to and with another."""

    after: int
    last: int

    def variables(self) -> dict[str, object]:
        """The session variables that bound arrivals by it."""
        return {"after": (self.after + 1) * _SEGMENT_LINES - 1, "up_to": (self.last + 1) * _SEGMENT_LINES - 1}


@dataclass(slots=True)
class Counts:
    """How much arrived, by outcome, and of what was accepted by type."""

    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    def by_outcome(self, *, has_duplicates: bool) -> dict[str, int | None]:
        """The counts by outcome; of duplicates nobody knows whose they are, so a part of all has none."""
        duplicate = self.outcomes["duplicate"] if has_duplicates else None
        return {"duplicate": duplicate} | {outcome: self.outcomes[outcome] for outcome in OUTCOMES}

    @property
    def row_count(self) -> int:
        """How many of it can be shown."""
        return self.outcomes["accepted"] + self.outcomes["quarantined"]


def count_arrivals(reader: Reader) -> Counts:
    """How much of what is in the reader's scope arrived."""
    counts = Counts()
    # In the order of their names: the engine's own depends on what others send.
    for row in sorted(reader.dicts("ingested_count"), key=lambda row: (row["outcome"], row["type"] or "")):
        counts.outcomes[row["outcome"]] += row["row_count"]
        if row["outcome"] == "accepted":
            by_type = counts.events if row["direction"] == "event" else counts.actions
            by_type[row["type"]] += row["row_count"]
    return counts


def newest_arrivals(reader: Reader, *, limit: int = ROWS_MAX) -> list[dict[str, Any]]:
    """The newest rows in the reader's scope with their envelopes, oldest first: as many as have room in a message."""
    rows = reader.narrowed(row_limit=limit).dicts("ingested_newest")
    left = ENVELOPES_BYTES_MAX
    for place in range(len(rows) - 1, -1, -1):
        left -= len(rows[place]["envelope"].encode())
        if left < 0:
            return rows[min(place + 1, len(rows) - 1) :]
    return rows


def rejected_arrivals(reader: Reader) -> list[dict[str, Any]]:
    """The first rejections in the reader's scope, without their text."""
    return reader.narrowed(row_limit=REJECTED_MAX).dicts("ingested_rejection")
