"""The journal's capacity: free space on its disk, and its own size limit."""

import contextlib
import errno
import os
import time
from pathlib import Path

from embedsink.durable_files import device_and_inode, free_bytes
from embedsink.journal.segment import SEALED

MEASURE_INTERVAL_S = 0.5


class Capacity:
    """The size of the journal, and the free space on its disk.

    The folder is listed only once, because a busy server whose snapshots fail has 100,000 segments. After that,
    `add` and `remove` count the segments.

    The thread that deletes segments calls `remove`. The thread that seals segments calls the other methods that change
    something. Any thread may read the properties.

    Args:
        folder: the journal's folder after recovery.
        free_bytes_min: the bytes that have to stay free on its disk.
        journal_bytes_max: the size limit of all segments together.
    """

    def __init__(self, folder: Path, *, free_bytes_min: int, journal_bytes_max: int) -> None:
        self.refusal: str | None = None  # why appends are refused at the moment; None if they are not
        # The bytes that both the size limit and the disk still allowed the journal to write when last measured.
        self.available_bytes = 0
        self._folder = folder
        self._free_bytes_min = free_bytes_min
        self._journal_bytes_max = journal_bytes_max
        self._measured_at = float("-inf")
        self._folder_inode = device_and_inode(folder)
        # Before the first measurement, assume the smallest free space that does not count as low, and no headroom.
        self._disk_free_bytes = 2 * free_bytes_min
        self._journal_free_bytes = 0
        sizes = _segment_sizes(folder)
        # Only one thread writes each counter, so that no update by another thread is lost.
        self._added_count = len(sizes)
        self._added_bytes = sum(sizes)
        self._removed_count = 0
        self._removed_bytes = 0

    @property
    def segment_count(self) -> int:
        """The number of sealed segments."""
        return self._added_count - self._removed_count

    @property
    def byte_count(self) -> int:
        """The size of all sealed segments in bytes."""
        return self._added_bytes - self._removed_bytes

    @property
    def is_low_on_space(self) -> bool:
        """Whether more than half of the size limit is used, or the free space is below twice its minimum."""
        return 2 * self.byte_count > self._journal_bytes_max or self._disk_free_bytes < 2 * self._free_bytes_min

    def has_headroom(self, *, free_bytes_min: int) -> bool:
        """Return whether optional data, such as rejections, may be stored.

        Half of the size limit and `free_bytes_min` on the disk have to be free, as last measured.
        """
        return self._disk_free_bytes >= free_bytes_min and self._journal_free_bytes >= self._journal_bytes_max // 2

    def add(self, byte_count: int) -> None:
        """Count a sealed segment of this size."""
        self._added_count += 1
        self._added_bytes += byte_count

    def remove(self, byte_count: int) -> None:
        """Count a segment of this size that was deleted or moved to `damaged/`."""
        self._removed_count += 1
        self._removed_bytes += byte_count

    def refuse(self, message: str) -> None:
        """Refuse appends with this message until the next measurement finds space."""
        self.refusal = message
        self._measured_at = time.monotonic()  # Delay the next measurement by a whole interval.

    def measure_when_due(self, *, open_bytes: int) -> None:
        """Measure the free space and set `refusal`, if the last measurement is older than `MEASURE_INTERVAL_S`.

        Args:
            open_bytes: the size of the open segment.

        Raises:
            OSError: the disk can't be measured, or the folder was replaced. The caller ends the journal.
        """
        now = time.monotonic()
        if now - self._measured_at < MEASURE_INTERVAL_S:
            return
        self._measured_at = now
        self.refusal = self._measure(open_bytes)

    def _measure(self, open_bytes: int) -> str | None:
        """Measure the free space. Return the message with which appends are refused; None if there is space."""
        self._check_that_folder_was_not_moved()
        self._disk_free_bytes = free_bytes(self._folder)
        self._journal_free_bytes = self._journal_bytes_max - self.byte_count - open_bytes
        disk_available_bytes = self._disk_free_bytes - self._free_bytes_min
        self.available_bytes = min(disk_available_bytes, self._journal_free_bytes)
        if disk_available_bytes < 0:
            return "disk: has less free space than EMBEDSINK_FREE_BYTES_MIN. The operator must free space. Then resend."
        if self._journal_free_bytes < 0:
            return "journal: is larger than EMBEDSINK_JOURNAL_BYTES_MAX. Wait, then resend."
        return None

    def _check_that_folder_was_not_moved(self) -> None:
        """Raise OSError if the folder was moved or replaced: the loader would not find new segments at the path."""
        if device_and_inode(self._folder) != self._folder_inode:
            raise OSError(errno.ESTALE, "the folder was moved or replaced while it was open", str(self._folder))


def _segment_sizes(folder: Path) -> list[int]:
    """Return the sizes in bytes of the sealed segments in a folder."""
    sizes = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # A file can be moved after the listing.
                if entry.name.endswith(SEALED):
                    sizes.append(entry.stat().st_size)
    return sizes
