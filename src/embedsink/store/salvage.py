"""The salvage of readable rows from damaged database files: rows of missing segments are copied into a sound database.

A segment is missing if neither the sound database nor the journal has it.
"""

# ruff: noqa: S608  the names are of our own tables

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import duckdb

from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreDamaged, duckdb_errors_translated
from embedsink.store.insert import LINE_BITS, first_ingest_seq
from embedsink.store.ledger import SEGMENT_NUMBER_SQL
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql

log = logging.getLogger(__name__)

# DuckDB reads this many rows at a time; a damaged block makes all of them unreadable.
_VECTOR_ROWS = 2_048
# The default size of DuckDB's row groups, for files whose storage information is damaged.
_ROW_GROUP_ROWS = 122_880
# The current names of columns, by their names in files older than the migration 0010.
_CURRENT_NAMES = {
    "arrival": "ingest_seq",
    "sync_arrival": "sync_ingest_seq",
    "place": "position",
    "first_arrival": "first_ingest_seq",
    "unkept_count": "counted_only_count",
}
# The tables whose rows have the number of their segment in `ingest_seq`.
_TABLES_BY_SEGMENT = ("event", "action", "quarantine", "loss", "sync", "directory_user", "directory_group")
# SQL conditions: a segment number, a row or a row of the ledger belongs to a missing segment. The table `missing` has
# ranges of segment numbers.
_IS_MISSING = "exists (select 1 from missing where {} between missing.first_number and missing.last_number)"
_IS_OF_MISSING = _IS_MISSING.format(f"ingest_seq >> {LINE_BITS}")
_IS_LEDGER_OF_MISSING = _IS_MISSING.format(SEGMENT_NUMBER_SQL)
# The tables whose rows belong to rows of an owner table: the owner table, and the condition of the rows to copy.
_DEPENDENT_TABLES = {
    "quarantine_rest": (
        "quarantine",
        f"quarantine_id in (select quarantine_id from quarantine where {_IS_OF_MISSING}) "
        "and (quarantine_id, piece) not in (select (quarantine_id, piece) from quarantine_rest)",
    ),
    "sync_file": (
        "sync",
        f"sync_ingest_seq in (select ingest_seq from sync where {_IS_OF_MISSING}) "
        "and (sync_ingest_seq, position) not in (select (sync_ingest_seq, position) from sync_file)",
    ),
    "directory_member": (
        "directory_group",
        f"{_IS_OF_MISSING} and (group_id, user_id) not in (select (group_id, user_id) from directory_member)",
    ),
    "journal_hour": (
        "event",
        f"{_IS_MISSING.format(f'first_ingest_seq >> {LINE_BITS}')} "
        "and first_ingest_seq not in (select first_ingest_seq from journal_hour)",
    ),
}
# The daily totals. The table that marks the totaled days is the last.
_TOTAL_TABLES = ("daily_view", "daily_download", "daily_error_rate", "daily_ai_query", "daily_tenant", "totaled_day")
_UPDATE_REPLAYED = """
update quarantine set replayed_at = former.replayed_at
from damaged.quarantine as former
where former.rowid >= $1 and former.rowid < $2
  and former.quarantine_id = quarantine.quarantine_id
  and former.replayed_at is not null
  and quarantine.replayed_at is null
"""
_ROW_GROUP_SIZES_SQL = """
select sum(count)::bigint from pragma_storage_info('damaged.' || $1)
where column_id = 0 and segment_type <> 'VALIDITY'
group by row_group_id
order by row_group_id
"""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result of a salvage.

    Args:
        row_count: the number of copied rows.
        lost_count: the number of envelopes that a ledger counts, and that no file has.
    """

    row_count: int
    lost_count: int


def salvage(
    connection: duckdb.DuckDBPyConnection,
    files: Iterable[Path],
    *,
    journal_numbers: list[int],
    on_step: Callable[[], None] = lambda: None,
) -> Salvaged:
    """Copy the rows of missing segments, and write rows for these segments into the ledger (table `loaded_segment`).

    A segment is missing if neither the intact database nor the journal has it.

    The rows are copied in several transactions. If the process is killed meanwhile, begin again with a new database.

    Args:
        connection: a connection to the intact database, which receives the rows.
        files: the damaged files, the most recent first.
        journal_numbers: the numbers of the segments in the journal.
        on_step: called between steps; an exception that it raises ends the salvage.
    """
    connection.execute("set variable journal_numbers = $1", [journal_numbers])
    connection.execute(read_sql("salvage")["missing"])  # Create the table of the missing segments.
    row_count = 0
    for path in files:
        with _attached(connection, path) as is_readable:
            if is_readable:
                row_count += _DamagedFile(connection, path.name, on_step).copy()
    with transaction(connection):
        # Delete incomplete rejections first, so that the ledger counts them as lost.
        connection.execute(read_sql("salvage")["rejection"])
        connection.execute(read_sql("salvage")["ledger"])
        connection.execute(read_sql("salvage")["directory"])
    query = f"select coalesce(sum(lost_count), 0) from loaded_segment where {_IS_LEDGER_OF_MISSING}"
    [(lost_count,)] = connection.execute(query).fetchall()
    return Salvaged(row_count, int(lost_count))


@contextlib.contextmanager
def _attached(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[bool]:
    """Attach a damaged file as `damaged` in this block. Yield whether DuckDB can attach it."""
    escaped_path = str(path).replace("'", "''")
    try:
        with duckdb_errors_translated(opening=True):
            connection.execute(f"attach '{escaped_path}' as damaged (read_only)")
    except StoreBroken:
        yield False
        return
    try:
        yield True
    finally:
        connection.execute("detach damaged")


class _DamagedFile:
    """The damaged file that is attached as `damaged`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, on_step: Callable[[], None]) -> None:
        self._connection = connection
        self._name = name
        self._on_step = on_step
        columns_sql = (
            "select table_name, list(column_name) from duckdb_columns() where database_name = 'damaged' group by all"
        )
        self._columns_by_table: dict[str, list[str]] = dict(connection.execute(columns_sql).fetchall())
        # `salvage` has created the table `missing`: ranges of segment numbers, of which the last has no end.
        [(first_missing_number,)] = connection.execute("select min(first_number) from missing").fetchall()
        self._first_missing_seq = first_ingest_seq(first_missing_number)

    def copy(self) -> int:
        """Copy the rows of missing segments. Return the number of rows, without those of dependent tables.

        The rows of a dependent table belong to rows of an owner table, such as the files of a sync.
        """
        row_count = 0
        for table in _TABLES_BY_SEGMENT:
            if self._may_have_missing_rows(self._from_item(table)):
                row_count += self._for_row_ranges(table, partial(self._copy_rows, table))
        for table, (owner, condition) in _DEPENDENT_TABLES.items():
            if self._may_have_missing_rows(owner):  # the rows that were just copied into the store
                self._for_row_ranges(table, partial(self._insert, table, condition))
        self._copy_totals()
        # The damaged file may be newer than the intact database: mark the rejections that it marks as replayed.
        self._for_row_ranges("quarantine", partial(self._run, _UPDATE_REPLAYED))
        # Collect the ledger rows of missing segments. After the last file, `salvage` computes new ones from them.
        is_new = f"{_IS_LEDGER_OF_MISSING} and segment not in (select segment from salvaged_ledger)"
        self._for_row_ranges("loaded_segment", partial(self._insert, "loaded_segment", is_new, into="salvaged_ledger"))
        return row_count

    def _copy_totals(self) -> None:
        """Copy the daily totals of days that the store lacks, or none if a part of them is unreadable or missing.

        A day with a part of its totals would look complete.
        """
        if "totaled_day" not in self._columns_by_table:
            return
        try:
            with duckdb_errors_translated(), transaction(self._connection):
                for table in _TOTAL_TABLES:
                    self._connection.execute(
                        f"insert into {table} by name from damaged.{table} where day not in "
                        "(select day from totaled_day) and day in (select day from damaged.totaled_day)"
                    )
        except (StoreDamaged, SqlFailed) as error:
            detail = f"{self._name}: {error}. Daily totals that only this file has are lost"
            log.warning("daily_totals_not_salvaged", extra={"detail": detail})

    def _may_have_missing_rows(self, from_item: str) -> bool:
        """Return whether a table may have rows of missing segments. Usually it has none, and needs no copying."""
        # The lower bound is a constant, so DuckDB skips older row groups.
        sql = f"select 1 from {from_item} where ingest_seq >= {self._first_missing_seq:d} and {_IS_OF_MISSING} limit 1"
        try:
            with duckdb_errors_translated():
                return self._connection.execute(sql).fetchone() is not None
        except (StoreDamaged, SqlFailed):
            return True  # The table is damaged or does not exist. `_for_row_ranges` distinguishes the two.

    def _from_item(self, table: str) -> str:
        """Return the FROM item that selects a damaged table, with its columns under their current names."""
        former_names = [name for name in self._columns_by_table.get(table, ()) if name in _CURRENT_NAMES]
        if not former_names:
            return f"damaged.{table}"
        renames = ", ".join(f"{name} as {_CURRENT_NAMES[name]}" for name in former_names)
        # A subquery has no implicit rowid.
        return f"(select rowid, * rename ({renames}) from damaged.{table})"

    def _for_row_ranges(self, table: str, action: Callable[[int, int], int]) -> int:
        """Call `action` with the bounds of each row group, and return the sum of the results; 0 without the table.

        If a row group is damaged, call `action` for each of its vectors, and skip damaged ones: DuckDB reads a vector
        as a whole.
        """
        if table not in self._columns_by_table:
            return 0
        row_count = 0
        for start, end in self._row_groups(table):
            try:
                row_count += action(start, end)
            except StoreDamaged:
                for vector_start in range(start, end, _VECTOR_ROWS):
                    with contextlib.suppress(StoreDamaged):
                        row_count += action(vector_start, min(vector_start + _VECTOR_ROWS, end))
            self._on_step()
        return row_count

    def _row_groups(self, table: str) -> Iterator[tuple[int, int]]:
        """Yield the bounds of each row group: its first row, and the row after its last row."""
        try:
            with duckdb_errors_translated():
                counts = [count for (count,) in self._connection.execute(_ROW_GROUP_SIZES_SQL, [table]).fetchall()]
        except StoreDamaged:
            # The sizes of the row groups are unreadable, so assume the default size.
            with duckdb_errors_translated():
                query = "select estimated_size from duckdb_tables() where database_name = 'damaged' and table_name = $1"
                [(size,)] = self._connection.execute(query, [table]).fetchall()
            counts = [_ROW_GROUP_ROWS] * (size // _ROW_GROUP_ROWS + 1)  # The last one may be partly filled.
        starts_and_end = accumulate(counts, initial=0)
        yield from pairwise(starts_and_end)

    def _copy_rows(self, table: str, start: int, end: int) -> int:
        """Copy the rows of missing segments from a range, unless the store has them. Return the number of copies."""
        query = (
            f"select min(ingest_seq), max(ingest_seq) from {self._from_item(table)} "
            f"where rowid >= $1 and rowid < $2 and {_IS_OF_MISSING}"
        )
        with duckdb_errors_translated():
            [(first, last)] = self._connection.execute(query, [start, end]).fetchall()
        if first is None:
            return 0
        # The bounds are constants, so that DuckDB skips the other row groups.
        is_between = f"ingest_seq between {first:d} and {last:d}"
        is_new = f"ingest_seq not in (select ingest_seq from {table} where {is_between})"
        return self._insert(table, f"{is_between} and {_IS_OF_MISSING} and {is_new}", start, end)

    def _insert(self, table: str, condition: str, start: int, end: int, *, into: str = "") -> int:
        """Insert the rows in a range of a damaged table that match a condition: into the same table, or into `into`."""
        source = f"{self._from_item(table)} where rowid >= $1 and rowid < $2 and {condition}"
        # `_from_item` may select the rowid as a column, which the target does not have.
        rows = f"select columns(lambda c: c <> 'rowid') from {source}"
        return self._run(f"insert into {into or table} by name {rows}", start, end)

    def _run(self, sql: str, start: int, end: int) -> int:
        """Run a statement for a range of rows in a transaction. Return the number of changed rows."""
        with duckdb_errors_translated(), transaction(self._connection):
            [(row_count,)] = self._connection.execute(sql, [start, end]).fetchall()
        return int(row_count)
