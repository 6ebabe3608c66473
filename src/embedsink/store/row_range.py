"""Ranges of the rows of a database, by ingest_seq."""

from dataclasses import dataclass

import duckdb

# The tables whose rows are archived, and deleted after their retention.
TABLES = ("event", "action", "loss")


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows with `first <= ingest_seq < below`."""

    first: int
    below: int


def next_range(connection: duckdb.DuckDBPyConnection, *, first: int, below: int, row_count_max: int) -> RowRange | None:
    """Return the range of the next events, actions and losses, at most `row_count_max` of each; None without one.

    Args:
        connection: a connection to the database.
        first: the smallest ingest_seq; 0, or the end of the range before.
        below: only rows with an ingest_seq below this one.
        row_count_max: the maximum number of rows of each table.
    """
    starts = []
    ends = [below]
    for table in TABLES:
        selected = f"select ingest_seq from {table} where ingest_seq >= $1 and ingest_seq < $2"  # noqa: S608
        # Rows are stored in the order of ingest_seq, so these are the oldest ones.
        oldest = f"select max(ingest_seq), count(*) from ({selected} limit $3)"  # noqa: S608
        # Only the first range looks for its first row, because this reads all rows.
        query = f"select if($1 > 0, $1, (select min(ingest_seq) from ({selected}))), * from ({oldest})"  # noqa: S608
        [(start, end, count)] = connection.execute(query, [first, below, row_count_max]).fetchall()
        if count:
            starts.append(start)
        if count == row_count_max:
            ends.append(end + 1)
    return RowRange(min(starts), min(ends)) if starts else None
