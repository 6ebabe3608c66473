"""Reads every row of a database file, to detect damage."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from embedsink.store.duckdb_errors import StoreBroken, StoreDamaged, duckdb_errors_translated

_ROWS_AT_ONCE = 500_000
# Enough for 2,048 rows of the longest strings.
_CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "512MB"}


def read_every_row(path: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Read every value of a database file that no other process has open. DuckDB verifies each block that it reads.

    Args:
        path: the file.
        on_step: called after each 500,000 rows of a table.

    Raises:
        StoreDamaged: a row can't be read.
        StoreRefused: memory or disk space is insufficient.
    """
    config = _CONFIG | {"temp_directory": str(path.with_suffix(".spill"))}
    try:
        with duckdb_errors_translated(opening=True):
            connection = duckdb.connect(str(path), read_only=True, config=config)
    except StoreBroken as error:
        raise StoreDamaged(str(error)) from error
    with contextlib.closing(connection), duckdb_errors_translated():
        connection.execute("set enable_progress_bar = false")
        for (table,) in connection.execute("select table_name from duckdb_tables() where not temporary").fetchall():
            # Not a count: deleted rows leave gaps.
            [(last,)] = connection.execute(f'select max(rowid) from "{table}"').fetchall()  # noqa: S608
            for start in range(0, -1 if last is None else last + 1, _ROWS_AT_ONCE):
                rows = f"where rowid >= {start} and rowid < {start + _ROWS_AT_ONCE}"  # a parameter would load pandas
                # DuckDB reads only the blocks of values in use.
                connection.execute(f'select bit_xor(hash(t)) from "{table}" t {rows}').fetchall()  # noqa: S608
                on_step()
