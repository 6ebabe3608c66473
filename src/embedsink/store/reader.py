"""Readers of named views within a scope, which is a set of session variables."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self

import duckdb

from embedsink.errors import Misconfigured
from embedsink.key_scope import EVERYTHING
from embedsink.store.duckdb_errors import StoreBroken, unavailable_if_broken
from embedsink.store.query import TEMP_PAGE, SelectQuery, page_from_clause, page_source, quoted, select_sql
from embedsink.store.schema import roll_back
from embedsink.store.session_variables import set_variables
from embedsink.store.temp_table import TempTable
from embedsink.store.view_catalog import Column, View, read_catalog

ROWS_AT_ONCE = 2_048
# The number of events that are read first for each row of a page. Sessions have about ten.
_EVENTS_PER_ROW = 16
# The views with a row per session, whose pages read only the events in the period of their sessions.
_SESSION_VIEWS = ("sessions", "sessions_by_directory")
_SESSION_PAGE_PERIOD = "session_page_period"
# The rows of a Parquet row group and of an Arrow batch. Writers and readers have this many in memory.
ROWS_OF_BATCH = 20_480
# The variables that limit a view to the rows that a page needs, while its temporary table is created.
_PAGE_VARIABLES = ("page_after", "page_up_to", "page_since", "page_until")
# The variables that a scope may set. Views read them.
VARIABLES = (
    "deployments",
    "tenants",
    "since",
    "until",
    "surface",
    "tenant",
    "tenant_hashes",
    "interval",
    "timezone",
    "now",
    "service_name",
    "quarantine_id",
    "after",
    "up_to",
    *_PAGE_VARIABLES,
    "row_limit",
    "sync_job_ids",
    "key_deployments",
    "session",
    "type",
    "key_id",
    "outcome",
    "requested_columns",
    "session_gap_minutes",
    "dimensions",
    "department",
    "viewer_group",
    "shows_names",
    "internal",
    "vendor",
    "viewers",
    "excludes_formerly_shared",
    "texts",
    # of the audit trail
    "audit_files",
    "action",
    "actor",
    "before_number",
)
# The newest rollup batch when the reader is opened. Views ignore later batches, so that all queries of a reader count
# the same events (sql/staging/2_session_15min_between.sql).
ROLLUP_VARIABLES = ("rollup_batch_id", "rollup_watermark")
# Expressions that convert columns to types that every tool reads alike, by SQL type. Times are UTC, which Parquet and
# Arrow store in the type of the column.
PORTABLE_EXPRESSIONS = {
    "TIMESTAMP": "timezone('UTC', {})",
    "HUGEINT": "{}::bigint",
    "UUID": "{}::varchar",
    "JSON": "{}::varchar",
}
# Creating Python's UUID objects takes longer than the rest of a row.
_PYTHON_EXPRESSIONS = {"UUID": "{}::varchar"}
# An option in a scope. It is not a session variable.
HIDES_INGEST_SEQ = "hides_ingest_seq"
# The end of the name of a report's view without daily totals.
_OF_EVENTS = "_of_events"
StoredTenants = Callable[[Sequence[str]], Sequence[str]]
OLDER_SNAPSHOT = "An older version of embedsink published it: start the server once, or run `embedsink snapshot`."


class Reader:
    """A reader of named views within one scope. It owns a connection: use it in one thread, and close it.

    Args:
        connection: a connection to the database.
        scope: the variables to set, with those of `KeyScope.variables`. If `hides_ingest_seq` is true, the column
            `ingest_seq` is null.
        resources: the resources that closing the reader releases.
        views: a cache of the views, which all readers of one open database share.
        stored_tenants: returns all forms in which the database may contain the tenants of a scope, such as hashes.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        scope: Mapping[str, object],
        *,
        resources: contextlib.ExitStack,
        views: dict[str, View] | None = None,
        stored_tenants: StoredTenants = list,
    ) -> None:
        self._connection = connection
        self._close_lock = threading.Lock()
        self._is_closed = False
        self._stored_tenants = stored_tenants
        self._variables: dict[str, Any] = {}
        self._hides_ingest_seq = False
        self._temp_table: TempTable | None = None
        for name in EVERYTHING.variables():
            if name not in scope:
                raise KeyError(name)  # Without a value, views would show every deployment or tenant.
        # Set all variables, so that none is inherited from an earlier use of the connection.
        self._apply_variables({**dict.fromkeys(VARIABLES), **scope})
        self._set_rollup_variables()
        # Arrow stores the time zone of the session in its timestamps.
        connection.execute("set timezone = 'UTC'")
        # Take over the resources last: after an error above, the caller releases them.
        self._resources = resources.pop_all()
        self._views = {} if views is None else views  # An empty cache is shared too.

    def set_variables(self, **variables: object) -> Self:
        """Set session variables. Return this reader."""
        with unavailable_if_broken():
            self._apply_variables(variables)
        return self

    def variable(self, name: str) -> Any:
        """Return the value of a session variable. Times are in UTC, without a zone."""
        [(value,)] = self._fetch_all("select getvariable($1)", [name])
        return value

    def columns(self, view: str) -> list[Column]:
        """Return the columns of a view with their comments, in order; an empty list if the view does not exist."""
        return list(self._find_view(view).columns)

    def comment(self, view: str) -> str:
        """Return the comment of a view; an empty text if the view does not exist."""
        return self._find_view(view).comment

    def has(self, view: str) -> bool:
        """Return whether a view or table of this name exists."""
        return len(self._find_view(view).columns) > 0

    def require(self, view: str) -> None:
        """Raise Misconfigured if no view or table has this name, as in a snapshot of an older embedsink."""
        if not self.has(view):
            raise Misconfigured(f"snapshot: lacks {view}. {OLDER_SNAPSHOT}")

    def _find_view(self, name: str) -> View:
        """Return a view or table; a `View` without columns if it does not exist. The first call fills the cache."""
        if not self._views:
            with unavailable_if_broken():
                self._views.update(read_catalog(self._connection))
        return self._views.get(name, View(comment="", columns=()))

    def selected_columns(self, selection: SelectQuery) -> list[Column]:
        """Return the columns of a selection, in the requested order. Raise Misconfigured if the view does not exist."""
        self.require(selection.view)
        columns = {column.name: column for column in self.columns(selection.view)}
        if selection.columns is None:
            return list(columns.values())
        return [columns[name] for name in selection.columns]

    def rows(self, selection: str | SelectQuery) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a view in lists of at most `ROWS_AT_ONCE`, with UUIDs as text."""
        result = self._execute_select(selection, _PYTHON_EXPRESSIONS)
        while rows := fetch_rows(result):
            yield rows

    def totaled_days(self, view: str) -> tuple[date, date] | None:
        """Return the first and the last day of which a report has daily totals in scope; None without totals."""
        if not self._reads_totals(view):
            return None
        query = "select min(day), max(day) from totaled_report_day where report = $1"
        [(first, last)] = self._fetch_all(query, [view])
        return None if first is None else (first, last)

    def deleted_days(self, view: str) -> tuple[date, date] | None:
        """Return the first and the last UTC day of the period whose events are deleted; None without such days.

        Days of which a report has daily totals in scope don't count. Older snapshots know no deleted days.
        """
        # Most stores have no totals.
        if not self.has("deleted_day_in_scope") or not self._fetch_all("select 1 from totaled_day limit 1"):
            return None
        reads_totals = self.has(f"{view}{_OF_EVENTS}")
        query = "select min(day), max(day) from deleted_day_in_scope where not ($1 and has_totals_in_scope)"
        [(first, last)] = self._fetch_all(query, [reads_totals])
        return None if first is None else (first, last)

    def _reads_totals(self, view: str) -> bool:
        """Return whether a report reads daily totals in the present scope. Older snapshots have none."""
        if not self.has(f"{view}{_OF_EVENTS}"):
            return False
        # Most stores have no totals. Reading the table takes less time than planning the view.
        relations = ("totaled_day", "totaled_day_in_scope")
        return all(self._fetch_all(f"select 1 from {relation} limit 1") for relation in relations)  # noqa: S608

    def dicts(self, view: str) -> list[dict[str, Any]]:
        """Return all rows of a view as dictionaries. Use it for views that limit the number of their rows."""
        names = [column.name for column in self.columns(view)]
        return [dict(zip(names, row, strict=True)) for batch in self.rows(view) for row in batch]

    def page(self, selection: SelectQuery) -> int | None:
        """Set the variable `up_to` to the end of a page. Return the page's last ingest_seq; None for the last page.

        The page begins after the ingest_seq in the variable `after`; at the first row if that is null.

        Later rows have a greater ingest_seq, so pages neither repeat nor skip rows. A row with a smaller ingest_seq
        that becomes visible later is skipped: see embedsink.reports.pagination.
        """
        row_count = selection.limit or 1  # A page ends at its last row, so it needs one.
        self.set_variables(requested_columns=None)  # Undo the selection of columns of an earlier query.
        # Read only the first events, so that the page does not cost as much as all of history. If they have too few
        # rows of the view, read more.
        event_count = row_count * _EVENTS_PER_ROW
        while True:
            is_limited = self._limit_page(selection.view, event_count)
            if selection.is_expensive:
                self._create_temp_page(selection, row_count=row_count + 1)  # with the first row of the next page
            # Select the last row of the page, and the first row of the next page.
            sql = f"select ingest_seq from {page_from_clause(page_source(selection))} limit 2 offset $1"  # noqa: S608
            ingest_seqs = [ingest_seq for (ingest_seq,) in self._fetch_all(sql, [row_count - 1])]
            has_next_page = len(ingest_seqs) == 2
            if has_next_page or not is_limited:
                break
            event_count *= 8
        last_ingest_seq = ingest_seqs[0] if ingest_seqs else None  # None: the page has fewer rows, and no next page.
        self.set_variables(up_to=last_ingest_seq, **dict.fromkeys(_PAGE_VARIABLES))
        return last_ingest_seq if has_next_page else None

    def _limit_page(self, view: str, event_count: int) -> bool:
        """Limit a page to this number of events in scope, by variables. Return False if fewer events follow `after`."""
        self.set_variables(up_to=None, **dict.fromkeys(_PAGE_VARIABLES))
        up_to = self._nth_event(event_count)
        self.set_variables(up_to=up_to, page_after=self.variable("after"), page_up_to=up_to)
        if view in _SESSION_VIEWS and self.has(_SESSION_PAGE_PERIOD):
            [(first_at, last_at)] = self._fetch_all(f"from {_SESSION_PAGE_PERIOD}")
            self.set_variables(page_since=first_at, page_until=last_at)
        return up_to is not None

    def _nth_event(self, number: int) -> int | None:
        """Return the ingest_seq of the nth event in scope after the variable `after`; None with fewer events."""
        sql = f"select ingest_seq from {page_from_clause('event_in_scope')} limit 1 offset $1"  # noqa: S608
        rows = self._fetch_all(sql, [number - 1])
        return rows[0][0] if rows else None

    def _create_temp_page(self, selection: SelectQuery, *, row_count: int) -> None:
        """Store the first rows of a page in a temporary table, which exists until the connection is closed."""
        names = [column.name for column in self.selected_columns(selection)]
        if "ingest_seq" not in names:
            names.append("ingest_seq")  # `page` reads it to find the end of the page.
        rows = f"select {', '.join(map(quoted, names))} from {page_from_clause(selection.view)} limit $1"  # noqa: S608
        self._execute(f"create or replace temp table {TEMP_PAGE} as {rows}", [row_count])

    def write_parquet(self, selection: str | SelectQuery, file: IO[bytes] | Path) -> None:
        """Write the rows of a view as Parquet in portable types: to a path, or into an open file with a descriptor."""
        sql, parameters = self._select_sql(selection, PORTABLE_EXPRESSIONS)
        # Write to the file itself: a temporary file can't replace an open file.
        options = f"format parquet, row_group_size {ROWS_OF_BATCH}, use_tmp_file false"
        self._fetch_all(f"copy ({sql}) to '{_sql_path(file)}' ({options})", parameters)

    def write_arrow(
        self, selection: str | SelectQuery, file: IO[bytes], *, scratch: Callable[[], IO[bytes]] = TemporaryFile
    ) -> None:
        """Write the rows of a view as an Arrow IPC stream, in batches of `ROWS_OF_BATCH`.

        Args:
            selection: the view and the rows to select.
            file: the file for the stream.
            scratch: creates a temporary file. The rows pass through it as Parquet, because DuckDB's own Arrow batches
                have a million rows.
        """
        from nanoarrow.ipc import StreamWriter  # imported late: few servers need it

        from embedsink.store.arrow import stream_of

        with scratch() as parquet_file, StreamWriter.from_writable(file) as writer:
            self.write_parquet(selection, parquet_file)
            source = f"from read_parquet('{_sql_path(parquet_file)}', file_row_number = true)"
            [(row_count,)] = self._fetch_all(f"select count(*) {source}")
            # Without rows, write one batch, which has the schema.
            for start in range(0, max(row_count, 1), ROWS_OF_BATCH):
                batch = f"where file_row_number between {start} and {start + ROWS_OF_BATCH - 1}"
                with unavailable_if_broken():
                    rows = self._connection.sql(f"select * exclude (file_row_number) {source} {batch}")
                    writer.write_stream(stream_of(rows), write_schema=start == 0)

    @contextlib.contextmanager
    def consistent(self) -> Iterator[None]:
        """Run all queries of this block in one transaction, so that they read the same state of the database.

        The end of the block drops a table of `materialize`.
        """
        self._drop_temp_table()  # Its rows are of an earlier state.
        self._execute("begin transaction")
        try:
            yield
        finally:
            self._temp_table = None  # The rollback drops it.
            with contextlib.suppress(duckdb.Error):  # Closing the connection ends the transaction too.
                self._connection.execute("rollback")

    def materialize(self, view: str, *, since: datetime | None, until: datetime | None) -> None:
        """Store the rows of a view for a period in a temporary table.

        Views that build on the view read the table, until the scope changes or a longer period is requested.

        Args:
            view: a view with the column `occurred_at`.
            since, until: the bounds of the longest period, in UTC.
        """
        self._drop_temp_table()
        self.set_variables(since=since, until=until)
        with unavailable_if_broken():
            table = TempTable(view, dict(self._variables))
            table.create(self._connection)
            self._temp_table = table

    def _drop_temp_table(self) -> None:
        """Drop the table of `materialize`, if there is one."""
        if self._temp_table:
            with unavailable_if_broken():
                self._temp_table.drop(self._connection)
            self._temp_table = None

    def interrupt(self) -> None:
        """Interrupt a running query. Any thread may call this."""
        # Hold the lock: DuckDB could free a closed connection during the interrupt.
        with self._close_lock:
            if not self._is_closed:
                self._connection.interrupt()

    def close(self) -> None:
        """Roll back, close the connection and release the resources."""
        with self._close_lock:
            self._is_closed = True
        # Otherwise DuckDB would roll back while it closes the connection. In a broken database, such a rollback aborts
        # the process (docs/decisions/0007).
        with contextlib.suppress(StoreBroken):  # Close the connection even if the rollback lacks memory.
            roll_back(self._connection)
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _execute_select(
        self, selection: str | SelectQuery, expressions: Mapping[str, str]
    ) -> duckdb.DuckDBPyConnection:
        """Execute the statement of a selection. Return the connection, which has the result.

        Args:
            selection: the view and the rows to select.
            expressions: the expressions that convert columns, by SQL type.
        """
        sql, parameters = self._select_sql(selection, expressions)
        return self._execute(sql, parameters)

    def _select_sql(self, selection: str | SelectQuery, expressions: Mapping[str, str]) -> tuple[str, list[object]]:
        """Return the statement of a selection and its parameters, and set the variable `requested_columns` for it.

        Args:
            selection: the view and the rows to select.
            expressions: the expressions that convert columns, by SQL type.
        """
        if isinstance(selection, str):
            selection = SelectQuery(selection)
        # A view may skip the work for columns that are not requested (the macro is_column_requested).
        self.set_variables(requested_columns=None if selection.columns is None else list(selection.columns))
        columns = self.selected_columns(selection)
        if self.has(f"{selection.view}{_OF_EVENTS}") and not self._reads_totals(selection.view):
            # Without daily totals in scope, the report has the same rows and takes less time.
            selection = replace(selection, view=f"{selection.view}{_OF_EVENTS}")
        if self._hides_ingest_seq:
            # An ingest_seq would show how many lines other deployments send.
            expressions = {**expressions, "ingest_seq": "null::bigint"}
        return select_sql(selection, columns, expressions)

    def _set_rollup_variables(self) -> None:
        """Set the variables for the newest rollup batch, so that all queries of this reader ignore later batches.

        The variables are null in snapshots of an embedsink without rollups.
        """
        batch_id = watermark = None
        with contextlib.suppress(duckdb.CatalogException):
            # Read both in one query, because a batch may be added between two queries.
            newest = self._connection.execute("select max(batch_id), max(watermark) from rollup_batch").fetchall()
            [(batch_id, watermark)] = newest
        set_variables(self._connection, dict(zip(ROLLUP_VARIABLES, (batch_id, watermark), strict=True)))

    def _apply_variables(self, variables: Mapping[str, object]) -> None:
        """Set variables and the option `hides_ingest_seq`. Drop the table of `materialize` if it lacks rows for them.

        Raises:
            ValueError: a name is not in `VARIABLES`.
        """
        if HIDES_INGEST_SEQ in variables:
            self._hides_ingest_seq = bool(variables[HIDES_INGEST_SEQ])
            variables = {name: value for name, value in variables.items() if name != HIDES_INGEST_SEQ}
        unknown = variables.keys() - set(VARIABLES)
        if unknown:
            # Without this check, a misspelt limit of a scope would show other deployments' rows.
            raise ValueError(f"variables {sorted(unknown)}: no view reads them. Valid names: {', '.join(VARIABLES)}.")
        tenants, tenant = variables.get("tenants"), variables.get("tenant")
        if isinstance(tenants, Sequence):
            variables = {**variables, "tenants": self._stored_tenants(tenants)}
        if isinstance(tenant, str):
            variables = {**variables, "tenant_hashes": self._stored_tenants([tenant])[1:]}
        set_variables(self._connection, variables)
        self._variables |= variables
        if self._temp_table and not self._temp_table.covers(self._variables):
            self._drop_temp_table()

    def _execute(self, sql: str, parameters: list[object] | None = None) -> duckdb.DuckDBPyConnection:
        """Execute a statement. Return the connection, which has the result."""
        with unavailable_if_broken():
            return self._connection.execute(sql, parameters)

    def _fetch_all(self, sql: str, parameters: list[object] | None = None) -> list[tuple[Any, ...]]:
        """Execute a statement and return all rows."""
        with unavailable_if_broken():  # Fetching may fail too.
            return self._execute(sql, parameters).fetchall()


def fetch_rows(result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Return the next rows of a result, at most `ROWS_AT_ONCE`; an empty list after the last row."""
    with unavailable_if_broken():
        return result.fetchmany(ROWS_AT_ONCE)


def _sql_path(file: IO[bytes] | Path) -> str:
    """Return the path of a file, which may be open, escaped for a SQL text: COPY has no parameters."""
    return str(file).replace("'", "''") if isinstance(file, Path) else f"/dev/fd/{file.fileno()}"
