"""The number of the newest sealed segment, kept outside `journal/`: a loss of the newest segments is noticed by it."""

import contextlib
import os
from pathlib import Path


class LastSealed:
    """The file `journal.last`. Making the object touches nothing.

    It is not synced, and a failure to write it is ignored: segments are durable without it. After a power failure it
    may name an older segment, and a loss of those behind it is not noticed then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int:
        """Return the number; 0 if there is none that can be read."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._path.read_bytes()[:12])
        return 0

    def write(self, number: int) -> None:
        """Keep a number, in place: on a full disk there is no room for a new block."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                os.pwrite(descriptor, b"%012d\n" % number, 0)
            finally:
                os.close(descriptor)
