"""What the reader's clocks show, and where periods begin and end by them.

Times have years from 1 to 9999. Where a period ends is a number alone, so the last one may end when they do.
"""

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from embedsink.reports.scope import Scope

# Of a period, the part that its bar leaves free.
GAP_SHARE = 0.24
DAY_MS = 86_400_000
# No axis has room for more names; Vega chooses some of them itself.
TICKS_MAX = 400
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)
_LEAST = datetime.resolution
_LAST_MS = (datetime.max - _EPOCH) // _MS
_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def utc_of(now: datetime) -> datetime:
    """A time in UTC, without its zone: as scopes and rows have it."""
    return now.astimezone(UTC).replace(tzinfo=None)


def span_of(scope: Scope, *, now: datetime) -> list[int]:
    """From where to where a chart's time goes, in whole periods: epoch ms of what the reader's clocks show."""
    clock = Clock(scope)
    # `until` is no part of it, and so neither is the period that begins then.
    last = utc_of(now) if scope.until is None else max(scope.until, datetime.min + _LEAST) - _LEAST
    first = scope.since or last
    return [clock.start(clock.shown(first)), clock.end(clock.start(clock.shown(max(first, last))))]


@dataclass(frozen=True, slots=True)
class Clock:
    """What the reader's clocks show, in epoch milliseconds.

    `shift` is how much earlier the period before begins. On the clocks it may be an hour more or less, where these
    change in between: what is seen and what was before are laid side by side by what the clocks show.
    """

    scope: Scope
    shift: timedelta = timedelta()

    def shown(self, value: Any, *, is_before: bool = False) -> Any:
        """A value of a row as a chart has it."""
        if isinstance(value, datetime):
            shown = _ms_of(self.scope.local(value))
        elif isinstance(value, date):
            shown = _ms_of(datetime(value.year, value.month, value.day))
        else:
            return value
        return min(shown + self._shift_ms(), _LAST_MS) if is_before else shown

    def _shift_ms(self) -> int:
        since = self.scope.since
        return (self.shift if since is None else self.scope.local(since) - self.scope.local(since - self.shift)) // _MS

    def places(self, start_ms: int, *, is_day: bool = False) -> list[int]:
        """What is added to a row that is of a period: where it ends, its middle, and where its bar begins and ends."""
        length_ms = DAY_MS if is_day else self.end(start_ms) - start_ms
        gap_ms = int(length_ms * GAP_SHARE / 2)
        return [start_ms + length_ms, start_ms + length_ms // 2, start_ms + gap_ms, start_ms + length_ms - gap_ms]

    def ticks(self, span: Sequence[int], *, is_day: bool = False) -> list[int] | None:
        """The middles of all periods of a span, below which days and longer ones are named; None leaves it to Vega."""
        if self.scope.interval == "hour" and not is_day:
            return None
        start_ms, end_ms = span
        found: list[int] = []
        while start_ms < end_ms and len(found) <= TICKS_MAX:
            after_ms = start_ms + DAY_MS if is_day else self.end(start_ms)
            found.append((start_ms + after_ms) // 2)
            start_ms = after_ms
        return found if len(found) <= TICKS_MAX else None

    def start(self, shown_ms: int) -> int:
        """Where the period begins that this is in."""
        shown = (_EPOCH + shown_ms * _MS).replace(minute=0, second=0, microsecond=0)
        if self.scope.interval == "hour":
            return _ms_of(shown)
        midnight = shown.replace(hour=0)
        if self.scope.interval == "week":
            midnight -= timedelta(days=midnight.weekday())  # The year 1 began with a Monday.
        return _ms_of(midnight.replace(day=1) if self.scope.interval == "month" else midnight)

    def end(self, start_ms: int) -> int:
        """Where a period ends that begins so."""
        interval = self.scope.interval or "day"
        if interval in _LENGTHS:
            return start_ms + int(_LENGTHS[interval].total_seconds() * 1_000)
        start = _EPOCH + start_ms * _MS
        return start_ms + monthrange(start.year, start.month)[1] * DAY_MS


def _ms_of(local: datetime) -> int:
    # In integers: the last microseconds of the year 9999 would be rounded into the year after.
    return (local - _EPOCH) // _MS
