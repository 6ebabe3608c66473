"""File operations that survive a crash: writes, folder fsync, and renames that never replace a file."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_AT_FDCWD = -100  # renameat2(2): a path is relative to the working directory
_RENAME_NOREPLACE = 1  # renameat2(2): fail where the new name exists
# The system or the file system does not know the flag.
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file to a name that does not exist yet.

    Linux does it in one step. Elsewhere the name is looked up first: the folder's lock keeps other writers out.

    Raises:
        FileExistsError: the name is taken. Both files are as they were.
        OSError: the file can't be renamed.
    """
    if (number := _rename_atomically(source, target)) == 0:
        return
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(source), None, str(target))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(source), None, str(target))
    source.rename(target)


def _rename_atomically(source: Path, target: Path) -> int:
    """Rename by one system call; its errno, or 0."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return errno.ENOSYS
    paths = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    return 0 if renameat2(*paths, _RENAME_NOREPLACE) == 0 else ctypes.get_errno()


@cache
def _renameat2() -> Callable[..., int] | None:
    """The C library's function; None where it has none, as on macOS."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file; return when it is on the disk. Nothing of it is left when that fails."""
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # A part of it would look like all of it.
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make created and renamed names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(folder)  # fsync names none
        raise
    finally:
        os.close(descriptor)


def free_path(path: Path) -> Path:
    """Return the path, or with a number behind it the first that does not exist."""
    count = 0
    free = path
    while free.exists():
        count += 1
        free = path.with_name(f"{path.name}.{count}")
    return free


def move_to_damaged(path: Path, *, damaged: Path) -> Path:
    """Move a damaged file out of the way, without ever overwriting what already lies there."""
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
