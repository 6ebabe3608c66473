"""Damaged files and notes about lost segments, kept in `damaged/` and reported until an operator moves them.

Segments and notes stay until a person moves them. Whole database files are evidence alone, and have a retention.
"""

import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path

from embedsink.data_folder import LOSS_NOTE_PREFIX
from embedsink.durable_files import free_path, move_to_damaged, sync_folder, write_durably
from embedsink.journal.segment import OPEN, SEALED, number_of

log = logging.getLogger(__name__)

COPIES_MAX = 2
COPY_DAYS_MAX = 30
_COPY = re.compile(r"(store|analytics(\.previous)?)\.duckdb(\.\d+)?")


class DamagedFiles:
    """The folder `damaged/`.

    Args:
        folder: where it lies.
        told: gets a sentence for each thing that waits for a person, as `/readyz` says it.
    """

    def __init__(self, folder: Path, *, told: list[str]) -> None:
        self._folder = folder
        self._told = told

    def look(self) -> None:
        """Tell what lies there from before."""
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if is_damaged(path.name):
                self._told.append(f"damaged/{path.name}: is damaged and not loaded. Mend it, or move it elsewhere.")
            elif path.name.startswith(LOSS_NOTE_PREFIX):
                self._told.append(f"damaged/{path.name}: {read_note(path)}")
        self.delete_old_copies()

    def look_for_a_gap(self, journal: Path, *, after: int, before: int, loaded: Iterable[tuple[int, int]] = ()) -> None:
        """Tell of segments that are in neither store nor journal: numbers follow each other, so they were lost.

        Args:
            journal: the folder of the segments.
            after, before: the numbers between which to look.
            loaded: the first and the last number of each run of segments that the store has between them.
        """
        present = present_numbers(journal, self._folder)
        if gaps := missing_numbers(present, after=after, before=before, loaded=loaded):
            self.declare_lost(f"journal: {named(gaps)} in neither the store nor the journal.")

    def keep_segment(self, segment: Path, why: str) -> None:
        """Keep a segment that can't be loaded."""
        move_to_damaged(segment, damaged=self._folder)
        told = f"journal {segment.name}: {why}. It is kept in damaged/; everything else is loaded."
        self._told.append(told)
        log.error("segment_set_aside", extra={"detail": told})

    def keep_copy(self, path: Path, why: str) -> None:
        """Keep a damaged database file under a second name. The first one stays until another file takes its place."""
        free_path(self._folder / path.name).hardlink_to(path)
        sync_folder(self._folder)
        log.error("store_set_aside", extra={"detail": f"{path.name}: {why}. It is kept in damaged/."})
        self.delete_old_copies()

    def copies(self) -> list[Path]:
        """Return the database files, those first that have been here longest."""
        names = self._folder.iterdir() if self._folder.is_dir() else ()
        found = [path for path in names if _COPY.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.stat().st_ctime_ns)

    def delete_old_copies(self, *, now: float | None = None) -> None:
        """Delete database files beyond the two newest, and after 30 days. All that is readable in them was salvaged."""
        copies = self.copies()
        oldest = (time.time() if now is None else now) - COPY_DAYS_MAX * 86_400
        for path in copies:
            if path in copies[:-COPIES_MAX] or path.stat().st_ctime < oldest:
                _delete(path, f"{COPIES_MAX} are kept, for {COPY_DAYS_MAX} days")

    def delete_oldest_copy(self) -> bool:
        """Make room. Return False if there is no database file."""
        for path in self.copies()[:1]:
            _delete(path, "there is no room for the next snapshot")
            return True
        return False

    def tell_salvaged(self, row_count: int, *, lost_count: int) -> None:
        """Say what became of segments that were in damaged files alone."""
        what = f"store: it and its snapshots were damaged; {row_count:,} rows of them were salvaged"
        if lost_count:
            self.declare_lost(f"{what}, {lost_count:,} events are lost. The ledger says of which segments.")
        else:
            log.warning("salvaged", extra={"detail": f"{what}. No event is lost."})

    def declare_lost(self, what: str) -> None:
        """Say it now, and at every start until a person has seen to it."""
        sentence = f"{what} Restore a backup, or accept the loss: then move this file elsewhere."
        if any(sentence in told for told in self._told):
            return  # It was found before.
        path = self._folder / f"{LOSS_NOTE_PREFIX}{time.time_ns()}.txt"
        # First, so that a disk without room for it leaves it to the next look.
        write_durably(path, f"{sentence}\n".encode())
        self._told.append(f"damaged/{path.name}: {sentence}")
        log.error("lost", extra={"detail": sentence})


def _delete(path: Path, why: str) -> None:
    log.warning("copy_deleted", extra={"detail": f"damaged/{path.name}: was deleted, since {why}."})
    path.unlink()


def is_damaged(name: str) -> bool:
    """Whether a file in `damaged/` holds events that are not in the store, by its name."""
    return OPEN in name or SEALED in name


def present_numbers(*folders: Path) -> set[int]:
    """The numbers of all segments in these folders."""
    return {number_of(path) for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()}


def missing_numbers(
    present: Iterable[int], *, after: int, before: int, loaded: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """The gaps between two numbers in which no segment is there: the first and the last number of each.

    Args:
        present: the numbers of the segments that are there.
        after, before: the two numbers.
        loaded: runs of further numbers, by their first and their last.
    """
    gaps, last = [], after
    single = ((number, number) for number in present if after < number < before)
    for first_here, last_here in [*sorted([*loaded, *single]), (before, before)]:
        if first_here > last + 1:
            gaps.append((last + 1, first_here - 1))
        last = max(last, last_here)
    return gaps


def named(gaps: list[tuple[int, int]]) -> str:
    """Segments by their numbers, with their verb."""
    first, last = gaps[0][0], gaps[-1][1]
    if first == last:
        return f"segment {first:,} is"
    if len(gaps) == 1:
        return f"the segments {first:,} to {last:,} are"
    return f"{sum(end - start + 1 for start, end in gaps):,} of the segments {first:,} to {last:,} are"


def read_note(path: Path) -> str:
    """What a file says that names what is lost."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"can't be read ({error.strerror}). It names segments that are lost."
