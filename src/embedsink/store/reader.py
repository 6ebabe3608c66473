"""Readers of named views within a scope, which is a set of session variables."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

import duckdb

from embedsink.data_folder import require_folder
from embedsink.errors import Misconfigured, Refused, Unavailable
from embedsink.reasons import Reason
from embedsink.store.duckdb_errors import (
    SqlUnfit,
    StoreBroken,
    StoreRefused,
    StoreTooSmall,
    duckdb_errors_translated,
    first_line,
    unavailable_if_broken,
)
from embedsink.store.frames import execute_as, frame_of
from embedsink.store.query import TEMP_PAGE, Column, SelectQuery, View, page_of, select_sql, source_of
from embedsink.store.schema import are_views_current, refuse_newer_format, refuse_newer_schema, roll_back
from embedsink.store.temp_table import TempTable

if TYPE_CHECKING:
    import pandas

ROWS_AT_ONCE = 2_048
# Rows of a Parquet row group and of an Arrow batch: writers and readers have this many in memory.
ROWS_OF_BATCH = 20_480
# Every variable that a view reads.
VARIABLES = (
    "deployments",
    "since",
    "until",
    "surface",
    "tenant",
    "interval",
    "timezone",
    "now",
    "service_name",
    "quarantine_id",
    "after",
    "up_to",
    "row_limit",
    "sync_job_ids",
    "key_deployments",
    "session",
    "type",
    "key_id",
    "outcome",
    "requested_columns",
    "session_gap_minutes",
)
# The newest rollup batch at the start of the reader, so that a later batch is neither counted twice nor left out
# (sql/staging/2_session_15min_between.sql). One query reads both, because a batch may be added between two queries.
ROLLUP_VARIABLES = ("rollup_batch_id", "rollup_watermark")
# Types that every tool reads alike. Times are UTC, which Parquet and Arrow store in the type of the column.
_PORTABLE = {
    "TIMESTAMP": "timezone('UTC', {})",
    "HUGEINT": "{}::bigint",
    "UUID": "{}::varchar",
    "JSON": "{}::varchar",
}
_COLUMNS = """
select table_name, column_name, data_type, coalesce(comment, '')
from duckdb_columns()
where not internal and database_name <> 'temp'
order by table_name, column_index
"""
_COMMENTS = "select view_name, coalesce(comment, '') from duckdb_views() where not internal and not temporary"
# Python's UUID objects cost more than the rest of a row.
_IN_PYTHON = {"UUID": "{}::varchar"}
HIDES_INGEST_SEQ = "hides_ingest_seq"
OLDER_SNAPSHOT = "An older embedsink published it: start the server once, or run `embedsink snapshot`."
EVERYTHING: Mapping[str, object] = {"deployments": None}


class Reader:
    """A reader of named views within one scope. It owns a connection: use it in one thread, and close it.

    Args:
        connection: a connection to the database.
        scope: the variables to set; `deployments` among them. With `hides_ingest_seq` the column `ingest_seq` is null.
        resources: resources that are released with the reader.
        views: a cache of the catalog, which all readers of one opened database share.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        scope: Mapping[str, object],
        *,
        resources: contextlib.ExitStack,
        views: dict[str, View] | None = None,
    ) -> None:
        self._connection = connection
        self._closing = threading.Lock()
        self._is_closed = False
        self._variables: dict[str, Any] = {}
        self._hides_ingest_seq = False
        self._temp_table: TempTable | None = None
        # All variables are set, so that none is inherited from an earlier use of the connection. `deployments` is
        # required, because null means every deployment.
        self._set({**dict.fromkeys(VARIABLES), **scope, "deployments": scope["deployments"]})
        self._set_rollup_variables()
        # Arrow stores this as the time zone of timestamps.
        connection.execute("set timezone = 'UTC'")
        self._resources = resources.pop_all()
        self._views = {} if views is None else views

    def narrowed(self, **variables: object) -> "Reader":
        """Return this reader after setting some of its variables."""
        with unavailable_if_broken():
            self._set(variables)
        return self

    def variable(self, name: str) -> Any:
        """Return the value of a variable; times are UTC without a zone."""
        [(value,)] = self._fetch_all("select getvariable($1)", [name])
        return value

    def columns(self, view: str) -> list[Column]:
        """Return the columns of a view with their comments, in order; an empty list if the view does not exist."""
        return list(self._described(view).columns)

    def comment(self, view: str) -> str:
        """Return the comment of a view."""
        return self._described(view).comment

    def has(self, view: str) -> bool:
        """Return whether such a view or table exists."""
        return bool(self._described(view).columns)

    def require(self, view: str) -> None:
        """Raise Misconfigured if no such view or table exists, as in a snapshot of an older embedsink."""
        if not self.has(view):
            raise Misconfigured(f"snapshot: lacks {view}. {OLDER_SNAPSHOT}")

    def is_up_to_date(self) -> bool:
        """Return whether the views are those of this version of embedsink and DuckDB."""
        with unavailable_if_broken():
            return are_views_current(self._connection)

    def _described(self, view: str) -> View:
        # Read the columns of all views at once: DuckDB reads the whole catalog anyway, which takes longer than a small
        # report.
        if not self._views:
            self._views.update(self._read_views())
        return self._views.get(view, View("", ()))

    def _read_views(self) -> dict[str, View]:
        columns: dict[str, list[Column]] = defaultdict(list)
        for view, *column in self._fetch_all(_COLUMNS):
            columns[view].append(Column(*column))
        comments = dict(self._fetch_all(_COMMENTS))
        return {view: View(comments.get(view, ""), tuple(columns[view])) for view in columns}

    def selected(self, selection: SelectQuery) -> list[Column]:
        """Return the columns of a selection, in its order."""
        self.require(selection.view)
        columns = {column.name: column for column in self.columns(selection.view)}
        return list(columns.values()) if selection.columns is None else [columns[name] for name in selection.columns]

    def rows(self, selection: str | SelectQuery) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a view, `ROWS_AT_ONCE` at a time."""
        result = self._execute(*self._select(selection, _IN_PYTHON))
        while rows := _fetch(result):
            yield rows

    def dicts(self, view: str) -> list[dict[str, Any]]:
        """Return all rows of a view as dictionaries; for views with a limit of their own."""
        names = [column.name for column in self.columns(view)]
        return [dict(zip(names, row, strict=True)) for rows in self.rows(view) for row in rows]

    def page(self, selection: SelectQuery) -> int | None:
        """Set `up_to` so that a page has `limit` rows. Return the ingest_seq of its last row, if more follow.

        Later rows have a greater ingest_seq, so pages neither repeat nor skip rows. A row with a smaller ingest_seq
        that becomes visible later is skipped: see embedsink.reports.pagination.
        """
        limit = selection.limit or 1
        self.narrowed(requested_columns=None)
        if selection.is_expensive:
            names = dict.fromkeys((*(column.name for column in self.selected(selection)), "ingest_seq"))
            page = f"select {', '.join(names)} from {page_of(selection.view)} limit $1"  # noqa: S608
            # temporary: it ends with the connection
            self._execute(f"create or replace temp table {TEMP_PAGE} as {page}", [limit + 1])
        ends = self._fetch_all(
            f"select ingest_seq from {page_of(source_of(selection))} limit 2 offset $1",  # noqa: S608
            [limit - 1],
        )
        self.narrowed(up_to=ends[0][0] if ends else None)
        return ends[0][0] if len(ends) == 2 else None

    def frame(self, selection: str | SelectQuery) -> tuple["pandas.DataFrame", list[str]]:
        """Return the rows of a view as a data frame, and the SQL type of each column."""
        with unavailable_if_broken():
            return frame_of(self._execute(*self._select(selection, _PORTABLE)))

    def run(
        self, sql: str, parameters: object = None, *, caller: FrameType | None = None
    ) -> tuple["pandas.DataFrame", list[str]]:
        """Run SQL of the notebook's owner, and return what `frame` returns. The server never calls this.

        Args:
            sql: one or more statements; the result is that of the last.
            parameters: a list for `?` and `$1`, or a dictionary for `$name`.
            caller: a frame whose variables may be named as tables, unless the database has such a table.

        Raises:
            Refused: DuckDB can't run it; with DuckDB's whole message.
            Unavailable: it needs more memory than the limit.
        """
        self.narrowed(requested_columns=None)
        try:
            with duckdb_errors_translated(whole=True):
                result = execute_as(caller, self._connection, sql, parameters)
                if result is None:
                    raise Refused(Reason.BAD_PARAMETER, "sql: is empty. Write it like `select * from views`.")
                return frame_of(result)
        except StoreTooSmall as error:
            raise Unavailable(Reason.NOT_READY, f"sql: {error}\nSelect fewer rows.") from error
        except (SqlUnfit, StoreRefused) as error:
            hint = "\nPass a list for ? and $1, or a dictionary for $name." if "Values were not" in str(error) else ""
            raise Refused(Reason.BAD_PARAMETER, f"sql: {error}{hint}") from error

    def first_row(self, sql: str) -> tuple[dict[str, Any], int]:
        """Return the first row of a check of `sql/checks`, by column, and the number of rows."""
        self.narrowed(requested_columns=None)
        result = self._execute(sql)
        with unavailable_if_broken():
            names = [column[0] for column in result.description or ()]
            first = result.fetchone()
        count = int(first is not None)
        while rows := _fetch(result):
            count += len(rows)
        return dict(zip(names, first or (), strict=False)), count

    def write_parquet(self, selection: str | SelectQuery, file: IO[bytes] | Path) -> None:
        """Write the rows of a view as Parquet: to a path, or into an open file of the operating system."""
        sql, parameters = self._select(selection, _PORTABLE)
        options = f"format parquet, row_group_size {ROWS_OF_BATCH}, use_tmp_file false"
        self._fetch_all(f"copy ({sql}) to '{_address(file)}' ({options})", parameters)

    def write_arrow(
        self, selection: str | SelectQuery, file: IO[bytes], *, scratch: Callable[[], IO[bytes]] = TemporaryFile
    ) -> None:
        """Write the rows of a view as an Arrow IPC stream, in batches of `ROWS_OF_BATCH`.

        They pass through a Parquet file from `scratch`, because DuckDB's own Arrow batches have a million rows.
        """
        from nanoarrow.ipc import StreamWriter  # imported late: few servers need it

        with scratch() as spooled, StreamWriter.from_writable(file) as writer:
            self.write_parquet(selection, spooled)
            source = f"from read_parquet('{_address(spooled)}', file_row_number = true)"
            [(count,)] = self._fetch_all(f"select count(*) {source}")
            for start in range(0, max(count, 1), ROWS_OF_BATCH):
                batch = f"where file_row_number between {start} and {start + ROWS_OF_BATCH - 1}"
                with unavailable_if_broken():
                    rows = self._connection.sql(f"select * exclude (file_row_number) {source} {batch}")
                    writer.write_stream(rows, write_schema=start == 0)

    @contextlib.contextmanager
    def consistent(self) -> Iterator[None]:
        """Read everything in this block from one snapshot of the database. A table of `materialize` ends with it."""
        self._drop_temp_table()
        self._execute("begin transaction")
        try:
            yield
        finally:
            self._temp_table = None
            with contextlib.suppress(duckdb.Error):  # it ends with the connection
                self._connection.execute("rollback")

    def materialize(self, view: str, *, since: datetime | None, until: datetime | None) -> None:
        """Compute a view once for this period. Views that build on it read the result while their scope is within it.

        Args:
            view: a view with the column `occurred_at`.
            since, until: the bounds of the longest period, in UTC.
        """
        self._drop_temp_table()
        self.narrowed(since=since, until=until)
        with unavailable_if_broken():
            table = TempTable(view, dict(self._variables))
            table.create(self._connection)
            self._temp_table = table

    def _drop_temp_table(self) -> None:
        if self._temp_table:
            with unavailable_if_broken():
                self._temp_table.drop(self._connection)
            self._temp_table = None

    def interrupt(self) -> None:
        """Interrupt a running query; callable from any thread."""
        with self._closing:  # DuckDB may free a connection during an interrupt
            if not self._is_closed:
                self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        with self._closing:
            self._is_closed = True
        # A rollback by DuckDB itself, as the connection closes, aborts the process if the database is broken.
        with contextlib.suppress(StoreBroken):
            roll_back(self._connection)
        self._resources.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _select(self, selection: str | SelectQuery, expressions: Mapping[str, str]) -> tuple[str, list[object]]:
        """Return the statement and its parameters; `expressions` converts columns of some SQL types."""
        if isinstance(selection, str):
            selection = SelectQuery(selection)
        # A view may skip work for other columns (the macro is_column_requested).
        self.narrowed(requested_columns=None if selection.columns is None else list(selection.columns))
        if self._hides_ingest_seq:
            expressions = {**expressions, "ingest_seq": "null::bigint"}  # It counts lines of all deployments.
        return select_sql(selection, self.selected(selection), expressions)

    def _set_rollup_variables(self) -> None:
        newest = None
        with contextlib.suppress(duckdb.CatalogException):  # absent from snapshots of older servers
            newest = self._connection.execute("select max(batch_id), max(watermark) from rollup_batch").fetchone()
        for name, value in zip(ROLLUP_VARIABLES, newest or (None, None), strict=True):
            self._connection.execute(f"set variable {name} = $1", [value])

    def _set(self, variables: Mapping[str, object]) -> None:
        if HIDES_INGEST_SEQ in variables:  # an option of the reader, not a variable of views
            self._hides_ingest_seq = bool(variables[HIDES_INGEST_SEQ])
            variables = {name: value for name, value in variables.items() if name != HIDES_INGEST_SEQ}
        unknown = variables.keys() - set(VARIABLES)
        if unknown:
            # A misspelled limit of the scope would show more.
            raise ValueError(f"variables {sorted(unknown)}: no view reads them. There are {', '.join(VARIABLES)}.")
        for name, value in variables.items():
            self._connection.execute(f"set variable {name} = $1", [value])
        self._variables |= variables
        if self._temp_table and not self._temp_table.covers(self._variables):
            self._drop_temp_table()

    def _execute(self, sql: str, parameters: list[object] | None = None) -> duckdb.DuckDBPyConnection:
        with unavailable_if_broken():
            return self._connection.execute(sql, parameters)

    def _fetch_all(self, sql: str, parameters: list[object] | None = None) -> list[tuple[Any, ...]]:
        with unavailable_if_broken():
            return self._execute(sql, parameters).fetchall()


def open_snapshot(path: Path, scope: Mapping[str, object]) -> Reader:
    """Open a reader of a published snapshot. Any number of processes may do so at once.

    Raises:
        Misconfigured: it does not exist yet, is unreadable, or is from a newer embedsink.
    """
    require_folder(path.parent)
    if not path.exists():
        raise Misconfigured(f"{path}: does not exist. A server publishes it some seconds after its start.")
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(duckdb.connect(str(path), read_only=True)))
            refuse_newer_schema(connection, path.name)
            return Reader(connection, scope, resources=stack)
    except duckdb.Error as error:
        refuse_newer_format(error, path.name)
        raise Misconfigured(f"{path}: can't be read ({first_line(error)}). The server publishes a new one.") from None


def _fetch(result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    with unavailable_if_broken():
        return result.fetchmany(ROWS_AT_ONCE)


def _address(file: IO[bytes] | Path) -> str:
    # COPY has no parameters. The path comes from this program or from the operator.
    return str(file).replace("'", "''") if isinstance(file, Path) else f"/dev/fd/{file.fileno()}"
