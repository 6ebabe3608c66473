"""How much one key and one address may send: token buckets, refilled by time and charged before a body is parsed."""

import time
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

BURST_S = 2.0
# Beyond it one of the oldest buckets is dropped.
BUCKETS_MAX = 65_536
_LOOKED_AT_MAX = 32
# What is rejected costs so many times its bytes: it takes the slow reader, and a place in the quarantine.
REJECTED_FACTOR = 8


class Sender(NamedTuple):
    """Who sent a request: its address, and its key where that is a good one."""

    address: str
    key_id: str | None = None


@dataclass(slots=True)
class _Bucket:
    level: float
    filled_at: float


class TokenBuckets:
    """Token buckets by name, which begin full."""

    def __init__(self, rate_per_s: int, *, count_max: int = BUCKETS_MAX) -> None:
        self.rate_per_s = rate_per_s
        self._capacity = rate_per_s * BURST_S
        self._count_max = count_max
        self._buckets: dict[object, _Bucket] = {}  # the oldest first

    def bucket(self, name: object, now: float) -> _Bucket:
        """A bucket as it is now. Its level may be lowered, also below zero."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return self._add(name, now)
        level = bucket.level + (now - bucket.filled_at) * self.rate_per_s
        bucket.level = level if level < self._capacity else self._capacity
        bucket.filled_at = now
        return bucket

    def wait_s(self, name: object, amount: float, now: float) -> int:
        """In how many seconds a bucket has so much; 0 when it has."""
        # More than the bucket holds passes when the bucket is full: it could never pass otherwise.
        missing = min(amount, self._capacity) - self.bucket(name, now).level
        return int(missing / self.rate_per_s) + 1 if missing > 0 else 0

    def take_debt(self, name: object, amount: float, now: float) -> None:
        """Take what is known to be due afterwards, up to a debt of as much as the bucket holds."""
        bucket = self.bucket(name, now)
        bucket.level = max(bucket.level - amount, -self._capacity)

    def _add(self, name: object, now: float) -> _Bucket:
        if len(self._buckets) >= self._count_max:
            oldest = list(islice(self._buckets, _LOOKED_AT_MAX))
            # A full bucket is as good as none. Without one among the oldest, the oldest goes.
            full = (old for old in oldest if self.bucket(old, now).level >= self._capacity)
            del self._buckets[next(full, oldest[0])]
        self._buckets[name] = bucket = _Bucket(self._capacity, now)
        return bucket


class RateLimiter:
    """The buckets of one server.

    An address has a bucket for each key that it uses: nobody can spend what holders of another key have. Work away from
    the event loop has buckets of its own, so its price is no limit to small bodies.

    Args:
        events_per_s: envelopes of a key.
        bytes_per_s: bytes of a key.
        address_bytes_per_s: bytes of an address.
    """

    def __init__(self, events_per_s: int, *, bytes_per_s: int = 2**40, address_bytes_per_s: int = 2**40) -> None:
        self._events = TokenBuckets(events_per_s)
        self._key_bytes = TokenBuckets(bytes_per_s)
        self._address_bytes = TokenBuckets(address_bytes_per_s)
        self._work = TokenBuckets(address_bytes_per_s)

    def spend(self, key_id: str, events: int) -> None:
        """Take so many events out of the key's bucket.

        Raises:
            Unavailable: `rate_limited`; nothing is taken, and the wait until there is enough is in it.
        """
        now = time.monotonic()
        bucket = self._events.bucket(key_id, now)
        if bucket.level < events:
            self._check_events(key_id, events, now)
        bucket.level -= events

    def admit(self, sender: Sender, byte_count: int) -> None:
        """Charge a body to its key and its address, before it is parsed.

        Raises:
            Unavailable: `rate_limited`; nothing is taken.
        """
        key_id, now = sender.key_id, time.monotonic()
        of_key, of_address = self._key_bytes.bucket(key_id, now), self._address_bytes.bucket(sender, now)
        if self._events.bucket(key_id, now).level < 1 or min(of_key.level, of_address.level) < byte_count:
            self._check(sender, byte_count, now)
        of_key.level -= byte_count
        of_address.level -= byte_count

    def check_work(self, sender: Sender) -> None:
        """Raises Unavailable (`rate_limited`) while the address has a debt for work away from the event loop."""
        if wait_s := self._work.wait_s(sender, 1, time.monotonic()):
            raise self._address_limited(sender, wait_s)

    def charge_work(self, sender: Sender, byte_count: int) -> None:
        """Charge work away from the event loop, or what became of it."""
        self._work.take_debt(sender, byte_count, time.monotonic())

    def _check(self, sender: Sender, byte_count: int, now: float) -> None:
        self._check_events(str(sender.key_id), 1, now)
        if wait_s := self._key_bytes.wait_s(sender.key_id, byte_count, now):
            limit = f"{self._key_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_BYTES_PER_S)"
            raise _limited(f"key {sender.key_id}: more than {limit}. Wait.", wait_s)
        if wait_s := self._address_bytes.wait_s(sender, byte_count, now):
            raise self._address_limited(sender, wait_s)

    def _check_events(self, key_id: str, events: int, now: float) -> None:
        if wait_s := self._events.wait_s(key_id, events, now):
            limit = f"{self._events.rate_per_s:,} events/s (EMBEDSINK_RATE_EVENTS_PER_S)"
            raise _limited(f"key {key_id}: more than {limit}. Wait.", wait_s)

    def _address_limited(self, sender: Sender, wait_s: int) -> Unavailable:
        limit = f"{self._address_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_ADDRESS_BYTES_PER_S)"
        counted = "What is rejected counts for more"
        return _limited(f"address {sender.address}: more than {limit}. {counted}. Wait.", wait_s)


def _limited(detail: str, wait_s: int) -> Unavailable:
    return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=wait_s)
