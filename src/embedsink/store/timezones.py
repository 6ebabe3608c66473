"""Time zones by DuckDB's own time-zone database, which decides when days begin."""

from datetime import datetime
from functools import cache, lru_cache

import duckdb

# DuckDB returns the later of two times; since 2011 clocks were set back by these steps only (a test checks this).
_UTC_OF = """
with later as (select timezone($1, $2) as instant),
earlier as (
    select instant - unnest([interval 3 hours, interval 2 hours, interval 1 hour, interval 30 minutes]) as instant
    from later
)
select make_timestamp(epoch_us(coalesce(min(earlier.instant), any_value(later.instant))))
from later
left join earlier on timezone($1, earlier.instant) = $2
"""


@cache
def timezone_names() -> frozenset[str]:
    """Return the time zones that DuckDB knows (IANA, and older ones)."""
    with duckdb.connect(config={"threads": 1}) as connection:
        return frozenset(name for (name,) in connection.execute("select name from pg_timezone_names()").fetchall())


@lru_cache(maxsize=256)
def utc_of(local: datetime, timezone: str) -> datetime:
    """Return the UTC time, without a zone, of a local time, consistent with `period_of` (sql/macros).

    DuckDB has a time-zone database of its own, and rules change: with two databases an hour could belong to no day. A
    repeated local time means its first occurrence. For a skipped one, the offset before the change applies.

    Raises:
        OverflowError: the result is outside the years 1 to 9999.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        [(instant,)] = connection.execute(_UTC_OF, [timezone, local]).fetchall()
    if not isinstance(instant, datetime):
        raise OverflowError(str(instant))
    return instant
