"""The number of the newest sealed segment, stored outside `journal/` to detect a loss of the newest segments."""

import contextlib
import os
from pathlib import Path


class LastSealed:
    """The file `journal.last`. Creating this object does not touch the disk.

    The file is not synced, and a failed write is ignored, because segments are durable without it. After a power
    failure it may contain an older number. A loss of the segments after that number is not noticed then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        """Return the number; 0 if the file is missing or unreadable."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._path.read_bytes()[:12])
        return 0

    def write(self, number: int) -> None:
        """Overwrite the number in place: a full disk has no space for a new block."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                os.pwrite(descriptor, b"%012d\n" % number, 0)
            finally:
                os.close(descriptor)
