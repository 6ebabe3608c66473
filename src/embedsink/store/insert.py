"""Journal segments to rows: the files of `sql/load/`, in the order of their names."""

import itertools
from collections.abc import Sequence

import duckdb

from embedsink.journal.segment import SEALED, Segment
from embedsink.store.sql_files import read_sql

LINE_BITS = 32
_COUNTED = "(select ingest_seq from incoming_line where kind = 'counted' union all select ingest_seq from id_conflict)"
# Files of `sql/load/` that run only if this query has rows, because most of them parse the segments once more.
_ONLY_WITH = {
    "journal_hour": "incoming_line where not is_imported",
    "event": "incoming_line where kind = 'event'",
    "action": "incoming_line where kind = 'action'",
    "id_conflict": "duplicate_line",
    "incoming_rejection": "incoming_line where kind = 'quarantined'",
    "conflict_rejection": "id_conflict",
    "quarantine": "incoming_rejection",
    "counted_rejection": _COUNTED,
    "rejection_count": _COUNTED,
    "replay": "incoming_line where kind = 'replayed'",
    "loss": "incoming_line where kind = 'lost'",
    "sync": "incoming_line where kind = 'sync'",
    "session_ready": "incoming_line where kind in ('event', 'lost')",
}


def load_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Insert the rows of the segments that the variable `segments` describes, and their names.

    Args:
        connection: a connection to the database, in a transaction, with the variables that `sql/load/` reads.
    """
    for name, sql in read_sql("load").items():
        if name not in _ONLY_WITH or _has_rows(connection, _ONLY_WITH[name]):
            connection.execute(sql)


def changed_deployments(connection: duckdb.DuckDBPyConnection) -> set[int]:
    """Return the deployments whose readers may have other rows since the load.

    Args:
        connection: a connection to the database, in the transaction that loads, after `load_rows`.
    """
    steps = ["deployments_of_rows"]
    steps += ["deployments_of_replays"] * _has_rows(connection, "incoming_line where kind = 'replayed'")
    steps += ["deployments_of_counts"] * _has_rows(connection, "incoming_line where kind = 'counted'")
    steps += ["deployments_of_sessions"] * _has_rows(connection, "session_ready")
    rows = [row for name in steps for row in connection.execute(read_sql("revisions")[name]).fetchall()]
    return {deployment for (deployment,) in rows if deployment is not None}


def fill_session_ready(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill `session_ready` again from all events, in a transaction."""
    connection.execute("truncate session_ready")
    connection.execute("truncate ready_fact")
    connection.execute("set variable loaded_from = -1")
    connection.execute("set variable loaded_until = 9223372036854775807")
    connection.execute(read_sql("load")["session_ready"])


def described(segments: Sequence[Segment]) -> list[dict[str, object]]:
    """Return the descriptions of segments for `sql/load/`, in their order."""
    return list(map(_described, segments, _lines_before(segments)))


def _described(segment: Segment, lines_before: int) -> dict[str, object]:
    """Return the description of a segment; `lines_before` is the number of lines of the segments before it."""
    return {
        "path": str(segment.path),
        "name": f"{segment.identity}{SEALED}",  # the suffix of the file may differ
        "number": segment.number,
        "byte_count": segment.byte_count,
        "lines_before": lines_before,
    }


def _lines_before(segments: Sequence[Segment]) -> list[int]:
    return list(itertools.accumulate((segment.count_lines() for segment in segments[:-1]), initial=0))


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return connection.execute(f"select 1 from {table} limit 1").fetchone() is not None  # noqa: S608
