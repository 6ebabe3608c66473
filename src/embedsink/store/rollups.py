"""Rollups of events, which many reports read instead of events (docs/decisions/0012)."""

from collections.abc import Iterable, Iterator

import duckdb

from embedsink.store.insert import first_ingest_seq
from embedsink.store.row_range import RowRange
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql


def roll_up_late(connection: duckdb.DuckDBPyConnection, loaded_numbers: Iterable[int]) -> None:
    """Roll up segments that are loaded late: they begin below the watermark, so no later batch includes them.

    The watermark is the highest `ingest_seq` that the batches so far cover.

    Args:
        connection: a connection to the database, in the transaction that loads.
        loaded_numbers: the numbers of the segments that the transaction loads.
    """
    batch_id, watermark = _last_batch(connection)
    late_numbers = [number for number in loaded_numbers if first_ingest_seq(number) <= watermark]
    # Each segment gets a new batch, because open readers ignore later batches.
    for late_batch_id, number in enumerate(late_numbers, batch_id + 1):
        first, last = first_ingest_seq(number), first_ingest_seq(number + 1) - 1
        _insert_rollups(connection, late_batch_id, first, last)
        _insert_batch(connection, late_batch_id, watermark, first, last)


def roll_up(connection: duckdb.DuckDBPyConnection, *, event_count_min: int, event_count_max: int) -> int:
    """Roll up the oldest events above the watermark. Return the number of rollup rows; 0 with too few events.

    The watermark is the highest `ingest_seq` that the batches so far cover.

    Args:
        connection: a connection to the database, in a transaction.
        event_count_min: the minimum number of events in a batch.
        event_count_max: the maximum number of events in a batch.
    """
    batch_id, watermark = _last_batch(connection)
    # A variable is a constant for the planner, so older row groups are skipped.
    set_variables(connection, {"rollup_from": watermark + 1})
    # DuckDB returns rows in the order in which they were inserted, so these are the oldest events.
    events = "select ingest_seq from event where ingest_seq >= getvariable('rollup_from')::bigint limit $1"
    [(count,)] = connection.execute(f"select count(*) from ({events})", [event_count_min]).fetchall()  # noqa: S608
    if count < event_count_min:
        return 0
    [(new_watermark,)] = connection.execute(f"select max(ingest_seq) from ({events})", [event_count_max]).fetchall()  # noqa: S608
    row_count = _insert_rollups(connection, batch_id + 1, watermark + 1, new_watermark)
    _insert_batch(connection, batch_id + 1, new_watermark, watermark + 1, new_watermark)
    return row_count


def recompute_rollups(connection: duckdb.DuckDBPyConnection, rows: RowRange) -> None:
    """Compute the batches of `session_15min` that may contain events of a range again, after some were deleted.

    Args:
        connection: a connection to the database, in a transaction.
        rows: the range of the deleted events.
    """
    query = "select batch_id, first_ingest_seq, last_ingest_seq from rollup_batch order by first_ingest_seq nulls first"
    batches = connection.execute(query).fetchall()
    if any(first is None for _, first, _ in batches):
        # An earlier version wrote them, and did not record which events they contain.
        discard_rollups(connection)
        return
    newest_id = max((batch_id for batch_id, _, _ in batches), default=0)
    for batch_id, first, last in batches:
        if first >= rows.below or last < rows.first:
            continue
        connection.execute("delete from session_15min where batch_id = $1", [batch_id])
        # The batches of late segments lie within the ranges of earlier batches, which lack the events of these.
        late_ranges = [
            (other_first, other_last)
            for other_id, other_first, other_last in batches
            if other_id > batch_id and first <= other_first <= last
        ]
        row_count = 0
        for part_first, part_last in _subtract(first, last, late_ranges):
            set_variables(connection, {"batch_id": batch_id, "rollup_from": part_first, "rollup_to": part_last})
            [(part_count,)] = connection.execute(read_sql("rollups")["session_15min"]).fetchall()
            row_count += part_count
        # The newest batch stays, because it has the watermark.
        if not row_count and batch_id != newest_id:
            connection.execute("delete from rollup_batch where batch_id = $1", [batch_id])


def _subtract(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of the range from `first` to `last` that are in none of the other ranges, which are sorted."""
    for other_first, other_last in ranges:
        if first < other_first:
            yield first, other_first - 1
        first = max(first, other_last + 1)
    if first <= last:
        yield first, last


def discard_rollups(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete all rollups. The loader computes them again."""
    for table in ("session_15min", "question_stage", "rollup_batch"):
        connection.execute(f"truncate {table}")


def _last_batch(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the id and the watermark (the highest covered ingest_seq) of the last batch; 0 and -1 without a batch."""
    query = "select coalesce(max(batch_id), 0), coalesce(max(watermark), -1) from rollup_batch"
    [(batch_id, watermark)] = connection.execute(query).fetchall()
    return batch_id, watermark


def _insert_batch(connection: duckdb.DuckDBPyConnection, batch_id: int, watermark: int, first: int, last: int) -> None:
    """Record a batch, the watermark after it, and the ingest_seqs of its first and last events."""
    connection.execute("insert into rollup_batch values ($1, $2, $3, $4)", [batch_id, watermark, first, last])


def _insert_rollups(connection: duckdb.DuckDBPyConnection, batch_id: int, first: int, last: int) -> int:
    """Insert the rollups of the events from the ingest_seq `first` to `last`. Return the number of rollup rows."""
    set_variables(connection, {"batch_id": batch_id, "rollup_from": first, "rollup_to": last})
    total = 0
    for insert_sql in read_sql("rollups").values():
        [(row_count,)] = connection.execute(insert_sql).fetchall()
        total += int(row_count)
    return total
