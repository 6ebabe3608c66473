"""The number of the newest sealed segment, stored outside `journal/`, so that a loss of that segment is detected."""

import contextlib
import os
from pathlib import Path

_DIGIT_COUNT = 12


class LastSealed:
    """The file `journal.last`, which contains the number of the newest sealed segment in twelve digits.

    Segments are durable without this file, so it is not synced, and a failed write is ignored. After a power failure it
    may contain an older number. Then a loss of the segments after that number is not detected.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        """Return the number of the last sealed segment; 0 if the file is missing or unreadable."""
        # `write` overwrites only the beginning of the file, so ignore the rest.
        with contextlib.suppress(OSError, ValueError):
            return int(self._path.read_bytes()[:_DIGIT_COUNT])
        return 0

    def write(self, number: int) -> None:
        """Overwrite the number in place, because a full disk has no space for a new block. Ignore an error.

        A lower number than the stored one is ignored: a segment whose recovery was deferred is sealed after newer ones.
        """
        if number <= self.read():
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                os.pwrite(descriptor, f"{number:0{_DIGIT_COUNT}d}\n".encode(), 0)
            finally:
                os.close(descriptor)
