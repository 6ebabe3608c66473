"""The detection of damage in a database file by reading every row."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from embedsink.store.duckdb_errors import StoreBroken, StoreDamaged, duckdb_errors_translated

_ROWS_AT_ONCE = 500_000
# The memory limit is sufficient for 2,048 rows of the longest strings, which DuckDB reads at a time.
_CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "512MB"}


def read_every_row(path: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Read every value of a database file that no process writes. DuckDB verifies each block that it reads.

    Args:
        path: the file.
        on_step: called after each `_ROWS_AT_ONCE` rows of a table.

    Raises:
        StoreDamaged: a row can't be read.
        StoreRefused: memory or disk space is insufficient.
    """
    config = _CONFIG | {"temp_directory": str(path.with_suffix(".spill"))}
    try:
        with duckdb_errors_translated(opening=True):
            connection = duckdb.connect(str(path), read_only=True, config=config)
    except StoreBroken as error:  # A file that can't be opened counts as damaged.
        raise StoreDamaged(str(error)) from error
    with contextlib.closing(connection), duckdb_errors_translated():
        connection.execute("set enable_progress_bar = false")
        for (table,) in connection.execute("select table_name from duckdb_tables() where not temporary").fetchall():
            # Use row ids instead of a count: deleted rows leave gaps.
            [(end,)] = connection.execute(f'select coalesce(max(rowid) + 1, 0) from "{table}"').fetchall()  # noqa: S608
            for start in range(0, end, _ROWS_AT_ONCE):
                # The numbers are not parameters, because DuckDB imports pandas for a query with parameters.
                where = f"where rowid >= {start} and rowid < {start + _ROWS_AT_ONCE}"
                # DuckDB reads only the values that a query uses, so hash whole rows.
                connection.execute(f'select bit_xor(hash(t)) from "{table}" t {where}').fetchall()  # noqa: S608
                on_step()
