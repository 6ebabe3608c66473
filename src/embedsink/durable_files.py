"""File operations that survive a crash: writes, folder fsync, and renames that never replace a file."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_AT_FDCWD = -100  # renameat2(2): a path is relative to the working directory
_RENAME_NOREPLACE = 1  # renameat2(2): fail if the new name exists
# The system or the file system does not support the flag.
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file to a name that does not exist yet.

    On Linux this is one system call. Elsewhere the target is checked first: the folder's lock excludes other writers.

    Raises:
        FileExistsError: the target exists. Both files are unchanged.
        OSError: the file can't be renamed.
    """
    if (error_number := _rename_atomically(source, target)) == 0:
        return
    if error_number not in _UNSUPPORTED:
        raise OSError(error_number, os.strerror(error_number), str(source), None, str(target))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(source), None, str(target))
    source.rename(target)


def _rename_atomically(source: Path, target: Path) -> int:
    """Rename with one system call; return its errno, or 0."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return errno.ENOSYS
    paths = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    return 0 if renameat2(*paths, _RENAME_NOREPLACE) == 0 else ctypes.get_errno()


@cache
def _renameat2() -> Callable[..., int] | None:
    """Return the C library's function; None if it lacks one, as on macOS."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file and return when it is durable. A failed write leaves no file."""
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # A partial file would look complete.
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable after files were created or renamed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(folder)  # fsync names no file
        raise
    finally:
        os.close(descriptor)


def free_path(path: Path) -> Path:
    """Return the path if it does not exist, else the first path with a number appended that does not."""
    count = 0
    free = path
    while free.exists():
        count += 1
        free = path.with_name(f"{path.name}.{count}")
    return free


def move_to_damaged(path: Path, *, damaged: Path) -> Path:
    """Move a damaged file to `damaged` without replacing a file. Return its new path."""
    damaged.mkdir(parents=True, exist_ok=True)
    target, count = damaged / path.name, 0
    while True:
        try:
            rename_new(path, target)
            break
        except FileExistsError:
            count += 1
            target = damaged / f"{path.name}.{count}"
    sync_folder(damaged)
    sync_folder(path.parent)
    return target
