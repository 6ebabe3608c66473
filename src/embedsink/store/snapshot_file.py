"""The verification of a published snapshot, and the list of its segments."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from embedsink.errors import Misconfigured
from embedsink.journal.segment import identity_of
from embedsink.store.duckdb_errors import StoreDamaged, StoreRefused, first_line
from embedsink.store.ledger import SEGMENT_NUMBER_SQL, highest_segment_number
from embedsink.store.limits import StoreLimits
from embedsink.store.verify import read_every_row

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": f"{StoreLimits().memory_bytes_max}B",
}


# How many of the newest segments are listed. Two journals that share one of these belong to the same server.
NEWEST_SEGMENTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a snapshot.

    Args:
        last_number: the highest number.
        identities: the identities of the newest segments and of the requested ones.
        compacted_up_to: the highest number in a compacted row of the ledger, which lacks most identities; else 0.
    """

    last_number: int
    identities: frozenset[str]
    compacted_up_to: int = 0


def examine_snapshot(path: Path, *, numbers: Collection[int]) -> Segments:
    """Read every row of a snapshot, and return the segments of the snapshot.

    Args:
        path: the file; it is opened read-only.
        numbers: the numbers of the segments to return besides the newest ones.

    Raises:
        Misconfigured: a row can't be read.
    """
    try:
        read_every_row(path)
    except (StoreDamaged, StoreRefused) as error:
        raise Misconfigured(_unreadable_message(error)) from None
    return find_segments(path, numbers=numbers)


def find_segments(path: Path, *, numbers: Collection[int]) -> Segments:
    """Return the newest segments of a snapshot and those with these numbers, without reading every row.

    Raises:
        Misconfigured: a read fails.
    """
    with _opened_snapshot(path) as connection:
        return _read_segments(connection, numbers)


@contextlib.contextmanager
def _opened_snapshot(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a snapshot read-only in this block. Raise Misconfigured if a read fails."""
    try:
        with contextlib.closing(duckdb.connect(str(path), read_only=True, config=_CONFIG)) as connection:
            yield connection
    except duckdb.Error as error:
        raise Misconfigured(_unreadable_message(error)) from None


def _unreadable_message(error: Exception) -> str:
    """Return the message of the error for a snapshot that can't be read."""
    return f"analytics.duckdb: can't be read ({first_line(error)}). No backup was made."


def _read_segments(connection: duckdb.DuckDBPyConnection, numbers: Collection[int]) -> Segments:
    """Read the segments from the ledger (table `loaded_segment`): the newest ones, and those with these numbers."""
    query = (
        f"from loaded_segment select segment where {SEGMENT_NUMBER_SQL} in (select unnest($1::bigint[])) "
        "union (from loaded_segment select segment order by segment desc limit $2)"
    )
    rows = connection.execute(query, [list(numbers), NEWEST_SEGMENTS_MAX]).fetchall()
    return Segments(
        last_number=highest_segment_number(connection),
        identities=frozenset(identity_of(segment) for (segment,) in rows),
        compacted_up_to=_last_compacted_number(connection),
    )


def _last_compacted_number(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the highest segment number in a compacted row of the ledger; 0 without such a row.

    A compacted row stands for several old segments, and has the lowest of their numbers in `first_number`.
    """
    query = "select 1 from duckdb_columns() where table_name = 'loaded_segment' and column_name = 'first_number'"
    if not connection.execute(query).fetchall():
        return 0  # The snapshot is from an embedsink that did not compact the ledger.
    return highest_segment_number(connection, where="first_number is not null")
