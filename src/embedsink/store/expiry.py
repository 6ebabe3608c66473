"""The deletion of events after their retention, with their rollups. Their counts remain in the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import duckdb

from embedsink.store.insert import fill_session_ready, first_ingest_seq
from embedsink.store.ledger import SEGMENT_NUMBER_SQL, count_removed, highest_segment_number
from embedsink.store.rollups import recompute_rollups
from embedsink.store.row_range import next_range
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The maximum number of rows of a table that a transaction examines, and may delete: deletions stay in memory until the
# next checkpoint.
EXPIRED_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class RetentionLimit:
    """Which rows are beyond their retention: those with an ingest_seq below a limit.

    Args:
        below: the limit; 0 for none.
        below_of: the limits of the deployments that have one of their own, instead of `below`; 0 for none.
    """

    below: int
    below_of: Mapping[int, int]

    @property
    def highest(self) -> int:
        """The highest of these limits: no row from it on is beyond its retention."""
        return max([self.below, *self.below_of.values()])


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a step of the deletion.

    Args:
        row_count: the number of deleted events, actions and losses.
        deployments: their deployments.
        next_seq: where the next step continues; None if nothing remains to delete.
    """

    row_count: int
    deployments: frozenset[int]
    next_seq: int | None


def retention_limit(
    connection: duckdb.DuckDBPyConnection, loaded_before: datetime | None, by_deployment: Mapping[int, datetime | None]
) -> RetentionLimit:
    """Return the limit for rows that were loaded before a time (UTC), which may depend on the deployment.

    Args:
        connection: a connection to the database.
        loaded_before: the time; None for no limit.
        by_deployment: the times of the deployments that have one of their own.
    """
    # Many deployments may have the same time.
    limits = {
        time: 0 if time is None else first_ingest_seq_to_keep(connection, time)
        for time in {loaded_before, *by_deployment.values()}
    }
    return RetentionLimit(
        limits[loaded_before], {deployment: limits[time] for deployment, time in by_deployment.items()}
    )


def select_by_retention(connection: duckdb.DuckDBPyConnection, limit: RetentionLimit | None) -> None:
    """Define the macro `row_beyond_retention` of a connection, which returns all rows without a limit."""
    deployments = None if limit is None else list(limit.below_of) or None
    variables = {
        "retention_below": None if limit is None else limit.below,
        "retention_deployments": deployments,
        "retention_below_of": None if limit is None else list(limit.below_of.values()) or None,
    }
    set_variables(connection, variables)
    connection.execute(read_sql("retention")["row_beyond_retention"])


def expire_events(
    connection: duckdb.DuckDBPyConnection, limit: RetentionLimit, *, first: int = 0, below: int | None = None
) -> Expired:
    """Delete the rows beyond their retention among the next events, actions and losses, `EXPIRED_AT_ONCE` of each.

    Args:
        connection: a connection to the database, in a transaction.
        limit: which rows are beyond their retention.
        first: the smallest ingest_seq; 0, or the `next_seq` of the step before.
        below: only rows with an ingest_seq below this one; None for no limit.
    """
    highest = limit.highest if below is None else min(limit.highest, below)
    rows = next_range(connection, first=first, below=highest, row_count_max=EXPIRED_AT_ONCE)
    if rows is None:
        return Expired(0, frozenset(), None)
    retention = read_sql("retention")
    select_by_retention(connection, limit)
    set_variables(connection, {"expire_from": rows.first, "expire_below": rows.below})
    connection.execute(retention["expired"])
    counts = connection.execute("select deployment, count(*) from expired group by deployment").fetchall()
    if counts:
        connection.execute(retention["delete"])
        count_removed(connection)
        recompute_rollups(connection, rows)
    deployments = frozenset(deployment for deployment, _ in counts if deployment is not None)
    return Expired(sum(count for _, count in counts), deployments, rows.below)


def finish_expiry(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete what was derived from deleted events, when no more are to be deleted. This reads all remaining events."""
    connection.execute(read_sql("retention")["forget_sessions"])
    fill_session_ready(connection)


def first_ingest_seq_to_keep(connection: duckdb.DuckDBPyConnection, loaded_before: datetime) -> int:
    """Return the first ingest_seq of the segments that were loaded at or after a time, or else of the next segment."""
    query = f"select min(coalesce(first_number, {SEGMENT_NUMBER_SQL})) from loaded_segment where loaded_at >= $1"  # noqa: S608
    [(number,)] = connection.execute(query, [loaded_before]).fetchall()
    return first_ingest_seq(highest_segment_number(connection) + 1 if number is None else number)
