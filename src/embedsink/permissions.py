"""Permissions of the data folder: at most 0750 for folders and 0640 for files, independent of the umask."""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_MODE = 0o750
FILE_MODE = 0o640


@contextmanager
def restricted_umask() -> Iterator[None]:
    """Make all threads and child processes create folders with 0750 and files with 0640 in this block.

    DuckDB has no option for the mode of its files, so this sets the umask of the process.
    """
    previous_umask = os.umask(0o777 & ~FOLDER_MODE)
    try:
        yield
    finally:
        os.umask(previous_umask)


def restrict(folder: Path, *, own_names: Collection[str]) -> list[Path]:
    """Remove permissions beyond 0750 and 0640 from a folder and embedsink's files in it. Don't follow symbolic links.

    Files of other programs in the folder are not changed. No file is opened, because closing a descriptor of an open
    `store.duckdb` would drop DuckDB's lock.

    Args:
        folder: the folder.
        own_names: the names of embedsink's files and folders, up to the first dot.

    Returns:
        The paths that stay exposed to other users, because they belong to another user or a read-only file system.
    """
    exposed = []
    top = str(folder.resolve())
    for path, folder_names, file_names in os.walk(top):
        if path == top:
            folder_names[:] = _select_own(folder_names, own_names)  # `os.walk` enters only the names in this list.
            file_names = _select_own(file_names, own_names)
        # Restrict the folder first: afterwards no other user can replace a name in it with a symbolic link.
        is_restricted = _restrict(Path(path), FOLDER_MODE)
        if not is_restricted:
            exposed.append(Path(path))
            folder_names.clear()  # Another user may replace the names in this folder, so don't enter it.
            continue
        files = [Path(path, name) for name in file_names]
        exposed += [file for file in files if not _restrict(file, FILE_MODE)]
    return exposed


def give_to_owner(file: int | Path, folder: Path) -> None:
    """Give a file of root to the owner of a folder. Otherwise a server could not write it after `sudo embedsink`."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _select_own(names: Iterable[str], own_names: Collection[str]) -> list[str]:
    """Return the names whose beginning, up to the first dot, is in `own_names`."""
    return [name for name in names if name.partition(".")[0] in own_names]


def _restrict(path: Path, allowed_mode: int) -> bool:
    """Remove the permissions beyond the allowed mode. Return whether no permission beyond that mode remains.

    Symbolic links are not changed: their permissions have no effect.
    """
    try:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        excess_mode = mode & 0o777 & ~allowed_mode
        if excess_mode == 0 or stat.S_ISLNK(status.st_mode):
            return True
        if status.st_uid != os.geteuid():
            return False  # Even root leaves the files of others unchanged: the owner may need the permission.
        path.chmod(mode & ~excess_mode)
    except FileNotFoundError:
        return True  # `embedsink keys` can replace its file at any time.
    except OSError:
        return False
    return True
