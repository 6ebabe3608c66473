"""Connections to DuckDB, and the options with which the store's file is attached."""

from pathlib import Path

import duckdb

from embedsink.store.limits import StoreLimits

# A table in use has a block in memory for each column and for its nulls: 23 MiB with blocks of 256 KiB.
_BLOCK_BYTES = 65_536
# A checkpoint rewrites the last row group until it is full. This size allows frequent checkpoints, so few rows wait in
# memory (docs/decisions/0007).
_ROW_GROUP_ROWS = 32_768


def connect(limits: StoreLimits, *, spill: Path) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory database with these limits. DuckDB spills to the folder `spill`."""
    return duckdb.connect(
        ":memory:",
        config={
            # No commit reaches this threshold: a failed checkpoint in a commit would break the database.
            # `Store.checkpoint_when_due` checkpoints instead.
            "checkpoint_threshold": "1TB",
            "memory_limit": f"{limits.counted_bytes}B",
            "threads": limits.threads,
            "temp_directory": str(spill),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )


def attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Attach the file as `store`, and make it the default database.

    The store has no write-ahead log, because the journal is one: a segment is deleted only when a snapshot has its
    rows. The option `storage_version` makes DuckDB 2.0 write the format of 1.5, so that a downgrade can read the file.
    """
    escaped_path = str(path).replace("'", "''")  # ATTACH has no parameters.
    connection.execute(f"attach '{escaped_path}' as store ({file_options(path)})")
    connection.execute("use store")


def file_options(path: Path) -> str:
    """Return the options of ATTACH for the store's file."""
    options = f"recovery_mode no_wal_writes, row_group_size {_ROW_GROUP_ROWS}, storage_version 'v1.5.0'"
    # An existing file keeps its block size.
    return options if path.exists() else f"{options}, block_size {_BLOCK_BYTES}"
