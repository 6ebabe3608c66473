"""The queue of large bodies: its order and its limit."""

import asyncio
import random
from collections import Counter

import pytest

from embedsink.errors import Unavailable
from embedsink.ingest.fair_queue import FairQueue


def queue_of(count_max: int = 100) -> FairQueue[str]:
    return FairQueue(count_max=count_max, noun="large bodies")


def test_keys_and_their_addresses_are_served_round_robin() -> None:
    queue = queue_of()
    for number in range(3):
        queue.put(f"a1.{number}", key="a", address="1")
    queue.put("a2.0", key="a", address="2")
    queue.put("b1.0", key="b", address="1")
    queue.put("b1.1", key="b", address="1")
    assert queue.drain() == ["a1.0", "b1.0", "a2.0", "b1.1", "a1.1", "a1.2"]


def test_a_full_queue_refuses_the_sender_with_the_most_items() -> None:
    queue = queue_of(count_max=3)
    for number in range(3):
        queue.put(str(number), key="a", address="1")
    with pytest.raises(Unavailable) as refused:
        queue.put("3", key="a", address="1")
    assert refused.value.reason == "overloaded"
    assert queue.drain() == ["0", "1", "2"]


def test_a_full_queue_evicts_items_of_the_largest_sender_for_others() -> None:
    queue = queue_of(count_max=6)
    for number in range(3):
        for address in ("1", "2"):
            queue.put(f"a{address}.{number}", key="a", address=address)
    assert queue.put("b1.0", key="b", address="1") == "a1.2"
    assert queue.put("a3.0", key="a", address="3") == "a2.2"
    assert queue.put("b1.1", key="b", address="1") == "a1.1"
    assert queue.put("b1.2", key="b", address="1") == "a2.1"
    with pytest.raises(Unavailable):
        queue.put("b1.3", key="b", address="1")
    assert queue.drain() == ["a1.0", "b1.0", "a2.0", "b1.1", "a3.0", "b1.2"]


def test_a_full_queue_of_single_items_refuses_the_next() -> None:
    queue = queue_of(count_max=3)
    for key in "abc":
        queue.put(key, key=key, address="1")
    with pytest.raises(Unavailable):
        queue.put("d", key="d", address="1")
    assert queue.drain() == ["a", "b", "c"]


def test_a_sender_with_few_items_is_not_refused_while_another_has_many() -> None:
    rng = random.Random(1)
    queue: FairQueue[tuple[str, str]] = FairQueue(count_max=20, noun="large bodies")
    for _ in range(5_000):
        # Two addresses of a public key send nearly all items.
        sender = rng.choices([("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")], [50, 50, 1, 1])[0]
        waiting = Counter(queue.drain())
        for (key, address), count in waiting.items():
            for _ in range(count):
                queue.put((key, address), key=key, address=address)
        try:
            evicted = queue.put(sender, key=sender[0], address=sender[1])
        except Unavailable:
            assert waiting[sender] + 1 >= max(count for other, count in waiting.items() if other[0] == sender[0])
        else:
            assert (evicted is not None) == (waiting.total() == 20)
            assert evicted is None or waiting[evicted] > 1


def test_a_waiting_consumer_gets_the_next_item() -> None:
    async def wait_and_put() -> str:
        queue = queue_of()
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put("1", key="a", address="1")
        return await waiting

    assert asyncio.run(wait_and_put()) == "1"
