"""Translates DuckDB's errors: temporarily refused, invalid SQL or segment, broken store, damaged file."""

import contextlib
from collections.abc import Iterator

import duckdb

from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.reasons import Reason

# The error of a failed commit has only one of the later texts.
_NO_MEMORY = ("Out of Memory", "failed to pin block", "could not allocate block", "failed to allocate data")
# A wrong checksum, a truncated file, or a disk error.
_DAMAGED = ("Corrupt database file", "Could not read")
# A fetch after an interrupt, and a query that was interrupted at its start.
_INTERRUPTED = ("No open result set", "closed pending query result")
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
# Spilling to disk failed.
_NO_SPILL = "failed to offload"
_NOT_NOW = (*_DISK_FULL, "Could not set lock on file", "Too many open files")


class StoreBroken(EmbedsinkError):
    """The open database is unusable. Close and reopen it; if that fails, rebuild it."""


class StoreDamaged(StoreBroken):
    """The file is damaged, so reopening does not help. Rebuild it."""


class StoreRefused(EmbedsinkError):
    """The database is sound, but lacks memory or disk space at the moment. Nothing was changed; retry."""


class StoreTooSmall(StoreRefused):
    """The memory limit of the database is too low for this operation. Nothing was changed."""


class SqlUnfit(EmbedsinkError):
    """The SQL is invalid, or fails on these rows. A retry does not help."""


@contextlib.contextmanager
def duckdb_errors_translated(*, opening: bool = False, whole: bool = False) -> Iterator[None]:
    """Raise DuckDB's errors as those of this module, with the first line of their text, or all of it."""
    try:
        yield
    except duckdb.Error as error:
        raise _kind_of(error, opening=opening)(str(error) if whole else first_line(error)) from error


@contextlib.contextmanager
def unavailable_if_broken() -> Iterator[None]:
    """Raise Unavailable if the database is broken, closed or too busy."""
    try:
        with duckdb_errors_translated():
            yield
    except (StoreBroken, StoreRefused) as error:
        if has_no_room(error):
            full = "disk: has no space to spill this query to. Request a shorter period, or free space."
            raise Unavailable(Reason.STORAGE_LOW, full, retry_after_s=5) from error
        raise Unavailable(Reason.NOT_READY, f"store: {error}. Retry with a shorter period.") from error


def _kind_of(error: duckdb.Error, *, opening: bool) -> type[EmbedsinkError]:
    if opening:
        # A sound store must not count as broken because disk space is low, or another process has it open.
        return StoreRefused if any(words in str(error) for words in _NOT_NOW) else StoreBroken
    if any(words in str(error) for words in _DAMAGED):
        return StoreDamaged
    if "has been invalidated" in str(error) or isinstance(error, duckdb.FatalException):
        return StoreBroken
    if lacks_memory(error):
        return StoreTooSmall
    if any(words in str(error) for words in _INTERRUPTED):
        return StoreRefused
    if isinstance(error, duckdb.DataError | duckdb.ProgrammingError):
        return SqlUnfit
    if isinstance(error, duckdb.InternalException | duckdb.SerializationException):
        return StoreBroken
    return StoreRefused


def lacks_memory(error: Exception) -> bool:
    return any(words in str(error) for words in _NO_MEMORY)


def is_disk_full(error: Exception) -> bool:
    """Return whether the disk is full."""
    return any(words in str(error) for words in _DISK_FULL)


def has_no_room(error: Exception) -> bool:
    """Return whether a query failed because the disk has no space for its result or for spilling."""
    return is_disk_full(error) or _NO_SPILL in str(error)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
