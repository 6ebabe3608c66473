"""The detection of jumps of the system clock."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import NamedTuple

log = logging.getLogger(__name__)

JUMP_S_MIN = 60.0
POLL_INTERVAL_S = 1.0
# This clock continues while the machine sleeps. macOS lacks it, and its monotonic clock stops during sleep.
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Jump(NamedTuple):
    """The time that the clock shows after a jump, and the time that it would show without the jump."""

    shown: datetime
    expected: datetime


class ClockWatch:
    """A comparison of the system clock with a clock that can't be set.

    Poll it often: the slow drift between two polls must stay below `JUMP_S_MIN`.
    """

    def __init__(self) -> None:
        # The difference between the system clock and the steady clock. A change of this difference is a jump.
        self._offset_s = time.time() - _steady_clock_s()

    def poll(self) -> Jump | None:
        """Return the jump since the last poll; None if the clock jumped by less than a minute."""
        now_s = time.time()
        offset_s = now_s - _steady_clock_s()
        jump_s = offset_s - self._offset_s
        self._offset_s = offset_s
        if abs(jump_s) < JUMP_S_MIN:
            return None
        return Jump(shown=_to_utc(now_s), expected=_to_utc(now_s - jump_s))


async def watch_clock() -> None:
    """Log each jump of the system clock, until this task is cancelled."""
    watch = ClockWatch()
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        jump = watch.poll()
        if jump is not None:
            times = {"shown": _format_utc(jump.shown), "expected": _format_utc(jump.expected)}
            log.warning("clock_jumped", extra=times)


def _format_utc(time_: datetime) -> str:
    """Return a time in UTC as ISO 8601 with whole seconds."""
    return f"{time_:%Y-%m-%dT%H:%M:%SZ}"


def _steady_clock_s() -> float:
    """Return the seconds of a clock that can't be set: the one that continues during sleep, if the system has it."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def _to_utc(seconds: float) -> datetime:
    """Convert epoch seconds to a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
