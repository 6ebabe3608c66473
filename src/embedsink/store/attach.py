"""Connects to DuckDB, and attaches the file of the database."""

from pathlib import Path

import duckdb

from embedsink.store.limits import StoreLimits

# A table in use has a block in memory for each column and for its nulls: 23 MiB with blocks of 256 KiB.
_BLOCK_BYTES = 65_536
# A checkpoint rewrites the last row group until it is full. This size allows frequent checkpoints, so few rows wait in
# memory (docs/decisions/0007).
_ROW_GROUP_ROWS = 32_768


def connect(limits: StoreLimits, *, spill: Path) -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory with these limits, which spills to this folder."""
    return duckdb.connect(
        ":memory:",
        config={
            # Never automatic: a failed checkpoint in a commit would break the database (see checkpoint_when_due).
            "checkpoint_threshold": "1TB",
            "memory_limit": f"{limits.counted_bytes}B",
            "threads": limits.threads,
            "temp_directory": str(spill),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )


def attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Attach the file as `store`, and use it."""
    # Only ATTACH has these options. No write-ahead log: the journal is the log, because a segment is deleted only when
    # a snapshot has its rows. Format 'v1.5.0', so that a downgrade from DuckDB 2.0 can read the file.
    options = f"recovery_mode no_wal_writes, row_group_size {_ROW_GROUP_ROWS}, storage_version 'v1.5.0'"
    if not path.exists():
        options += f", block_size {_BLOCK_BYTES}"  # an existing file keeps its block size
    quoted = str(path).replace("'", "''")  # from the operator; ATTACH has no parameters
    connection.execute(f"attach '{quoted}' as store ({options})")
    connection.execute("use store")


def file_of(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
