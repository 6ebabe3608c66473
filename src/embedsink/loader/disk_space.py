"""The free disk space that the store requires before it writes."""

from pathlib import Path

from embedsink.durable_files import free_bytes
from embedsink.loader.copy_file import FREE_BYTES_MIN
from embedsink.store.duckdb_errors import StoreRefused

# The largest requirement. The requirement at least doubles each time that a write fills the disk.
REQUIRED_BYTES_MAX = 64 * 1_048_576


class StoreDiskSpace:
    """A check of the free disk space. A checkpoint on a full disk breaks the database and every open report.

    Args:
        folder: a folder on the store's disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._required_bytes = FREE_BYTES_MIN

    def require(self) -> None:
        """Raise StoreRefused if less than the required space is free."""
        if free_bytes(self._folder) < self._required_bytes:
            raise StoreRefused(f"less than {self._required_bytes:,} bytes are free on its disk")

    def raise_requirement(self) -> None:
        """Raise the requirement, because a write has filled the disk although the required space was free.

        Require twice as much as before, or twice the free space if that is more; at most `REQUIRED_BYTES_MAX`.
        """
        self._required_bytes = min(2 * max(self._required_bytes, free_bytes(self._folder)), REQUIRED_BYTES_MAX)

    def reset_requirement(self) -> None:
        """Undo `raise_requirement`. Call this after a successful checkpoint, which shows that the space suffices."""
        self._required_bytes = FREE_BYTES_MIN
