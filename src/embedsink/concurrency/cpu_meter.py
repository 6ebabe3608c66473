"""How busy a thread is: how much of the time it computes, or waits for a processor."""

import threading
import time
from pathlib import Path

# Of Linux: for how long a thread has computed, and waited for a processor, in ns.
SCHEDSTAT = "/proc/self/task/{}/schedstat"
_LOOK_EVERY_S = 0.25


class CpuMeter:
    """Of the thread that makes it; whoever asks, asks from one thread alone.

    Waiting counts, because a thread that is kept from working looks idle. Where the system does not tell of it, a
    thread knows only of itself what it computes, and takes any other for idle.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._schedstat = Path(SCHEDSTAT.format(threading.get_native_id()))
        self._share = 0.0
        self._looked_at = (time.monotonic(), self._wanted_s())

    def share(self) -> float:
        """Of the time since the last look, a quarter of a second at least, how much it was busy."""
        since, wanted_by_then = self._looked_at
        now = time.monotonic()
        if now >= since + _LOOK_EVERY_S:
            wanted = self._wanted_s()
            self._share = (wanted - wanted_by_then) / (now - since)
            self._looked_at = now, wanted
        return self._share

    def _wanted_s(self) -> float:
        """For how long it has computed so far, and waited for a processor: others may keep it from one."""
        try:
            computed_ns, waited_ns, _ = map(int, self._schedstat.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return self._computed_s()
        # Kernels without these statistics say that nothing ever computed.
        return (computed_ns + waited_ns) / 1e9 if computed_ns else self._computed_s()

    def _computed_s(self) -> float:
        return time.thread_time() if threading.get_ident() == self._thread else 0.0
