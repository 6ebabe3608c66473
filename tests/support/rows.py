"""Rows straight into the tables, for tests that need thousands of histories and no journal."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import duckdb

from embedsink.store.insert import fill_session_ready
from embedsink.store.schema import create_views
from embedsink.store.sql_files import read_sql, read_views


def views_over_nothing() -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables, empty, and the views."""
    connection = duckdb.connect()
    for sql in read_sql("migrations").values():
        connection.execute(sql)
    create_views(connection)
    return connection


def reports_upon(name: str) -> set[str]:
    """Return the reports that read a table, a view or a macro, directly or through other views and macros."""
    upon = {name}
    while more := {view for view, sql in read_views().items() if upon & names_in(sql)} - upon:
        upon |= more
    return upon & read_sql("reports").keys()


def names_in(sql: str) -> set[str]:
    """Return the tables, views and macros that the file of a view or macro names, with others that look like them."""
    code = re.sub("--.*", "", sql.partition("\ncomment on ")[0])
    return {name for pair in re.findall(r"\b(?:from|join)\s+(\w+)|(\w+)\(", code) for name in pair}


def replace_events(connection: duckdb.DuckDBPyConnection, rows: Iterable[Mapping[str, object]]) -> None:
    """Make these the only events. All rows have the same columns."""
    replace_rows(connection, "event", rows)
    fill_session_ready(connection)


def replace_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Make these the only rows of a table. All have the same columns."""
    rows = list(rows)
    connection.execute(f"truncate {table}")
    if rows:
        into = connection.table(table)  # its columns, without asking the catalog, which knows all views too
        types = dict(zip(into.columns, into.types, strict=True))
        # A list for each column: thousands of rows take no longer to bind than one.
        lists = [f"unnest(${place}::{types[name]}[])" for place, name in enumerate(rows[0], 1)]
        connection.execute(
            f"insert into {table} ({', '.join(rows[0])}) select {', '.join(lists)}",
            [[row[name] for row in rows] for name in rows[0]],
        )


@contextmanager
def variables(connection: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> Iterator[None]:
    """Set session variables for a while."""
    for name, value in values.items():
        connection.execute(f"set variable {name} = $1", [value])
    try:
        yield
    finally:
        for name in values:
            connection.execute(f"reset variable {name}")
