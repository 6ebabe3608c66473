"""Readers of a snapshot, for people and tools on the machine of the server. They may run any SQL."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import duckdb

from embedsink.data_folder import require_folder
from embedsink.errors import Misconfigured, Refused, Unavailable
from embedsink.reasons import Reason
from embedsink.store.archive_rows import ArchiveRows
from embedsink.store.duckdb_errors import (
    SqlFailed,
    StoreRefused,
    StoreTooSmall,
    duckdb_errors_translated,
    first_line,
    unavailable_if_broken,
)
from embedsink.store.frames import execute_as, frame_of
from embedsink.store.query import SelectQuery
from embedsink.store.reader import PORTABLE_EXPRESSIONS, Reader, fetch_rows
from embedsink.store.schema import are_views_current, refuse_newer_format, refuse_newer_schema

if TYPE_CHECKING:
    import pandas


class SnapshotReader(Reader):
    """A reader of a published snapshot.

    The server reads with `Reader`, which has no method that runs SQL of a caller: such SQL could read any deployment
    and any file.
    """

    def is_up_to_date(self) -> bool:
        """Return whether this version of embedsink and of DuckDB created the views."""
        with unavailable_if_broken():
            return are_views_current(self._connection)

    def frame(self, selection: str | SelectQuery) -> tuple["pandas.DataFrame", list[str]]:
        """Return the rows of a view as a data frame in portable types, and the SQL type of each column.

        `PORTABLE_EXPRESSIONS` convert the other types.
        """
        with unavailable_if_broken():
            return frame_of(self._execute_select(selection, PORTABLE_EXPRESSIONS))

    def run(
        self, sql: str, parameters: object = None, *, caller: FrameType | None = None
    ) -> tuple["pandas.DataFrame", list[str]]:
        """Run SQL from a notebook. Return the result as a data frame, and the SQL type of each column.

        Args:
            sql: one or more statements; the result is that of the last.
            parameters: a list for `?` and `$1`, or a dictionary for `$name`.
            caller: a Python frame whose variables the SQL may name as tables.

        Raises:
            Refused: DuckDB can't run the SQL. The error has DuckDB's whole message.
            Unavailable: the SQL needs more memory than the limit.
        """
        self.set_variables(requested_columns=None)  # Undo the selection of columns of an earlier query.
        try:
            with duckdb_errors_translated(whole=True):
                result = execute_as(caller, self._connection, sql, parameters)
                if result is None:
                    raise Refused(Reason.BAD_PARAMETER, "sql: is empty. Example: `select * from views`.")
                return frame_of(result)
        except StoreTooSmall as error:
            raise Unavailable(Reason.NOT_READY, f"sql: {error}\nSelect fewer rows.") from error
        except (SqlFailed, StoreRefused) as error:
            lacks_parameters = "Values were not" in str(error)
            hint = "\nPass a list for ? and $1, or a dictionary for $name." if lacks_parameters else ""
            raise Refused(Reason.BAD_PARAMETER, f"sql: {error}{hint}") from error

    @contextlib.contextmanager
    def archive_rows(self) -> Iterator[ArchiveRows]:
        """Return the rows for an archive. The variables `since` and `until` limit them.

        Raises:
            Unavailable: the rows can't be read, or their files can't be written.
        """
        with unavailable_if_broken(), contextlib.closing(ArchiveRows(self._connection)) as rows:
            yield rows

    def first_row(self, sql: str) -> tuple[dict[str, Any], int]:
        """Run SQL such as a check. Return the first row as a dictionary (empty without rows), and the row count."""
        self.set_variables(requested_columns=None)  # Undo the selection of columns of an earlier query.
        result = self._execute(sql)
        with unavailable_if_broken():
            names = [name for name, *_ in result.description or ()]
            first_row = result.fetchone()
        if first_row is None:
            return {}, 0
        row_count = 1
        # Fetch in batches: a check may find millions of rows.
        while rows := fetch_rows(result):
            row_count += len(rows)
        return dict(zip(names, first_row, strict=True)), row_count


def open_snapshot(path: Path, scope: Mapping[str, object]) -> SnapshotReader:
    """Open a reader of a published snapshot. Any number of processes may have it open.

    Raises:
        Misconfigured: the snapshot does not exist yet, can't be read, or is from a newer embedsink.
    """
    require_folder(path.parent)
    if not path.exists():
        raise Misconfigured(f"{path}: does not exist. A server publishes it a few seconds after it starts.")
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(duckdb.connect(str(path), read_only=True)))
            refuse_newer_schema(connection, path.name)
            return SnapshotReader(connection, scope, resources=stack)
    except duckdb.Error as error:
        refuse_newer_format(error, path.name)
        raise Misconfigured(f"{path}: can't be read ({first_line(error)}). The server publishes a new one.") from None
