"""Deletes stored rejections. Their counts remain."""

from dataclasses import dataclass
from datetime import datetime

import duckdb

from embedsink.store.sql_files import read_sql

# Rejections a transaction: deletions stay in memory until the next checkpoint.
PURGED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class PurgeFilter:
    """The rejections to purge: those that match all conditions. None means no condition; times are UTC.

    `before` is a limit on the time of receipt, which may be long ago for imported rejections.
    """

    before: datetime | None = None
    loaded_before: datetime | None = None
    reason: str | None = None
    key_id: str | None = None


def purge_rejections(connection: duckdb.DuckDBPyConnection, which: PurgeFilter) -> tuple[int, set[int]]:
    """Delete the oldest matching rejections.

    Args:
        connection: a connection to the database, in a transaction.
        which: the condition.

    Returns:
        The number of deleted rejections (`PURGED_AT_ONCE` if there may be more), and their deployments.
    """
    variables = {
        "before": which.before,
        "loaded_before": which.loaded_before,
        "reason": which.reason,
        "key": which.key_id,
        "count": PURGED_AT_ONCE,
    }
    for name, value in variables.items():
        connection.execute(f"set variable purge_{name} = $1", [value])
    connection.execute(read_sql("purge")["purge_batch"])
    counts = connection.execute("select deployment, count(*) from purge_batch group by deployment").fetchall()
    if counts:
        connection.execute(read_sql("load")["rejection_count"])
        connection.execute(read_sql("purge")["delete"])
    return sum(count for _, count in counts), {deployment for deployment, _ in counts if deployment is not None}
