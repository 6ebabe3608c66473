"""What the reader's clocks show, and where periods begin and end by them."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from embedsink.reports import Scope

# Of a period, the part that its bar leaves free.
GAP_SHARE = 0.24
DAY_MS = 86_400_000
_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def utc_of(now: datetime) -> datetime:
    """A time in UTC, without its zone: as scopes and rows have it."""
    return now.astimezone(UTC).replace(tzinfo=None)


def span_of(scope: Scope, *, now: datetime) -> list[int]:
    """From where to where a chart's time goes, in whole periods: epoch ms of what the reader's clocks show."""
    clock = Clock(scope)
    until = utc_of(now) if scope.until is None else scope.until - timedelta(microseconds=1)
    return [clock.start(clock.shown(scope.since or until)), clock.end(clock.start(clock.shown(until)))]


@dataclass(frozen=True, slots=True)
class Clock:
    """What the reader's clocks show, in epoch milliseconds.

    `shift` moves the period before onto the one that is seen.
    """

    scope: Scope
    shift: timedelta = timedelta()

    def shown(self, value: Any, *, is_before: bool = False) -> Any:
        """A value of a row as a chart has it."""
        if isinstance(value, datetime):
            local = self.scope.local(value + self.shift if is_before else value)
            return int(local.replace(tzinfo=UTC).timestamp() * 1_000)
        if isinstance(value, date):
            moved = value + self.shift if is_before else value
            return int(datetime(moved.year, moved.month, moved.day, tzinfo=UTC).timestamp() * 1_000)
        return value

    def places(self, start_ms: int, *, is_day: bool = False) -> list[int]:
        """What is added to a row that is of a period: where it ends, its middle, and where its bar begins and ends."""
        length_ms = DAY_MS if is_day else self.end(start_ms) - start_ms
        gap_ms = int(length_ms * GAP_SHARE / 2)
        return [start_ms + length_ms, start_ms + length_ms // 2, start_ms + gap_ms, start_ms + length_ms - gap_ms]

    def start(self, shown_ms: int) -> int:
        """Where the period begins that this is in."""
        shown = datetime.fromtimestamp(shown_ms / 1_000, UTC).replace(minute=0, second=0, microsecond=0)
        if self.scope.interval == "hour":
            return int(shown.timestamp() * 1_000)
        midnight = shown.replace(hour=0)
        if self.scope.interval == "week":
            midnight -= timedelta(days=midnight.weekday())
        return int((midnight.replace(day=1) if self.scope.interval == "month" else midnight).timestamp() * 1_000)

    def end(self, start_ms: int) -> int:
        """Where a period ends that begins so."""
        interval = self.scope.interval or "day"
        if interval in _LENGTHS:
            return start_ms + int(_LENGTHS[interval].total_seconds() * 1_000)
        start = datetime.fromtimestamp(start_ms / 1_000, UTC)
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        return int(following.timestamp() * 1_000)
