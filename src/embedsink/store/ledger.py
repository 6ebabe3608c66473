"""The ledger of loaded segments: one row a segment, or one row a day for old segments."""

from dataclasses import dataclass

import duckdb

from embedsink.journal.segment import identity_of
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql

# A busy server loads a segment a second. The newest have a ledger row each; older ones share a row a day.
LEDGER_ROWS_MIN = 100_000
LEDGER_ROWS_MAX = 110_000
# A name begins with the number of the segment, in twelve digits.
_NUMBER = "split_part(segment, '-', 1)::bigint"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Outcomes of envelopes: received = accepted + duplicate + quarantined."""

    segment_count: int
    received_count: int
    accepted_count: int
    duplicate_count: int
    quarantined_count: int


def ledger_of_load(connection: duckdb.DuckDBPyConnection) -> Ledger:
    """Return the ledger of the segments that the variable `segments` describes."""
    row = connection.execute(
        "select count(*), sum(received_count), sum(accepted_count), sum(duplicate_count), sum(quarantined_count) "
        "from loaded_segment where segment in (select unnest(getvariable('segments')).name)"
    )
    return Ledger(*map(int, row.fetchone() or ()))


def loaded_segments(connection: duckdb.DuckDBPyConnection, *, from_number: int) -> dict[str, int]:
    """Return the bytes of the segments with a row of their own from this number on, by identity."""
    loaded = "select segment, byte_count from loaded_segment where segment >= $1 and first_number is null"
    rows = connection.execute(loaded, [f"{from_number:012d}"]).fetchall()
    return {identity_of(name): byte_count for name, byte_count in rows}


def loaded_ranges(connection: duckdb.DuckDBPyConnection, *, after: int) -> list[tuple[int, int]]:
    """Return the first and last segment number of each row after a number."""
    ranges = f"select coalesce(first_number, {_NUMBER}), {_NUMBER} from loaded_segment where {_NUMBER} > $1"  # noqa: S608
    return connection.execute(ranges, [after]).fetchall()


def folded_to(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the highest number of a segment that shares a row; 0 without such a segment."""
    return _highest_number(connection, "where first_number is not null")


def last_segment_number(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the highest number of a loaded segment; 0 if the store is empty."""
    return _highest_number(connection, "")


def _highest_number(connection: duckdb.DuckDBPyConnection, where: str) -> int:
    [(number,)] = connection.execute(f"select coalesce(max({_NUMBER}), 0) from loaded_segment {where}").fetchall()  # noqa: S608
    return int(number)


def fold_ledger(connection: duckdb.DuckDBPyConnection, *, before: int) -> None:
    """Merge the rows of old segments, one row a day. Segments from the number `before` on are not merged."""
    [(count, last)] = connection.execute(f"select count(*), max({_NUMBER}) from loaded_segment").fetchall()  # noqa: S608
    if count < LEDGER_ROWS_MAX:
        return
    connection.execute("set variable fold_below = $1", [min(before, last - LEDGER_ROWS_MIN + 1)])
    with transaction(connection):
        connection.execute(read_sql("ledger")["fold"])
