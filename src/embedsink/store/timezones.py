"""Conversions to UTC, with DuckDB's own time-zone database, which reports use to find when days begin."""

from datetime import UTC, datetime
from functools import cache, lru_cache

import duckdb

# For a repeated local time, DuckDB returns the later instant. Subtract each step by which clocks were set back since
# 2011 (a test checks these), and take the earliest instant with the same local time.
_UTC_QUERY = """
with later as (select timezone($1, $2) as instant),
earlier as (
    select instant - unnest([interval 3 hours, interval 2 hours, interval 1 hour, interval 30 minutes]) as instant
    from later
)
select make_timestamp(epoch_us(coalesce(min(earlier.instant), any_value(later.instant))))
from later
left join earlier on timezone($1, earlier.instant) = $2
"""


def naive_utc(instant: datetime) -> datetime:
    """Return a time in UTC without a zone, as in scopes and in the store."""
    return instant.astimezone(UTC).replace(tzinfo=None)


@cache
def timezone_names() -> frozenset[str]:
    """Return the names of all time zones in DuckDB: those of IANA, and older ones."""
    with duckdb.connect(config={"threads": 1}) as connection:
        return frozenset(name for (name,) in connection.execute("select name from pg_timezone_names()").fetchall())


@lru_cache(maxsize=256)
def utc_of(local: datetime, timezone: str) -> datetime:
    """Return the UTC time, without a zone, of a local time.

    A repeated local time means its first occurrence. For a skipped one, the offset before the change applies.

    DuckDB computes the result, because reports use its rules to find when days begin (`period_of` in sql/macros).
    Python may have other rules, and if both were used, an hour could belong to no day.

    Raises:
        OverflowError: the result is outside the years 1 to 9999.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        [(instant,)] = connection.execute(_UTC_QUERY, [timezone, local]).fetchall()
    if not isinstance(instant, datetime):  # DuckDB returns a `datetime` only for the years that Python has.
        raise OverflowError(str(instant))
    return instant
