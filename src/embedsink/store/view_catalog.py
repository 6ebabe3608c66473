"""The catalog of a database: its views and tables, with their columns and comments."""

from collections import defaultdict
from dataclasses import dataclass

import duckdb

_COLUMNS_SQL = """
select table_name, column_name, data_type, coalesce(comment, '')
from duckdb_columns()
where not internal and database_name <> 'temp'
order by table_name, column_index
"""
_COMMENTS_SQL = "select view_name, coalesce(comment, '') from duckdb_views() where not internal and not temporary"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view, with its SQL type and its comment from `comment on column`."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class View:
    """A view or table: its comment from `comment on view`, and its columns in order."""

    comment: str
    columns: tuple[Column, ...]


def read_catalog(connection: duckdb.DuckDBPyConnection) -> dict[str, View]:
    """Return all views and tables of a database by name.

    Cache the result: it takes longer than a small report, and reading a single view would not be faster.
    """
    columns: dict[str, list[Column]] = defaultdict(list)
    for view, name, sql_type, comment in connection.execute(_COLUMNS_SQL).fetchall():
        columns[view].append(Column(name, sql_type, comment))
    comments = dict(connection.execute(_COMMENTS_SQL).fetchall())
    return {view: View(comments.get(view, ""), tuple(columns[view])) for view in columns}
