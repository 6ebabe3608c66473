"""How much one key may send: a token bucket for each, refilled by time."""

import time

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

BURST_S = 2.0


class RateLimiter:
    """Buckets by key id. There are no more buckets than keys, so they are never cleared."""

    def __init__(self, events_per_s: int) -> None:
        self._events_per_s = events_per_s
        self._capacity = events_per_s * BURST_S
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, key_id: str, events: int) -> None:
        """Take so many events out of the key's bucket.

        Raises:
            Unavailable: `rate_limited`; nothing is taken, and the wait until there is enough is in it.
        """
        now = time.monotonic()
        level, filled_at = self._buckets.get(key_id, (self._capacity, now))
        level = min(self._capacity, level + (now - filled_at) * self._events_per_s)
        # A delivery larger than the bucket passes when the bucket is full: it could never pass otherwise.
        if level < min(events, self._capacity):
            self._buckets[key_id] = (level, now)
            wait_s = int((min(events, self._capacity) - level) / self._events_per_s) + 1
            detail = f"key {key_id}: more than {self._events_per_s:,} events/s (EMBEDSINK_RATE_EVENTS_PER_S). Wait."
            raise Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=wait_s)
        self._buckets[key_id] = (level - events, now)
