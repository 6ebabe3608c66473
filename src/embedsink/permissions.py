"""Permissions of the data folder: at most 0750 for folders and 0640 for files, independent of the umask."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_MODE = 0o750
FILE_MODE = 0o640


@contextmanager
def restricted_umask() -> Iterator[None]:
    """Make all threads and child processes create folders with 0750 and files with 0640 in this block.

    DuckDB has no option for the mode of its files, so this sets the umask of the process.
    """
    before = os.umask(0o777 & ~FOLDER_MODE)
    try:
        yield
    finally:
        os.umask(before)


def restrict(folder: Path, *, stems: Collection[str]) -> list[Path]:
    """Remove permissions beyond 0750 and 0640 from a folder and its own files. Symbolic links are not followed.

    Files of other programs in the folder are not changed. No file is opened, because closing a descriptor of an open
    `store.duckdb` would drop DuckDB's lock.

    Args:
        folder: the folder.
        stems: the names of its own files and folders, up to the first dot.

    Returns:
        The paths that stay exposed, because they belong to another user or to a read-only file system.
    """
    exposed = []
    top = str(folder.resolve())
    for path, folders, files in os.walk(top):
        if path == top:
            folders[:], files = ([name for name in names if _stem(name) in stems] for names in (folders, files))
        # Restrict the folder first: afterwards no other user can replace a name in it by a symbolic link.
        if not _restrict(Path(path), FOLDER_MODE):
            exposed.append(Path(path))
            folders.clear()
            continue
        exposed += [file for file in (Path(path, name) for name in files) if not _restrict(file, FILE_MODE)]
    return exposed


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _restrict(path: Path, allowed: int) -> bool:
    """Remove the permissions beyond `allowed`. Return whether none is left."""
    try:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        surplus = mode & 0o777 & ~allowed
        if not surplus or stat.S_ISLNK(status.st_mode):
            return True
        if status.st_uid != os.geteuid():
            return False  # This holds for root too: the owner may need the permission.
        path.chmod(mode & ~surplus)
    except FileNotFoundError:
        return True  # `embedsink keys` replaces its file at any time.
    except OSError:
        return False
    return True
