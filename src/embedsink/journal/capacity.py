"""Whether the journal has room: free space on its disk, and its own budget."""

import contextlib
import errno
import os
import time
from pathlib import Path

from embedsink.journal.segment import SEALED

MEASURE_EVERY_S = 0.5
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Capacity:
    """Keeps count of the sealed segments, and asks for room. A busy server whose snapshots fail has 100,000 of them, so
    their folder is read once.

    `add` and `measure_when_due` belong to the thread that seals, `remove` to the one that deletes; any reads the rest.

    Args:
        folder: the journal's, as it was recovered.
        free_bytes_min: what has to stay free on its disk.
        journal_bytes_max: what its files may have together.
    """

    def __init__(self, folder: Path, *, free_bytes_min: int, journal_bytes_max: int) -> None:
        self.refusal: str | None = None
        self._folder = folder
        self._free_bytes_min = free_bytes_min
        self._journal_bytes_max = journal_bytes_max
        self._measured_at = float("-inf")
        self._opened = _inode_of(folder)
        self.room_bytes = 0
        # As of the last measurement; before it, neither tight nor with room to spare.
        self._free_bytes, self._left_bytes = 2 * free_bytes_min, 0
        sizes = _sizes_in(folder)
        # Each with one writer, so that neither thread can lose the other's sum.
        self._added_count, self._added_bytes = len(sizes), sum(sizes)
        self._removed_count = self._removed_bytes = 0

    @property
    def segment_count(self) -> int:
        """How many sealed segments there are."""
        return self._added_count - self._removed_count

    @property
    def byte_count(self) -> int:
        """How many bytes they have."""
        return self._added_bytes - self._removed_bytes

    @property
    def is_tight(self) -> bool:
        """Whether half of the budget is taken, or the disk has less than twice what has to stay free."""
        return 2 * self.byte_count > self._journal_bytes_max or self._free_bytes < 2 * self._free_bytes_min

    def has_room_to_spare(self, *, free_bytes_min: int) -> bool:
        """Whether so much is free on the disk and half of the budget is left, as of the last measurement."""
        return self._free_bytes >= free_bytes_min and self._left_bytes >= self._journal_bytes_max // 2

    def add(self, byte_count: int) -> None:
        """A segment of so many bytes was sealed."""
        self._added_count += 1
        self._added_bytes += byte_count

    def remove(self, byte_count: int) -> None:
        """One was deleted, or set aside."""
        self._removed_count += 1
        self._removed_bytes += byte_count

    def refuse(self, why: str) -> None:
        """Take in nothing until the next measurement finds room."""
        self.refusal = why
        self._measured_at = time.monotonic()

    def measure_when_due(self, *, open_bytes: int) -> None:
        """Look again, when the last look is half a second ago; the open segment has `open_bytes`.

        Raises:
            OSError: the disk can't be asked, or the folder is not the one that was opened; the journal then ends.
        """
        now = time.monotonic()
        if now - self._measured_at >= MEASURE_EVERY_S:
            self._measured_at = now
            try:
                self.refusal = self._what_is_low(open_bytes)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:  # Then the last measurement holds.
                    raise

    def _what_is_low(self, open_bytes: int) -> str | None:
        if _inode_of(self._folder) != self._opened:
            # What is written to the open file would be in no folder that anybody reads.
            raise OSError(errno.ESTALE, "the folder was moved or replaced while it was open", str(self._folder))
        disk = os.statvfs(self._folder)
        self._free_bytes = disk.f_bavail * disk.f_frsize
        self._left_bytes = left_bytes = self._journal_bytes_max - self.byte_count - open_bytes
        spare_bytes = self._free_bytes - self._free_bytes_min
        self.room_bytes = min(spare_bytes, left_bytes)
        if spare_bytes < 0:
            return "disk: less is free than EMBEDSINK_FREE_BYTES_MIN. The operator has to make room; then resend."
        if left_bytes < 0:
            return "journal: is larger than EMBEDSINK_JOURNAL_BYTES_MAX. Resend when loading has caught up."
        return None


def _inode_of(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _sizes_in(folder: Path) -> list[int]:
    sizes = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # somebody has just moved it away
                byte_count = entry.stat().st_size
                if entry.name.endswith(SEALED):
                    sizes.append(byte_count)
    return sizes
