"""Named views, seen through a scope that is nothing but session variables."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from embedsink.errors import Misconfigured, Refused, Unavailable
from embedsink.reasons import Reason
from embedsink.store.failures import SqlUnfit, StoreBroken, StoreRefused, first_line, translated

if TYPE_CHECKING:
    import pandas

ROWS_AT_ONCE = 2_048
SCOPE_VARIABLES = (
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
    "row_limit",
    "sync_job_ids",
    "key_deployments",
)
EVERYTHING: Mapping[str, object] = {"deployments": None}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view: `type` in SQL's words, `comment` from `comment on column`."""

    name: str
    type: str
    comment: str


class Reader:
    """Named views through one scope. It owns a connection of its own: use it in one thread, and close it."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, scope: Mapping[str, object], *, held: contextlib.ExitStack
    ) -> None:
        self._connection = connection
        # Every variable is set, so that nothing is inherited from whoever used the connection before; and the one that
        # keeps readers apart must be named, because null means every deployment.
        for name, value in {name: scope.get(name) for name in SCOPE_VARIABLES}.items():
            connection.execute(f"set variable {name} = $1", [value])
        connection.execute("set variable deployments = $1", [scope["deployments"]])
        self._held = held.pop_all()  # whatever ends with this reader

    def narrowed(self, **variables: object) -> "Reader":
        """The same reader, with some of its variables set anew."""
        for name, value in variables.items():
            self._connection.execute(f"set variable {name} = $1", [value])
        return self

    def columns(self, view: str) -> list[Column]:
        """A view's columns with their comments, in order."""
        found = self._connection.execute(
            "select column_name, data_type, coalesce(comment, '') from duckdb_columns() "
            "where table_name = $1 and not internal order by column_index",
            [view],
        )
        return [Column(*row) for row in found.fetchall()]

    def comment(self, view: str) -> str:
        """What `comment on view` says."""
        found = self._connection.execute(
            "select coalesce(comment, '') from duckdb_views() where view_name = $1 and not internal", [view]
        ).fetchone()
        return found[0] if found else ""

    def rows(self, view: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a view, some thousand at a time, as they come from the engine."""
        result = self._ask(_rows_of(view))
        while rows := _fetch(result):
            yield rows

    def frame(self, view: str) -> "pandas.DataFrame":
        """The rows of a view as a frame."""
        return self._ask(_rows_of(view)).df()

    def run(self, sql: str) -> "pandas.DataFrame":
        """SQL of the reader's own, for the notebook's owner alone: nothing of the server calls this.

        Raises:
            Refused: it is no SQL, or names what there is not.
            Unavailable: it needs more memory than there is.
        """
        try:
            with translated():
                result: duckdb.DuckDBPyConnection | None = self._connection.execute(sql)
                if result is None:
                    raise Refused(Reason.BAD_PARAMETER, "sql: is empty. Write it like `select * from views`.")
                return result.df()
        except SqlUnfit as error:
            raise Refused(Reason.BAD_PARAMETER, f"sql: {str(error).rstrip('.')}. Correct it.") from error

    def first_row(self, sql: str) -> tuple[dict[str, Any], int]:
        """The first row that a check of `sql/checks` returns, by column, and how many there are."""
        result = self._ask(sql)
        names = [column[0] for column in result.description or ()]
        first = result.fetchone()
        count = int(first is not None)
        while rows := _fetch(result):
            count += len(rows)
        return dict(zip(names, first or (), strict=False)), count

    def write_parquet(self, view: str, path: Path) -> None:
        """The rows of a view as a Parquet file."""
        self._connection.sql(_rows_of(view)).write_parquet(str(path))

    def interrupt(self) -> None:
        """Stop a running question, from any thread."""
        with contextlib.suppress(duckdb.ConnectionException):  # closed meanwhile
            self._connection.interrupt()

    def close(self) -> None:
        """Give the connection back."""
        self._held.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, sql: str) -> duckdb.DuckDBPyConnection:
        try:
            with translated():
                return self._connection.execute(sql)
        except (StoreBroken, StoreRefused) as error:
            raise Unavailable(Reason.NOT_READY, f"store: {error}. Ask again, for a shorter period.") from error


def open_snapshot(path: Path, scope: Mapping[str, object]) -> Reader:
    """A reader of a published snapshot, for any number of programs at once.

    Raises:
        Misconfigured: there is none yet, or it can't be read.
    """
    if not path.exists():
        raise Misconfigured(f"{path}: does not exist. A server publishes it some seconds after its start.")
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(duckdb.connect(str(path), read_only=True)))
            return Reader(connection, scope, held=stack)
    except duckdb.Error as error:
        raise Misconfigured(f"{path}: can't be read ({first_line(error)}). The server makes it again.") from None


def _fetch(result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    with translated():
        return result.fetchmany(ROWS_AT_ONCE)


def _rows_of(view: str) -> str:
    # An identifier can't be a parameter. Callers name views of their own, never a sender's text (reports.known_name).
    return f'select * from "{view}"'  # noqa: S608
