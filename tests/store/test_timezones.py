"""Time zones: times without an offset, the beginnings of periods, and the known zones."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

import duckdb
import pytest

from embedsink.errors import Refused
from embedsink.key_scope import EVERYTHING
from embedsink.reports.scope import TIME_EXAMPLES, Scope, parse_scope, timezones
from embedsink.store.reader import Reader
from embedsink.store.rollups import roll_up
from embedsink.store.sql_files import read_sql
from embedsink.store.timezones import utc_of
from tests.support.rows import connect_in_memory, replace_events

# Zones with offsets of half hours, on both sides of the date line, with changes by thirty minutes, by two hours and at
# midnight, and with recent changes of their rules.
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Kiritimati",
    "UTC",
)


def since(text: str, timezone: str | None) -> datetime | None:
    return parse_scope({"since": text, "timezone": timezone}).since


@pytest.mark.parametrize(
    ("text", "timezone", "instant"),
    [
        ("2026-11-01", None, "2026-11-01T00:00:00"),
        ("2026-11-01", "UTC", "2026-11-01T00:00:00"),
        ("2026-11-01", "Europe/Berlin", "2026-10-31T23:00:00"),
        ("2026-07-01", "Europe/Berlin", "2026-06-30T22:00:00"),
        ("2026-11-01T09:30", "Asia/Kolkata", "2026-11-01T04:00:00"),
        ("2026-11-01T09:30Z", "Asia/Kolkata", "2026-11-01T09:30:00"),
        ("2026-11-01T09:30+02:00", "Asia/Kolkata", "2026-11-01T07:30:00"),
        # Local time repeats this hour. The first one is used.
        ("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30:00"),
        ("2018-03-11T02:00", "Antarctica/Casey", "2018-03-10T15:00:00"),  # by three hours
        ("2026-04-05T01:45", "Australia/Lord_Howe", "2026-04-04T14:45:00"),  # by half an hour
        # Local time skips this hour. The offset before it is used.
        ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T01:30:00"),
        # The clocks skip midnight, so the day begins at one.
        ("2026-04-24", "Africa/Cairo", "2026-04-23T22:00:00"),
    ],
)
def test_a_time_without_an_offset_is_local_to_the_timezone(text: str, timezone: str | None, instant: str) -> None:
    assert since(text, timezone) == datetime.fromisoformat(instant)


@pytest.mark.parametrize(("text", "timezone"), [("9999-12-31T23:59", "America/New_York"), ("0001-01-01", "Asia/Tokyo")])
def test_a_time_outside_the_years_1_to_9999_is_refused(text: str, timezone: str) -> None:
    with pytest.raises(Refused, match=f'^since: "{text}" is outside the years 1 to 9999'):
        since(text, timezone)


@pytest.mark.parametrize(
    "text",
    [
        "2026-W47-1",
        "2026-W47",
        "2026W471",
        "20261101",
        "2026-11",
        "2026-305",
        "2026-11-01T09",
        "2026-11-01T0930",
        "2026-11-01T09:30:00,5",
        "2026-11-01x09:30",
        "2026-11-01 09:30",
        "2026-11-01T09:30+02",
        "2026-11-01T09:30+0200",
        "2026-11-01T09:30+02:00:30",
        "2026-11-01T24:00",
        "2026-11-01Z",
        "2026-02-30",
        "２０２６-11-01",
        "2026-11-01\n",
        "7 d",
        "1mo",
        "",
    ],
)
def test_a_time_in_another_form_is_refused_with_examples(text: str) -> None:
    for zone in (None, "Europe/Berlin"):
        with pytest.raises(Refused, match=r"^since: .* is not a time\. Examples: ") as refused:
            since(text, zone)
        assert TIME_EXAMPLES in str(refused.value)
    for example in TIME_EXAMPLES.split(", "):
        assert since(example, "Europe/Berlin")


def test_an_unescaped_plus_in_a_url_is_explained() -> None:
    with pytest.raises(
        Refused, match=r'^since: "2026-11-01T09:30 02:00" is not a time\. .* In a URL, write \+ as %2B\.$'
    ):
        since("2026-11-01T09:30 02:00", None)


@pytest.mark.parametrize("fraction", ["", ".5", ".123456", ".123456789"])
def test_seconds_and_fractions_are_parsed(fraction: str) -> None:
    microsecond = int(fraction[1:7].ljust(6, "0"))
    assert since(f"2026-11-01T09:30:07{fraction}Z", None) == datetime(2026, 11, 1, 9, 30, 7, microsecond)


def test_an_age_is_the_same_in_every_timezone() -> None:
    def now() -> datetime:
        return datetime(2026, 11, 8, 12, tzinfo=UTC)

    scopes = [parse_scope({"since": "7d", "timezone": zone}, now=now) for zone in (None, "Pacific/Kiritimati")]
    assert {scope.since for scope in scopes} == {datetime(2026, 11, 1, 12)}
    assert all(scope.is_relative for scope in scopes)
    assert not parse_scope({"since": "2026-11-01"}).is_relative


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Berlim", 'Did you mean "Europe/Berlin"?'),
        ("europe/berlin", 'Did you mean "Europe/Berlin"?'),
        ("Berlin", 'Did you mean "Europe/Berlin"?'),
        ("+01:00", "Example: Europe/Berlin."),
        ("localtime", "time zone of the IANA database."),
        ("posixrules", "time zone of the IANA database. Example: Europe/Berlin."),
        ("posix/Europe/Berlin", "time zone of the IANA database."),
        ("Factory", "time zone of the IANA database. Example: Europe/Berlin."),
        ("../../etc/passwd", "time zone of the IANA database."),
        ("Europe/Berlin'; drop view views; --", "time zone of the IANA database."),
        ("", "time zone of the IANA database."),
        ("\ud800", "time zone of the IANA database."),
    ],
)
def test_an_unknown_timezone_is_refused_with_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(Refused, match=r"^timezone: ") as refused:
        parse_scope({"timezone": name})
    assert message in str(refused.value)


def test_duckdb_knows_every_zone_of_the_pinned_database() -> None:
    pinned = set(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())
    # The placeholder for an unset time zone.
    assert timezones() == pinned - {"Factory"}
    assert {"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"} <= timezones()


def test_python_and_sql_agree_on_the_beginning_of_days(connection: duckdb.DuckDBPyConnection) -> None:
    """Compare `since` with the periods in SQL. A difference would omit or repeat an hour."""
    days = ["2025-03-30", "2025-10-26", "2026-04-24", "2026-11-01", "2026-09-06", "2026-10-04"]
    for zone in ZONES:
        Reader(connection, {**EVERYTHING.variables(), "timezone": zone}, resources=ExitStack())
        begins = [since(day, zone) for day in days]
        found = connection.execute(
            "select period_of(begin), period_of(begin - interval 1 microsecond), "
            "from (select unnest($1::timestamp[]) as begin)",
            [begins],
        ).fetchall()
        for begin, (period, period_before) in zip(begins, found, strict=True):
            assert begin is not None
            assert period_before < begin == period, zone


@pytest.mark.parametrize(
    ("zone", "day", "hours", "begin"),
    [
        # At 1:00, clocks go back to midnight: the day begins at the first midnight, and has 25 hours.
        ("America/Havana", "2025-11-02", 25, "2025-11-02T04:00"),
        ("Atlantic/Azores", "2025-10-26", 25, "2025-10-26T00:00"),
        ("Asia/Gaza", "2021-10-29", 25, "2021-10-28T21:00"),
        # At midnight, clocks go forward to 1:00: the day begins there, and has 23 hours.
        ("America/Havana", "2025-03-09", 23, "2025-03-09T05:00"),
        ("Asia/Beirut", "2026-03-29", 23, "2026-03-28T22:00"),
        ("Africa/Cairo", "2026-04-24", 23, "2026-04-23T22:00"),
        ("America/Sao_Paulo", "2018-11-04", 23, "2018-11-04T03:00"),
        # At midnight, clocks go back to 23:00: the previous day has 25 hours.
        ("Asia/Beirut", "2026-10-24", 25, "2026-10-23T21:00"),
        ("Asia/Beirut", "2026-10-25", 24, "2026-10-24T22:00"),
        ("Africa/Cairo", "2026-10-29", 25, "2026-10-28T21:00"),
        ("America/Sao_Paulo", "2018-02-17", 25, "2018-02-17T02:00"),
        # Clocks that move by half an hour, and a day that was skipped.
        ("Australia/Lord_Howe", "2026-04-05", 24.5, "2026-04-04T13:00"),
        ("Pacific/Apia", "2011-12-29", 24, "2011-12-29T10:00"),
        ("Pacific/Apia", "2011-12-31", 24, "2011-12-30T10:00"),
        ("Europe/Berlin", "2026-10-25", 25, "2026-10-24T22:00"),
    ],
)
def test_every_instant_of_a_day_belongs_to_that_day_only(
    connection: duckdb.DuckDBPyConnection, zone: str, day: str, hours: float, begin: str
) -> None:
    first = datetime.fromisoformat(begin)
    minutes = [first + timedelta(minutes=minute) for minute in range(int(hours * 60))]
    Reader(connection, {**EVERYTHING.variables(), "timezone": zone}, resources=ExitStack())
    periods_and_days = "list(distinct period_of(one)), list(distinct day_of(one))"
    of = f"select {periods_and_days} from (select unnest($1::timestamp[]) as one)"
    assert connection.execute(of, [minutes]).fetchone() == ([first], [date.fromisoformat(day)])
    around = [first - timedelta(microseconds=1), first + timedelta(hours=hours)]
    [(periods, days)] = connection.execute(of, [around]).fetchall()
    assert first not in periods
    assert len(periods) == 2
    assert date.fromisoformat(day) not in days
    assert since(day, zone) == first


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Australia/Lord_Howe", "2026-04-04T15:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30"),
        ("America/Caracas", "2016-05-01T07:00"),
        ("Asia/Pyongyang", "2015-08-14T15:00"),
        ("Asia/Pyongyang", "2018-05-04T15:00"),
        ("Pacific/Norfolk", "2015-10-03T14:30"),
        ("Antarctica/Casey", "2018-03-10T17:00"),
        ("America/St_Johns", "2011-11-06T02:31"),  # at a minute past midnight
        ("Asia/Kathmandu", "2026-04-04T15:00"),  # no change: hours begin at a quarter past
        ("Europe/Berlin", "2026-10-25T01:00"),
    ],
)
def test_hours_begin_at_full_local_hours_and_do_not_overlap(
    connection: duckdb.DuckDBPyConnection, zone: str, change: str
) -> None:
    minutes = [datetime.fromisoformat(change) + timedelta(minutes=minute) for minute in range(-300, 300)]
    Reader(connection, {**EVERYTHING.variables(), "timezone": zone, "interval": "hour"}, resources=ExitStack())
    rows = connection.execute(
        "select period_of(one), wall_clock(period_of(one)), period_of(period_of(one)), "
        "from (select unnest($1::timestamp[]) as one)",
        [minutes],
    ).fetchall()
    starts = [start for start, _, _ in rows]
    assert starts == sorted(starts)
    assert all(start <= minute < start + timedelta(hours=2) for start, minute in zip(starts, minutes, strict=True))
    assert {(shown.minute, shown.second) for _, shown, _ in rows} == {(0, 0)}
    assert [again for _, _, again in rows] == starts


@pytest.mark.slow
def test_all_offset_changes_since_2011_are_handled() -> None:
    """Compare the pinned database with `utc_of` and with the zones in sql/macros/period_of.sql."""
    begin = datetime(2011, 1, 1, tzinfo=UTC)
    odd: set[str] = set()
    looked_at: set[tuple[str, timedelta]] = set()
    for zone in sorted(timezones()):
        offsets = [(begin + timedelta(weeks=week)).astimezone(ZoneInfo(zone)).utcoffset() for week in range(1_043)]
        for week, (before, after) in enumerate(pairwise(offsets)):
            assert before is not None
            assert after is not None
            if (after - before) % timedelta(hours=1):
                odd.add(zone)
            if after < before and (zone, before - after) not in looked_at:
                looked_at.add((zone, before - after))
                first, again = _shown_twice(begin + timedelta(weeks=week), ZoneInfo(zone))
                assert utc_of(again, zone) == first, (zone, again)
    listed = re.findall(r"'([A-Z]\w+(?:/\w+)?)'", read_sql("macros")["period_of"])
    assert sorted(odd) == sorted(listed)


@pytest.fixture(scope="module")
def rolled_up() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database whose events are rolled up."""
    # In many years, and around offset changes: one at a minute past midnight, and one from an offset of 44.5 minutes.
    years = [datetime(year, 7, 1, 23, 59, 59, 999_999) for year in (1, 1890, 1970, 1972, 2011, 2012, 2026, 9999)]
    days = [datetime(*day) for day in ((2026, 4, 4), (2026, 10, 24), (2021, 10, 2), (2011, 11, 5), (1971, 12, 31))]
    hours = [day + timedelta(minutes=7 * step) for day in days for step in range(400)]
    with connect_in_memory() as connection:
        rows = [{"occurred_at": instant, "ingest_seq": index} for index, instant in enumerate(years + hours)]
        replace_events(connection, rows)
        assert roll_up(connection, event_count_min=1, event_count_max=len(rows))
        yield connection


@pytest.mark.parametrize("zone", [*ZONES, "Africa/Monrovia", "Antarctica/Casey", "Asia/Gaza"])
def test_rollups_of_15_minutes_have_the_periods_of_their_events(
    rolled_up: duckdb.DuckDBPyConnection, zone: str
) -> None:
    for interval in (None, "hour", "week", "month"):
        Reader(rolled_up, {**EVERYTHING.variables(), "timezone": zone, "interval": interval}, resources=ExitStack())
        by_events = "select period_of(occurred_at) as start, count(*) from event group by start order by start"
        by_quarters = "select period_of(began_at) as start, sum(event_count) from {} group by start order by start"
        periods = rolled_up.execute(by_quarters.format("session_15min_in_scope")).fetchall()
        assert periods == rolled_up.execute(by_events).fetchall(), interval


@pytest.mark.slow
def test_no_offset_changes_inside_a_15_minute_interval_since_2012() -> None:
    """Offsets are multiples of 15 minutes, and change at bounds of 15-minute intervals. Rollups rely on this.

    See docs/decisions/0012.

    The one exception is Antarctica/Casey, which changed at a minute past midnight, where no period begins.
    """
    begin = datetime(2012, 1, 1, tzinfo=UTC)
    seconds = range(7 * 24 * 3_600 + 1)
    change_count = 0
    odd: set[str] = set()
    for name in sorted(timezones()):
        zone = ZoneInfo(name)
        weeks = [begin + timedelta(weeks=week) for week in range(991)]
        for week, (before, after) in zip(
            weeks, pairwise(week.astimezone(zone).utcoffset() for week in weeks), strict=False
        ):
            assert before is not None
            assert before % timedelta(minutes=15) == timedelta(), (name, week)
            if before != after:
                is_after = partial(_has_changed, week, zone)
                change_count += 1
                if bisect_left(seconds, True, key=is_after) % 900:
                    odd.add(name)
    assert change_count > 1_000
    assert odd == {"Antarctica/Casey"}


def _has_changed(week: datetime, zone: ZoneInfo, second: int) -> bool:
    return (week + timedelta(seconds=second)).astimezone(zone).utcoffset() != week.astimezone(zone).utcoffset()


def _shown_twice(week: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return a local time that an offset change of this week repeats: its first instant in UTC, and the local time."""
    minutes = range(7 * 24 * 60)
    offset = week.astimezone(zone).utcoffset()
    change = bisect_left(
        minutes, 1, key=lambda minute: int((week + timedelta(minutes=minute)).astimezone(zone).utcoffset() != offset)
    )
    shown = (week + timedelta(minutes=change)).astimezone(zone).replace(tzinfo=None)
    assert offset is not None
    return (shown - offset), shown


@pytest.mark.slow
def test_a_day_with_two_midnights_begins_at_the_first(connection: duckdb.DuckDBPyConnection) -> None:
    """Compare DuckDB's zones from 2011 on with the list in sql/macros/midnight_of.sql."""
    twice: dict[str, list[datetime]] = {}
    for zone in sorted(timezones()):
        Reader(connection, {**EVERYTHING.variables(), "timezone": zone}, resources=ExitStack())
        [(periods, firsts)] = connection.execute(
            """
            with day as (
                select unnest(range(timestamp '2011-01-01', timestamp '2031-01-01', interval 1 day)) as day
            ),
            instant as (select day, make_timestamp(epoch_us(timezone($1, day))) as later from day)
            select list(period_of(later) order by day), list(later - interval 1 hour order by day)
            from instant
            where wall_clock(later - interval 1 hour) = day
            """,
            [zone],
        ).fetchall()
        if firsts:
            twice[zone] = firsts
            assert periods == firsts, zone
    listed = re.findall(r"'([A-Z]\w+(?:/\w+)?)'", read_sql("macros")["midnight_of"])
    assert sorted(twice) == sorted(listed)


def test_a_scope_converts_to_local_time() -> None:
    assert Scope(timezone="Asia/Tokyo").local_time(datetime(2026, 10, 31, 15)) == datetime(2026, 11, 1)
