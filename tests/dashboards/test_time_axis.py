"""The reader's time zone on the time axis: local times, the boundaries of periods, and the limits of time."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from embedsink.dashboards.period import period_of
from embedsink.dashboards.time_axis import GAP_SHARE, TimeAxis, span_of
from embedsink.reports.scope import Scope

NOW = datetime(2026, 11, 21, 18, 30, 15, tzinfo=UTC)  # a Saturday
DAY_MS = 86_400_000
ENDS = (
    datetime.min,
    datetime.min + datetime.resolution,
    datetime(1, 1, 2),
    datetime(1, 12, 31),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(9999, 12, 1),
    datetime(9999, 12, 31),
    datetime.max,
)
ZONES = (None, "America/Havana", "Pacific/Kiritimati", "Pacific/Pago_Pago")


def ms(*parts: int) -> int:
    """Return a local time in epoch milliseconds, from its parts (the year first)."""
    return (datetime(*parts) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # type: ignore[arg-type]


def clock(interval: str | None, **options: str) -> TimeAxis:
    return TimeAxis(Scope(interval=interval, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "start", "end"),
    [
        ("hour", (2026, 11, 21, 18), (2026, 11, 21, 19)),
        ("day", (2026, 11, 21), (2026, 11, 22)),
        (None, (2026, 11, 21), (2026, 11, 22)),
        ("week", (2026, 11, 16), (2026, 11, 23)),
        ("month", (2026, 11, 1), (2026, 12, 1)),
    ],
)
def test_a_period_begins_and_ends_at_interval_boundaries(
    interval: str | None, start: tuple[int, ...], end: tuple[int, ...]
) -> None:
    of = clock(interval)
    assert of.period_start(ms(2026, 11, 21, 18, 30, 15)) == ms(*start)
    assert of.period_end(ms(*start)) == ms(*end)


@pytest.mark.parametrize("day", range(16, 23))
def test_weeks_begin_on_mondays(day: int) -> None:
    assert clock("week").period_start(ms(2026, 11, day, 23, 59)) == ms(2026, 11, 16)


@pytest.mark.parametrize(
    ("start", "end"),
    [((2026, 12, 1), (2027, 1, 1)), ((2028, 2, 1), (2028, 3, 1)), ((2026, 1, 31), (2026, 3, 3))],
)
def test_months_have_their_calendar_length(start: tuple[int, ...], end: tuple[int, ...]) -> None:
    # The last case is a month of the shifted previous period. It begins on a day that some months lack.
    assert clock("month").period_end(ms(*start)) == ms(*end)


def test_clocks_show_the_time_of_their_zone() -> None:
    berlin = clock("day", timezone="Europe/Berlin")
    assert berlin.chart_value(datetime(2026, 7, 1, 22)) == ms(2026, 7, 2)
    assert berlin.chart_value(datetime(2026, 12, 1, 23)) == ms(2026, 12, 2)
    assert berlin.chart_value(date(2026, 7, 1)) == ms(2026, 7, 1)
    assert [berlin.chart_value(value) for value in (None, 7, "app")] == [None, 7, "app"]


def test_the_previous_period_is_moved_onto_the_shown_period() -> None:
    week = TimeAxis(Scope(), timedelta(days=7))
    assert week.chart_value(datetime(2026, 11, 14, 9), is_previous=True) == ms(2026, 11, 21, 9)
    assert week.chart_value(date(2026, 11, 14), is_previous=True) == ms(2026, 11, 21)
    assert week.chart_value(datetime(2026, 11, 14, 9)) == ms(2026, 11, 14, 9)


@pytest.mark.parametrize(
    ("params", "now", "length"),
    [
        ({"period": "7d"}, datetime(2026, 10, 28, 12, tzinfo=UTC), 7),
        ({"period": "7d"}, datetime(2026, 3, 31, 12, tzinfo=UTC), 7),
        ({"period": "30d"}, datetime(2026, 11, 10, 12, tzinfo=UTC), 30),
        ({"since": "2026-10-01", "until": "2026-11-01"}, NOW, 31),
        ({"since": "2026-11-01", "until": "2026-12-01"}, datetime(2026, 12, 1, tzinfo=UTC), 30),
        ({"since": "2026-03-01", "until": "2026-04-01"}, NOW, 31),
        ({"since": "2026-04-01", "until": "2026-05-01"}, NOW, 30),
    ],
)
def test_days_are_aligned_with_previous_days_across_a_clock_change(
    params: dict[str, str], now: datetime, length: int
) -> None:
    period = period_of(params | {"timezone": "Europe/Berlin"}, now=now)
    assert period.before is not None
    assert period.scope.since is not None
    assert period.before.since is not None
    berlin = TimeAxis(period.scope, period.scope.since - period.before.since)
    first = period.scope.local_time(period.before.since)
    assert first.time() == time.min
    for number in range(length):
        day = first + timedelta(days=number)
        shown_day = ms(*(day + timedelta(days=length)).timetuple()[:3])
        in_utc = day.replace(tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC).replace(tzinfo=None)
        assert berlin.chart_value(in_utc, is_previous=True) == shown_day
        assert berlin.chart_value(day.date(), is_previous=True) == shown_day


def test_previous_hours_are_aligned_with_the_shown_hours_across_a_clock_change() -> None:
    now = datetime(2026, 10, 25, 12, 30, tzinfo=UTC)
    period = period_of({"period": "24h", "timezone": "Europe/Berlin"}, now=now)
    assert period.before is not None
    assert period.scope.since is not None
    assert period.before.since is not None
    berlin = TimeAxis(period.scope, period.scope.since - period.before.since)
    assert berlin.chart_value(period.before.since, is_previous=True) == berlin.chart_value(period.scope.since)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("since", "until"), [("9990-01-01", "9995-01-01"), ("9999-12-30", "9999-12-31")])
def test_the_previous_period_ends_at_the_limits_of_time(zone: str | None, since: str, until: str) -> None:
    period = period_of({"since": since, "until": until, "timezone": zone}, now=NOW)
    assert period.before is not None
    assert period.scope.since is not None
    assert period.before.since is not None
    of = TimeAxis(period.scope, datetime.max - period.scope.since)
    assert of.period_columns(of.chart_value(period.scope.since, is_previous=True))


@pytest.mark.parametrize(("interval", "is_day", "length"), [("week", False, 7), ("week", True, 1), ("day", False, 1)])
def test_a_bar_is_narrower_than_its_period(interval: str, is_day: bool, length: int) -> None:
    start = ms(2026, 11, 16)
    end, middle, left, right = clock(interval).period_columns(start, is_day=is_day)
    assert (end - start, 2 * (middle - start)) == (length * DAY_MS, length * DAY_MS)
    assert left - start == end - right == length * DAY_MS * GAP_SHARE / 2


def test_a_span_has_whole_periods_and_excludes_its_end() -> None:
    chosen = Scope(since=datetime(2026, 11, 3, 9), until=datetime(2026, 11, 16), interval="week")
    assert span_of(chosen, now=NOW) == [ms(2026, 11, 2), ms(2026, 11, 16)]
    open_ = Scope(since=datetime(2026, 11, 15), interval="day")
    assert span_of(open_, now=NOW) == [ms(2026, 11, 15), ms(2026, 11, 22)]
    assert span_of(Scope(interval="hour"), now=NOW) == [ms(2026, 11, 21, 18), ms(2026, 11, 21, 19)]


def test_a_span_that_begins_later_than_now_does_not_run_backwards() -> None:
    later = Scope(since=datetime(2030, 1, 1), interval="day")
    assert span_of(later, now=NOW) == [ms(2030, 1, 1), ms(2030, 1, 2)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("interval", ["hour", "day", "week", "month"])
def test_a_span_is_limited_to_the_ends_of_time(zone: str | None, interval: str) -> None:
    for since, until in product((None, *ENDS), (None, *ENDS)):
        if since and until and since > until:
            continue
        start, end = span_of(Scope(since=since, until=until, interval=interval, timezone=zone), now=NOW)
        assert ms(1, 1, 1) <= start < end <= ms(9999, 12, 31) + 3 * DAY_MS


@pytest.mark.parametrize(
    ("interval", "is_day", "end", "ticks"),
    [
        ("day", False, ms(2026, 11, 4), [ms(2026, 11, day, 12) for day in (1, 2, 3)]),
        ("week", False, ms(2026, 11, 15), [ms(2026, 11, 4, 12), ms(2026, 11, 11, 12)]),
        ("month", False, ms(2027, 1, 1), [ms(2026, 11, 16), ms(2026, 12, 16, 12)]),
        ("hour", False, ms(2026, 11, 2), None),  # Labels of hours are at their beginning.
        ("hour", True, ms(2026, 11, 3), [ms(2026, 11, 1, 12), ms(2026, 11, 2, 12)]),
        ("month", False, ms(9999, 12, 1), None),  # too many for an axis
    ],
)
def test_period_labels_are_centered(interval: str, is_day: bool, end: int, ticks: list[int] | None) -> None:
    assert TimeAxis(Scope(interval=interval)).ticks([ms(2026, 11, 1), end], is_day=is_day) == ticks
