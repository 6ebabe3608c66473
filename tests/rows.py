"""Rows straight into the `event` table, for tests that need thousands of histories and no journal."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import duckdb

from embedsink.sqlfiles import read_sql
from embedsink.store import create_views


def views_over_nothing() -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables, empty, and the views."""
    connection = duckdb.connect()
    for sql in read_sql("schema").values():
        connection.execute(sql)
    create_views(connection)
    return connection


def replace_events(connection: duckdb.DuckDBPyConnection, rows: Iterable[Mapping[str, object]]) -> None:
    """Make these the only events. All rows have the same columns."""
    rows = list(rows)
    connection.execute("truncate event")
    if rows:
        names = list(rows[0])
        place = f"({', '.join('?' * len(names))})"
        connection.execute(
            f"insert into event ({', '.join(names)}) values {', '.join([place] * len(rows))}",
            [row[name] for row in rows for name in names],
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
