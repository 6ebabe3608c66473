"""Whether the journal has room: free space on its disk, and its own budget."""

import contextlib
import errno
import os
import time
from pathlib import Path

MEASURE_EVERY_S = 0.5
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Space:
    """Asked by one thread, which measures; `refusal` is read by any.

    Args:
        folder: the journal's.
        free_bytes_min: what has to stay free on its disk.
        journal_bytes_max: what its files may have together.
    """

    def __init__(self, folder: Path, *, free_bytes_min: int, journal_bytes_max: int) -> None:
        self.refusal: str | None = None
        self._folder = folder
        self._free_bytes_min = free_bytes_min
        self._journal_bytes_max = journal_bytes_max
        self._measured_at = float("-inf")

    def refuse(self, why: str) -> None:
        """Take in nothing until the next measurement finds room."""
        self.refusal = why
        self._measured_at = time.monotonic()

    def measure_when_due(self) -> None:
        """Look again, when the last look is half a second ago.

        Raises:
            OSError: the folder can't be read; the journal then ends.
        """
        now = time.monotonic()
        if now - self._measured_at >= MEASURE_EVERY_S:
            self._measured_at = now
            try:
                self.refusal = self._what_is_low()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:  # Then the last measurement holds.
                    raise

    def _what_is_low(self) -> str | None:
        free = os.statvfs(self._folder)
        if free.f_bavail * free.f_frsize < self._free_bytes_min:
            return "disk: less is free than EMBEDSINK_FREE_BYTES_MIN. The operator has to make room; then resend."
        if _bytes_in(self._folder) > self._journal_bytes_max:
            return "journal: is larger than EMBEDSINK_JOURNAL_BYTES_MAX. Resend when loading has caught up."
        return None


def _bytes_in(folder: Path) -> int:
    byte_count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # the loader has just deleted it
                byte_count += entry.stat().st_size
    return byte_count
