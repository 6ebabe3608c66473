"""The data folder: what lies where, and the lock that keeps a second server out."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from embedsink.errors import Misconfigured
from embedsink.segment import sync_folder

# How files in aside/ begin that say what is lost.
LOST = "lost-"


class DataFolder:
    """The paths of design section 4 under one folder. Making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.aside = path / "aside"
        self.store = path / "store.duckdb"
        self.snapshot = path / "analytics.duckdb"
        self.keys = path / "keys.json"
        self.dashboards = path / "dashboards"  # the operator's own
        self.pages = path / "pages"  # what can be made again

    def make(self) -> None:
        """Create what is missing.

        Raises:
            Misconfigured: the folder can't be made or written.
        """
        if "?" in str(self.path):
            raise Misconfigured(f"data folder {self.path}: DuckDB takes what follows a ? for options. Name another.")
        try:
            for folder in (self.path, self.journal, self.aside):
                folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            # What is durable in a folder is lost when the folder's own name is not durable.
            sync_folder(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise Misconfigured(f"data folder {self.path}: {error.strerror}. Choose another with --data.") from None


class FolderTaken(Misconfigured):
    """Another program has the folder open for writing. `holder` says so, without what to do."""

    def __init__(self, folder: Path, process: str) -> None:
        self.holder = f"{folder}: is open in process {process}"
        super().__init__(f"{self.holder}. Stop that server, or read analytics.duckdb instead.")


class FolderLock:
    """Held by the one program that writes a data folder: a server, or a command while no server runs."""

    def __init__(self, folder: DataFolder) -> None:
        self._path = folder.path / "lock"
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            FolderTaken: another program has it.
            Misconfigured: it can't be locked at all.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            told = f"{self._path}: {error.strerror}. Run this as the user whose data folder it is, or name another."
            raise Misconfigured(told) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise FolderTaken(self._path.parent, holder) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let a third program lock a name that the second still holds.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
