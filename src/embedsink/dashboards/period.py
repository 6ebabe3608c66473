"""The period that a page shows, the one before it, and how fine both are divided: from the words of an address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.scope import Scope, parse_scope

# How many of the reader's days, today among them; a single one is the 24 hours up to now.
PERIODS: dict[str, int] = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}
PERIOD_DEFAULT = "7d"
PARAMETERS = ("period", "since", "until", "compare", "surface", "deployment", "tenant", "timezone")
_FIRST_DAYS = datetime(1, 1, 3)
_INTERVALS = ((timedelta(days=2), "hour"), (timedelta(days=100), "day"), (timedelta(days=400), "week"))


@dataclass(frozen=True, slots=True)
class Period:
    """What is seen, and `before`: as long a time just before it, None where that is not asked for.

    `asked` is the scope in the words of a report's address.
    """

    scope: Scope
    before: Scope | None
    asked: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Who asks: what its scopes have in common, and its clock."""

    shared: dict[str, str | None]
    deployments: Sequence[str]
    allowed: frozenset[int] | None
    now: datetime

    def scope(self, since: str | None, until: str | None, interval: str | None = None) -> Scope:
        words = self.shared | {"since": since, "until": until, "interval": interval}
        return parse_scope(words, deployments=self.deployments, allowed=self.allowed, now=lambda: self.now)

    def local(self) -> datetime:
        """What the reader's clocks show."""
        timezone = self.scope(None, None).timezone  # as it is known to be one
        return self.now.astimezone(ZoneInfo(timezone or "UTC")).replace(tzinfo=None)


def period_of(
    asked: Mapping[str, str | None],
    *,
    deployments: Sequence[str] = (),
    allowed: frozenset[int] | None = None,
    now: datetime,
) -> Period:
    """The period of an address.

    Args:
        asked: `period`, or `since` and `until`; `compare`, `surface`, `tenant`, `timezone`. None is as missing.
        deployments: those asked for.
        allowed: those of the reader's key; None for all.
        now: the clock, with a zone.

    Raises:
        Refused: `bad_parameter`, or `out_of_scope`.
    """
    reader = _Reader({name: asked.get(name) for name in ("surface", "tenant", "timezone")}, deployments, allowed, now)
    since, until = asked.get("since"), asked.get("until")
    if since is None and until is not None:
        raise Refused(Reason.BAD_PARAMETER, "until: stands without since. Give both, or a period such as 7d.")
    before: tuple[str, str] | None
    if since is None:
        since, before = _rolling(asked.get("period") or PERIOD_DEFAULT, reader)
    elif asked.get("period") is not None:
        raise Refused(Reason.BAD_PARAMETER, "period: stands beside since. Give one of them.")
    else:
        before = _chosen(reader.scope(since, until), now)
    seen = reader.scope(since, until)
    interval = _interval(_length(seen, now))
    told = {"since": since, "until": until, "interval": interval, **reader.shared}
    return Period(
        reader.scope(since, until, interval),
        reader.scope(*before, interval) if before and _is_compared(asked.get("compare")) else None,
        {name: value for name, value in told.items() if value is not None},
    )


def _rolling(period: str, reader: _Reader) -> tuple[str, tuple[str, str]]:
    """Since when, and the period before: up to the same time of day."""
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


def _chosen(seen: Scope, now: datetime) -> tuple[str, str] | None:
    """The period before one that somebody chose: it ends where that begins."""
    start = seen.since or datetime.min
    try:
        if seen.since and seen.until and (days := _whole_days(seen.local(seen.since), seen.local(seen.until))):
            return days
        return f"{(start - _length(seen, now)).isoformat()}Z", f"{start.isoformat()}Z"
    except OverflowError:
        return None


def _whole_days(first: datetime, end: datetime) -> tuple[str, str] | None:
    """As many days before some whole ones, by the reader's clocks: not each of them has 24 hours."""
    before = first - (end - first)
    are_whole = first.time() == end.time() == time.min
    # In the first days, other clocks may show times that UTC does not have.
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
