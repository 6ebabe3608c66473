"""The time zones of the engine: it has a database of its own, and days begin by it."""

from datetime import datetime
from functools import cache, lru_cache

import duckdb

# The engine takes the later one of two; since 2011 clocks were set back by no other steps than these (a test looks).
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
    """The time zones that the engine knows (IANA, and older ones of its own)."""
    with duckdb.connect(config={"threads": 1}) as connection:
        return frozenset(name for (name,) in connection.execute("select name from pg_timezone_names()").fetchall())


@lru_cache(maxsize=256)
def utc_of(local: datetime, timezone: str) -> datetime:
    """When the clocks of a time zone show this, in UTC without a zone, as `period_of` (sql/macros) sees it.

    The engine has a time-zone database of its own, and rules change: two of them would put an hour into neither of two
    days. Of a time that the clocks show twice it is the first; of one that they skip, the clock before it goes on.

    Raises:
        OverflowError: it is outside of the years 1 to 9999.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        [(instant,)] = connection.execute(_UTC_OF, [timezone, local]).fetchall()
    if not isinstance(instant, datetime):
        raise OverflowError(str(instant))
    return instant
