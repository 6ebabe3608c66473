"""A copy of the database without free space. DuckDB reuses the space of deleted rows, but does not shrink its file."""

from contextlib import suppress
from pathlib import Path

import duckdb

from embedsink.store.attach import file_options
from embedsink.store.sql_files import read_sql

# A copy is worth its time if at least this share of the blocks is free.
FREE_SHARE_MIN = 0.2
# Each checkpoint leaves a few free blocks, which would be most of a small store.
_FREE_BLOCKS_MIN = 8
_COPY = "rewritten"


def used_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of bytes of the store's file that contain data."""
    total_blocks, free_blocks, block_bytes = _blocks(connection)
    return (total_blocks - free_blocks) * block_bytes


def has_much_free_space(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the store's file has so much free space that a copy is worth its time."""
    total_blocks, free_blocks, _ = _blocks(connection)
    # Deleted events take space as long as their blocks have other events, such as those of other deployments.
    deleted_share = _deleted_share(connection)
    unused_blocks = free_blocks + deleted_share * (total_blocks - free_blocks)
    has_enough = free_blocks >= _FREE_BLOCKS_MIN or deleted_share >= FREE_SHARE_MIN
    return has_enough and unused_blocks >= FREE_SHARE_MIN * total_blocks


def write_copy(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write all rows of the store to a new file, in their order. The views are created when it is opened.

    Args:
        connection: a connection to the store, without a transaction.
        path: the path of the new file, which does not exist.
    """
    escaped_path = str(path).replace("'", "''")  # ATTACH has no parameters.
    connection.execute(f"attach '{escaped_path}' as {_COPY} ({file_options(path)})")
    try:
        connection.execute(f"use {_COPY}")
        connection.execute("create table migration as from store.migration")
        for sql in read_sql("migrations").values():
            connection.execute(sql)
        connection.execute("use store")
        tables = connection.execute("select table_name from duckdb_tables() where database_name = 'store'").fetchall()
        for (table,) in tables:
            if table != "migration":
                connection.execute(f'truncate {_COPY}."{table}"')  # A migration may have inserted rows.
                connection.execute(f'insert into {_COPY}."{table}" by name from "{table}"')
        connection.execute(f"checkpoint {_COPY}")
    except BaseException:
        with suppress(duckdb.Error):  # The first error says what is wrong.
            _detach(connection)
        raise
    _detach(connection)


def delete_copy(path: Path) -> None:
    """Delete an incomplete copy with its write-ahead log. A killed process leaves one."""
    for part in (path, path.with_name(f"{path.name}.wal")):
        part.unlink(missing_ok=True)


def _detach(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("use store")
    connection.execute(f"detach {_COPY}")


def _deleted_share(connection: duckdb.DuckDBPyConnection) -> float:
    """Return the share of the events in the store's file that are deleted."""
    query = """
        select estimated_size, (select count(*) from event)
        from duckdb_tables()
        where database_name = 'store' and table_name = 'event'
    """
    [(row_count, remaining_count)] = connection.execute(query).fetchall()  # `estimated_size` counts deleted rows too.
    return 1 - remaining_count / row_count if row_count else 0.0


def _blocks(connection: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Return the number of blocks of the store's file, the number of free ones, and the size of a block."""
    query = "select total_blocks, free_blocks, block_size from pragma_database_size() where database_name = 'store'"
    [(total_blocks, free_blocks, block_bytes)] = connection.execute(query).fetchall()
    return total_blocks, free_blocks, block_bytes
