"""The data folder: its paths, and the lock that excludes a second server."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from embedsink.durable_files import create_folder, is_disk_full, move_to_damaged, sync_folder
from embedsink.errors import Misconfigured
from embedsink.permissions import FOLDER_MODE, restrict, restricted_umask

# The prefix of files in damaged/ that describe a loss.
LOSS_NOTE_PREFIX = "lost-"
# The beginnings of the names of the server's own files and folders, up to the first dot.
_OWN_NAMES = frozenset(
    [
        *("journal", "damaged", "dashboards", "pages", "restoring", "store", "analytics", "rebuilt"),
        *("keys", "identity", "privacy", "privacy_secrets", "internal", "erasures", "lock", "audit"),
    ]
)


class DataFolder:
    """The paths in a data folder. Creating this object does not touch the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.last_sealed = path / "journal.last"
        self.damaged = path / "damaged"
        self.store = path / "store.duckdb"
        self.snapshot = path / "analytics.duckdb"
        self.previous = path / "analytics.previous.duckdb"  # the snapshot before the last one
        self.rebuilt = path / "rebuilt.duckdb"  # a store while it is being rebuilt
        self.keys = path / "keys.json"
        self.identity = path / "identity.toml"
        self.privacy_rules = path / "privacy.toml"
        self.privacy_secrets = path / "privacy_secrets.json"
        self.internal_people = path / "internal.toml"
        self.erasures = path / "erasures"  # the requests to erase people
        self.audit = path / "audit"  # the audit trail
        self.audit_lock = path / "audit.lock"
        self.dashboards = path / "dashboards"  # the operator's own dashboards
        self.pages = path / "pages"  # cached files of the pages, which can be recreated
        self.restoring = path / "restoring"  # exists until `embedsink restore` has finished

    def create(self) -> list[Path]:
        """Create missing folders, and restrict the permissions of existing files.

        Returns:
            The paths whose permissions could not be restricted; see `permissions.restrict`.

        Raises:
            Misconfigured: the folder can't be created or written, is only partly restored, or has a ? in its path.
        """
        self.refuse_half_restored()
        if "?" in str(self.path):
            raise Misconfigured(
                f"data folder {self.path}: has a ? in its path. DuckDB treats the text after it as options. "
                "Use another path."
            )
        try:
            with restricted_umask():
                for folder in (self.path, self.journal, self.damaged):
                    create_folder(folder, mode=FOLDER_MODE)
        except FileExistsError as error:
            raise Misconfigured(
                f"{error.filename}: is a file, but must be a folder. Move it, or use another path with --data."
            ) from None
        except OSError as error:
            raise Misconfigured(f"data folder {self.path}: {error.strerror}. {advice_on(error)}") from None
        return restrict(self.path, own_names=_OWN_NAMES)

    def migrate_former_damaged_folder(self) -> None:
        """Move the files of the former folder `aside/` to `damaged/`. The caller must hold the lock.

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

    def refuse_other_folder(self) -> None:
        """Raise Misconfigured unless the folder has a journal, as each data folder of a server has."""
        if not self.journal.is_dir():
            raise Misconfigured(
                f"{self.path}: is not a data folder, because it has no journal/. Name the data folder with --data."
            )

    def refuse_half_restored(self) -> None:
        """Refuse a folder whose restore has not finished.

        Raises:
            Misconfigured: the folder is only partly restored.
        """
        if self.restoring.exists():
            raise Misconfigured(
                f"data folder {self.path}: is only partly restored, because it contains {self.restoring.name}/. If "
                "no `embedsink restore` is running, delete the folder's content and restore again."
            )

    def nested_data_folders(self) -> list[Path]:
        """Return the data folders inside this data folder. `cp -r backup data` creates such a folder if `data` exists.

        Raises:
            OSError: the folder can't be read.
        """
        own_folders = {self.journal, self.damaged, self.dashboards, self.pages, self.audit, self.erasures}
        folders = [path for path in sorted(self.path.iterdir()) if path.is_dir()]
        return [path for path in folders if path not in own_folders and _is_data_folder(path)]


def _is_data_folder(path: Path) -> bool:
    """Return whether a folder has a journal or a snapshot; False if this user can't read it, as with lost+found."""
    folder = DataFolder(path)
    try:
        return folder.journal.is_dir() or folder.snapshot.exists()
    except OSError:
        return False


def nested_message(path: Path) -> str:
    """Return a warning about a data folder inside another one."""
    return (
        f"{path}: is a data folder inside this one, and is ignored. To restore it, stop the server and use that "
        "folder with --data. Otherwise move it elsewhere."
    )


def advice_on(error: OSError) -> str:
    """Return what to do about a file or folder that can't be opened or written."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Run this as the owner of the data folder, or use another folder with --data."
    if is_disk_full(error):
        return "Free space on the disk."
    if error.errno == errno.EROFS:
        return "Mount it writable, or use another folder with --data."
    if error.errno == errno.EIO:
        return "Check the disk and the kernel log."
    return "Use another folder with --data."


def require_folder(path: Path) -> Path:
    """Return the path of an existing data folder.

    Raises:
        Misconfigured: the folder does not exist.
    """
    if not path.is_dir():
        raise Misconfigured(f"data folder {path}: does not exist. Pass the folder that `embedsink serve` writes.")
    return path


class FolderTaken(Misconfigured):
    """Another process has locked the folder. `problem` is the message without the advice."""

    def __init__(self, folder: Path, process: str) -> None:
        self.problem = f"{folder}: is in use by {process}"
        super().__init__(f"{self.problem}. Stop that server, or read analytics.duckdb.")


class FolderLock:
    """The lock of the one process that writes a data folder: a server, or a command while no server runs.

    Both the folder and the file `lock` in it are locked. The file contains the process id.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder.path
        self._lock_file_path = folder.path / "lock"
        self._descriptors = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Lock the folder.

        Raises:
            FolderTaken: another process has locked the folder.
            Misconfigured: the folder can't be locked.
        """
        path = self._folder  # the path that an error is about
        try:
            with contextlib.ExitStack() as descriptors:
                self._lock_folder(descriptors)
                path = self._lock_file_path
                self._lock_file(descriptors)
                self._descriptors = descriptors.pop_all()  # Keep the locks after this block.
        except BlockingIOError:
            raise FolderTaken(self._folder, _locking_process(self._lock_file_path)) from None
        except OSError as error:
            raise Misconfigured(f"{path}: {error.strerror}. {advice_on(error)}") from None
        return self

    def _lock_folder(self, descriptors: contextlib.ExitStack) -> None:
        """Lock the folder itself, because a lock file can be deleted.

        The errors of network file systems that can lock files, but not folders, are ignored.
        """
        descriptor = _open_descriptor(self._folder, os.O_RDONLY | os.O_DIRECTORY, descriptors)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise

    def _lock_file(self, descriptors: contextlib.ExitStack) -> None:
        """Lock the file `lock`, and write the process id. Older versions lock only this file.

        A full disk is ignored, because the folder itself is locked.
        """
        try:
            descriptor = _open_descriptor(self._lock_file_path, os.O_RDWR | os.O_CREAT, descriptors)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Overwrite in place, because a full disk has no space for a new block. Then remove the rest of a longer id.
            length = os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            os.ftruncate(descriptor, length)
        except OSError as error:
            if not is_disk_full(error):
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the descriptors, which releases the locks."""
        # Keep the file `lock`. If it were deleted, one process could lock the deleted file, which it has opened before,
        # while another process locks a new file.
        self._descriptors.close()


def _open_descriptor(path: Path, flags: int, descriptors: contextlib.ExitStack) -> int:
    """Open a path, and return the descriptor. The exit stack closes the descriptor, which releases the lock."""
    descriptor = os.open(path, flags, 0o640)
    descriptors.callback(os.close, descriptor)
    return descriptor


def _locking_process(lock_file: Path) -> str:
    """Return a name for the process that has locked the folder, for a message."""
    with contextlib.suppress(OSError):
        # A process id has fewer than 20 digits, but another program may have written to the file.
        process_id = lock_file.read_text(encoding="ascii", errors="replace")[:20].strip()
        if process_id:
            return f"process {process_id}"
    return "another process"
