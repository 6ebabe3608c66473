"""The period of a page, its previous period and their interval, from query parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.scope import Scope, parse_scope

# Lengths in local days, including today. One day means the last 24 hours.
PERIODS: dict[str, int] = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}
PERIOD_DEFAULT = "7d"
PARAMETERS = ("period", "since", "until", "compare", "surface", "deployment", "tenant", "timezone")
_FIRST_DAYS = datetime(1, 1, 3)
_INTERVALS = ((timedelta(days=2), "hour"), (timedelta(days=100), "day"), (timedelta(days=400), "week"))


@dataclass(frozen=True, slots=True)
class Period:
    """The scope of a page, and `before`: the scope of the previous period of the same length, or None.

    `params` has the query parameters of a report with the same scope.
    """

    scope: Scope
    before: Scope | None
    params: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Reader:
    """The parameters that both periods share, and the clock."""

    shared: dict[str, str | None]
    deployments: Sequence[str]
    allowed: frozenset[int] | None
    now: datetime

    def scope(self, since: str | None, until: str | None, interval: str | None = None) -> Scope:
        params = self.shared | {"since": since, "until": until, "interval": interval}
        return parse_scope(params, deployments=self.deployments, allowed=self.allowed, now=lambda: self.now)

    def local(self) -> datetime:
        """Return the reader's local time."""
        timezone = self.scope(None, None).timezone  # a validated time zone
        return self.now.astimezone(ZoneInfo(timezone or "UTC")).replace(tzinfo=None)


def period_of(
    params: Mapping[str, str | None],
    *,
    deployments: Sequence[str] = (),
    allowed: frozenset[int] | None = None,
    now: datetime,
) -> Period:
    """Return the period of query parameters.

    Args:
        params: `period`, or `since` and `until`; `compare`, `surface`, `tenant`, `timezone`. None means missing.
        deployments: the requested deployments.
        allowed: the deployments of the reader's key; None for all.
        now: the current time, with a zone.

    Raises:
        Refused: `bad_parameter`, or `out_of_scope`.
    """
    reader = _Reader({name: params.get(name) for name in ("surface", "tenant", "timezone")}, deployments, allowed, now)
    since, until = params.get("since"), params.get("until")
    if since is None and until is not None:
        raise Refused(Reason.BAD_PARAMETER, "until: is given without since. Give both, or a period such as 7d.")
    before: tuple[str, str] | None
    if since is None:
        since, before = _rolling(params.get("period") or PERIOD_DEFAULT, reader)
    elif params.get("period") is not None:
        raise Refused(Reason.BAD_PARAMETER, "period: is given together with since. Give one of them.")
    else:
        before = _previous_of_custom(reader.scope(since, until), now)
    scope = reader.scope(since, until)
    interval = _interval(_length(scope, now))
    report_params = {"since": since, "until": until, "interval": interval, **reader.shared}
    return Period(
        reader.scope(since, until, interval),
        reader.scope(*before, interval) if before and _is_compared(params.get("compare")) else None,
        {name: value for name, value in report_params.items() if value is not None},
    )


def _rolling(period: str, reader: _Reader) -> tuple[str, tuple[str, str]]:
    """Return the start of a rolling period, and the previous period up to the same time of day."""
    if period not in PERIODS:
        raise Refused(Reason.BAD_PARAMETER, f"period: {preview(period)} is not one of {', '.join(PERIODS)}.")
    length = timedelta(days=PERIODS[period])
    local = reader.local()
    if period == "24h":
        start = reader.now.astimezone(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0) - timedelta(hours=23)
        end = reader.now.astimezone(UTC).replace(tzinfo=None, microsecond=0) - length
        return f"{start.isoformat()}Z", (f"{(start - length).isoformat()}Z", f"{end.isoformat()}Z")
    first = local.date() - length + timedelta(days=1)
    return first.isoformat(), ((first - length).isoformat(), (local - length).replace(microsecond=0).isoformat())


def _previous_of_custom(scope: Scope, now: datetime) -> tuple[str, str] | None:
    """Return the previous period of a custom period: it ends where the custom period starts."""
    start = scope.since or datetime.min
    try:
        if (
            scope.since
            and scope.until
            and (days := _whole_days(scope.local_time(scope.since), scope.local_time(scope.until)))
        ):
            return days
        return f"{(start - _length(scope, now)).isoformat()}Z", f"{start.isoformat()}Z"
    except OverflowError:
        return None


def _whole_days(first: datetime, end: datetime) -> tuple[str, str] | None:
    """Return as many local days before whole days, or None for partial days. Local days can have 23 or 25 hours."""
    before = first - (end - first)
    are_whole = first.time() == end.time() == time.min
    # In the first days of the calendar, local times can be outside the range of UTC.
    return (before.isoformat(), first.isoformat()) if are_whole and before > _FIRST_DAYS else None


def _length(scope: Scope, now: datetime) -> timedelta:
    end = scope.until or now.astimezone(UTC).replace(tzinfo=None)
    return max(end - (scope.since or end), timedelta())


def _interval(length: timedelta) -> str:
    return next((interval for longest, interval in _INTERVALS if length <= longest), "month")


def _is_compared(compare: str | None) -> bool:
    if compare not in (None, "on", "off"):
        raise Refused(Reason.BAD_PARAMETER, f"compare: {preview(compare)} is not one of on, off.")
    return compare != "off"
