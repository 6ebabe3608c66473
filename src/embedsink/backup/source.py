"""The files of a data folder for a backup, read while a server may be changing them.

Every acknowledged event is in a segment of the journal, or in the snapshot, or in both. The server deletes a segment
only after it has published a snapshot with its rows. So the journal is read first and the snapshot is opened last:
what was deleted in between is in that snapshot.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from embedsink.data_folder import DataFolder
from embedsink.journal.segment import OPEN, end_of_last_group, identity_of

# Copies of whole databases in damaged/, which were kept for a person to look at.
_DATABASE = ".duckdb"


def read_journal(folder: DataFolder) -> Iterator[tuple[str, bytes]]:
    """Yield each segment with its name in the data folder; of an open one its whole groups.

    It has every event that was acknowledged before the call, except those of segments that were deleted or set aside
    since.
    """
    read: set[str] = set()
    for name in segment_names(folder.journal):
        found = _read_segment(folder.journal, name)
        if found and found[0] not in read:
            read.add(found[0])
            yield f"{folder.journal.name}/{found[0]}", found[1]


def open_others(folder: DataFolder) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield every other file but the snapshot, open for reading. Call it after `read_journal`.

    In between, the server may have moved a damaged segment from the journal to damaged/.
    """
    yield from _open_files(folder, folder.damaged, without=_DATABASE)
    yield from _open_files(folder, folder.dashboards)
    if keys := _open(folder.keys):
        with keys:
            yield folder.keys.name, keys


def open_snapshot_file(folder: DataFolder) -> IO[bytes] | None:
    """Open the snapshot; None when there is none. Call it last. Replacing the snapshot does not change this file."""
    return _open(folder.snapshot)


def segment_names(journal: Path) -> list[str]:
    """Return the names of all segments, and perhaps some that are gone again.

    A listing can miss a file that is renamed meanwhile. A segment is renamed once, when it is sealed, so the second
    listing has what the first one missed.
    """
    return sorted({*_listed(journal), *_listed(journal)})


def _listed(journal: Path) -> list[str]:
    return [name for name in os.listdir(journal) if identity_of(name)]  # noqa: PTH208  names alone are wanted


def _read_segment(journal: Path, name: str) -> tuple[str, bytes] | None:
    """Return a segment's content, and the name that it has by now; None when it has been deleted or set aside."""
    with suppress(FileNotFoundError):
        content = (journal / name).read_bytes()
        return name, content[: end_of_last_group(content)] if name.endswith(OPEN) else content
    if not name.endswith(OPEN):
        return None
    sealed = [other for other in _listed(journal) if _is_same_segment(other, name) and not other.endswith(OPEN)]
    return _read_segment(journal, sealed[0]) if sealed else None


def _is_same_segment(name: str, other: str) -> bool:
    return identity_of(name) == identity_of(other)


def _open_files(folder: DataFolder, subfolder: Path, *, without: str | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    if not subfolder.is_dir():
        return
    for name in sorted(os.listdir(subfolder)):  # noqa: PTH208  names alone are wanted
        if without and without in name:
            continue
        if file := _open(subfolder / name):
            with file:
                yield f"{subfolder.name}/{name}", file


def _open(path: Path) -> IO[bytes] | None:
    """Open a regular file; None for what is none, and where none is."""
    with suppress(FileNotFoundError):
        # A pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    return None
