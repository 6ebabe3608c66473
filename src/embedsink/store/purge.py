"""The deletion of stored rejections. Their counts remain."""

from dataclasses import dataclass
from datetime import datetime

import duckdb

from embedsink.store.expiry import first_ingest_seq_to_keep
from embedsink.store.ledger import count_removed
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The maximum number of rejections that a transaction deletes: deletions stay in memory until the next checkpoint.
PURGED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class PurgeFilter:
    """The conditions that rejections to purge have to match. None means no condition; times are UTC.

    Args:
        before: the time before which a rejection was received. Imported rejections may have been received long ago.
        loaded_before: the time before which a rejection was loaded.
        reason: the reason.
        key_id: the id of the sender's key.
    """

    before: datetime | None = None
    loaded_before: datetime | None = None
    reason: str | None = None
    key_id: str | None = None


def purge_rejections(connection: duckdb.DuckDBPyConnection, selected: PurgeFilter) -> tuple[int, set[int]]:
    """Delete the oldest matching rejections, at most `PURGED_AT_ONCE`.

    Args:
        connection: a connection to the database, in a transaction.
        selected: the conditions that the rejections have to match.

    Returns:
        The number of deleted rejections (`PURGED_AT_ONCE` if there may be more), and their deployments.
    """
    loaded_before = selected.loaded_before
    variables = {
        "purge_before": selected.before,
        "purge_below": None if loaded_before is None else first_ingest_seq_to_keep(connection, loaded_before),
        "purge_reason": selected.reason,
        "purge_key": selected.key_id,
        "purge_count": PURGED_AT_ONCE,
    }
    set_variables(connection, variables)
    connection.execute(read_sql("purge")["purge_batch"])
    counts = connection.execute("select deployment, count(*) from purge_batch group by deployment").fetchall()
    if counts:
        # The counts remain: `purge_batch` creates the table `counted_rejection`, and this adds it to `rejection_count`.
        connection.execute(read_sql("load")["rejection_count"])
        connection.execute(read_sql("purge")["delete"])
        count_removed(connection)
    purged_count = sum(count for _, count in counts)
    deployments = {deployment for deployment, _ in counts if deployment is not None}
    return purged_count, deployments
