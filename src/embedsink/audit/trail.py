"""The files of the audit trail: one for each UTC day. All processes append under one lock, durably.

Each line has the SHA-256 of the line before it, also across files. So a change or a removal is detectable.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from embedsink.audit.entry import ENTRY_BYTES_MAX, SERVER, Action, Entry, Via, encode
from embedsink.data_folder import DataFolder
from embedsink.durable_files import create_folder, is_disk_full, sync_folder
from embedsink.errors import Unavailable
from embedsink.permissions import FILE_MODE, FOLDER_MODE, give_to_owner
from embedsink.reasons import Reason

_FILE_NAME = re.compile(r"\d{4}-\d\d-\d\d\.ndjson", re.ASCII)
# Enough for several lines, of which the last may be incomplete.
_TAIL_BYTES = 8 * ENTRY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of the trail.

    Args:
        path: the newest file with a line; None for an empty trail.
        number: the number of the last entry; 0 without one.
        digest: the SHA-256 of the last line, in hex; None without one.
        is_terminated: whether the last line ends in a line break.
        is_intact: whether the last line is an entry.
    """

    path: Path | None = None
    number: int = 0
    digest: str | None = None
    is_terminated: bool = True
    is_intact: bool = True


class AuditTrail:
    """The audit trail of a data folder. Any process and thread may append.

    Args:
        folder: the data folder.
    """

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder.audit
        self._lock_path = folder.audit_lock
        self._data_folder = folder.path
        # The end of the trail after the last append of this object, with the status of the file.
        self._cached: tuple[tuple[str, int, int], _Tail] | None = None

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries in this order, and return when they are durable. After an error, none is stored.

        Raises:
            Unavailable: the entries can't be written (`storage_low` if the disk is full, else `storage_failed`).
        """
        try:
            with self._locked():
                self._append(entries)
        except OSError as error:
            self._cached = None
            reason = Reason.STORAGE_LOW if is_disk_full(error) else Reason.STORAGE_FAILED
            path = error.filename or self.folder
            detail = f"{path}: {error.strerror}. Actions that can't be recorded in the audit trail are refused."
            raise Unavailable(reason, detail, retry_after_s=5) from error

    def expire(self, days: int, *, today: date) -> int:
        """Delete the files of days that ended more than `days` days ago. Return their number.

        The newest file stays. An entry records the deletion before it takes place.

        Raises:
            Unavailable: the entry can't be written. Nothing is deleted.
            OSError: a file can't be deleted.
        """
        first_day = today - timedelta(days=days)
        files = audit_files(self.folder)
        expired = [path for path in files[:-1] if path.stem < first_day.isoformat()]
        if not expired:
            return 0
        first_number, expected_number = _first_number(files), _first_number_left(files)
        detail: dict[str, Any] = {
            "first": expired[0].name,
            "last": expired[-1].name,
            "retention_days": days,
            "first_number_left": _first_number(files[len(expired) :]),
        }
        if first_number is not None and expected_number is not None and first_number > expected_number:
            detail["missing"] = [expected_number, first_number - 1]  # The deletion removes the evidence.
        self.append(
            [Entry(action=Action.AUDIT_EXPIRED, actor=SERVER, via=Via.SERVER, count=len(expired), detail=detail)]
        )
        for path in expired:
            path.unlink(missing_ok=True)
        sync_folder(self.folder)
        return len(expired)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other threads and processes."""
        if not self.folder.is_dir():
            create_folder(self.folder, mode=FOLDER_MODE)
            give_to_owner(self.folder, self._data_folder)
        descriptor = self._open(self._lock_path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # Releases the lock.

    def _append(self, entries: Sequence[Entry]) -> None:
        """Append entries under the lock."""
        tail = self._read_tail()
        if not tail.is_terminated and tail.path is not None:
            self._write(tail.path, b"\n")
        if not tail.is_intact and tail.path is not None:
            detail = {"file": tail.path.name, "sha256": tail.digest}
            entries = [Entry(action=Action.AUDIT_RECOVERED, actor=SERVER, via=Via.SERVER, detail=detail), *entries]
        number, digest, lines = tail.number, tail.digest, []
        for entry in entries:
            number += 1
            line = encode(entry, number=number, previous=digest)
            digest = sha256(line).hexdigest()
            lines.append(line + b"\n")
        # If the clock was set back, continue the newest file: the names are in the order of the chain.
        names = [f"{datetime.now(UTC):%Y-%m-%d}.ndjson", *([tail.path.name] if tail.path else [])]
        path = self.folder / max(names)
        self._write(path, b"".join(lines))
        self._cached = (_status(path), _Tail(path, number, digest))

    def _write(self, path: Path, content: bytes) -> None:
        """Append content durably. After an error, cut the file back to its size before the call."""
        descriptor = self._open(path, os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:  # The file may be new.
                sync_folder(self.folder)
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fdatasync(descriptor)
            except OSError as error:
                error.filename = str(path)  # Errors of a descriptor have no file name, and messages need one.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _open(self, path: Path, flags: int = 0) -> int:
        """Open a file for writing, and create it if it is missing."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, FILE_MODE)
        give_to_owner(descriptor, self._data_folder)
        return descriptor

    def _read_tail(self) -> _Tail:
        """Return the end of the trail. Read the file only if another process has appended."""
        files = audit_files(self.folder)
        if self._cached is not None and files and _status(files[-1]) == self._cached[0]:
            return self._cached[1]
        return _tail_of(files)


def audit_files(folder: Path) -> list[Path]:
    """Return the files of the audit trail, the oldest first; an empty list if the folder is missing."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  only names are needed
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if _FILE_NAME.fullmatch(name)]


def parse_entry(line: bytes) -> dict[str, Any] | None:
    """Return the fields of an entry; None if the line is not an entry."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    number = entry.get("number") if isinstance(entry, dict) else None
    return entry if type(number) is int and number > 0 else None  # A truth value is an `int` too.


def first_number_left(entry: Mapping[str, Any]) -> int | None:
    """Return `first_number_left` of an `audit_expired` entry: the oldest number after the deletion. None without it."""
    detail = entry.get("detail")
    number = detail.get("first_number_left") if isinstance(detail, dict) else None
    return number if type(number) is int else None


def _parse_number(line: bytes) -> int | None:
    """Return the number of an entry; None if the line is not an entry."""
    entry = parse_entry(line)
    return None if entry is None else int(entry["number"])


def _tail_of(files: Sequence[Path]) -> _Tail:
    """Return the end of the trail in these files."""
    path = next((path for path in reversed(files) if path.stat().st_size), None)
    if path is None:
        return _Tail()
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        content = file.read()
        lines = content.removesuffix(b"\n").split(b"\n")
        number = _last_number(lines)
        if number is None:  # A long line is not an entry.
            file.seek(0)
            lines = file.read().removesuffix(b"\n").split(b"\n")
            number = _last_number(lines)
    if number is None:  # The only line of this file is incomplete.
        number = _tail_of(files[: files.index(path)]).number
    return _Tail(
        path,
        number,
        sha256(lines[-1]).hexdigest(),
        is_terminated=content.endswith(b"\n"),
        is_intact=_parse_number(lines[-1]) is not None,
    )


def _last_number(lines: Sequence[bytes]) -> int | None:
    """Return the number of the last entry in these lines; None without one."""
    return next((number for line in reversed(lines) if (number := _parse_number(line)) is not None), None)


def _first_number(files: Sequence[Path]) -> int | None:
    """Return the number of the first entry in these files; None without one."""
    lines = (line for path in files for line in path.read_bytes().splitlines())
    return next((number for line in lines if (number := _parse_number(line)) is not None), None)


def _first_number_left(files: Sequence[Path]) -> int | None:
    """Return the number with which the trail begins, as its newest `audit_expired` entry says; 1 without one.

    Return None if an earlier version wrote the entry.
    """
    mark = f'"{Action.AUDIT_EXPIRED}"'.encode()
    for path in reversed(files):
        for line in reversed(path.read_bytes().splitlines()):
            entry = parse_entry(line) if mark in line else None
            if entry is not None and entry.get("action") == Action.AUDIT_EXPIRED:
                return first_number_left(entry)
    return 1


def _status(path: Path) -> tuple[str, int, int]:
    """Return the name, the inode and the size of a file."""
    status = path.stat()
    return path.name, status.st_ino, status.st_size
