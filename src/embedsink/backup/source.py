"""The files of a data folder for a backup, read while a server may be changing them.

Every acknowledged event is in a segment of the journal, in the snapshot, or in both. The server deletes a segment
only after it has published a snapshot with its rows. So the journal is read first and the snapshot is opened last:
the snapshot contains the segments that were deleted in between.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from embedsink.data_folder import DataFolder
from embedsink.journal.segment import OPEN, end_of_last_group, identity_of

# A part of the name of each database file, sometimes followed by another suffix. The database files in damaged/ are
# needed only for bug reports, and are not backed up.
_DATABASE_NAME_PART = ".duckdb"


def read_journal(folder: DataFolder) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the data folder and the content of each segment.

    An open segment is cut after its last complete group of lines. The segments contain every event acknowledged
    before the call, except the events of segments that the server has deleted or moved to `damaged/` since.
    """
    read_names: set[str] = set()
    for name in segment_names(folder.journal):
        segment = _read_segment(folder.journal, name)
        if segment is None:
            continue
        current_name, content = segment
        # A segment that is sealed while the folder is listed can be listed under both names.
        if current_name not in read_names:
            read_names.add(current_name)
            yield f"{folder.journal.name}/{current_name}", content


def open_other_files(folder: DataFolder) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the damaged segments, the dashboards, the erasures, the audit trail, the keys and the files of rules.

    Yield the path in the folder, and the open file.

    Call this after `read_journal`, because the server may move a damaged segment from the journal to `damaged/`.
    """
    yield from _open_files(folder.damaged, excluding=_DATABASE_NAME_PART)  # Damaged databases are for bug reports only.
    yield from _open_files(folder.dashboards)
    yield from _open_files(folder.erasures)
    yield from _read_audit_files(folder.audit)
    files = (folder.keys, folder.identity, folder.privacy_rules, folder.privacy_secrets, folder.internal_people)
    for path in files:
        if file := _open_regular_file(path):
            with file:
                yield path.name, file


def open_snapshot_file(folder: DataFolder) -> IO[bytes] | None:
    """Open the snapshot; None if it is missing. The open file stays unchanged when the server publishes another one.

    Call this last. The snapshot then has the events of segments that the server deleted meanwhile.
    """
    return _open_regular_file(folder.snapshot)


def segment_names(journal: Path) -> list[str]:
    """Return the names of all segments, and possibly of segments that were deleted since.

    A listing can miss a file that is renamed meanwhile. A segment is renamed only once, when it is sealed. So a second
    listing contains each segment that the first listing missed.
    """
    return sorted({*_list_segments(journal), *_list_segments(journal)})


def _list_segments(journal: Path) -> list[str]:
    """Return the names of the segments in one listing of the journal folder. Other files have no identity."""
    return [name for name in os.listdir(journal) if identity_of(name)]  # noqa: PTH208  only names are needed


def _read_segment(journal: Path, name: str) -> tuple[str, bytes] | None:
    """Return the current name and the content of a segment; None if it was deleted or moved to `damaged/`."""
    is_open = name.endswith(OPEN)
    try:
        content = (journal / name).read_bytes()
    except FileNotFoundError:
        # An open segment may have been sealed since it was listed, which renames it.
        sealed_name = _sealed_name(journal, name) if is_open else None
        if sealed_name is None:
            return None
        return _read_segment(journal, sealed_name)
    if is_open:
        content = content[: end_of_last_group(content)]  # A server may still be writing the rest.
    return name, content


def _sealed_name(journal: Path, open_name: str) -> str | None:
    """Return the new name of an open segment that was sealed; None if it was deleted or moved to `damaged/` since."""
    for name in _list_segments(journal):
        if identity_of(name) == identity_of(open_name) and not name.endswith(OPEN):
            return name
    return None


def _open_files(subfolder: Path, *, excluding: str | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path in the data folder and the open file for each file of a subfolder.

    Omit the files with `excluding` in their names.
    """
    if not subfolder.is_dir():
        return
    for name in sorted(os.listdir(subfolder)):  # noqa: PTH208  only names are needed
        if excluding and excluding in name:
            continue
        if file := _open_regular_file(subfolder / name):
            with file:
                yield f"{subfolder.name}/{name}", file


def _read_audit_files(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path and the content of each file of the audit trail, without a line that is still being written."""
    for name, file in _open_files(folder):
        if not name.endswith(".new"):
            content = file.read()
            yield name, BytesIO(content[: content.rfind(b"\n") + 1])


def _open_regular_file(path: Path) -> IO[bytes] | None:
    """Open a file; None if the path does not exist or is not a regular file."""
    with suppress(FileNotFoundError):
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    return None
