"""What many reports read instead of events: sums of quarters of an hour (docs/decisions/0012)."""

from collections.abc import Iterable

import duckdb

from embedsink.store.sql_files import read_sql

_LINE_BITS = 32


def sum_up_late(connection: duckdb.DuckDBPyConnection, loaded: Iterable[int]) -> None:
    """Sum up what arrived behind the last summing, which has passed it by; in the transaction that loads it.

    Args:
        connection: to the database, in a transaction.
        loaded: the numbers of the segments whose rows come with it.
    """
    number, up_to = _last(connection)
    late = [segment for segment in loaded if segment << _LINE_BITS <= up_to]
    for segment in late:
        _sum_up(connection, number + 1, segment << _LINE_BITS, ((segment + 1) << _LINE_BITS) - 1)
    if late:
        connection.execute("insert into rollup_batch values ($1, $2)", [number + 1, up_to])


def sum_up(connection: duckdb.DuckDBPyConnection, *, from_count: int, at_once: int) -> int:
    """Sum up the oldest of what came since the last summing, if much has. How many rows that made.

    Args:
        connection: to the database, in a transaction.
        from_count: how many events have to wait.
        at_once: how many are summed up.
    """
    number, up_to = _last(connection)
    # As a variable, since a constant is what lets the engine skip all that is older.
    _set(connection, rollup_from=up_to + 1)
    waiting = "select ingest_seq from event where ingest_seq >= getvariable('rollup_from')::bigint limit $1"
    found = connection.execute(f"select count(*) from ({waiting})", [from_count]).fetchone()  # noqa: S608
    if not found or found[0] < from_count:
        return 0
    newest = connection.execute(f"select max(ingest_seq) from ({waiting})", [at_once]).fetchone() or (up_to,)  # noqa: S608
    row_count = _sum_up(connection, number + 1, up_to + 1, newest[0])
    connection.execute("insert into rollup_batch values ($1, $2)", [number + 1, newest[0]])
    return row_count


def forget_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave all sums to be made anew."""
    connection.execute("truncate session_15min")
    connection.execute("truncate question_stage")
    connection.execute("truncate rollup_batch")


def _last(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    last = connection.execute(
        "select coalesce(max(batch_id), 0), coalesce(max(watermark), -1) from rollup_batch"
    ).fetchone()
    return last or (0, -1)


def _sum_up(connection: duckdb.DuckDBPyConnection, number: int, first: int, last: int) -> int:
    _set(connection, batch_id=number, rollup_from=first, rollup_to=last)
    made = [connection.execute(read_sql("rollups")[table]).fetchone() for table in ("session_15min", "question_stage")]
    return sum(int(row_count) for (row_count,) in filter(None, made))


def _set(connection: duckdb.DuckDBPyConnection, **variables: int) -> None:
    for name, value in variables.items():
        connection.execute(f"set variable {name} = $1", [value])
