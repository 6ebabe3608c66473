"""The rows of an archive's files as deliveries, which an import reads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from embedsink.errors import Misconfigured
from embedsink.key_scope import EVERYTHING
from embedsink.store.attach import connect
from embedsink.store.duckdb_errors import first_line
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import Reader
from embedsink.store.schema import bring_up_to_date
from embedsink.store.sql_files import read_sql

_VIEWS = {"event": "event_export", "action": "event_export", "loss": "loss_export"}


class ArchiveReader:
    """A reader of an archive's files. It puts the rows of a file into an empty database, whose views convert them.

    Args:
        connection: a connection to a database with the tables and views of a store.
        reader: a reader of this database.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, reader: Reader) -> None:
        self._connection = connection
        self._reader = reader

    def deliveries(self, table: str, path: Path) -> Iterator[bytes]:
        """Yield the rows of a file as deliveries in JSON, in the order in which they arrived.

        Args:
            table: the table of the rows.
            path: the path of the file.

        Raises:
            Misconfigured: the file can't be read.
        """
        try:
            self._connection.execute(f"truncate {table}")
            query = f"insert into {table} by name from read_parquet($1) order by ingest_seq"
            self._connection.execute(query, [str(path)])
        except duckdb.Error as error:
            raise Misconfigured(f"{path}: can't be read ({first_line(error)}). Copy the file again.") from None
        for rows in self._reader.rows(_VIEWS[table]):
            for (delivery,) in rows:
                yield delivery.encode()
        self._connection.execute(f"truncate {table}")


@contextlib.contextmanager
def open_archive_reader(service_name: str) -> Iterator[ArchiveReader]:
    """Open a reader with an empty database in memory, which spills to a temporary folder."""
    with (
        TemporaryDirectory(prefix="embedsink-archive-") as spill,
        contextlib.closing(connect(StoreLimits(memory_bytes=384 * 1_048_576), spill=Path(spill))) as connection,
        contextlib.ExitStack() as stack,
    ):
        bring_up_to_date(connection, "archive")
        cursor = stack.enter_context(contextlib.closing(connection.cursor()))
        variables = {**EVERYTHING.variables(), "service_name": service_name}
        with Reader(cursor, variables, resources=stack) as reader:
            yield ArchiveReader(connection, reader)


def is_known_schema(schema: str) -> bool:
    """Return whether this version of embedsink knows a migration."""
    return schema in read_sql("migrations")
