"""Checks waiting segments before they are loaded: damaged and foreign ones go to `damaged/`, lost ones are named."""

import errno
from collections.abc import Mapping
from pathlib import Path

from embedsink.journal.segment import Segment, identity_of, inspect, number_of
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.pending import PendingSegments
from embedsink.store.database import Store


class SegmentChecks:
    """Checks every segment, and that their numbers have no gap. It belongs to the loader's thread.

    Args:
        journal: the folder of the segments.
        store: asked for what has a number already.
        backlog: what waits.
        damaged: where the rest goes.
    """

    def __init__(self, journal: Path, store: Store, *, backlog: PendingSegments, damaged: DamagedFiles) -> None:
        self._journal = journal
        self._store = store
        self._backlog = backlog
        self._damaged = damaged
        self._checked_number = 0

    def begin(self, last_number: int) -> None:
        """Go on after the highest number in the store."""
        self._checked_number = last_number

    def sound(self, paths: list[Path]) -> list[Segment]:
        """Return the segments to load, in the order of their numbers, and name those that are lost before them."""
        own = self._with_own_numbers(paths)
        for path in own:
            self._check_gap(before=number_of(path))
            self._checked_number = max(self._checked_number, number_of(path))
        return [segment for path in own if (segment := self._inspected(path))]

    def check_up_to(self, number: int) -> None:
        """Name the segments that are lost up to a sealed number, after all that was there is loaded."""
        self._check_gap(before=number + 1)
        self._checked_number = max(self._checked_number, number)

    def check_rebuilt(self, *, after: int) -> None:
        """Name the segments that are lost between this number and the highest in a store that was rebuilt."""
        loaded = self._store.loaded_ranges(after=after)
        self._damaged.look_for_a_gap(self._journal, after=after, before=self._checked_number + 1, loaded=loaded)

    def delete(self, covered: Mapping[str, int]) -> None:
        """Delete segments that snapshots cover, and keep those aside that have more bytes than were loaded of them."""
        for longer in self._backlog.delete(covered):
            self.keep_aside(longer, "has more bytes than the store loaded of it, from a copy that was shorter")

    def keep_aside(self, path: Path, why: str) -> None:
        """Move a segment that can't be loaded out of the journal."""
        byte_count = path.stat().st_size
        self._damaged.keep_segment(path, why)
        self._backlog.remove(byte_count)

    def _check_gap(self, *, before: int) -> None:
        if before > self._checked_number + 1:
            self._damaged.look_for_a_gap(self._journal, after=self._checked_number, before=before)

    def _with_own_numbers(self, paths: list[Path]) -> list[Path]:
        """Return the segments whose number no other segment has: the number identifies their rows.

        Another one comes from a copy that was laid over the journal's folder, and goes aside. So does one whose number
        the ledger has only together with others.
        """
        late = [number_of(path) for path in paths if number_of(path) <= self._checked_number]
        stored = self._store.loaded_segments(from_number=min(late)) if late else {}
        folded_to = self._store.folded_to() if late else 0
        owners = {identity.split("-")[0]: identity for identity in stored}
        own: list[Path] = []
        for path in paths:
            identity = identity_of(path.name)
            number = identity.split("-")[0]
            if identity in stored:
                self._backlog.loaded[identity] = stored[identity]
            elif number in owners:
                self.keep_aside(path, _foreign(owners[number]))
            elif int(number) <= folded_to:
                self.keep_aside(path, _FOLDED)
            else:
                owners[number] = identity
                own.append(path)
        return own

    def _inspected(self, path: Path) -> Segment | None:
        """Return a segment to load; None when it is damaged and was moved aside."""
        try:
            segment = inspect(path)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.keep_aside(path, f"can't be read ({error.strerror})")
            return None
        if segment.damage is None:
            return segment
        self.keep_aside(path, f"{segment.damage.why} after offset {segment.damage.end:,}")
        return None


_FOLDED = (
    "its number is one of segments that were loaded long ago, and the ledger does not say whether this is one of them"
)


def _foreign(other: str) -> str:
    return (
        f"has the number of {other}, so it is of another data folder, or of this one before a restore. "
        "Restore a backup into a new folder"
    )
