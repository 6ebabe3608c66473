"""Direct inserts into tables, for tests that need thousands of histories and no journal."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from embedsink.store.insert import fill_session_ready
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql, read_views
from tests.support.stores import empty_store


def connect_in_memory() -> duckdb.DuckDBPyConnection:
    """Open an in-memory database with empty tables and all views."""
    connection = duckdb.connect()
    with TemporaryDirectory() as folder:
        store = Path(folder) / "store.duckdb"
        store.write_bytes(empty_store())
        connection.execute(f"attach '{store}' as template (read_only)")
        connection.execute("copy from database template to memory (schema)")
        connection.execute("detach template")
    return connection


def reports_reading(name: str) -> set[str]:
    """Return the reports that read a table, a view or a macro, directly or through other views and macros."""
    names = {name}
    while new_names := {view for view, sql in read_views().items() if names & relations_in(sql)} - names:
        names |= new_names
    return names & read_sql("reports").keys()


def relations_in(sql: str) -> set[str]:
    """Return the tables, views and macros that the SQL of a view or macro names, and other names in the same places."""
    code = re.sub("--.*", "", sql.partition("\ncomment on ")[0])
    names = {name for pair in re.findall(r"\b(?:from|join)\s+(\w+)|(\w+)\(", code) for name in pair}
    # Some views pass the name of their source to a macro, in quotes.
    return names | set(re.findall(r"_(?:of|in_scope)\('(\w+)'\)", code))


def replace_events(connection: duckdb.DuckDBPyConnection, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace all events. All rows have the same columns."""
    replace_rows(connection, "event", rows)
    fill_session_ready(connection)


def replace_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace all rows of a table. All rows have the same columns."""
    rows = list(rows)
    connection.execute(f"truncate {table}")
    if rows:
        table_relation = connection.table(table)  # avoids the catalog functions, which also list all views
        types = dict(zip(table_relation.columns, table_relation.types, strict=True))
        # Bind one list per column, because binding each value of thousands of rows is slow.
        lists = [f"unnest(${number}::{types[name]}[])" for number, name in enumerate(rows[0], 1)]
        connection.execute(
            f"insert into {table} ({', '.join(rows[0])}) select {', '.join(lists)}",
            [[row[name] for row in rows] for name in rows[0]],
        )


@contextmanager
def variables(connection: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> Iterator[None]:
    """Set session variables until the end of the block."""
    set_variables(connection, values)
    try:
        yield
    finally:
        for name in values:
            connection.execute(f"reset variable {name}")
