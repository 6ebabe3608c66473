"""The ledger of loaded segments: the table `loaded_segment`, with counts of their envelopes.

A new segment has a row of its own. Rows of old segments are compacted to about one a day (docs/decisions/0021).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import duckdb

from embedsink.journal.segment import identity_of
from embedsink.store.duckdb_errors import duckdb_errors_translated
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql

# If the ledger has `LEDGER_ROWS_MAX` rows or more, all but the newest `LEDGER_ROWS_MIN` rows are compacted. A busy
# server loads a segment a second.
LEDGER_ROWS_MIN = 100_000
LEDGER_ROWS_MAX = 110_000
# SQL: the number of a segment. Its name begins with the number, in twelve digits.
SEGMENT_NUMBER_SQL = "split_part(segment, '-', 1)::bigint"


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """The counts of a load: segments, and envelopes by outcome. Received = accepted + duplicate + quarantined.

    Quarantined envelopes include id conflicts: envelopes with the id of an earlier, different one.
    """

    segment_count: int
    received_count: int
    accepted_count: int
    duplicate_count: int
    quarantined_count: int
    conflict_count: int


class Ledger:
    """The ledger of an open store. It belongs to the thread that loads.

    Args:
        get_connection: returns the connection that loads, or raises StoreBroken if the store is closed.
    """

    def __init__(self, get_connection: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._get_connection = get_connection

    def loaded_segment_sizes(self, *, from_number: int = 0) -> dict[str, int]:
        """Return the sizes in bytes of the loaded segments from number `from_number` on, without compacted segments.

        The keys are identities. Compacted segments share one row, so only a range of their numbers is known.
        """
        query = "select segment, byte_count from loaded_segment where segment >= $1 and first_number is null"
        lowest_name = f"{from_number:012d}"  # A segment's name begins with its number, in twelve digits.
        with duckdb_errors_translated():
            rows = self._get_connection().execute(query, [lowest_name]).fetchall()
        return {identity_of(name): byte_count for name, byte_count in rows}

    def loaded_ranges(self, *, after: int) -> list[tuple[int, int]]:
        """Return the first and the last segment number of each row whose last number is greater than `after`.

        A row stands for one segment, or for a range of compacted segments.
        """
        query = (
            f"select coalesce(first_number, {SEGMENT_NUMBER_SQL}), {SEGMENT_NUMBER_SQL} "  # noqa: S608
            f"from loaded_segment where {SEGMENT_NUMBER_SQL} > $1"
        )
        with duckdb_errors_translated():
            return self._get_connection().execute(query, [after]).fetchall()

    def last_segment_number(self) -> int:
        """Return the highest number of a loaded segment; 0 if the store is empty."""
        with duckdb_errors_translated():
            return highest_segment_number(self._get_connection())

    def row_count(self, *, loaded_before: datetime) -> int:
        """Return the number of rows of segments that were loaded before a time in UTC."""
        query = "select count(*) from loaded_segment where loaded_at < $1"
        with duckdb_errors_translated():
            [(count,)] = self._get_connection().execute(query, [loaded_before]).fetchall()
        return int(count)

    def last_compacted_number(self) -> int:
        """Return the highest segment number in a compacted row, which stands for several segments; 0 without one."""
        with duckdb_errors_translated():
            return highest_segment_number(self._get_connection(), where="first_number is not null")

    def compact(self, *, before: int) -> None:
        """Compact the rows of old segments to about one a day if the ledger has `LEDGER_ROWS_MAX` rows or more.

        Args:
            before: the number of the first segment that has to retain a row of its own.

        Raises:
            StoreRefused, StoreBroken: nothing was changed.
        """
        query = f"select count(*), max({SEGMENT_NUMBER_SQL}) from loaded_segment"  # noqa: S608
        with duckdb_errors_translated():
            connection = self._get_connection()
            [(row_count, last_number)] = connection.execute(query).fetchall()
            if row_count < LEDGER_ROWS_MAX:
                return
            # Retain the rows of the newest `LEDGER_ROWS_MIN` segments, and of the segments from `before` on.
            compact_below = min(before, last_number - LEDGER_ROWS_MIN + 1)
            connection.execute("set variable compact_below = $1", [compact_below])
            with transaction(connection):
                connection.execute(read_sql("ledger")["compact"])


def highest_segment_number(connection: duckdb.DuckDBPyConnection, *, where: str = "true") -> int:
    """Return the highest segment number of the ledger rows that match a SQL condition; 0 without such a row."""
    query = f"select coalesce(max({SEGMENT_NUMBER_SQL}), 0) from loaded_segment where {where}"  # noqa: S608
    [(number,)] = connection.execute(query).fetchall()
    return int(number)


def count_removed(connection: duckdb.DuckDBPyConnection) -> None:
    """Count the rows of the temporary table `removed_row` in the ledger, in the transaction that deletes them."""
    connection.execute(read_sql("ledger")["count_removed"])


def count_load(connection: duckdb.DuckDBPyConnection) -> LoadCounts:
    """Return the counts of the segments that the SQL variable `segments` describes.

    Args:
        connection: a connection to the database, in the transaction that loads, after `load_rows`.
    """
    counts = connection.execute(
        "select count(*), sum(received_count), sum(accepted_count), sum(duplicate_count), sum(quarantined_count), "
        "(select count(*) from id_conflict) "
        "from loaded_segment where segment in (select unnest(getvariable('segments')).name)"
    )
    [row] = counts.fetchall()
    return LoadCounts(*map(int, row))  # The query selects the counts in the order of the fields.
