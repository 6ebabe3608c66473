"""The open segment of the journal: the file to which groups of lines are written."""

import errno
import os
import time
from pathlib import Path

from embedsink.durable_files import rename_new
from embedsink.journal.segment import sealed_name

fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class OpenSegment:
    """A segment file that is being written. Its first `durable_bytes` are durable.

    A group consists of lines and their checksum. The durable bytes end with a whole group.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.durable_bytes = 0
        # `/readyz` writes groups without lines. A segment that has only such groups is deleted instead of sealed, so
        # that an idle server has none to load.
        self.has_lines = False
        self.opened_at = time.monotonic()
        self._written_bytes = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o640)

    def write(self, group: bytes) -> None:
        """Write the whole group, in several writes if necessary."""
        rest = memoryview(group)
        while rest:
            byte_count = os.write(self._descriptor, rest)
            self._written_bytes += byte_count
            rest = rest[byte_count:]

    def sync(self) -> None:
        """Make the file durable.

        Raises:
            OSError: the sync failed, or another program has deleted or changed the file.
        """
        fdatasync(self._descriptor)
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise OSError(errno.ENOENT, "the open segment was deleted", str(self.path))
        if status.st_size != self._written_bytes:
            raise OSError(errno.ESTALE, "the open segment was changed by another program", str(self.path))
        self.durable_bytes = self._written_bytes

    def undo_write(self) -> None:
        """Truncate the file to its first `durable_bytes`, so that it ends with the last durable group."""
        # If another program has truncated the file further, don't extend the file with zeros.
        if os.fstat(self._descriptor).st_size > self.durable_bytes:
            os.ftruncate(self._descriptor, self.durable_bytes)
        self._written_bytes = self.durable_bytes

    def seal(self) -> None:
        """Rename the file to the name of a sealed segment and close it. The caller makes the name durable.

        A segment without lines is deleted instead.
        """
        if self.has_lines:
            # The stem of an open segment's name is the segment's identity.
            rename_new(self.path, self.path.with_name(sealed_name(self.path.stem, self.durable_bytes)))
        else:
            self.path.unlink()
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
