"""The period of a URL: whole days in the reader's time zone, and a previous period of the same length."""

from datetime import UTC, datetime

import pytest

from embedsink.dashboards.period import Period, period_of
from embedsink.errors import Refused
from embedsink.key_scope import KeyScope
from embedsink.reasons import Reason

NOW = datetime(2026, 11, 21, 18, 30, 15, tzinfo=UTC)


def at(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]


def period(**params: str) -> Period:
    return period_of(params, now=NOW)


def test_seven_days_begin_at_midnight_and_the_week_before_ends_at_the_same_time_of_day() -> None:
    parsed = period(timezone="Europe/Berlin")
    assert (parsed.scope.since, parsed.scope.until) == (at(2026, 11, 14, 23), None)
    assert parsed.before is not None
    assert (parsed.before.since, parsed.before.until) == (at(2026, 11, 7, 23), at(2026, 11, 14, 18, 30, 15))
    assert parsed.scope.interval == "day"
    assert parsed.params == {"since": "2026-11-15", "interval": "day", "timezone": "Europe/Berlin"}
    assert parsed.scope.until is None


def test_a_day_is_24_hours_by_the_hour() -> None:
    parsed = period(period="24h")
    assert (parsed.scope.since, parsed.scope.until, parsed.scope.interval) == (at(2026, 11, 20, 19), None, "hour")
    assert parsed.before is not None
    assert (parsed.before.since, parsed.before.until) == (at(2026, 11, 19, 19), at(2026, 11, 20, 18, 30, 15))


def test_the_previous_period_of_a_chosen_period_has_the_same_length() -> None:
    parsed = period(since="2026-11-01", until="2026-11-04")
    assert (parsed.scope.since, parsed.scope.until) == (at(2026, 11, 1), at(2026, 11, 4))
    assert parsed.before is not None
    assert (parsed.before.since, parsed.before.until) == (at(2026, 10, 29), at(2026, 11, 1))
    assert parsed.scope.until is not None


@pytest.mark.parametrize(
    ("since", "until", "before"),
    [
        ("2026-10-01", "2026-11-01", at(2026, 8, 30, 22)),  # 31 days, one of them with 25 hours
        ("2026-03-01", "2026-04-01", at(2026, 1, 28, 23)),
        ("2026-10-26", "2026-10-28", at(2026, 10, 23, 22)),
        ("2026-10-25", "2026-10-26", at(2026, 10, 23, 22)),
    ],
)
def test_the_previous_period_of_whole_days_has_as_many_days_in_the_readers_time_zone(
    since: str, until: str, before: datetime
) -> None:
    parsed = period(since=since, until=until, timezone="Europe/Berlin")
    assert parsed.before is not None
    assert (parsed.before.since, parsed.before.until) == (before, parsed.scope.since)


def test_the_previous_period_of_a_part_of_a_day_has_the_same_duration() -> None:
    parsed = period(since="2026-10-25T00:00", until="2026-10-25T12:00", timezone="Europe/Berlin")
    assert parsed.before is not None
    assert parsed.before.since == at(2026, 10, 24, 9)  # 13 hours of the 25th, because one hour is repeated


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
@pytest.mark.parametrize(("since", "until"), [("0001-01-02", "0001-01-03"), ("0001-01-03", "0001-01-05")])
def test_the_previous_period_of_the_first_days_is_cut_or_missing(zone: str, since: str, until: str) -> None:
    parsed = period(since=since, until=until, timezone=zone)
    assert parsed.before is None or parsed.before.until == parsed.scope.since


@pytest.mark.parametrize(
    ("since", "interval"),
    [("2026-11-20", "hour"), ("2026-09-01", "day"), ("2026-01-01", "week"), ("2020-01-01", "month")],
)
def test_longer_periods_have_coarser_intervals(since: str, interval: str) -> None:
    assert period(since=since).scope.interval == interval


def test_nothing_is_compared_with_compare_off_or_without_a_previous_period() -> None:
    assert period(compare="off").before is None
    assert period(since="0001-01-02").before is None  # no previous period exists


def test_filters_apply_to_both_periods() -> None:
    parsed = period_of(
        {"surface": "app", "tenant": "acme"}, deployments=["2"], allowed=KeyScope(frozenset({1, 2})), now=NOW
    )
    for scope in (parsed.scope, parsed.before):
        assert scope is not None
        assert (scope.surface, scope.tenant, scope.deployments) == ("app", "acme", frozenset({2}))


def test_a_key_sees_its_deployments_without_a_filter() -> None:
    parsed = period_of({}, allowed=KeyScope(frozenset({7})), now=NOW)
    assert parsed.before is not None
    assert parsed.scope.deployments == parsed.before.deployments == frozenset({7})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"period": "8d"}, 'period: "8d" is not one of 24h, 7d, 30d, 90d.'),
        ({"period": "7d", "since": "2026-11-01"}, "period: is given together with since. Give one of them."),
        ({"until": "2026-11-01"}, "until: is given without since. Give both, or a period such as 7d."),
        ({"compare": "yes"}, 'compare: "yes" is not one of on, off.'),
        ({"surface": "tv"}, 'surface: "tv" is not one of dashboard, app, chat.'),
        ({"timezone": "Mars"}, 'timezone: "Mars" is not a time zone of the IANA database.'),
    ],
)
def test_an_invalid_period_is_refused(params: dict[str, str], message: str) -> None:
    with pytest.raises(Refused) as error:
        period(**params)
    assert error.value.reason is Reason.BAD_PARAMETER
    assert str(error.value).startswith(message)


def test_another_deployment_is_out_of_scope() -> None:
    with pytest.raises(Refused) as error:
        period_of({}, deployments=["3"], allowed=KeyScope(frozenset({1})), now=NOW)
    assert error.value.reason is Reason.OUT_OF_SCOPE
