"""Empty stores for tests. A process creates one and copies it, because creating takes longer than most tests."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from embedsink.data_folder import DataFolder
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.snapshot_reader import SnapshotReader, open_snapshot
from embedsink.store.sql_files import read_sql


def open_store(path: Path, limits: StoreLimits | None = None) -> Store:
    """Open a new store with all tables and views, and without rows."""
    path.write_bytes(empty_store())
    store = Store(path, limits)
    store.open()
    return store


def open_copy(store: Store, scope: Mapping[str, object]) -> SnapshotReader:
    """Copy the file of an open store, and open the copy as a snapshot."""
    store.checkpoint()
    copy = store.path.with_name("copy.duckdb")
    copyfile(store.path, copy)
    return open_snapshot(copy, scope)


def make_folder(path: Path) -> DataFolder:
    """Return a data folder. If it is missing or empty, create it with an empty store."""
    folder = DataFolder(path)
    if not path.exists() or not any(path.iterdir()):
        folder.create()
        folder.store.write_bytes(empty_store())
    return folder


@cache
def empty_store() -> bytes:
    """Return the file of a store with all tables and views, and without rows."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.duckdb")
        store.open()
        store.close()
        return store.path.read_bytes()


def make_older(store: Store, *, before: str) -> None:
    """Undo the migrations from `before` on, keep the rows, and close the store."""
    connection = store._load_connection()
    if before <= "0010":
        for sql in _undone_renames():
            connection.execute(sql)
    tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    columns = {table: connection.table(table).columns for table in tables if table != "migration"}
    for table in columns:
        connection.execute(f"alter table {table} rename to newer_{table}")
    for name, sql in read_sql("migrations").items():
        if name < before:
            connection.execute(sql)
    for table, newer in columns.items():
        older = connection.execute("select column_name from duckdb_columns() where table_name = $1", [table]).fetchall()
        shared = ", ".join(f'"{name}"' for (name,) in older if name in newer)
        if shared:
            connection.execute(f"insert into {table} by name select {shared} from newer_{table}")
        connection.execute(f"drop table newer_{table}")
    connection.execute("delete from migration where name >= $1", [before])
    connection.execute("comment on table migration is 'older'")
    store.checkpoint()
    store.close()


def _undone_renames() -> list[str]:
    """Return the statements that undo the migration that renamed tables and columns."""
    statements = re.findall(
        r"alter table (\w+) rename (column )?(?:(\w+) )?to (\w+);", read_sql("migrations")["0010_column_names"]
    )
    return [
        f"alter table {table} rename column {new} to {old}" if is_column else f"alter table {new} rename to {table}"
        for table, is_column, old, new in reversed(statements)
    ]
