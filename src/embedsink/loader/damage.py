"""The folder `damaged/`: damaged files, and notes about lost segments.

Segments and notes stay until an operator moves them. Damaged database files help to find the cause, and are deleted
later.
"""

import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path

from embedsink.data_folder import LOSS_NOTE_PREFIX
from embedsink.durable_files import first_free_path, move_to_damaged, sync_folder, write_durably
from embedsink.journal.segment import OPEN, SEALED, number_of

log = logging.getLogger(__name__)

# The retention of damaged database files.
DATABASES_MAX = 2
DATABASE_DAYS_MAX = 30
_DATABASE_NAME = re.compile(r"(store|analytics(\.previous)?)\.duckdb(\.\d+)?")


class DamagedFiles:
    """The damaged files of a data folder. Segments and notes are reported until an operator moves them.

    Args:
        folder: the folder `damaged/`.
        messages: the list that receives a message for each file; `/readyz` returns it.
    """

    def __init__(self, folder: Path, *, messages: list[str]) -> None:
        self._folder = folder
        self._messages = messages

    def report_existing(self) -> None:
        """Report the files from earlier runs, and delete old database files."""
        for path in self._paths():
            if is_segment_or_part(path.name):
                self._messages.append(
                    f"damaged/{path.name}: is damaged and not loaded. Repair it, or move it elsewhere."
                )
            elif path.name.startswith(LOSS_NOTE_PREFIX):
                self._messages.append(f"damaged/{path.name}: {read_loss_note(path)}")
        self.delete_old_databases()

    def report_gaps(
        self, journal: Path, *, after: int, before: int, loaded_ranges: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Report lost segments. The numbers of segments are consecutive, so a missing number is a loss.

        Args:
            journal: the folder of the segments.
            after: only greater numbers are checked.
            before: only smaller numbers are checked.
            loaded_ranges: the first and the last number of each range of loaded segments.
        """
        # Segments in the folder `damaged/` are not lost.
        present = segment_numbers(journal, self._folder)
        gaps = find_gaps(present, after=after, before=before, loaded_ranges=loaded_ranges)
        if gaps:
            self.record_loss(f"journal: {describe_gaps(gaps)} in neither the store nor the journal.")

    def move_segment(self, segment: Path, why: str) -> None:
        """Move a segment that can't be loaded to `damaged/`, and report the move."""
        move_to_damaged(segment, damaged=self._folder)
        message = f"journal {segment.name}: {why}. The segment was moved to damaged/; everything else is loaded."
        self._messages.append(message)
        log.error("segment_damaged", extra={"detail": message})

    def link_database(self, path: Path, why: str) -> None:
        """Link a damaged database file into `damaged/`. Its old name remains until another file replaces it."""
        first_free_path(self._folder / path.name).hardlink_to(path)
        sync_folder(self._folder)
        log.error("store_damaged", extra={"detail": f"{path.name}: {why}. A copy is in damaged/."})
        self.delete_old_databases()

    def databases(self) -> list[Path]:
        """Return the database files in `damaged/`, in the order in which they were linked into this folder."""
        databases = [path for path in self._paths() if _DATABASE_NAME.fullmatch(path.name)]
        # Linking a file sets its ctime. Its mtime is the time of the last write.
        return sorted(databases, key=lambda path: path.stat().st_ctime_ns)

    def delete_old_databases(self, *, now: float | None = None) -> None:
        """Delete all database files but the two newest, and any that is older than 30 days.

        Nothing readable is lost, because the readable rows were salvaged into the store.
        """
        now = time.time() if now is None else now
        databases = self.databases()
        newest = databases[-DATABASES_MAX:]  # They are sorted, oldest first.
        for path in databases:
            is_expired = path.stat().st_ctime < now - DATABASE_DAYS_MAX * 86_400  # a day in seconds
            if is_expired or path not in newest:
                _delete(path, f"only the newest {DATABASES_MAX} are kept, for at most {DATABASE_DAYS_MAX} days")

    def delete_oldest_database(self, why: str) -> bool:
        """Delete the oldest database file, and log why. Return whether there was one."""
        databases = self.databases()
        if not databases:
            return False
        _delete(databases[0], why)
        return True

    def report_salvage(self, row_count: int, *, lost_count: int) -> None:
        """Report the rows that were salvaged from damaged files, and the events that were lost."""
        message = f"store: the store or a snapshot was damaged. {row_count:,} rows were salvaged"
        if lost_count:
            self.record_loss(f"{message}, and {lost_count:,} events are lost. The ledger lists their segments.")
        else:
            log.warning("salvaged", extra={"detail": f"{message}. No event is lost."})

    def record_loss(self, message: str) -> None:
        """Write a note about a loss, and report it now and at each start until an operator moves the note."""
        message = f"{message} Restore a backup, or accept the loss and move this file elsewhere."
        # An earlier check, or a note of an earlier run, reports this loss already.
        if any(message in reported for reported in self._messages):
            return
        path = self._folder / f"{LOSS_NOTE_PREFIX}{time.time_ns()}.txt"
        # Write the note first: if the disk has no space for it, the next check reports the loss.
        write_durably(path, f"{message}\n".encode())
        self._messages.append(f"damaged/{path.name}: {message}")
        log.error("lost", extra={"detail": message})

    def _paths(self) -> list[Path]:
        """Return the files of the folder in the order of their names; none if the folder does not exist."""
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []


def _delete(path: Path, why: str) -> None:
    """Delete a file in `damaged/`, and log why."""
    log.warning("copy_deleted", extra={"detail": f"damaged/{path.name}: was deleted, because {why}."})
    path.unlink()


def is_segment_or_part(name: str) -> bool:
    """Return whether a file in `damaged/` is a segment or a part of a segment, with events that were not loaded."""
    # Search within the name: a number may follow the suffix, as in `.ndjson.1`.
    return OPEN in name or SEALED in name


def segment_numbers(*folders: Path) -> set[int]:
    """Return the numbers of all segments in these folders, and the number 0 if they have other files."""
    numbers = set()
    for folder in folders:
        if folder.is_dir():
            numbers |= {number_of(path) for path in folder.iterdir() if path.is_file()}
    return numbers


def find_gaps(
    present: Iterable[int], *, after: int, before: int, loaded_ranges: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """Return the first and the last number of each gap. The numbers of a gap are neither present nor loaded.

    Args:
        present: the numbers of the segments on the disk.
        after: only greater numbers are checked.
        before: only smaller numbers are checked.
        loaded_ranges: the first and the last number of each range of loaded segments.
    """
    present_ranges = [(number, number) for number in present if after < number < before]
    ranges = sorted([*loaded_ranges, *present_ranges])
    gaps = []
    last_number = after
    for range_first, range_last in [*ranges, (before, before)]:  # `before` ends the last gap.
        if range_first > last_number + 1:
            gaps.append((last_number + 1, range_first - 1))
        last_number = max(last_number, range_last)  # Ranges may overlap.
    return gaps


def describe_gaps(gaps: list[tuple[int, int]]) -> str:
    """Return the numbers of missing segments as the beginning of a sentence, such as `segment 7 is`."""
    first_number, _ = gaps[0]
    _, last_number = gaps[-1]
    if first_number == last_number:
        return f"segment {first_number:,} is"
    if len(gaps) == 1:
        return f"segments {first_number:,} to {last_number:,} are"
    missing_count = sum(last - first + 1 for first, last in gaps)
    return f"{missing_count:,} of the segments {first_number:,} to {last_number:,} are"


def read_loss_note(path: Path) -> str:
    """Return the text of a note about lost segments. If the note can't be read, return a message about that."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"can't be read ({error.strerror}). It lists lost segments."
