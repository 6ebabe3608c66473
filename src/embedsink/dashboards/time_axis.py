"""The time axis of charts: local times of the reader in epoch milliseconds, and the starts and ends of periods.

Times are in the years 1 to 9999. The end of a period is a number, so the last period may end after the year 9999.
"""

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from embedsink.reports.scope import Scope
from embedsink.store.timezones import naive_utc

# The share of a period that is empty beside its bar.
GAP_SHARE = 0.24
DAY_MS = 86_400_000
# The maximum number of axis labels. Vega omits those that overlap.
TICKS_MAX = 400
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)
_MICROSECOND = datetime.resolution
_LAST_MS = (datetime.max - _EPOCH) // _MS
_INTERVAL_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def span_of(scope: Scope, *, now: datetime) -> list[int]:
    """Return the start and end, in local epoch milliseconds, of the whole periods that cover a scope."""
    axis = TimeAxis(scope)
    last = naive_utc(now)
    if scope.until is not None:
        # `until` is exclusive, so a period that starts at `until` is not included. `max` stays within the calendar.
        last = max(scope.until, datetime.min + _MICROSECOND) - _MICROSECOND
    first = scope.since or last
    last = max(first, last)  # A future or empty scope spans its first period.
    last_start_ms = axis.period_start(axis.chart_value(last))
    return [axis.period_start(axis.chart_value(first)), axis.period_end(last_start_ms)]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The conversion of times to positions on the time axis, which are local times of the reader in epoch milliseconds.

    `shift` is the time from the previous period to the current one. Both are aligned by local time, so a clock change
    between them changes the local shift by an hour.
    """

    scope: Scope
    shift: timedelta = timedelta()

    def chart_value(self, value: Any, *, is_previous: bool = False) -> Any:
        """Return a row value as a chart needs it: times as local epoch milliseconds, other values unchanged.

        If `is_previous` is true, times are of the previous period and are shifted onto the current one.
        """
        if isinstance(value, datetime):
            local_ms = _to_epoch_ms(self.scope.local_time(value))
        elif isinstance(value, date):
            local_ms = _to_epoch_ms(datetime(value.year, value.month, value.day))
        else:
            return value
        if not is_previous:
            return local_ms
        return min(local_ms + self._local_shift_ms(), _LAST_MS)  # A date after the year 9999 can't be represented.

    def _local_shift_ms(self) -> int:
        """Return `shift` by local clocks: a clock change between the two periods makes it an hour longer or shorter."""
        since = self.scope.since
        if since is None:
            return self.shift // _MS
        return (self.scope.local_time(since) - self.scope.local_time(since - self.shift)) // _MS

    def period_columns(self, start_ms: int, *, is_day: bool = False) -> list[int]:
        """Return the values of `PERIOD_END_COLUMNS`: the end, the middle, and the start and end of the bar.

        Args:
            start_ms: the start of the period.
            is_day: whether the period is a day of a report by day, which ignores the interval of the scope.
        """
        length_ms = DAY_MS if is_day else self.period_end(start_ms) - start_ms
        gap_ms = int(length_ms * GAP_SHARE / 2)
        return [start_ms + length_ms, start_ms + length_ms // 2, start_ms + gap_ms, start_ms + length_ms - gap_ms]

    def ticks(self, span: Sequence[int], *, is_day: bool = False) -> list[int] | None:
        """Return the positions of the labels: the middles of all periods of a span, or of all days if `is_day` is true.

        Return None, which lets Vega choose, for hours and for more than `TICKS_MAX` periods.
        """
        if self.scope.interval == "hour" and not is_day:
            return None
        start_ms, end_ms = span
        middles: list[int] = []
        while start_ms < end_ms and len(middles) <= TICKS_MAX:
            next_start_ms = start_ms + DAY_MS if is_day else self.period_end(start_ms)
            middles.append((start_ms + next_start_ms) // 2)
            start_ms = next_start_ms
        return middles if len(middles) <= TICKS_MAX else None

    def period_start(self, local_ms: int) -> int:
        """Return the start of the period that contains the time `local_ms`."""
        hour = (_EPOCH + local_ms * _MS).replace(minute=0, second=0, microsecond=0)
        day = hour.replace(hour=0)
        match self.scope.interval:
            case "hour":
                return _to_epoch_ms(hour)
            case "week":
                # The result is within the calendar, because the year 1 began on a Monday.
                return _to_epoch_ms(day - timedelta(days=day.weekday()))
            case "month":
                return _to_epoch_ms(day.replace(day=1))
        return _to_epoch_ms(day)

    def period_end(self, start_ms: int) -> int:
        """Return the end of the period with this start."""
        interval = self.scope.interval or "day"
        if interval in _INTERVAL_LENGTHS:
            return start_ms + _INTERVAL_LENGTHS[interval] // _MS
        start = _EPOCH + start_ms * _MS
        _, day_count = monthrange(start.year, start.month)  # Only a month has no fixed length.
        return start_ms + day_count * DAY_MS


def _to_epoch_ms(local: datetime) -> int:
    """Return a local time as epoch milliseconds."""
    # Integer division: floats would round the last microseconds of the year 9999 into the next year.
    return (local - _EPOCH) // _MS
