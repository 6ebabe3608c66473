"""Rate limits of keys and addresses: token buckets, which are charged before a body is parsed."""

import time
from itertools import islice
from typing import NamedTuple

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

# The size of a bucket: the tokens of this many seconds.
BURST_S = 2.0
# Beyond this number, a new bucket replaces one of the oldest `_EVICTION_CANDIDATES` buckets.
BUCKETS_MAX = 65_536
_EVICTION_CANDIDATES = 32
# The factor for rejected bytes, which use the slow parser and space in the quarantine.
REJECTED_FACTOR = 8


class Sender(NamedTuple):
    """The sender of a request: its address, and its key id if the key is valid."""

    address: str
    key_id: str | None = None


class TokenBuckets:
    """Token buckets by name, such as a key id or a sender. They start full."""

    def __init__(self, rate_per_s: int, *, count_max: int = BUCKETS_MAX) -> None:
        self.rate_per_s = rate_per_s
        self._count_max = count_max
        # By name, the time (monotonic seconds) at which the bucket will be full again. The oldest bucket is first.
        self._full_at: dict[object, float] = {}

    def take(self, name: object, amount: float, now: float) -> float:
        """Take tokens and return 0. If there are too few, take none and return the seconds until there are enough."""
        if name not in self._full_at:
            self._evict_beyond_limit(now)
        # Each taken token delays the time at which the bucket is full.
        next_full_at = max(now, self._full_at.get(name, now)) + amount / self.rate_per_s
        if next_full_at - now > BURST_S:  # The bucket lacks tokens, or the amount is larger than a bucket.
            wait_s = self.wait_s(name, amount, now)
            # A full bucket accepts any amount: `wait_s` is then 0.
            if wait_s > 0:
                return wait_s
        self._full_at[name] = next_full_at
        return 0.0

    def refund(self, name: object, amount: float) -> None:
        """Return tokens to a bucket, so that it is full earlier."""
        if name in self._full_at:  # Otherwise the bucket was evicted, and is full.
            self._full_at[name] -= amount / self.rate_per_s

    def wait_s(self, name: object, amount: float, now: float) -> float:
        """Return the seconds until a bucket contains `amount` tokens; 0 if it does now."""
        # Tokens are measured in the seconds in which they accrue. For an amount larger than a bucket, a full bucket is
        # sufficient. Otherwise the amount would never pass.
        required_s = min(amount / self.rate_per_s, BURST_S)
        available_s = BURST_S - self._full_in_s(name, now)
        return max(0.0, round(required_s - available_s, 6))  # Rounded, because refunds leave a small error.

    def charge(self, name: object, amount: float, now: float) -> None:
        """Take tokens for work that is already done, even if there are too few. The debt is at most one full bucket."""
        if name not in self._full_at:
            self._evict_beyond_limit(now)
        full_in_s = self._full_in_s(name, now) + amount / self.rate_per_s
        # An empty bucket is full after BURST_S. With the largest debt, it takes twice as long.
        self._full_at[name] = now + min(full_in_s, 2 * BURST_S)

    def _full_in_s(self, name: object, now: float) -> float:
        """Return the seconds until a bucket is full again."""
        return max(0.0, self._full_at.get(name, now) - now)

    def _evict_beyond_limit(self, now: float) -> None:
        """If there are `count_max` buckets, drop a full one, which loses no state, or else the oldest."""
        if len(self._full_at) < self._count_max:
            return
        candidates = list(islice(self._full_at, _EVICTION_CANDIDATES))  # Searching all buckets would be slow.
        full_buckets = [name for name in candidates if self._full_at[name] <= now]
        evicted = full_buckets[0] if full_buckets else candidates[0]
        del self._full_at[evicted]


class RateLimiter:
    """The token buckets of a server.

    An address has one bucket for each key, so it can't use up the rate of other keys. A separate bucket is charged for
    bodies that the worker parses and for rejections, so that they don't delay small valid bodies.

    Args:
        events_per_s: the maximum rate of envelopes of a key.
        bytes_per_s: the maximum rate of bytes of a key.
        address_bytes_per_s: the maximum rate of bytes of an address.
    """

    def __init__(self, events_per_s: int, *, bytes_per_s: int, address_bytes_per_s: int) -> None:
        self._event_buckets = TokenBuckets(events_per_s)  # by key id
        self._key_byte_buckets = TokenBuckets(bytes_per_s)  # by key id
        self._address_byte_buckets = TokenBuckets(address_bytes_per_s)  # by sender
        self._work_buckets = TokenBuckets(address_bytes_per_s)  # by sender

    def admit(self, sender: Sender, byte_count: int) -> None:
        """Charge one event and the declared bytes of a request to the key and the address of its sender.

        Raises:
            Unavailable: the key or the address exceeds its rate (`rate_limited`). Nothing is charged.
        """
        now = time.monotonic()
        wait_s = self._event_buckets.take(sender.key_id, 1, now)
        if wait_s > 0:
            raise self._event_rate_error(sender.key_id, wait_s)
        try:
            self.charge_bytes(sender, byte_count, now=now)
        except Unavailable:
            self._event_buckets.refund(sender.key_id, 1)
            raise

    def charge_bytes(self, sender: Sender, byte_count: int, *, now: float | None = None) -> None:
        """Charge bytes to the key and the address of a sender.

        Raises:
            Unavailable: the key or the address exceeds its rate (`rate_limited`). Nothing is charged.
        """
        now = time.monotonic() if now is None else now
        wait_s = self._key_byte_buckets.take(sender.key_id, byte_count, now)
        if wait_s > 0:
            limit = f"{self._key_byte_buckets.rate_per_s:,} bytes/s (EMBEDSINK_RATE_BYTES_PER_S)"
            raise _rate_error(f"key {sender.key_id}: sends more than {limit}. Wait.", wait_s)
        # A sender is an address with a key, so a key can't use up the rate of other keys at the same address.
        wait_s = self._address_byte_buckets.take(sender, byte_count, now)
        if wait_s > 0:
            self._key_byte_buckets.refund(sender.key_id, byte_count)
            raise self._address_rate_error(sender, wait_s)

    def charge_events(self, key_id: str, count: int) -> None:
        """Charge all events of a request instead of the one event that `admit` charged before the number was known.

        Raises:
            Unavailable: the key exceeds its rate (`rate_limited`). One event stays charged.
        """
        now = time.monotonic()
        self._event_buckets.refund(key_id, 1)
        wait_s = self._event_buckets.take(key_id, count, now)
        if wait_s > 0:
            self._event_buckets.take(key_id, 1, now)
            raise self._event_rate_error(key_id, wait_s)

    def check_work(self, sender: Sender) -> None:
        """Raise Unavailable (`rate_limited`) while the sender's work bucket is empty. Nothing is charged.

        The work bucket limits bytes that are slow to parse: those of large bodies, which a worker parses, and rejected
        bytes. So they don't delay small valid bodies.
        """
        wait_s = self._work_buckets.wait_s(sender, 1, time.monotonic())  # until 1 byte could be charged
        if wait_s > 0:
            raise self._address_rate_error(sender, wait_s)

    def charge_work(self, sender: Sender, byte_count: int) -> None:
        """Charge bytes that a worker parses, or bytes that were rejected, to the sender's work bucket."""
        self._work_buckets.charge(sender, byte_count, time.monotonic())

    def _event_rate_error(self, key_id: str | None, wait_s: float) -> Unavailable:
        limit = f"{self._event_buckets.rate_per_s:,} events/s (EMBEDSINK_RATE_EVENTS_PER_S)"
        return _rate_error(f"key {key_id}: sends more than {limit}. Wait.", wait_s)

    def _address_rate_error(self, sender: Sender, wait_s: float) -> Unavailable:
        limit = f"{self._address_byte_buckets.rate_per_s:,} bytes/s (EMBEDSINK_RATE_ADDRESS_BYTES_PER_S)"
        detail = f"address {sender.address}: sends more than {limit}. Rejected bodies count more than their size. Wait."
        return _rate_error(detail, wait_s)


def _rate_error(detail: str, wait_s: float) -> Unavailable:
    return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)  # rounded up
