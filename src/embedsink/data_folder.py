"""The data folder: what lies where, and the lock that keeps a second server out."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from embedsink.durable_files import move_to_damaged, sync_folder
from embedsink.errors import Misconfigured
from embedsink.permissions import FOLDER_MODE, restrict, restricted_umask

# How files in damaged/ begin that say what is lost.
LOST = "lost-"
# What the names of its own files and folders begin with, up to the first dot.
_STEMS = frozenset(
    ("journal", "damaged", "dashboards", "pages", "restoring", "store", "analytics", "rebuilt", "keys", "lock")
)


class DataFolder:
    """The paths of design section 4 under one folder. Making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.last_sealed = path / "journal.last"
        self.damaged = path / "damaged"
        self.store = path / "store.duckdb"
        self.snapshot = path / "analytics.duckdb"
        self.previous = path / "analytics.previous.duckdb"  # the snapshot before
        self.rebuilt = path / "rebuilt.duckdb"  # a store in the making
        self.keys = path / "keys.json"
        self.dashboards = path / "dashboards"  # the operator's own
        self.pages = path / "pages"  # what can be made again
        self.restoring = path / "restoring"  # there until `embedsink restore` has ended

    def make(self) -> list[Path]:
        """Create what is missing, and restrict the permissions of what is there.

        Returns:
            The paths that stay open to other users; see `permissions.restrict`.

        Raises:
            Misconfigured: the folder can't be made or written, or is half restored.
        """
        self.refuse_half_restored()
        if "?" in str(self.path):
            raise Misconfigured(f"data folder {self.path}: DuckDB takes what follows a ? for options. Name another.")
        try:
            with restricted_umask():
                for folder in (self.path, self.journal, self.damaged):
                    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            # What is durable in a folder is lost when the folder's own name is not durable.
            sync_folder(self.path)
            sync_folder(self.path.parent)
        except FileExistsError as error:
            raise Misconfigured(
                f"{error.filename}: is a file, and has to be a folder. Move it elsewhere, or name another with --data."
            ) from None
        except OSError as error:
            raise Misconfigured(f"data folder {self.path}: {error.strerror}. {advice_on(error)}") from None
        return restrict(self.path, stems=_STEMS)

    def rename_former_folders(self) -> None:
        """Move the content of `aside/`, the former name of `damaged/`, there. Call it under the folder's lock.

        Raises:
            OSError: a file can't be moved.
        """
        former = self.path / "aside"
        if not former.is_dir():
            return
        for path in sorted(former.iterdir()):
            move_to_damaged(path, damaged=self.damaged)
        former.rmdir()
        sync_folder(self.path)

    def refuse_half_restored(self) -> None:
        """Refuse a folder that `embedsink restore` has not finished.

        Raises:
            Misconfigured: says so.
        """
        if self.restoring.exists():
            raise Misconfigured(
                f"data folder {self.path}: is half restored, and {self.restoring.name}/ is still in it. If no "
                "`embedsink restore` is running, delete the folder's content and restore again."
            )

    def nested(self) -> list[Path]:
        """Data folders inside this one: `cp -r backup data` makes one when `data` exists.

        Raises:
            OSError: the folder can't be read.
        """
        own = {self.journal, self.damaged, self.dashboards, self.pages}
        found = [path for path in sorted(self.path.iterdir()) if path.is_dir() and path not in own]
        return [path for path in found if _is_data_folder(path)]


def _is_data_folder(path: Path) -> bool:
    folder = DataFolder(path)
    try:
        return folder.journal.is_dir() or folder.snapshot.exists()
    except OSError:
        return False  # This user may not look into it, such as lost+found.


def nested_message(path: Path) -> str:
    """Return what a data folder inside another means, and what to do."""
    return (
        f"{path}: is a data folder inside this one, and nothing of it is read. If it was to be restored, stop the "
        "server and name that folder with --data. Otherwise move it elsewhere."
    )


def advice_on(error: OSError) -> str:
    """Return what to do about a folder or file that the system refuses."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Run this as the user whose data folder it is, or name another with --data."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room on the disk."
    if error.errno == errno.EROFS:
        return "Mount it for writing, or name another with --data."
    if error.errno == errno.EIO:
        return "Look at the disk and the kernel log."
    return "Choose another with --data."


class FolderTaken(Misconfigured):
    """Another program has the folder open for writing. `holder` says so, without what to do."""

    def __init__(self, folder: Path, process: str) -> None:
        self.holder = f"{folder}: is open in {process}"
        super().__init__(f"{self.holder}. Stop that server, or read analytics.duckdb instead.")


class FolderLock:
    """Held by the one program that writes a data folder: a server, or a command while no server runs.

    The folder itself is locked, since its descriptor can't be deleted as a file can. The file `lock` holds the process
    id, and is locked too: older programs lock nothing else.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder.path
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            FolderTaken: another program has it.
            Misconfigured: it can't be locked at all.
        """
        path = self._folder
        try:
            with contextlib.ExitStack() as held:
                self._lock_folder(_opened(path, os.O_RDONLY | os.O_DIRECTORY, held))
                path = self._folder / "lock"
                self._lock_file(path, held)
                self._held = held.pop_all()
        except BlockingIOError:
            raise FolderTaken(self._folder, _holder(self._folder / "lock")) from None
        except OSError as error:
            raise Misconfigured(f"{path}: {error.strerror}. {advice_on(error)}") from None
        return self

    def _lock_file(self, path: Path, held: contextlib.ExitStack) -> None:
        try:
            descriptor = _opened(path, os.O_RDWR | os.O_CREAT, held)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # In place: on a full disk there is no room for a new block.
            length = os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            os.ftruncate(descriptor, length)
        except OSError as error:
            # A server has to start on a full disk, so that it answers reports. The folder itself is locked.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _lock_folder(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Some network file systems can lock files, and no folders.
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let a third program lock a name that the second still holds.
        self._held.close()


def _opened(path: Path, flags: int, held: contextlib.ExitStack) -> int:
    descriptor = os.open(path, flags, 0o640)
    held.callback(os.close, descriptor)
    return descriptor


def _holder(lock: Path) -> str:
    """The process that has the folder open, as far as its file `lock` tells."""
    with contextlib.suppress(OSError):
        if number := lock.read_text(encoding="ascii", errors="replace")[:20].strip():
            return f"process {number}"
    return "another process"
