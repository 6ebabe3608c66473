"""Rate limits of keys and addresses: token buckets, which are charged before a body is parsed."""

import time
from itertools import islice
from typing import NamedTuple

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

BURST_S = 2.0
# Beyond this number one of the oldest buckets is dropped.
BUCKETS_MAX = 65_536
_EVICTION_CANDIDATES = 32
# The factor for rejected bytes, which use the slow parser and space in the quarantine.
REJECTED_FACTOR = 8


class Sender(NamedTuple):
    """The sender of a request: its address, and its key id if the key is valid."""

    address: str
    key_id: str | None = None


class TokenBuckets:
    """Token buckets by name, which start full. A bucket is stored as the time at which it will be full again."""

    def __init__(self, rate_per_s: int, *, count_max: int = BUCKETS_MAX) -> None:
        self.rate_per_s = rate_per_s
        self._count_max = count_max
        self._full_at: dict[object, float] = {}  # oldest first

    def take(self, name: object, amount: float, now: float) -> float:
        """Take tokens and return 0. If there are too few, take none and return the seconds until there are enough."""
        full_at = self._full_at.get(name)
        if full_at is None:
            self._evict(now)
            full_at = now
        elif full_at < now:
            full_at = now
        after = full_at + amount / self.rate_per_s
        if after - now > BURST_S and (wait_s := self.wait_s(name, amount, now)):
            return wait_s
        self._full_at[name] = after
        return 0.0

    def refund(self, name: object, amount: float) -> None:
        """Return tokens to a bucket."""
        if name in self._full_at:  # The bucket may have been dropped since.
            self._full_at[name] -= amount / self.rate_per_s

    def wait_s(self, name: object, amount: float, now: float) -> float:
        """Return the seconds until a bucket contains `amount` tokens; 0 if it does now."""
        # An amount larger than a full bucket passes when the bucket is full. Otherwise it would never pass.
        missing_s = self._full_in_s(name, now) + min(amount / self.rate_per_s, BURST_S) - BURST_S
        return max(0.0, round(missing_s, 6))  # Refunds leave a rounding error.

    def charge(self, name: object, amount: float, now: float) -> None:
        """Take tokens for work that is already done. The debt of a bucket is limited to its size."""
        if name not in self._full_at:
            self._evict(now)
        self._full_at[name] = now + min(self._full_in_s(name, now) + amount / self.rate_per_s, 2 * BURST_S)

    def _full_in_s(self, name: object, now: float) -> float:
        return max(0.0, self._full_at.get(name, now) - now)

    def _evict(self, now: float) -> None:
        if len(self._full_at) >= self._count_max:
            oldest = list(islice(self._full_at, _EVICTION_CANDIDATES))
            # A full bucket can be dropped without an effect. Without a full one, drop the oldest.
            full = (name for name in oldest if self._full_at[name] <= now)
            del self._full_at[next(full, oldest[0])]


class RateLimiter:
    """The token buckets of a server.

    An address has one bucket per key, so it can't use up the rate of other keys. Work in the worker and rejections have
    separate buckets, so they don't delay small valid bodies.

    Args:
        events_per_s: the envelopes of a key.
        bytes_per_s: the bytes of a key.
        address_bytes_per_s: the bytes of an address.
    """

    def __init__(self, events_per_s: int, *, bytes_per_s: int = 2**40, address_bytes_per_s: int = 2**40) -> None:
        self._events = TokenBuckets(events_per_s)
        self._key_bytes = TokenBuckets(bytes_per_s)
        self._address_bytes = TokenBuckets(address_bytes_per_s)
        self._work = TokenBuckets(address_bytes_per_s)

    def admit(self, sender: Sender, byte_count: int) -> None:
        """Charge one event and the declared bytes to a key and an address.

        Raises:
            Unavailable: `rate_limited`; nothing is charged.
        """
        now = time.monotonic()
        if wait_s := self._events.take(sender.key_id, 1, now):
            raise self._events_limited(sender.key_id, wait_s)
        try:
            self.charge_bytes(sender, byte_count, now=now)
        except Unavailable:
            self._events.refund(sender.key_id, 1)
            raise

    def charge_bytes(self, sender: Sender, byte_count: int, *, now: float | None = None) -> None:
        """Charge bytes to a key and an address, such as undeclared bytes.

        Raises:
            Unavailable: `rate_limited`; nothing is charged.
        """
        now = time.monotonic() if now is None else now
        if wait_s := self._key_bytes.take(sender.key_id, byte_count, now):
            limit = f"{self._key_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_BYTES_PER_S)"
            raise _limited(f"key {sender.key_id}: sends more than {limit}. Wait.", wait_s)
        if wait_s := self._address_bytes.take(sender, byte_count, now):
            self._key_bytes.refund(sender.key_id, byte_count)
            raise self._address_limited(sender, wait_s)

    def charge_events(self, key_id: str, count: int) -> None:
        """Charge all events of an admitted request instead of one.

        Raises:
            Unavailable: `rate_limited`; one event stays charged.
        """
        now = time.monotonic()
        self._events.refund(key_id, 1)
        if wait_s := self._events.take(key_id, count, now):
            self._events.take(key_id, 1, now)
            raise self._events_limited(key_id, wait_s)

    def check_work(self, sender: Sender) -> None:
        """Raise Unavailable (`rate_limited`) while the address has a debt for work."""
        if wait_s := self._work.wait_s(sender, 1, time.monotonic()):
            raise self._address_limited(sender, wait_s)

    def charge_work(self, sender: Sender, byte_count: int) -> None:
        """Charge work in the worker, or a rejection."""
        self._work.charge(sender, byte_count, time.monotonic())

    def _events_limited(self, key_id: str | None, wait_s: float) -> Unavailable:
        limit = f"{self._events.rate_per_s:,} events/s (EMBEDSINK_RATE_EVENTS_PER_S)"
        return _limited(f"key {key_id}: sends more than {limit}. Wait.", wait_s)

    def _address_limited(self, sender: Sender, wait_s: float) -> Unavailable:
        limit = f"{self._address_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_ADDRESS_BYTES_PER_S)"
        detail = f"address {sender.address}: sends more than {limit}. Rejected bodies count more. Wait."
        return _limited(detail, wait_s)


def _limited(detail: str, wait_s: float) -> Unavailable:
    return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)
