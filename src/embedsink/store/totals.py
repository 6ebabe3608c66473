"""Daily totals: the rows of some reports for one UTC day, which remain when the events of the day are deleted."""

from datetime import datetime, timedelta

import duckdb

from embedsink.store.expiry import first_ingest_seq_to_keep
from embedsink.store.reader import ROLLUP_VARIABLES, VARIABLES
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The approximate number of events that a transaction totals. It totals whole days, and at least one.
_EVENTS_AT_ONCE = 250_000
# The maximum number of combinations of tenant, deployment and agent that the totals of a day name.
NAMED_MAX = 10_000
_ONE_DAY = timedelta(days=1)


def add_daily_totals(connection: duckdb.DuckDBPyConnection, *, loaded_before: datetime, gap_minutes: int) -> int:
    """Add the totals of the oldest days that must be totaled before old events can be deleted. Return their number.

    If the number is 0, all these days are totaled, and the events may be deleted.

    Args:
        connection: a connection to the database, in a transaction. Its session variables are changed, and it gets
            temporary tables.
        loaded_before: the old events were loaded before this time in UTC, a midnight.
        gap_minutes: the variable `session_gap_minutes`.
    """
    sql = read_sql("totals")
    set_variables(connection, {"expire_below": first_ingest_seq_to_keep(connection, loaded_before)})
    connection.execute(sql["expiring_day"])
    if not _set_period(connection, "expiring_day"):
        return 0
    # An event occurs at most a minute after its receipt, so an event of the day before may be of this day.
    set_variables(connection, {"last_day": loaded_before.date(), "events_at_once": _EVENTS_AT_ONCE})
    connection.execute(sql["day_to_total"])
    set_variables(connection, dict.fromkeys(VARIABLES))
    day_count = _set_period(connection, "day_to_total")
    if day_count:
        query = "select max(batch_id), max(watermark) from rollup_batch"
        [newest_batch] = connection.execute(query).fetchall()
        set_variables(connection, dict(zip(ROLLUP_VARIABLES, newest_batch, strict=True)))
        set_variables(connection, {"session_gap_minutes": gap_minutes, "named_max": NAMED_MAX})
        connection.execute(sql["source"])
        connection.execute(sql["insert"])
    return day_count


def delete_daily_totals(connection: duckdb.DuckDBPyConnection) -> int:
    """Delete all daily totals. Return the number of totaled days.

    Args:
        connection: a connection to the database, in a transaction.
    """
    [(day_count,)] = connection.execute("select count(*) from totaled_day").fetchall()
    if day_count:
        connection.execute(read_sql("totals")["delete"])
    return int(day_count)


def _set_period(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Set `since` and `until` so that they enclose the days of a table and the days after them.

    Return the number of days.
    """
    query = f"select count(*), min(day)::timestamp, max(day)::timestamp from {table}"  # noqa: S608
    [(count, first, last)] = connection.execute(query).fetchall()
    if count:
        set_variables(connection, {"since": first, "until": last + 2 * _ONE_DAY})
    return int(count)
