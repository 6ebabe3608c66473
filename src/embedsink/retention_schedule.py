"""The schedule of the runs that delete what is beyond its retention."""

import time

from embedsink.clock_watch import ClockWatch

INTERVAL_S = 3_600.0


class RetentionSchedule:
    """Hourly runs. The first one is due an hour after the start.

    No run is due after an hour in which the clock jumped: a clock that is wrong at the start is usually corrected soon,
    and must not delete what is new.
    """

    def __init__(self) -> None:
        self._clock_watch = ClockWatch()
        self.postpone()

    def postpone(self) -> None:
        """Make the next run due in an hour."""
        self._due_at = time.monotonic() + INTERVAL_S

    def seconds_to_next(self) -> float:
        """Return the seconds until the next run is due."""
        return max(0.0, self._due_at - time.monotonic())

    def is_due(self) -> bool:
        """Return whether a run is due. If the clock has jumped since the last one, postpone the run."""
        if self.seconds_to_next():
            return False
        has_clock_jumped = self._clock_watch.poll() is not None
        if has_clock_jumped:
            self.postpone()
        return not has_clock_jumped
