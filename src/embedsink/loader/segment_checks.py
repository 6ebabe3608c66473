"""Checks of pending segments before they are loaded.

Segments that are damaged or from another data folder are moved to `damaged/`. Lost segments are reported.
"""

import errno
from collections.abc import Mapping
from pathlib import Path

from embedsink.journal.segment import Segment, identity_of, inspect, number_of, number_of_identity
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.pending import PendingSegments
from embedsink.store.database import Store

_NUMBER_COMPACTED = (
    "its number is that of a segment that was loaded long ago, and the ledger no longer lists that segment by name"
)


class SegmentChecks:
    """Checks of pending segments, and of gaps in their numbers. It belongs to the loader's thread.

    Args:
        journal: the folder of the segments.
        store: the store whose ledger lists loaded segments.
        pending: the segments in the folder.
        damaged: the folder for rejected segments.
    """

    def __init__(self, journal: Path, store: Store, *, pending: PendingSegments, damaged: DamagedFiles) -> None:
        self._journal = journal
        self._store = store
        self._pending = pending
        self._damaged = damaged
        self._checked_number = 0  # up to this number, gaps were reported

    def start_after(self, last_number: int) -> None:
        """Count the numbers up to this one as checked. It is the highest number of a loaded segment."""
        self._checked_number = last_number

    def check_batch(self, paths: list[Path]) -> list[Segment]:
        """Inspect segments in the order of their numbers, and return the segments to load.

        Invalid segments are rejected, loaded segments are omitted, and gaps in the numbers are reported.
        """
        segments = []
        for path in self._with_unique_numbers(paths):
            self._report_gap(before=number_of(path))
            # A segment whose recovery was deferred is checked after higher numbers.
            self._checked_number = max(self._checked_number, number_of(path))
            segment = self._inspect(path)
            if segment is not None:
                segments.append(segment)
        return segments

    def check_up_to(self, number: int) -> None:
        """Report the segments that are missing up to a sealed number. Call this after all present ones were checked."""
        self._report_gap(before=number + 1)
        self._checked_number = max(self._checked_number, number)

    def report_gaps_in_rebuilt_store(self, *, after: int) -> None:
        """Report the segments that a rebuilt store lacks, between `after` and the store's highest number."""
        loaded_ranges = self._store.ledger.loaded_ranges(after=after)
        before = self._checked_number + 1  # `start_after` has set the checked number to the store's highest number.
        self._damaged.report_gaps(self._journal, after=after, before=before, loaded_ranges=loaded_ranges)

    def delete_covered(self, covered_sizes: Mapping[str, int], *, newest_up_to: int = 0) -> None:
        """Delete the segments whose rows are in snapshots, and reject those that have more bytes than were loaded.

        Args:
            covered_sizes: the loaded size of each segment in the snapshots, by identity.
            newest_up_to: the newest segment stays if its number is higher.
        """
        longer_segments = self._pending.delete_covered(covered_sizes, newest_up_to=newest_up_to)
        for path in longer_segments:
            self.reject(path, "is longer than the copy that the store loaded")

    def reject(self, path: Path, why: str) -> None:
        """Move a segment that can't be loaded to `damaged/`."""
        byte_count = path.stat().st_size
        self._damaged.move_segment(path, why)
        self._pending.report_removed(byte_count)

    def _report_gap(self, *, before: int) -> None:
        """Report the segments that are missing after the last checked number and before this number."""
        if before > self._checked_number + 1:
            self._damaged.report_gaps(self._journal, after=self._checked_number, before=before)

    def _with_unique_numbers(self, paths: list[Path]) -> list[Path]:
        """Return the segments whose numbers are unique, because the number of a segment identifies its rows.

        - If files were copied over the journal's folder, two segments can have the same number. The second is rejected.
        - A segment whose number is in a compacted row of the ledger is rejected too. Such a row lists a range of loaded
          segments without their names.
        - Segments that are loaded already are omitted.
        """
        loaded_sizes: dict[str, int] = {}  # by identity
        last_compacted_number = 0
        # A segment up to the checked number may be loaded already, or may have the number of a loaded one.
        late_numbers = [number_of(path) for path in paths if number_of(path) <= self._checked_number]
        if late_numbers:
            loaded_sizes = self._store.ledger.loaded_segment_sizes(from_number=min(late_numbers))
            last_compacted_number = self._store.ledger.last_compacted_number()
        # The identities of all loaded segments, and of the segments that are returned.
        identity_by_number = {number_of_identity(identity): identity for identity in loaded_sizes}
        unique: list[Path] = []
        for path in paths:
            identity = identity_of(path.name)
            number = number_of_identity(identity)
            if identity in loaded_sizes:
                self._pending.loaded_sizes[identity] = loaded_sizes[identity]  # The next listing omits it.
            elif number in identity_by_number:
                self.reject(path, _duplicate_number_message(identity_by_number[number]))
            elif number <= last_compacted_number:
                self.reject(path, _NUMBER_COMPACTED)
            else:
                identity_by_number[number] = identity
                unique.append(path)
        return unique

    def _inspect(self, path: Path) -> Segment | None:
        """Read and inspect a segment. If the segment is damaged or unreadable, reject it and return None."""
        try:
            segment = inspect(path)
        except OSError as error:
            if error.errno != errno.EIO:
                raise  # Other errors, such as too many open files, are not damage.
            self.reject(path, f"can't be read ({error.strerror})")
            return None
        if segment.damage is not None:
            self.reject(path, f"{segment.damage.cause} (offset {segment.damage.offset:,})")
            return None
        return segment


def _duplicate_number_message(other_segment: str) -> str:
    """Return the reason to reject a segment with the number of another one, whose identity is `other_segment`."""
    return (
        f"has the number of the segment {other_segment}, so it was written in another data folder, or in this folder "
        "before a restore. Restore a backup into a new folder"
    )
