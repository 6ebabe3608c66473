"""DuckDB's errors as the few that matter here: sound but not now, this SQL or segment never, broken."""

import contextlib
from collections.abc import Iterator

import duckdb

from embedsink.errors import EmbedsinkError

# The later ones without the first where a commit fails.
_NO_MEMORY = ("Out of Memory", "failed to pin block", "could not allocate block", "failed to allocate data")
# A checksum that does not hold; a file that is too short, or a disk that can't read it.
_DAMAGED = ("Corrupt database file", "Could not read")
# Of rows that are fetched after an interrupt, when there are none any more; and of a query that it ended at its start.
_INTERRUPTED = ("No open result set", "closed pending query result")
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
# There is no room for what does not fit into memory.
_NO_SPILL = "failed to offload"
_NOT_NOW = (*_DISK_FULL, "Could not set lock on file", "Too many open files")


class StoreBroken(EmbedsinkError):
    """The database can't go on: close and reopen it; when that fails too, set it aside and rebuild it."""


class StoreDamaged(StoreBroken):
    """The file itself is damaged: opening it anew does not help. Set it aside and rebuild it."""


class StoreRefused(EmbedsinkError):
    """The database is sound, but it could not do this now (no room, no memory). Nothing was changed: try again."""


class StoreTooSmall(StoreRefused):
    """The memory that the database may take is too small for this. Nothing was changed."""


class SqlUnfit(EmbedsinkError):
    """The SQL does not do, or not on these rows. Trying again does not help."""


@contextlib.contextmanager
def translated(*, opening: bool = False, whole: bool = False) -> Iterator[None]:
    """DuckDB's errors as ours, with the first line of their text, or the whole."""
    try:
        yield
    except duckdb.Error as error:
        raise _kind_of(error, opening=opening)(str(error) if whole else first_line(error)) from error


def _kind_of(error: duckdb.Error, *, opening: bool) -> type[EmbedsinkError]:
    if opening:
        # A sound store must not be set aside because there was no room to open it, or somebody else looks into it.
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
    """Whether it failed for lack of room on the disk."""
    return any(words in str(error) for words in _DISK_FULL)


def has_no_room(error: Exception) -> bool:
    """Whether a question failed for lack of room on the disk: for its answer, or for what does not fit into memory."""
    return is_disk_full(error) or _NO_SPILL in str(error)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
