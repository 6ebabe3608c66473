"""The deletion of events after their retention, with their rollups. Their counts remain in the ledger."""

from datetime import datetime

import duckdb

from embedsink.store.insert import fill_session_ready, first_ingest_seq
from embedsink.store.ledger import SEGMENT_NUMBER_SQL, highest_segment_number
from embedsink.store.rollups import expire_rollups
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The maximum number of rows of a table that a transaction deletes: deletions stay in memory until the next checkpoint.
EXPIRED_AT_ONCE = 100_000


def expire_events(
    connection: duckdb.DuckDBPyConnection, *, loaded_before: datetime, below: int | None = None
) -> tuple[int, set[int]]:
    """Delete the oldest events, actions and losses that were loaded before a time, at most `EXPIRED_AT_ONCE` of each.

    Args:
        connection: a connection to the database, in a transaction.
        loaded_before: the time, in UTC.
        below: only rows with an ingest_seq below this one; None for no limit.

    Returns:
        The number of deleted rows, and their deployments. If the number is 0, nothing remains to delete.
    """
    limit = first_ingest_seq_to_keep(connection, loaded_before)
    if below is not None:
        limit = min(limit, below)
    # Rows are stored in the order of ingest_seq, so these are the oldest ones.
    oldest = "select ingest_seq from {} where ingest_seq < $1 limit $2"
    ends = [
        connection.execute(f"select max(ingest_seq) from ({oldest.format(table)})", [limit, EXPIRED_AT_ONCE]).fetchall()  # noqa: S608
        for table in ("event", "action", "loss")
    ]
    # The smallest end, so that no table loses more rows than allowed.
    last_seqs = [last for [(last,)] in ends if last is not None]
    if not last_seqs:
        return 0, set()
    set_variables(connection, {"expire_below": min(last_seqs) + 1})
    connection.execute(read_sql("retention")["delete"])
    expire_rollups(connection, below=min(last_seqs) + 1)
    counts = connection.execute("select deployment, row_count from expired_count").fetchall()
    return sum(count for _, count in counts), {deployment for deployment, _ in counts if deployment is not None}


def finish_expiry(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete what was derived from deleted events, when no more are to be deleted. This reads all remaining events."""
    connection.execute(read_sql("retention")["forget_sessions"])
    fill_session_ready(connection)


def first_ingest_seq_to_keep(connection: duckdb.DuckDBPyConnection, loaded_before: datetime) -> int:
    """Return the first ingest_seq of the segments that were loaded at or after a time, or else of the next segment."""
    query = f"select min(coalesce(first_number, {SEGMENT_NUMBER_SQL})) from loaded_segment where loaded_at >= $1"  # noqa: S608
    [(number,)] = connection.execute(query, [loaded_before]).fetchall()
    return first_ingest_seq(highest_segment_number(connection) + 1 if number is None else number)
