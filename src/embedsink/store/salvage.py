"""Copies readable rows of damaged database files into a sound one: the rows of missing segments, each once."""

# ruff: noqa: S608  the names are of our own tables

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import duckdb

from embedsink.store.duckdb_errors import SqlUnfit, StoreBroken, StoreDamaged, duckdb_errors_translated
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql

# DuckDB reads this many rows at a time; a damaged block makes all of them unreadable.
_VECTOR_ROWS = 2_048
_GROUP_ROWS = 122_880
# The names that columns have in files older than the migration 0010.
_FORMER_NAMES = {
    "arrival": "ingest_seq",
    "sync_arrival": "sync_ingest_seq",
    "place": "position",
    "first_arrival": "first_ingest_seq",
    "unkept_count": "counted_only_count",
}
# Each row has its segment number in `ingest_seq`.
_TABLES = ("event", "action", "quarantine", "loss", "sync")
_MISSING = "exists (select 1 from missing where {} between missing.first_number and missing.last_number)"
_OF_MISSING = _MISSING.format("ingest_seq >> 32")
_LEDGER_OF_MISSING = _MISSING.format("split_part(segment, '-', 1)::bigint")
# Tables whose rows belong to rows of another table: that table, and the condition of the rows to copy.
_PARTS = {
    "quarantine_rest": (
        "quarantine",
        f"quarantine_id in (select quarantine_id from quarantine where {_OF_MISSING}) "
        "and (quarantine_id, piece) not in (select (quarantine_id, piece) from quarantine_rest)",
    ),
    "sync_file": (
        "sync",
        f"sync_ingest_seq in (select ingest_seq from sync where {_OF_MISSING}) "
        "and (sync_ingest_seq, position) not in (select (sync_ingest_seq, position) from sync_file)",
    ),
    "journal_hour": (
        "event",
        f"{_MISSING.format('first_ingest_seq >> 32')} "
        "and first_ingest_seq not in (select first_ingest_seq from journal_hour)",
    ),
}
_REPLAYED = """
update quarantine set replayed_at = former.replayed_at
from damaged.quarantine as former
where former.rowid >= $1 and former.rowid < $2
  and former.quarantine_id = quarantine.quarantine_id
  and former.replayed_at is not null
  and quarantine.replayed_at is null
"""
_ROW_GROUPS = """
select sum(count)::bigint from pragma_storage_info('damaged.' || $1)
where column_id = 0 and segment_type <> 'VALIDITY'
group by row_group_id
order by row_group_id
"""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result: copied rows, and envelopes that a ledger counted and no file could supply."""

    row_count: int
    lost_count: int


def salvage(
    connection: duckdb.DuckDBPyConnection,
    files: Iterable[Path],
    *,
    journal_numbers: list[int],
    on_step: Callable[[], None] = lambda: None,
) -> Salvaged:
    """Copy rows of segments that neither the store nor the journal has, and write their ledgers.

    A kill in between leaves a part of the rows: begin again with a new file.

    Args:
        connection: a connection to the intact database.
        files: the damaged files, the most recent first.
        journal_numbers: the numbers of the segments in the journal.
        on_step: called between steps; an exception that it raises ends the salvage.
    """
    connection.execute("set variable journal_numbers = $1", [journal_numbers])
    connection.execute(read_sql("salvage")["missing"])
    row_count = 0
    for path in files:
        with _attached(connection, path) as is_readable:
            if is_readable:
                row_count += _Damaged(connection, on_step).copy()
    with transaction(connection):
        connection.execute(read_sql("salvage")["rejection"])
        connection.execute(read_sql("salvage")["ledger"])
    lost = f"select sum(lost_count) from loaded_segment where {_LEDGER_OF_MISSING}"
    [(lost_count,)] = connection.execute(lost).fetchall()
    return Salvaged(row_count, int(lost_count or 0))


@contextlib.contextmanager
def _attached(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[bool]:
    """Attach a damaged file as `damaged`. Yield False when not even its catalog can be read."""
    quoted = str(path).replace("'", "''")
    try:
        with duckdb_errors_translated(opening=True):
            connection.execute(f"attach '{quoted}' as damaged (read_only)")
    except StoreBroken:
        yield False
        return
    try:
        yield True
    finally:
        connection.execute("detach damaged")


class _Damaged:
    """The attached file `damaged`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, on_step: Callable[[], None]) -> None:
        self._connection = connection
        self._on_step = on_step
        columns = (
            "select table_name, list(column_name) from duckdb_columns() where database_name = 'damaged' group by all"
        )
        self._columns: dict[str, list[str]] = dict(connection.execute(columns).fetchall())
        [(self._first_ingest_seq,)] = connection.execute("select min(first_number) << 32 from missing").fetchall()

    def copy(self) -> int:
        """Copy the rows of missing segments. Return their number."""
        row_count = 0
        for table in _TABLES:
            if self._may_have_missing(self._source(table)):
                row_count += self._for_rows(table, partial(self._copy_rows, table))
        for table, (owner, condition) in _PARTS.items():
            if self._may_have_missing(owner):
                self._for_rows(table, partial(self._insert, table, condition))
        self._for_rows("quarantine", partial(self._run, _REPLAYED))
        new = f"{_LEDGER_OF_MISSING} and segment not in (select segment from salvaged_ledger)"
        self._for_rows("loaded_segment", partial(self._insert, "loaded_segment", new, into="salvaged_ledger"))
        return row_count

    def _may_have_missing(self, table: str) -> bool:
        """Return whether a table may have rows of missing segments. Usually it has none, which is fast to check."""
        sql = f"select 1 from {table} where ingest_seq >= {self._first_ingest_seq:d} and {_OF_MISSING} limit 1"
        try:
            with duckdb_errors_translated():
                return self._connection.execute(sql).fetchone() is not None
        except (StoreDamaged, SqlUnfit):
            return True  # `_for_rows` checks whether the table exists

    def _source(self, table: str) -> str:
        """Return the table with the current names of its columns."""
        renames = [f"{name} as {_FORMER_NAMES[name]}" for name in self._columns.get(table, ()) if name in _FORMER_NAMES]
        if not renames:
            return f"damaged.{table}"
        return f"(select rowid, * rename ({', '.join(renames)}) from damaged.{table})"

    def _for_rows(self, table: str, act: Callable[[int, int], int]) -> int:
        """Call `act` for each row group, or for each of its vectors if that fails. Skip unreadable vectors."""
        if table not in self._columns:
            return 0
        row_count = 0
        for start, end in self._row_groups(table):
            try:
                row_count += act(start, end)
            except StoreDamaged:
                for first in range(start, end, _VECTOR_ROWS):
                    with contextlib.suppress(StoreDamaged):
                        row_count += act(first, min(first + _VECTOR_ROWS, end))
            self._on_step()
        return row_count

    def _row_groups(self, table: str) -> Iterator[tuple[int, int]]:
        """Yield the first row of each row group, and the row after its last."""
        try:
            with duckdb_errors_translated():
                counts = [count for (count,) in self._connection.execute(_ROW_GROUPS, [table]).fetchall()]
        except StoreDamaged:
            with duckdb_errors_translated():
                sizes = "select estimated_size from duckdb_tables() where database_name = 'damaged' and table_name = $1"
                [(size,)] = self._connection.execute(sizes, [table]).fetchall()
            counts = [_GROUP_ROWS] * (size // _GROUP_ROWS + 1)
        yield from pairwise(accumulate(counts, initial=0))

    def _copy_rows(self, table: str, start: int, end: int) -> int:
        bounds = (
            f"select min(ingest_seq), max(ingest_seq) from {self._source(table)} "
            f"where rowid >= $1 and rowid < $2 and {_OF_MISSING}"
        )
        with duckdb_errors_translated():
            first, last = self._connection.execute(bounds, [start, end]).fetchall()[0]
        if first is None:
            return 0
        # Constants, so that DuckDB skips the other row groups.
        here = f"ingest_seq between {first:d} and {last:d}"
        condition = f"{here} and {_OF_MISSING} and ingest_seq not in (select ingest_seq from {table} where {here})"
        return self._insert(table, condition, start, end)

    def _insert(self, table: str, condition: str, start: int, end: int, *, into: str | None = None) -> int:
        source = f"{self._source(table)} where rowid >= $1 and rowid < $2 and {condition}"
        rows = f"select columns(lambda c: c <> 'rowid') from {source}"
        return self._run(f"insert into {into or table} by name {rows}", start, end)

    def _run(self, sql: str, start: int, end: int) -> int:
        with duckdb_errors_translated(), transaction(self._connection):
            [(row_count,)] = self._connection.execute(sql, [start, end]).fetchall()
        return int(row_count)
