"""Verifies a published snapshot, and lists its segments."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from embedsink.errors import Misconfigured
from embedsink.journal.segment import identity_of
from embedsink.store.duckdb_errors import StoreDamaged, StoreRefused, first_line
from embedsink.store.limits import StoreLimits
from embedsink.store.verify import read_every_row

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": f"{StoreLimits().memory_bytes_max}B",
}


# This many of the newest segments identify the journal of a server.
COMPARED_MAX = 100


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a snapshot: the highest number, and the identities of the newest and of the requested ones.

    `folded_to`: up to this number, ledger rows cover several segments and lack most identities.
    """

    last_number: int
    identities: frozenset[str]
    folded_to: int = 0


def examine_snapshot(path: Path, *, numbers: Collection[int]) -> Segments:
    """Read every row of a snapshot, and return which segments it has.

    Args:
        path: the file; it is opened read-only.
        numbers: the numbers of the segments to look for.

    Raises:
        Misconfigured: a row can't be read.
    """
    try:
        read_every_row(path)
    except (StoreDamaged, StoreRefused) as error:
        raise Misconfigured(_refusal(error)) from None
    return find_segments(path, numbers=numbers)


def find_segments(path: Path, *, numbers: Collection[int]) -> Segments:
    """Return the segments of a snapshot without reading every row."""
    with _opened(path) as connection:
        return _segments(connection, numbers)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with contextlib.closing(duckdb.connect(str(path), read_only=True, config=_CONFIG)) as connection:
            yield connection
    except duckdb.Error as error:
        raise Misconfigured(_refusal(error)) from None


def _refusal(error: Exception) -> str:
    return f"analytics.duckdb: can't be read ({first_line(error)}). No backup was made."


def _segments(connection: duckdb.DuckDBPyConnection, numbers: Collection[int]) -> Segments:
    # Names begin with the number, in twelve digits.
    [(last,)] = connection.execute("select max(segment) from loaded_segment").fetchall()
    query = (
        "from loaded_segment select segment where left(segment, 12) in (select unnest($1)) "
        "union (from loaded_segment select segment order by segment desc limit $2)"
    )
    rows = connection.execute(query, [[f"{number:012d}" for number in numbers], COMPARED_MAX]).fetchall()
    return Segments(
        last_number=int(last[:12]) if last else 0,
        identities=frozenset(identity_of(segment) for (segment,) in rows),
        folded_to=_folded_to(connection),
    )


def _folded_to(connection: duckdb.DuckDBPyConnection) -> int:
    columns = "select 1 from duckdb_columns() where table_name = 'loaded_segment' and column_name = 'first_number'"
    if not connection.execute(columns).fetchall():
        return 0  # from an older embedsink
    folded = "select max(segment) from loaded_segment where first_number is not null"
    [(last,)] = connection.execute(folded).fetchall()
    return int(last[:12]) if last else 0
