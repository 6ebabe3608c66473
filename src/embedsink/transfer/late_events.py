"""The imported events of days that already have daily totals, which reports by day then read instead of events."""

from pathlib import Path

from embedsink.key_scope import EVERYTHING
from embedsink.store.insert import first_ingest_seq
from embedsink.store.snapshot_reader import open_snapshot


def count_late_events(snapshot: Path, *, after_number: int) -> int:
    """Return how many events of totaled days a snapshot has from later segments; 0 without a snapshot.

    Args:
        snapshot: the snapshot.
        after_number: the number of the last segment before these.

    Raises:
        Misconfigured: the snapshot can't be read.
    """
    if not snapshot.exists():  # The disk may have been too full to publish one.
        return 0
    variables = {**EVERYTHING.variables(), "after": first_ingest_seq(after_number + 1) - 1}
    with open_snapshot(snapshot, variables) as reader:
        [row] = reader.dicts("late_event_count")
    return int(row["event_count"])
