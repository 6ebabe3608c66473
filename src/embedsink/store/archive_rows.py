"""The rows that an archive gets: which ones it lacks, and their Parquet files."""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from embedsink import __version__
from embedsink.store.duckdb_errors import is_disk_full
from embedsink.store.expiry import RetentionLimit, select_by_retention
from embedsink.store.insert import first_ingest_seq
from embedsink.store.ledger import highest_segment_number
from embedsink.store.row_range import RowRange, next_range
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The maximum number of rows of a table that are archived at once. Sorting them takes memory.
ARCHIVED_AT_ONCE = 250_000
# The columns by which the rows of a file are sorted, by table.
TIME_COLUMNS = {"event": "occurred_at", "action": "occurred_at", "loss": "received_at"}


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a future file: those of a table and a month, from the first to the last ingest_seq."""

    month: str
    table: str
    first: int
    last: int
    row_count: int


class ArchiveRows:
    """The events, actions and losses of a database, for an archive.

    Args:
        connection: a connection to the database, without a transaction.
        limit: only rows that are beyond this limit of the retention; None for all.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, limit: RetentionLimit | None = None) -> None:
        self._connection = connection
        self._limit = limit

    def close(self) -> None:
        """Free the memory of the selected rows."""
        with suppress(duckdb.Error):  # The next use replaces them.
            self._connection.execute("drop table if exists archive_row; drop table if exists archived_row")

    def next_range(self, first: int) -> RowRange | None:
        """Return the range of the next rows, at most `ARCHIVED_AT_ONCE` of each table; None if there are none.

        Args:
            first: the smallest ingest_seq; 0, or the end of the range before.
        """
        last_number = highest_segment_number(self._connection)
        below = first_ingest_seq(last_number + 1) if self._limit is None else self._limit.highest
        return next_range(self._connection, first=first, below=below, row_count_max=ARCHIVED_AT_ONCE)

    def has_rows(self, rows: RowRange) -> bool:
        """Return whether rows of a range are to be archived, in the archive or not."""
        select_by_retention(self._connection, self._limit)
        query = "select 1 from row_beyond_retention($1::bigint, $2::bigint) limit 1"
        return self._connection.execute(query, [rows.first, rows.below]).fetchone() is not None

    def select(self, rows: RowRange, *, archived: Iterable[tuple[str, Sequence[tuple[int, str | None]]]]) -> list[Part]:
        """Select the rows of a range that the archive lacks, and return their parts.

        Args:
            rows: the range.
            archived: the rows that the archive has: a table with the ingest_seq and the id of each row, many at once.
        """
        sql = read_sql("archive")
        self._connection.execute(sql["archived_row"])
        insert = "insert into archived_row select $1, unnest($2::bigint[]), unnest($3::uuid[])"
        for table, ids in archived:
            parameters = [table, [ingest_seq for ingest_seq, _ in ids], [row_id for _, row_id in ids]]
            self._connection.execute(insert, parameters)
        select_by_retention(self._connection, self._limit)
        set_variables(self._connection, {"archive_from": rows.first, "archive_below": rows.below})
        self._connection.execute(sql["archive_row"])
        parts = self._connection.execute(sql["archive_part"]).fetchall()
        return [Part(*part) for part in parts]

    def halves(self, part: Part) -> tuple[Part, Part]:
        """Return two parts with half of the rows each, for a file that would be too large."""
        half = part.row_count // 2
        query = (
            "select ingest_seq from archive_row where month = $1 and kind = $2 and ingest_seq between $3 and $4 "
            "order by ingest_seq limit 2 offset $5"
        )
        found = self._connection.execute(query, [part.month, part.table, part.first, part.last, half - 1]).fetchall()
        [(last,), (first,)] = found
        return (
            Part(part.month, part.table, part.first, last, half),
            Part(part.month, part.table, first, part.last, part.row_count - half),
        )

    def write(self, part: Part, path: Path) -> None:
        """Write the rows of a part to a Parquet file, sorted by time.

        Raises:
            OSError: the file can't be written.
        """
        metadata = {"embedsink": __version__, "schema": max(read_sql("migrations"))}
        pairs = ", ".join(f"{name}: '{value}'" for name, value in metadata.items())
        query = f"""
            select * from "{part.table}"
            where ingest_seq between $1 and $2
              and ingest_seq in (select ingest_seq from archive_row where month = $3 and kind = $4)
            order by {TIME_COLUMNS[part.table]}, ingest_seq
        """  # noqa: S608
        options = f"format parquet, compression zstd, use_tmp_file false, kv_metadata {{{pairs}}}"
        parameters = [part.first, part.last, part.month, part.table]
        try:
            self._connection.execute(f"copy ({query}) to '{_escaped(path)}' ({options})", parameters)
        except duckdb.Error as error:
            # DuckDB also reads the store and spills, so check that the message is about this file.
            if str(path) not in str(error):
                raise
            number = errno.ENOSPC if is_disk_full(error) else errno.EIO
            raise OSError(number, os.strerror(number), str(path)) from error


def _escaped(path: Path) -> str:
    return str(path).replace("'", "''")  # COPY has no parameter for it.
