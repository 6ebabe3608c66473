"""What many reports read instead of events: sums of quarters of an hour (docs/decisions/0012)."""

from collections.abc import Iterable

import duckdb

from embedsink.sqlfiles import read_sql

# Of an older store there may be millions to sum up. So many at once fit into a load's memory.
SUMMED_AT_ONCE = 250_000
_LINE_BITS = 32


def sum_up(connection: duckdb.DuckDBPyConnection, *, unsummed_max: int, loaded: Iterable[int] = ()) -> bool:
    """Sum up what was loaded, if much has come since the last time. Whether anything was.

    What arrives behind the last summing has been passed by: its sums are made at once.

    Args:
        connection: to the database, in a transaction.
        unsummed_max: how many events may wait.
        loaded: the numbers of the segments whose rows come with this transaction.
    """
    number, up_to = _last(connection)
    spans = [(of << _LINE_BITS, (of + 1 << _LINE_BITS) - 1) for of in loaded if of << _LINE_BITS <= up_to]
    newest = _newest(connection, up_to + 1, unsummed_max)
    if newest is not None:
        spans.append((up_to + 1, newest))
    for first, last in spans:
        _set(connection, summing=number + 1, summing_from=first, summing_to=last)
        connection.execute(read_sql("load")["session_quarter"])
    if spans:
        connection.execute("insert into summed values ($1, $2)", [number + 1, up_to if newest is None else newest])
    return bool(spans)


def _last(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    last = connection.execute("select coalesce(max(number), 0), coalesce(max(up_to), -1) from summed").fetchone()
    return last or (0, -1)


def _newest(connection: duckdb.DuckDBPyConnection, first: int, unsummed_max: int) -> int | None:
    """Up to where to sum up, from this arrival on; None while it is too little."""
    # As a variable, since a constant is what lets the engine skip all that is older.
    _set(connection, summing_from=first)
    waiting = "select arrival from event where arrival >= getvariable('summing_from')::bigint limit $1"
    found = connection.execute(f"select count(*), max(arrival) from ({waiting})", [SUMMED_AT_ONCE]).fetchone()  # noqa: S608
    count, newest = found or (0, None)
    return newest if count > unsummed_max else None


def _set(connection: duckdb.DuckDBPyConnection, **variables: int) -> None:
    for name, value in variables.items():
        connection.execute(f"set variable {name} = $1", [value])
