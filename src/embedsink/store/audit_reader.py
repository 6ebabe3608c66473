"""Readers of the audit trail. The view `audit_entry` reads its files; it exists in a database in memory only.

The trail is neither in the store nor in the snapshot, which analysts read.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

import duckdb

from embedsink.key_scope import EVERYTHING
from embedsink.store.reader import Reader
from embedsink.store.sql_files import read_sql

# `temp_directory`: a database in memory would spill to the current folder.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "128MiB",
    "threads": 1,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
}


@contextlib.contextmanager
def open_audit_reader(files: Sequence[Path], variables: Mapping[str, object]) -> Iterator[Reader]:
    """Yield a reader of the views of `sql/audit`.

    Args:
        files: the files of the audit trail, in their order. A file that is deleted meanwhile causes an error.
        variables: the filters: `since`, `until`, `action`, `actor`, `before_number` and `row_limit`.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(duckdb.connect(config=_CONFIG)))
        # DuckDB requires a file, and refuses devices such as /dev/null.
        paths = [str(path) for path in files] or [stack.enter_context(NamedTemporaryFile(suffix=".ndjson")).name]
        connection.execute("set variable audit_files = $1", [paths])
        for sql in read_sql("audit").values():
            connection.execute(sql)
        with Reader(
            connection, {**EVERYTHING.variables(), **variables, "audit_files": paths}, resources=stack
        ) as reader:
            yield reader
