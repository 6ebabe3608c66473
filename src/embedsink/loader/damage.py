"""The folder `damaged/`: damaged files, and notes about lost segments.

Segments and notes stay until an operator moves them. Damaged database files are only evidence, and are deleted later.
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

DATABASES_MAX = 2
DATABASE_DAYS_MAX = 30
_DATABASE = re.compile(r"(store|analytics(\.previous)?)\.duckdb(\.\d+)?")


class DamagedFiles:
    """The damaged files of a data folder, each reported until an operator moves it.

    Args:
        folder: the folder `damaged/`.
        messages: the list that receives a message for each file; `/readyz` returns it.
    """

    def __init__(self, folder: Path, *, messages: list[str]) -> None:
        self._folder = folder
        self._messages = messages

    def report_existing(self) -> None:
        """Report the files from earlier runs."""
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if has_unloaded_events(path.name):
                self._messages.append(
                    f"damaged/{path.name}: is damaged and not loaded. Repair it, or move it elsewhere."
                )
            elif path.name.startswith(LOSS_NOTE_PREFIX):
                self._messages.append(f"damaged/{path.name}: {read_loss_note(path)}")
        self.delete_old_databases()

    def report_gaps(self, journal: Path, *, after: int, before: int, loaded: Iterable[tuple[int, int]] = ()) -> None:
        """Report lost segments: numbers are consecutive, so a missing number is a loss.

        Args:
            journal: the folder of the segments.
            after: the number before the checked range.
            before: the number after it.
            loaded: the first and the last number of each run of loaded segments in the range.
        """
        present = segment_numbers(journal, self._folder)
        if gaps := find_gaps(present, after=after, before=before, loaded=loaded):
            self.record_loss(f"journal: {describe_gaps(gaps)} in neither the store nor the journal.")

    def move_segment(self, segment: Path, why: str) -> None:
        """Move a segment that can't be loaded to the folder, and report it."""
        move_to_damaged(segment, damaged=self._folder)
        message = f"journal {segment.name}: {why}. It was moved to damaged/; everything else is loaded."
        self._messages.append(message)
        log.error("segment_damaged", extra={"detail": message})

    def link_database(self, path: Path, why: str) -> None:
        """Link a damaged database file into the folder. The original stays until another file replaces it."""
        free_path(self._folder / path.name).hardlink_to(path)
        sync_folder(self._folder)
        log.error("store_damaged", extra={"detail": f"{path.name}: {why}. A copy is in damaged/."})
        self.delete_old_databases()

    def databases(self) -> list[Path]:
        """Return the database files, oldest first."""
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        databases = [path for path in paths if _DATABASE.fullmatch(path.name)]
        # The creation of the hard link set the ctime; the mtime is that of the original file.
        return sorted(databases, key=lambda path: path.stat().st_ctime_ns)

    def delete_old_databases(self, *, now: float | None = None) -> None:
        """Delete database files except the two newest, and all after 30 days. Their readable rows were salvaged."""
        databases = self.databases()
        oldest = (time.time() if now is None else now) - DATABASE_DAYS_MAX * 86_400
        for path in databases:
            if path in databases[:-DATABASES_MAX] or path.stat().st_ctime < oldest:
                _delete(path, f"only the newest {DATABASES_MAX} are kept, for at most {DATABASE_DAYS_MAX} days")

    def delete_oldest_database(self) -> bool:
        """Free space. Return False if the folder has no database file."""
        for path in self.databases()[:1]:
            _delete(path, "the disk has no space for the next snapshot")
            return True
        return False

    def report_salvage(self, row_count: int, *, lost_count: int) -> None:
        """Report the rows that were salvaged from damaged files, and the events that were lost."""
        message = f"store: the store and its snapshots were damaged; {row_count:,} of their rows were salvaged"
        if lost_count:
            self.record_loss(f"{message}, {lost_count:,} events are lost. The ledger lists their segments.")
        else:
            log.warning("salvaged", extra={"detail": f"{message}. No event is lost."})

    def record_loss(self, message: str) -> None:
        """Report a loss now, and at each start until an operator moves the note."""
        message = f"{message} Restore a backup, or accept the loss and move this file elsewhere."
        if any(message in reported for reported in self._messages):
            return
        path = self._folder / f"{LOSS_NOTE_PREFIX}{time.time_ns()}.txt"
        # Write the note first: if the disk has no space for it, the next check reports the loss.
        write_durably(path, f"{message}\n".encode())
        self._messages.append(f"damaged/{path.name}: {message}")
        log.error("lost", extra={"detail": message})


def _delete(path: Path, why: str) -> None:
    log.warning("copy_deleted", extra={"detail": f"damaged/{path.name}: was deleted, since {why}."})
    path.unlink()


def has_unloaded_events(name: str) -> bool:
    """Return whether a file in `damaged/` has events that are not in the store, by its name."""
    return OPEN in name or SEALED in name


def segment_numbers(*folders: Path) -> set[int]:
    """Return the numbers of all segments in these folders."""
    return {number_of(path) for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()}


def find_gaps(
    present: Iterable[int], *, after: int, before: int, loaded: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """Return the first and the last number of each gap between two numbers.

    Args:
        present: the numbers of the segments on the disk.
        after: the number before the checked range.
        before: the number after it.
        loaded: the first and the last number of runs of loaded segments.
    """
    gaps, last = [], after
    single = ((number, number) for number in present if after < number < before)
    for run_first, run_last in [*sorted([*loaded, *single]), (before, before)]:
        if run_first > last + 1:
            gaps.append((last + 1, run_first - 1))
        last = max(last, run_last)
    return gaps


def describe_gaps(gaps: list[tuple[int, int]]) -> str:
    """Return the numbers of missing segments as the subject of a sentence, with its verb."""
    first, last = gaps[0][0], gaps[-1][1]
    if first == last:
        return f"segment {first:,} is"
    if len(gaps) == 1:
        return f"the segments {first:,} to {last:,} are"
    return f"{sum(end - start + 1 for start, end in gaps):,} of the segments {first:,} to {last:,} are"


def read_loss_note(path: Path) -> str:
    """Return the text of a note about lost segments."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"can't be read ({error.strerror}). It lists lost segments."
