"""Pending segments: they are loaded in batches of limited size."""

from pathlib import Path

from embedsink.journal.limits import JournalLimits
from embedsink.loader.pending import BATCH_BYTES_MAX, PendingSegments


def test_full_pending_segments_share_a_batch_within_its_limit(tmp_path: Path) -> None:
    # A segment is sealed when it is full, so it is one group longer. Sparse files use no disk space.
    byte_count = JournalLimits().segment_bytes_max + 1
    for number in range(1, 9):
        with (tmp_path / f"{number:012d}-00000000.ndjson").open("wb") as file:
            file.truncate(byte_count)

    counts = [len(batch) for batch in PendingSegments(tmp_path, on_removed=lambda _: None).batches()]

    assert counts == [3, 3, 2]
    assert max(counts) * byte_count <= BATCH_BYTES_MAX
