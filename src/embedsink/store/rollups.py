"""Rollups of events, which many reports read instead of events (docs/decisions/0012)."""

from collections.abc import Iterable

import duckdb

from embedsink.store.insert import LINE_BITS
from embedsink.store.sql_files import read_sql


def roll_up_late(connection: duckdb.DuckDBPyConnection, loaded: Iterable[int]) -> None:
    """Roll up segments with numbers below the watermark, in the transaction that loads them.

    Args:
        connection: a connection to the database, in a transaction.
        loaded: the numbers of the loaded segments.
    """
    batch_id, watermark = _last_batch(connection)
    late = [segment for segment in loaded if segment << LINE_BITS <= watermark]
    for segment in late:
        _roll_up(connection, batch_id + 1, segment << LINE_BITS, ((segment + 1) << LINE_BITS) - 1)
    if late:
        connection.execute("insert into rollup_batch values ($1, $2)", [batch_id + 1, watermark])


def roll_up(connection: duckdb.DuckDBPyConnection, *, from_count: int, at_once: int) -> int:
    """Roll up the oldest events above the watermark, if there are enough. Return the number of rollup rows.

    Args:
        connection: a connection to the database, in a transaction.
        from_count: the minimum number of events in a batch.
        at_once: the maximum number of events in a batch.
    """
    batch_id, watermark = _last_batch(connection)
    # A variable is a constant for the planner, so older row groups are skipped.
    _set(connection, rollup_from=watermark + 1)
    waiting = "select ingest_seq from event where ingest_seq >= getvariable('rollup_from')::bigint limit $1"
    [(count,)] = connection.execute(f"select count(*) from ({waiting})", [from_count]).fetchall()  # noqa: S608
    if count < from_count:
        return 0
    [(newest,)] = connection.execute(f"select max(ingest_seq) from ({waiting})", [at_once]).fetchall()  # noqa: S608
    row_count = _roll_up(connection, batch_id + 1, watermark + 1, newest)
    connection.execute("insert into rollup_batch values ($1, $2)", [batch_id + 1, newest])
    return row_count


def discard_rollups(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete all rollups. The loader computes them again."""
    for table in ("session_15min", "question_stage", "rollup_batch"):
        connection.execute(f"truncate {table}")


def _last_batch(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    last = "select coalesce(max(batch_id), 0), coalesce(max(watermark), -1) from rollup_batch"
    [(batch_id, watermark)] = connection.execute(last).fetchall()
    return batch_id, watermark


def _roll_up(connection: duckdb.DuckDBPyConnection, batch_id: int, first: int, last: int) -> int:
    _set(connection, batch_id=batch_id, rollup_from=first, rollup_to=last)
    inserted = [connection.execute(sql).fetchone() for sql in read_sql("rollups").values()]
    return sum(int(row_count) for (row_count,) in filter(None, inserted))


def _set(connection: duckdb.DuckDBPyConnection, **variables: int) -> None:
    for name, value in variables.items():
        connection.execute(f"set variable {name} = $1", [value])
