"""File operations that survive a crash: writes, folder fsync, and renames that never replace a file. Also free space.

Callers compare results of `device_and_inode` to detect that another program moved or replaced a file.
"""

import errno
import os
from pathlib import Path

from embedsink.permissions import give_to_owner

# The name of a file ends with this while it is written, before it replaces another one.
DRAFT_SUFFIX = ".new"


def free_bytes(folder: Path) -> int:
    """Return the free disk space in bytes that this user may use."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def is_disk_full(error: OSError) -> bool:
    """Return whether an operation failed because the disk or the user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def rename_new(source: Path, target: Path) -> None:
    """Rename a file to a free name. The caller holds the folder's lock, so no other program creates the name meanwhile.

    Raises:
        FileExistsError: the target exists. Both files are unchanged.
        OSError: the file can't be renamed.
    """
    if os.path.lexists(target):
        # The fourth argument is an error code of Windows.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(source), None, str(target))
    source.rename(target)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file, and return when the file is durable. A failed write leaves no file."""
    try:
        _write_and_sync(path, content)
    except OSError:
        path.unlink(missing_ok=True)  # A partial file would look complete.
        raise
    sync_folder(path.parent)


def replace_durably(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file, and return when the new one is durable. After a crash, the path has the old or the new content.

    The caller prevents other calls for this path meanwhile. A file of root belongs to the owner of the folder.

    Args:
        path: the file, which may be missing.
        content: the new content.
        mode: the permissions of the new file, under any umask.

    Raises:
        OSError: the file can't be written. The old content remains.
    """
    draft = path.with_name(f"{path.name}{DRAFT_SUFFIX}")
    draft.unlink(missing_ok=True)  # of a killed process
    draft.touch(mode=mode, exist_ok=False)
    try:
        draft.chmod(mode)  # The umask may have removed permissions of the owner.
        give_to_owner(draft, path.parent)
        _write_and_sync(draft, content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, and return when the entries of the new folders are durable.

    An existing folder is kept. Its own entry is synced too, because an earlier call may have been interrupted, if this
    user may write to the parent. The entries of existing parents are not synced.

    Args:
        folder: the folder.
        mode: the permissions of a new folder, before the umask applies. New parents get 0o777 before the umask.

    Raises:
        OSError: the folder can't be created, or its parent can't be read and so not be synced. FileExistsError: it is a
            file.
    """
    absolute = folder.absolute()  # `Path(".").parent` is `.` itself.
    new_folders = [path for path in (absolute, *absolute.parents) if not path.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    # Only a user who may write to the parent can have been interrupted while creating the folder.
    if not new_folders and os.access(absolute.parent, os.W_OK):
        new_folders = [absolute]
    # If a folder's entry in its parent is lost, so are the files in the folder.
    for path in new_folders:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that another library has written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the directory entries of a folder durable, after files were created, renamed or deleted."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(folder)  # An error of `fsync` has no file name, and messages need one.
        raise
    finally:
        os.close(descriptor)


def device_and_inode(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a path; None if it does not exist. They stay the same after a rename."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def first_free_path(path: Path) -> Path:
    """Return the path if it is free, else the first free path of `<path>.1`, `<path>.2`, …"""
    count = 0
    candidate = path
    while os.path.lexists(candidate):
        count += 1
        candidate = path.with_name(f"{path.name}.{count}")
    return candidate


def move_to_damaged(path: Path, *, damaged: Path) -> Path:
    """Move a damaged file durably to the folder `damaged`, without replacing a file there. Return the new path."""
    create_folder(damaged)
    target = first_free_path(damaged / path.name)
    path.rename(target)
    # Sync the new entry first: after a power failure, the file then has at least one name.
    sync_folder(damaged)
    sync_folder(path.parent)
    return target


def _write_and_sync(path: Path, content: bytes) -> None:
    """Write the content of a file, and make it durable. The entry of a new file in its folder may still be lost."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
