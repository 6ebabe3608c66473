"""Detection of jumps of the system clock."""

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
    """The time that the clock shows after a jump, and the time that it would show without it."""

    shown: datetime
    expected: datetime


class ClockWatch:
    """A comparison of the system clock with a clock that can't be set. Poll it often: slow drift is not a jump."""

    def __init__(self) -> None:
        self._offset_s = time.time() - _steady_s()

    def poll(self) -> Jump | None:
        """Return the jump since the last poll if it is a minute or more."""
        now_s = time.time()
        offset_s = now_s - _steady_s()
        jumped_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(jumped_s) < JUMP_S_MIN:
            return None
        return Jump(_utc(now_s), _utc(now_s - jumped_s))


async def watch_clock() -> None:
    """Log each jump of the system clock, until this task is cancelled."""
    watch = ClockWatch()
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        if jump := watch.poll():
            shown, expected = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in jump)
            log.warning("clock_jumped", extra={"shown": shown, "expected": expected})


def _steady_s() -> float:
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
