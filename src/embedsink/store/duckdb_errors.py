"""The store's errors, and the translation of DuckDB's errors into them."""

import contextlib
from collections.abc import Iterable, Iterator

import duckdb

from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.reasons import Reason

# Parts of DuckDB's messages, by their meaning. A failed commit that lacks memory has one of the last three.
_OUT_OF_MEMORY = ("Out of Memory", "failed to pin block", "could not allocate block", "failed to allocate data")
# A wrong checksum, a truncated file, or a disk error.
_DAMAGED = ("Corrupt database file", "Could not read")
# A query that was interrupted, also at its start, and a fetch after an interrupt.
_INTERRUPTED = ("INTERRUPT Error", "No open result set", "closed pending query result")
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_SPILLING_FAILED = "failed to offload"
# Temporary errors when a database is opened.
_OPENING_REFUSED = (*_DISK_FULL, "Could not set lock on file", "Too many open files")


class StoreBroken(EmbedsinkError):
    """The open database is unusable. Close and reopen it; if that fails, rebuild it."""


class StoreDamaged(StoreBroken):
    """The file is damaged, so reopening does not help. Rebuild it."""


class StoreRefused(EmbedsinkError):
    """The database is sound, but can't do this now: for example, it lacks memory or disk space. Retry."""


class Interrupted(StoreRefused):
    """The query was interrupted: the store needs its memory or its file, or the client has disconnected."""


class StoreTooSmall(StoreRefused):
    """The memory limit of the database is too low for this operation. Nothing was changed."""


class SqlFailed(EmbedsinkError):
    """The SQL is invalid, or fails on these rows. A retry does not help."""


@contextlib.contextmanager
def duckdb_errors_translated(*, opening: bool = False, whole: bool = False) -> Iterator[None]:
    """Replace DuckDB's errors with errors of this module in this block.

    Args:
        opening: whether the block opens a database, where the same errors have other causes.
        whole: whether the message is DuckDB's whole message instead of its first line.
    """
    try:
        yield
    except duckdb.Error as error:
        error_type = _error_type(error, opening=opening)
        raise error_type(str(error) if whole else first_line(error)) from error


@contextlib.contextmanager
def unavailable_if_broken() -> Iterator[None]:
    """Raise Unavailable in this block if the database can't answer.

    The reason is `storage_low` if the disk is full, and `not_ready` if the database is broken, closed or too busy.
    """
    try:
        with duckdb_errors_translated():
            yield
    except (StoreBroken, StoreRefused) as error:
        if is_disk_full(error) or _SPILLING_FAILED in str(error):
            message = "disk: has no space to spill this query to. Request a shorter period, or free space."
            raise Unavailable(Reason.STORAGE_LOW, message, retry_after_s=5) from error
        if isinstance(error, Interrupted):
            message = "store: the report was ended by the maintenance of the store. Retry."
            raise Unavailable(Reason.NOT_READY, message) from error
        advice = "Retry." if isinstance(error, StoreBroken) else "Retry with a shorter period."
        raise Unavailable(Reason.NOT_READY, f"store: {error}. {advice}") from error


def _error_type(error: duckdb.Error, *, opening: bool) -> type[EmbedsinkError]:
    """Return the class of this module's error that corresponds to an error of DuckDB.

    An error can match several conditions, so the order matters: for example, the error of an invalidated
    database may also name a lack of memory.
    """
    if opening:
        # A sound store must not count as broken because the disk is full, or another process has it open.
        return StoreRefused if _contains_any(error, _OPENING_REFUSED) else StoreBroken
    if _contains_any(error, _DAMAGED):
        return StoreDamaged
    if "has been invalidated" in str(error) or isinstance(error, duckdb.FatalException):
        return StoreBroken
    if lacks_memory(error):
        return StoreTooSmall
    if _contains_any(error, _INTERRUPTED):
        return Interrupted
    if isinstance(error, duckdb.DataError | duckdb.ProgrammingError):
        return SqlFailed
    if isinstance(error, duckdb.InternalException | duckdb.SerializationException):
        return StoreBroken
    return StoreRefused  # Other errors, such as a full disk, are temporary.


def _contains_any(error: Exception, texts: Iterable[str]) -> bool:
    """Return whether the message of an error contains one of the texts."""
    return any(text in str(error) for text in texts)


def lacks_memory(error: Exception) -> bool:
    """Return whether an error of DuckDB means that its memory limit is too low."""
    return _contains_any(error, _OUT_OF_MEMORY)


def is_disk_full(error: Exception) -> bool:
    """Return whether an error of DuckDB means that the disk or the user's quota is full."""
    return _contains_any(error, _DISK_FULL)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; the name of the error's type if the message is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
