"""A queue with round-robin order: a sender with many items delays each other sender by one item."""

import asyncio
from collections import Counter, deque
from typing import Generic, TypeVar

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue of items by key and, within a key, by address. Keys and addresses are served round robin.

    A full queue still accepts an item from a sender with fewer items than another, and evicts the newest item of the
    sender with the most.

    Args:
        count_max: the maximum number of items.
        noun: the noun for the items in error messages.
    """

    def __init__(self, *, count_max: int, noun: str) -> None:
        # Dictionaries are ordered: the first entry is served next, and moves to the end if it has more items.
        self._keys: dict[str, dict[str, deque[T]]] = {}
        self._count_by_key: Counter[str] = Counter()
        self._count = 0
        self._count_max = count_max
        self._noun = noun
        self._filled = asyncio.Event()

    def put(self, item: T, *, key: str, address: str) -> T | None:
        """Add an item. Return the evicted item if the queue was full.

        Raises:
            Unavailable: `overloaded`, when the queue is full and no sender has more items.
        """
        evicted = self._evict(key, address) if self._count >= self._count_max else None
        self._keys.setdefault(key, {}).setdefault(address, deque()).append(item)
        self._count_by_key[key] += 1
        self._count += 1
        self._filled.set()
        return evicted

    def full(self) -> Unavailable:
        """Return the error for a refused or evicted item."""
        return Unavailable(
            Reason.OVERLOADED, f"server: the queue for {self._noun} is full ({self._count_max:,}). Wait, then resend."
        )

    def _evict(self, key: str, address: str) -> T:
        """Remove the newest item of the largest address of the largest key, to make room for the given sender.

        Raises:
            Unavailable: the given sender has the most items itself.
        """
        largest = max(self._keys, key=self._count_by_key.__getitem__)
        if largest != key and self._count_by_key[largest] <= self._count_by_key[key] + 1:
            largest = key  # The keys have equal shares. The addresses of this key may not.
        addresses = self._keys.get(largest)
        if not addresses:
            raise self.full()
        fullest = max(addresses, key=lambda name: len(addresses[name]))
        if largest == key and len(addresses[fullest]) <= len(addresses.get(address, ())) + 1:
            raise self.full()
        item = addresses[fullest].pop()
        if not addresses[fullest]:
            del addresses[fullest]
        self._note_removed(largest)
        return item

    def _note_removed(self, key: str) -> None:
        self._count -= 1
        self._count_by_key[key] -= 1
        if not self._count_by_key[key]:
            del self._count_by_key[key]
            self._keys.pop(key, None)

    async def get(self) -> T:
        """Wait for the next item, remove it and return it."""
        while not self._count:
            self._filled.clear()
            await self._filled.wait()
        return self._pop()

    def drain(self) -> list[T]:
        """Remove all items and return them in order."""
        return [self._pop() for _ in range(self._count)]

    def _pop(self) -> T:
        key, addresses = _pop_first(self._keys)
        address, items = _pop_first(addresses)
        item = items.popleft()
        if items:
            addresses[address] = items
        if addresses:
            self._keys[key] = addresses
        self._note_removed(key)
        return item


def _pop_first(entries: dict[str, T]) -> tuple[str, T]:
    name = next(iter(entries))
    return name, entries.pop(name)
