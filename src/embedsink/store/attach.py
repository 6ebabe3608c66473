"""How the file of the database is attached."""

from pathlib import Path

import duckdb

# A table that is being filled holds a block for each column and for its nulls: 23 MiB in DuckDB's usual 256 KiB.
_BLOCK_BYTES = 65_536
# A checkpoint writes a row group anew until it is full. Of this size, checkpoints can be frequent, so that little waits
# in memory for the next, and no bytes an event are lost (docs/decisions/0007).
_ROW_GROUP_ROWS = 32_768


def attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    # Attached, because only so a database can be told its row groups, and to keep no log: the journal is its log, since
    # a segment is deleted only when a snapshot has its rows. 'v1.5.0' is what 1.5.5 can read, whoever writes it: so
    # nobody loses their history by going back from 2.0.
    options = f"recovery_mode no_wal_writes, row_group_size {_ROW_GROUP_ROWS}, storage_version 'v1.5.0'"
    if not path.exists():
        options += f", block_size {_BLOCK_BYTES}"  # later it stands in the file
    quoted = str(path).replace("'", "''")  # The operator's own words; ATTACH takes no parameters.
    connection.execute(f"attach '{quoted}' as store ({options})")
    connection.execute("use store")


def file_of(path: Path) -> tuple[int, int] | None:
    """Which file lies at a path; None for none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
