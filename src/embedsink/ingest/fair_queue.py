"""A queue that serves senders round robin, so that a sender with many items does not delay the others."""

import asyncio
from collections import Counter, deque
from typing import Generic, TypeVar

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that serves API keys round robin, and within a key its senders' addresses.

    If the queue is full, an item of a sender with fewer items replaces the newest item of the sender with the most
    items.

    Args:
        count_max: the maximum number of items.
        noun: the noun for the items in error messages.
    """

    def __init__(self, *, count_max: int, noun: str) -> None:
        # Dictionaries are ordered: the first entry is served next, and moves to the end if it has more items.
        self._items: dict[str, dict[str, deque[T]]] = {}  # by key, then by address
        self._count_by_key: Counter[str] = Counter()
        self._count = 0
        self._count_max = count_max
        self._noun = noun
        self._item_added = asyncio.Event()

    def put(self, item: T, *, key: str, address: str) -> T | None:
        """Add an item. Return the evicted item if the queue was full.

        Raises:
            Unavailable: the queue is full, and neither another key nor another address of this key has at least two
                more items (reason `overloaded`).
        """
        evicted = self._evict(key, address) if self._count >= self._count_max else None
        self._items.setdefault(key, {}).setdefault(address, deque()).append(item)
        self._count_by_key[key] += 1
        self._count += 1
        self._item_added.set()
        return evicted

    def queue_full_error(self) -> Unavailable:
        """Return the error for a refused or evicted item."""
        return Unavailable(
            Reason.OVERLOADED, f"server: the queue for {self._noun} is full ({self._count_max:,}). Wait, then resend."
        )

    def _evict(self, key: str, address: str) -> T:
        """Remove and return an item of a sender that has more items than the given sender.

        The victim is the key with the most items if it has at least two more than the given key, else the given key.
        Of that key, the address with the most items loses its newest item.

        Raises:
            Unavailable: no other key, and no other address of this key, has at least two more items.
        """
        victim_key = max(self._items, key=self._count_by_key.__getitem__)
        if self._count_by_key[victim_key] <= self._count_by_key[key] + 1:
            # With a difference of one item, the two keys would only evict each other's items in turn.
            victim_key = key
        addresses = self._items.get(victim_key)
        if not addresses:  # This key has no item that could be evicted.
            raise self.queue_full_error()
        victim_address = max(addresses, key=lambda name: len(addresses[name]))
        own_count = len(addresses.get(address, ()))
        if victim_key == key and len(addresses[victim_address]) <= own_count + 1:
            raise self.queue_full_error()
        item = addresses[victim_address].pop()
        if not addresses[victim_address]:
            del addresses[victim_address]
        self._count_removed(victim_key)
        return item

    def _count_removed(self, key: str) -> None:
        """Update the counts after an item of a key was removed. Delete the key if no item is left."""
        self._count -= 1
        self._count_by_key[key] -= 1
        if self._count_by_key[key] == 0:
            del self._count_by_key[key]
            self._items.pop(key, None)  # `_pop` has removed the key already, `_evict` has not.

    async def get(self) -> T:
        """Wait for the next item, remove it and return it."""
        while not self._count:
            self._item_added.clear()
            await self._item_added.wait()
        return self._pop()

    def drain(self) -> list[T]:
        """Remove all items, and return them in the order in which `get` would return them."""
        return [self._pop() for _ in range(self._count)]

    def _pop(self) -> T:
        """Remove and return the next item. Move the key and the address of the item to the end of the order."""
        key, addresses = _pop_first(self._items)
        address, items = _pop_first(addresses)
        item = items.popleft()
        if items:
            addresses[address] = items
        if addresses:
            self._items[key] = addresses
        self._count_removed(key)
        return item


def _pop_first(entries: dict[str, T]) -> tuple[str, T]:
    """Remove the first entry of a dictionary. Return its name and value."""
    name = next(iter(entries))
    return name, entries.pop(name)
