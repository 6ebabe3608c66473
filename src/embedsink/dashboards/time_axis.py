"""Local times of the reader in epoch milliseconds, and the starts and ends of periods.

Times have the years 1 to 9999. Period ends are numbers, so the last period may end after the year 9999.
"""

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from embedsink.reports.scope import Scope

# The share of a period that its bar leaves empty.
GAP_SHARE = 0.24
DAY_MS = 86_400_000
# The maximum number of axis labels. Vega omits those that overlap.
TICKS_MAX = 400
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)
_LEAST = datetime.resolution
_LAST_MS = (datetime.max - _EPOCH) // _MS
_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def utc_of(now: datetime) -> datetime:
    """Return a time in UTC without a zone, as in scopes and rows."""
    return now.astimezone(UTC).replace(tzinfo=None)


def span_of(scope: Scope, *, now: datetime) -> list[int]:
    """Return the start and end of a chart's time axis in whole periods, in epoch ms of the reader's local time."""
    clock = Clock(scope)
    # `until` is exclusive, so a period that starts at `until` is not included.
    last = utc_of(now) if scope.until is None else max(scope.until, datetime.min + _LEAST) - _LEAST
    first = scope.since or last
    return [clock.start(clock.shown(first)), clock.end(clock.start(clock.shown(max(first, last))))]


@dataclass(frozen=True, slots=True)
class Clock:
    """The reader's local time in epoch milliseconds.

    `shift` is the distance to the previous period. After a clock change the local distance differs by an hour, because
    both periods are aligned by local time.
    """

    scope: Scope
    shift: timedelta = timedelta()

    def shown(self, value: Any, *, is_before: bool = False) -> Any:
        """Return a row value for a chart: times as local epoch milliseconds, other values unchanged."""
        if isinstance(value, datetime):
            shown = _ms_of(self.scope.local_time(value))
        elif isinstance(value, date):
            shown = _ms_of(datetime(value.year, value.month, value.day))
        else:
            return value
        return min(shown + self._shift_ms(), _LAST_MS) if is_before else shown

    def _shift_ms(self) -> int:
        since = self.scope.since
        return (
            self.shift if since is None else self.scope.local_time(since) - self.scope.local_time(since - self.shift)
        ) // _MS

    def period_columns(self, start_ms: int, *, is_day: bool = False) -> list[int]:
        """Return the added columns of a period: its end, its middle, and the start and end of its bar."""
        length_ms = DAY_MS if is_day else self.end(start_ms) - start_ms
        gap_ms = int(length_ms * GAP_SHARE / 2)
        return [start_ms + length_ms, start_ms + length_ms // 2, start_ms + gap_ms, start_ms + length_ms - gap_ms]

    def ticks(self, span: Sequence[int], *, is_day: bool = False) -> list[int] | None:
        """Return the middles of all periods of a span as label positions, or None to let Vega choose."""
        if self.scope.interval == "hour" and not is_day:
            return None
        start_ms, end_ms = span
        middles: list[int] = []
        while start_ms < end_ms and len(middles) <= TICKS_MAX:
            after_ms = start_ms + DAY_MS if is_day else self.end(start_ms)
            middles.append((start_ms + after_ms) // 2)
            start_ms = after_ms
        return middles if len(middles) <= TICKS_MAX else None

    def start(self, shown_ms: int) -> int:
        """Return the start of the period that contains this time."""
        shown = (_EPOCH + shown_ms * _MS).replace(minute=0, second=0, microsecond=0)
        if self.scope.interval == "hour":
            return _ms_of(shown)
        midnight = shown.replace(hour=0)
        if self.scope.interval == "week":
            midnight -= timedelta(days=midnight.weekday())  # The year 1 began with a Monday.
        return _ms_of(midnight.replace(day=1) if self.scope.interval == "month" else midnight)

    def end(self, start_ms: int) -> int:
        """Return the end of the period with this start."""
        interval = self.scope.interval or "day"
        if interval in _LENGTHS:
            return start_ms + int(_LENGTHS[interval].total_seconds() * 1_000)
        start = _EPOCH + start_ms * _MS
        return start_ms + monthrange(start.year, start.month)[1] * DAY_MS


def _ms_of(local: datetime) -> int:
    # Integer division: floats would round the last microseconds of the year 9999 into the next year.
    return (local - _EPOCH) // _MS
