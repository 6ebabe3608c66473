"""Checks of pending segments before loading: damaged and foreign ones move to `damaged/`, lost ones are reported."""

import errno
from collections.abc import Mapping
from pathlib import Path

from embedsink.journal.segment import Segment, identity_of, inspect, number_of
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.pending import PendingSegments
from embedsink.store.database import Store

_ALREADY_FOLDED = (
    "its number belongs to segments that were loaded long ago, and the ledger no longer lists them by name"
)


class SegmentChecks:
    """Checks of each segment and of gaps in their numbers. It belongs to the loader's thread.

    Args:
        journal: the folder of the segments.
        store: the store whose ledger lists loaded segments.
        pending: the pending segments.
        damaged: the folder for rejected segments.
    """

    def __init__(self, journal: Path, store: Store, *, pending: PendingSegments, damaged: DamagedFiles) -> None:
        self._journal = journal
        self._store = store
        self._pending = pending
        self._damaged = damaged
        self._checked_number = 0

    def start_after(self, last_number: int) -> None:
        """Continue after the highest number in the store."""
        self._checked_number = last_number

    def check_batch(self, paths: list[Path]) -> list[Segment]:
        """Return the intact segments in the order of their numbers, and report gaps before them."""
        unique = self._with_unique_numbers(paths)
        for path in unique:
            self._report_gap(before=number_of(path))
            self._checked_number = max(self._checked_number, number_of(path))
        return [segment for path in unique if (segment := self._inspect(path))]

    def check_up_to(self, number: int) -> None:
        """Report the segments that are lost up to a sealed number, after all present ones were loaded."""
        self._report_gap(before=number + 1)
        self._checked_number = max(self._checked_number, number)

    def report_gaps_in_rebuilt_store(self, *, after: int) -> None:
        """Report the segments that a rebuilt store lacks, from the number `after` to the store's highest number."""
        loaded = self._store.loaded_ranges(after=after)
        self._damaged.report_gaps(self._journal, after=after, before=self._checked_number + 1, loaded=loaded)

    def delete_covered(self, covered: Mapping[str, int]) -> None:
        """Delete the segments that snapshots cover, and reject those that have more bytes than were loaded."""
        for path in self._pending.delete_covered(covered):
            self.reject(path, "has more bytes than the store loaded from a shorter copy of it")

    def reject(self, path: Path, why: str) -> None:
        """Move a segment that can't be loaded to `damaged/`."""
        byte_count = path.stat().st_size
        self._damaged.move_segment(path, why)
        self._pending.count_removed(byte_count)

    def _report_gap(self, *, before: int) -> None:
        if before > self._checked_number + 1:
            self._damaged.report_gaps(self._journal, after=self._checked_number, before=before)

    def _with_unique_numbers(self, paths: list[Path]) -> list[Path]:
        """Return the segments whose numbers are not taken: a number identifies the rows of its segment.

        A segment with a taken number comes from a copy over the journal's folder, and is rejected. So is a segment
        whose number is in a folded row of the ledger.
        """
        late = [number_of(path) for path in paths if number_of(path) <= self._checked_number]
        stored = self._store.loaded_segments(from_number=min(late)) if late else {}
        folded_to = self._store.folded_to() if late else 0
        owners = {identity.split("-")[0]: identity for identity in stored}
        unique: list[Path] = []
        for path in paths:
            identity = identity_of(path.name)
            number = identity.split("-")[0]
            if identity in stored:
                self._pending.loaded[identity] = stored[identity]
            elif number in owners:
                self.reject(path, _duplicate_number_message(owners[number]))
            elif int(number) <= folded_to:
                self.reject(path, _ALREADY_FOLDED)
            else:
                owners[number] = identity
                unique.append(path)
        return unique

    def _inspect(self, path: Path) -> Segment | None:
        """Return an intact segment; reject a damaged one and return None."""
        try:
            segment = inspect(path)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.reject(path, f"can't be read ({error.strerror})")
            return None
        if segment.damage is None:
            return segment
        self.reject(path, f"{segment.damage.cause} after offset {segment.damage.offset:,}")
        return None


def _duplicate_number_message(owner: str) -> str:
    return (
        f"has the number of {owner}, so it comes from another data folder, or from this one before a restore. "
        "Restore a backup into a new folder"
    )
