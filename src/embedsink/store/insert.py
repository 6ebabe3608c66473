"""The insertion of journal segments into the tables, by the SQL files of `sql/load/`."""

from collections.abc import Sequence

import duckdb

from embedsink.journal.segment import SEALED, Segment
from embedsink.store.id_runs import IdRuns
from embedsink.store.limits import StoreLimits
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# An `ingest_seq` is the number of a segment, followed by these bits for the number of a line.
LINE_BITS = 32
_COUNTED = "(select ingest_seq from incoming_line where kind = 'counted' union all select ingest_seq from id_conflict)"
# The files of `sql/load/` that run only if these rows exist. Most of them parse the segments again, which takes time.
_REQUIRED_ROWS = {
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
    "directory": "incoming_line where kind = 'directory'",
    "session_ready": "incoming_line where kind in ('event', 'lost')",
}

_UPDATE_VIEWERS = """
update directory_user set viewer = viewer_of(resource, $1) where viewer is distinct from viewer_of(resource, $1)
"""


def first_ingest_seq(segment_number: int) -> int:
    """Return the smallest `ingest_seq` of a segment: its number, followed by 32 bits for the number of a line."""
    return segment_number << LINE_BITS


def load_variables(segments: Sequence[Segment], limits: StoreLimits, *, free_bytes: int) -> dict[str, object]:
    """Return the variables that the SQL files of `sql/load/` read.

    Args:
        segments: the segments to load.
        limits: the limits of the store.
        free_bytes: the free space on the store's disk.
    """
    return {
        "segments": _describe_segments(segments),
        "segment_paths": [str(segment.path) for segment in segments],
        "line_bytes_max": max(segment.group_bytes_max for segment in segments),  # No line is longer than its group.
        "loaded_from": first_ingest_seq(min(segment.number for segment in segments)),
        "loaded_until": first_ingest_seq(max(segment.number for segment in segments) + 1),
        "dedup_days": limits.dedup_days,
        "viewer_attribute": limits.viewer_attribute,
        "quarantine_bytes_per_day": limits.quarantine_bytes_per_day,
        "quarantine_count_per_day": limits.quarantine_count_per_day,
        # Whether to store id conflicts (envelopes with the id of an earlier, different one), or only count them.
        "keeps_conflicts": free_bytes >= limits.quarantine_free_bytes_min,
    }


def load_rows(connection: duckdb.DuckDBPyConnection, id_runs: IdRuns) -> None:
    """Insert the rows and the names of the segments that the SQL variable `segments` describes.

    Args:
        connection: a connection to the database, in a transaction, with the variables that `sql/load/` reads.
        id_runs: the runs of ids of the database.
    """
    for name, sql in read_sql("load").items():
        if name == "duplicate":
            _find_stored_ids(connection, id_runs)
        # Skip a file that would insert nothing, because most files parse the segments again.
        if name not in _REQUIRED_ROWS or _has_rows(connection, _REQUIRED_ROWS[name]):
            connection.execute(sql)


def _find_stored_ids(connection: duckdb.DuckDBPyConnection, id_runs: IdRuns) -> None:
    """Find the stored envelopes with the ids of `incoming_line`, after its journal hour has begun."""
    sql = read_sql("deduplication")
    connection.execute(sql["compared_id"])
    [(compared_from,)] = connection.execute("select getvariable('dedup_from')::bigint").fetchall()
    for start, end in id_runs.ranges_to_compare(connection, compared_from):
        set_variables(connection, {"compared_from": start, "compared_until": end})
        connection.execute(sql["stored_id"])


def count_lines(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of loaded lines, in the transaction that loads, after `load_rows`."""
    [(count,)] = connection.execute("select count(*) from incoming_line").fetchall()
    return int(count)


def changed_deployments(connection: duckdb.DuckDBPyConnection) -> set[int]:
    """Return the deployments whose reports a load may have changed.

    Args:
        connection: a connection to the database, in the transaction that loads, after `load_rows`.
    """
    queries = ["deployments_of_rows"]
    # Run the other queries only if they can find deployments. `incoming_line` has the lines of this load.
    if _has_rows(connection, "incoming_line where kind = 'replayed'"):
        queries.append("deployments_of_replays")
    if _has_rows(connection, "incoming_line where kind = 'counted'"):
        queries.append("deployments_of_counts")
    if _has_rows(connection, "session_ready"):
        queries.append("deployments_of_sessions")
    deployments: set[int | None] = set()
    for name in queries:
        rows = connection.execute(read_sql("revisions")[name]).fetchall()
        deployments |= {deployment for (deployment,) in rows}
    return {deployment for deployment in deployments if deployment is not None}  # Some rows have no deployment.


def changes_directory(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether a load has changed the directory.

    Args:
        connection: a connection to the database, in the transaction that loads, after `load_rows`.
    """
    return _has_rows(connection, "incoming_line where kind = 'directory'")


def fill_session_ready(connection: duckdb.DuckDBPyConnection) -> None:
    """Compute `session_ready` again from all events: the deployments and tenants that a session's `ready` events name.

    The connection has to be in a transaction.
    """
    connection.execute("truncate session_ready")
    connection.execute("truncate ready_fact")  # Its rows decide whether `session_ready` is filled.
    # Bounds that include each ingest_seq.
    connection.execute("set variable loaded_from = -1")
    connection.execute("set variable loaded_until = 9223372036854775807")
    connection.execute(read_sql("load")["session_ready"])


def update_viewers(connection: duckdb.DuckDBPyConnection, attribute: str) -> bool:
    """Compute the viewers of the directory's users again if the attribute was another one. Return whether it was."""
    [(changed_count,)] = connection.execute(_UPDATE_VIEWERS, [attribute]).fetchall()
    return bool(changed_count)


def _describe_segments(segments: Sequence[Segment]) -> list[dict[str, object]]:
    """Return the descriptions of segments for `sql/load/`, in their order."""
    descriptions: list[dict[str, object]] = []
    lines_before = 0  # in all earlier segments, because the SQL numbers the lines of all segments consecutively
    for segment in segments:
        descriptions.append(
            {
                "path": str(segment.path),
                "name": f"{segment.identity}{SEALED}",  # the file's name without the size, which it may contain
                "number": segment.number,
                "byte_count": segment.byte_count,
                "lines_before": lines_before,
            }
        )
        if segment is not segments[-1]:  # Counting reads the file again, and no segment follows the last.
            lines_before += segment.count_lines()
    return descriptions


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Return whether a table has rows. The text `table` may end with a WHERE clause."""
    return connection.execute(f"select 1 from {table} limit 1").fetchone() is not None  # noqa: S608
