"""The room that the store needs on its disk before it is written to."""

import os
from pathlib import Path

from embedsink.loader.copy_file import ROOM_BYTES_MIN
from embedsink.store.duckdb_errors import StoreRefused

ROOM_BYTES_MAX = 64 * 1_048_576


class StoreDiskSpace:
    """Keeps the loader from a full disk. A checkpoint that meets its end breaks the database, and every open report.

    Args:
        folder: a folder on the store's disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._byte_count = ROOM_BYTES_MIN

    def require(self) -> None:
        """Raise StoreRefused while there is too little."""
        if self._free_bytes() < self._byte_count:
            raise StoreRefused(f"less than {self._byte_count:,} bytes are free on its disk")

    def ask_for_more(self) -> None:
        """Note that a checkpoint met the end of the disk: it needs more than was required, or others were quicker."""
        self._byte_count = min(2 * max(self._byte_count, self._free_bytes()), ROOM_BYTES_MAX)

    def forget(self) -> None:
        """Require no more than at the start: a checkpoint went well."""
        self._byte_count = ROOM_BYTES_MIN

    def _free_bytes(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize
