"""Rests: the loader leaves processors and interpreter to senders while they keep the event loop busy."""

import threading
from collections.abc import Callable

# Of the time, how much the event loop is busy when senders want all that it can give.
BUSY_SHARE = 2 / 3
# After some work, so many times as long as it took.
RESTS = 1.0
# However long it took: what was acknowledged has to be seen soon.
REST_S_MAX = 1.0


class Rests:
    """Between one piece of work and the next, of one thread.

    Args:
        are_due: whether to rest now; without, never.
    """

    def __init__(self, are_due: Callable[[], bool] = lambda: False) -> None:
        self._are_due = are_due
        self._ended = threading.Event()

    def rest_after(self, took_s: float) -> None:
        """Rest as long as the work took, if it is time to."""
        if self._are_due():
            self._ended.wait(min(RESTS * took_s, REST_S_MAX))

    def end(self) -> None:
        """Wake who rests. From now on nobody does."""
        self._ended.set()
