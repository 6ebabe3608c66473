"""Notices when the system's clock is set."""

import time
from datetime import UTC, datetime
from typing import NamedTuple

JUMP_S_MIN = 60.0
# It goes on while the machine sleeps. macOS has none, and its monotonic clock stands still then.
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Jump(NamedTuple):
    """What the clock showed, and what it would have shown."""

    shown: datetime
    expected: datetime


class ClockWatch:
    """Compares the system's clock with one that nobody sets. Ask it often: a drift between two looks is no jump."""

    def __init__(self) -> None:
        self._offset_s = time.time() - _steady_s()

    def jump(self) -> Jump | None:
        """The jump since the last look, of a minute or more; it is told once."""
        now_s = time.time()
        offset_s = now_s - _steady_s()
        jumped_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(jumped_s) < JUMP_S_MIN:
            return None
        return Jump(_instant(now_s), _instant(now_s - jumped_s))


def _steady_s() -> float:
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
