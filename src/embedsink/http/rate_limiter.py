"""How much one key and one address may send: token buckets that refill over time, charged before a body is parsed."""

import time
from itertools import islice
from typing import NamedTuple

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

BURST_S = 2.0
# Beyond it one of the oldest buckets is dropped.
BUCKETS_MAX = 65_536
_LOOKED_AT_MAX = 32
# Rejected bytes count so many times: they take the slow parser, and room in the quarantine.
REJECTED_FACTOR = 8


class Sender(NamedTuple):
    """Who sent a request: its address, and its key where that is a good one."""

    address: str
    key_id: str | None = None


class TokenBuckets:
    """Token buckets by name, which begin full. A bucket is stored as the time at which it will be full again."""

    def __init__(self, rate_per_s: int, *, count_max: int = BUCKETS_MAX) -> None:
        self.rate_per_s = rate_per_s
        self._count_max = count_max
        self._full_at: dict[object, float] = {}  # the oldest first

    def take(self, name: object, amount: float, now: float) -> float:
        """Take tokens and return 0; with too few, take none and return the seconds until there are enough."""
        full_at = self._full_at.get(name)
        if full_at is None:
            self._make_room(now)
            full_at = now
        elif full_at < now:
            full_at = now
        after = full_at + amount / self.rate_per_s
        if after - now > BURST_S and (wait_s := self.wait_s(name, amount, now)):
            return wait_s
        self._full_at[name] = after
        return 0.0

    def refund(self, name: object, amount: float) -> None:
        """Return tokens that were taken before."""
        if name in self._full_at:  # It may have been dropped since.
            self._full_at[name] -= amount / self.rate_per_s

    def wait_s(self, name: object, amount: float, now: float) -> float:
        """Seconds until a bucket holds `amount` tokens; 0 if it does now."""
        # More than a bucket holds passes when it is full: it could never pass otherwise.
        missing_s = self._full_in_s(name, now) + min(amount / self.rate_per_s, BURST_S) - BURST_S
        return max(0.0, round(missing_s, 6))  # Tokens that were given back leave a rounding error.

    def charge(self, name: object, amount: float, now: float) -> None:
        """Take tokens for work that is already done. The bucket goes below zero by at most what it holds when full."""
        if name not in self._full_at:
            self._make_room(now)
        self._full_at[name] = now + min(self._full_in_s(name, now) + amount / self.rate_per_s, 2 * BURST_S)

    def _full_in_s(self, name: object, now: float) -> float:
        return max(0.0, self._full_at.get(name, now) - now)

    def _make_room(self, now: float) -> None:
        if len(self._full_at) >= self._count_max:
            oldest = list(islice(self._full_at, _LOOKED_AT_MAX))
            # A full bucket is as good as none. Without one among the oldest, the oldest goes.
            full = (name for name in oldest if self._full_at[name] <= now)
            del self._full_at[next(full, oldest[0])]


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

    def admit(self, sender: Sender, byte_count: int) -> None:
        """Charge a request to its key and its address before it is parsed: one event, and its bytes.

        Raises:
            Unavailable: `rate_limited`; nothing is taken.
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
        """Charge bytes to a key and its address, such as those that a request did not declare.

        Raises:
            Unavailable: `rate_limited`; nothing is taken.
        """
        now = time.monotonic() if now is None else now
        if wait_s := self._key_bytes.take(sender.key_id, byte_count, now):
            limit = f"{self._key_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_BYTES_PER_S)"
            raise _limited(f"key {sender.key_id}: more than {limit}. Wait.", wait_s)
        if wait_s := self._address_bytes.take(sender, byte_count, now):
            self._key_bytes.refund(sender.key_id, byte_count)
            raise self._address_limited(sender, wait_s)

    def charge_events(self, key_id: str, count: int) -> None:
        """Charge an admitted request for all of its events instead of one.

        Raises:
            Unavailable: `rate_limited`; the one event stays charged.
        """
        now = time.monotonic()
        self._events.refund(key_id, 1)
        if wait_s := self._events.take(key_id, count, now):
            self._events.take(key_id, 1, now)
            raise self._events_limited(key_id, wait_s)

    def check_work(self, sender: Sender) -> None:
        """Raises Unavailable (`rate_limited`) while the address has a debt for work away from the event loop."""
        if wait_s := self._work.wait_s(sender, 1, time.monotonic()):
            raise self._address_limited(sender, wait_s)

    def charge_work(self, sender: Sender, byte_count: int) -> None:
        """Charge work away from the event loop, or a rejection."""
        self._work.charge(sender, byte_count, time.monotonic())

    def _events_limited(self, key_id: str | None, wait_s: float) -> Unavailable:
        limit = f"{self._events.rate_per_s:,} events/s (EMBEDSINK_RATE_EVENTS_PER_S)"
        return _limited(f"key {key_id}: more than {limit}. Wait.", wait_s)

    def _address_limited(self, sender: Sender, wait_s: float) -> Unavailable:
        limit = f"{self._address_bytes.rate_per_s:,} bytes/s (EMBEDSINK_RATE_ADDRESS_BYTES_PER_S)"
        counted = "Rejected bodies count more"
        return _limited(f"address {sender.address}: more than {limit}. {counted}. Wait.", wait_s)


def _limited(detail: str, wait_s: float) -> Unavailable:
    return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)
