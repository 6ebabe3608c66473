"""A queue that serves its senders in turn, so that one with much to do delays the others by one item each round."""

import asyncio
from collections import Counter, deque
from typing import Generic, TypeVar

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by key and, within a key, by address; both are served round robin.

    A full queue takes the item of a sender that has fewer than others: the one with the most loses its newest.

    Args:
        count_max: the most items that wait.
        what: what the items are, for the sentence that refuses.
    """

    def __init__(self, *, count_max: int, what: str) -> None:
        # Dictionaries keep their order: the first entry is served next, and goes to the end while it has more.
        self._keys: dict[str, dict[str, deque[T]]] = {}
        self._count_by_key: Counter[str] = Counter()
        self._count = 0
        self._count_max = count_max
        self._what = what
        self._filled = asyncio.Event()

    def put(self, item: T, *, key: str, address: str) -> T | None:
        """Add an item. Return the one that loses its place to it, if the queue was full.

        Raises:
            Unavailable: `overloaded`, when the queue is full and no sender has more items.
        """
        lost = self._give_way(key, address) if self._count >= self._count_max else None
        self._keys.setdefault(key, {}).setdefault(address, deque()).append(item)
        self._count_by_key[key] += 1
        self._count += 1
        self._filled.set()
        return lost

    def full(self) -> Unavailable:
        """Return why an item is refused."""
        return Unavailable(
            Reason.OVERLOADED, f"server: the queue for {self._what} is full ({self._count_max:,}). Wait, then resend."
        )

    def _give_way(self, key: str, address: str) -> T:
        """Take the newest item of the key with the most, and of its address with the most."""
        largest = max(self._keys, key=self._count_by_key.__getitem__)
        if largest != key and self._count_by_key[largest] <= self._count_by_key[key] + 1:
            largest = key  # The keys are even. Its own addresses may not be.
        addresses = self._keys.get(largest)
        if not addresses:
            raise self.full()
        fullest = max(addresses, key=lambda name: len(addresses[name]))
        if largest == key and len(addresses[fullest]) <= len(addresses.get(address, ())) + 1:
            raise self.full()
        item = addresses[fullest].pop()
        if not addresses[fullest]:
            del addresses[fullest]
        self._removed(largest)
        return item

    def _removed(self, key: str) -> None:
        self._count -= 1
        self._count_by_key[key] -= 1
        if not self._count_by_key[key]:
            del self._count_by_key[key]
            self._keys.pop(key, None)

    async def get(self) -> T:
        """Wait for the next item, and take it."""
        while not self._count:
            self._filled.clear()
            await self._filled.wait()
        return self._take()

    def drain(self) -> list[T]:
        """Take all items."""
        return [self._take() for _ in range(self._count)]

    def _take(self) -> T:
        key, addresses = _first(self._keys)
        address, items = _first(addresses)
        item = items.popleft()
        if items:
            addresses[address] = items
        if addresses:
            self._keys[key] = addresses
        self._removed(key)
        return item


def _first(ring: dict[str, T]) -> tuple[str, T]:
    name = next(iter(ring))
    return name, ring.pop(name)
