"""The Parquet files of an archive.

They are read in a database of their own: a damaged file must not count as damage of the store.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import duckdb

from embedsink.errors import EmbedsinkError
from embedsink.store.archive_rows import TIME_COLUMNS
from embedsink.store.duckdb_errors import first_line
from embedsink.store.row_range import RowRange

_CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "256MB"}
_ROWS_AT_ONCE = 20_480


class ArchivedFileDamaged(EmbedsinkError):
    """A file can't be read as Parquet, or is not that of an archive. The message is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a Parquet file of an archive. The times of the first and the last event are in UTC."""

    row_count: int
    since: datetime
    until: datetime
    schema: str
    version: str


class ArchivedFiles(contextlib.AbstractContextManager["ArchivedFiles"]):
    """A reader of the Parquet files of an archive. Close it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_CONFIG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ids(self, table: str, path: Path, rows: RowRange) -> Iterator[list[tuple[int, str | None]]]:
        """Yield the ingest_seq and the id of the rows of a file that are in a range, many at once.

        Raises:
            ArchivedFileDamaged: the file can't be read.
        """
        columns = f"ingest_seq, {table}_id::varchar"
        query = f"select {columns} from read_parquet($1) where ingest_seq between $2 and $3"  # noqa: S608
        with _errors_translated():
            result = self._connection.execute(query, [str(path), rows.first, rows.below - 1])
            while batch := result.fetchmany(_ROWS_AT_ONCE):
                yield batch

    def describe(self, table: str, path: Path) -> Contents:
        """Return the content of a file.

        Raises:
            ArchivedFileDamaged: the file can't be read.
        """
        time = TIME_COLUMNS[table]
        query = f"select count(*), min({time}), max({time}) from read_parquet($1)"  # noqa: S608
        with _errors_translated():
            [(count, since, until)] = self._connection.execute(query, [str(path)]).fetchall()
            rows = self._connection.execute("select key, value from parquet_kv_metadata($1)", [str(path)]).fetchall()
        metadata: Mapping[str, str] = {key.decode(): value.decode() for key, value in rows}
        if not {"schema", "embedsink"} <= metadata.keys():
            raise ArchivedFileDamaged("embedsink did not write it")
        return Contents(count, since, until, metadata["schema"], metadata["embedsink"])


@contextlib.contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise ArchivedFileDamaged(first_line(error)) from None
