"""The period of a dashboard page, the previous period, and the interval of both, from query parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from embedsink.errors import Refused
from embedsink.key_scope import EVERYTHING, KeyScope
from embedsink.reasons import Reason
from embedsink.reports.parameters import parse_choice, parse_switch
from embedsink.reports.scope import Scope, parse_scope
from embedsink.store.timezones import naive_utc

# The lengths of rolling periods in local days, including today. One day means the last 24 hours.
PERIODS: dict[str, int] = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}
PERIOD_DEFAULT = "7d"
PARAMETERS = (
    *("period", "since", "until", "compare"),
    *("surface", "deployment", "tenant", "vendor", "internal", "department", "group", "timezone"),
)
# The parameters that both periods share.
_SHARED = ("surface", "tenant", "vendor", "internal", "department", "group", "timezone")
# Before this time, local times can be outside the range of UTC times.
_CALENDAR_START = datetime(1, 1, 3)
# The maximum length of a period for each interval. For longer periods, the interval is a month.
_INTERVALS_BY_LENGTH_MAX = ((timedelta(days=2), "hour"), (timedelta(days=100), "day"), (timedelta(days=400), "week"))
# The start and end of a scope, as values of `since` and `until`.
_Limits = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Period:
    """The period of a page.

    Args:
        scope: the scope of the page.
        before: the scope of the previous period, which has the same length; None without a comparison.
        params: the query parameters of a report with the scope of the page.
    """

    scope: Scope
    before: Scope | None
    params: dict[str, str]


@dataclass(frozen=True, slots=True)
class _ScopeParser:
    """A parser of scopes that differ only in `since`, `until` and `interval`."""

    shared: dict[str, str | None]
    deployments: Sequence[str]
    allowed: KeyScope
    now: datetime

    def parse(self, since: str | None, until: str | None, interval: str | None = None) -> Scope:
        """Return the scope with this period and interval. Raise Refused if a value is invalid or not allowed."""
        params = self.shared | {"since": since, "until": until, "interval": interval}
        return parse_scope(params, deployments=self.deployments, allowed=self.allowed, now=lambda: self.now)

    def local_now(self) -> datetime:
        """Return the current local time of the reader, without a zone.

        Raises:
            Refused: the time zone, or another shared parameter, is invalid (reason `bad_parameter`).
        """
        timezone = self.parse(None, None).timezone  # The parser has checked that it exists.
        return self.now.astimezone(ZoneInfo(timezone or "UTC")).replace(tzinfo=None)


def period_of(
    params: Mapping[str, str | None],
    *,
    deployments: Sequence[str] = (),
    allowed: KeyScope = EVERYTHING,
    now: datetime,
) -> Period:
    """Return the period that query parameters select, and the previous period.

    Args:
        params: `period`, or `since` and `until`; `compare`, and those of `_SHARED`. None means missing.
        deployments: the requested deployments.
        allowed: the scope of the reader's key.
        now: the current time, with a zone.

    Raises:
        Refused: a parameter is invalid (reason `bad_parameter`), or a deployment is not allowed (`out_of_scope`).
    """
    shared = {name: params.get(name) for name in _SHARED}
    parser = _ScopeParser(shared, deployments, allowed, now)
    since, until, previous_limits = _limits_of(params, parser)
    length = _length_of(parser.parse(since, until), now)
    interval = _interval_for(length)
    before = None
    if previous_limits is not None and parse_switch("compare", params.get("compare"), default=True):
        before = parser.parse(*previous_limits, interval)
    report_params = {"since": since, "until": until, "interval": interval, **shared}
    return Period(
        scope=parser.parse(since, until, interval),
        before=before,
        params={name: value for name, value in report_params.items() if value is not None},
    )


def _limits_of(params: Mapping[str, str | None], parser: _ScopeParser) -> tuple[str, str | None, _Limits | None]:
    """Return `since` and `until` of the period, and the start and end of the previous period, if there is one.

    Raises:
        Refused: the parameters contradict each other, or one is invalid (reason `bad_parameter`).
    """
    since, until, period = params.get("since"), params.get("until"), params.get("period")
    if since is None:
        if until is not None:
            raise Refused(Reason.BAD_PARAMETER, "until: is given without since. Give both, or a period such as 7d.")
        since, previous_limits = _rolling_limits(period or PERIOD_DEFAULT, parser)
        return since, None, previous_limits
    if period is not None:
        raise Refused(Reason.BAD_PARAMETER, "period: is given together with since. Give one of them.")
    return since, until, _limits_before(parser.parse(since, until), parser.now)


def _rolling_limits(period: str, parser: _ScopeParser) -> tuple[str, _Limits]:
    """Return the start of a rolling period, and the limits of the previous period.

    The period runs until now. The previous one ends at the same time of day, so that both have the same length.
    Raise Refused if the period is unknown.
    """
    parse_choice("period", period, PERIODS)
    length = timedelta(days=PERIODS[period])
    if period == "24h":
        utc_now = naive_utc(parser.now).replace(microsecond=0)
        start = utc_now.replace(minute=0, second=0) - timedelta(hours=23)  # the current hour and 23 earlier hours
        return _utc_text(start), (_utc_text(start - length), _utc_text(utc_now - length))
    local_now = parser.local_now().replace(microsecond=0)
    first_day = local_now.date() - length + timedelta(days=1)  # The period includes today.
    return first_day.isoformat(), ((first_day - length).isoformat(), (local_now - length).isoformat())


def _limits_before(scope: Scope, now: datetime) -> _Limits | None:
    """Return the limits of the period before a custom period; None if they are outside the years 1 to 9999."""
    start = scope.since or datetime.min  # A custom period always has `since`; its type allows None.
    try:
        if scope.until:
            day_limits = _days_before(scope.local_time(start), scope.local_time(scope.until))
            if day_limits is not None:
                return day_limits
        return _utc_text(start - _length_of(scope, now)), _utc_text(start)
    except OverflowError:
        return None


def _days_before(start: datetime, end: datetime) -> _Limits | None:
    """Return the limits of the period that precedes a period of whole local days and has as many days.

    Return None for other periods, and for limits before `_CALENDAR_START`.
    The limits are local times, because local days can have 23 or 25 hours.
    """
    are_whole_days = start.time() == end.time() == time.min
    previous_start = start - (end - start)
    if not are_whole_days or previous_start <= _CALENDAR_START:
        return None
    return previous_start.isoformat(), start.isoformat()


def _length_of(scope: Scope, now: datetime) -> timedelta:
    """Return the length of a period. Without `until` the period ends now; without `since` the length is 0."""
    end = scope.until or naive_utc(now)
    start = scope.since or end
    return max(end - start, timedelta())  # A period in the future has no length yet.


def _interval_for(length: timedelta) -> str:
    """Return the interval for a period of this length: hour, day, week or month."""
    for length_max, interval in _INTERVALS_BY_LENGTH_MAX:
        if length <= length_max:
            return interval
    return "month"


def _utc_text(instant: datetime) -> str:
    """Return a time in UTC as a value of `since` or `until`."""
    return f"{instant.isoformat()}Z"
