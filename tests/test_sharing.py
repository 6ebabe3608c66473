"""Single flight: concurrent calls share a task, and cancelling one does not affect the others."""

import asyncio
import gc
from typing import Any

import pytest

from embedsink.concurrency.single_flight import SingleFlight


class Making:
    """A call that runs until the test ends it, and counts its runs."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.count = self.end_count = 0
        self.may_end = asyncio.Event()
        self._failure = failure

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        try:
            await self.may_end.wait()
        finally:
            self.end_count += 1
        if self._failure:
            raise self._failure
        return number


async def asked(shared: SingleFlight, making: Making, *questions: str) -> list[asyncio.Task[int]]:
    """Start concurrent callers. Return their tasks."""
    asking = [asyncio.create_task(shared.run(question, making)) for question in questions]
    for _ in range(3):
        await asyncio.sleep(0)
    return asking


def test_concurrent_calls_with_one_key_run_once() -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making()
        asking = await asked(shared, making, "a", "a", "a", "b")
        making.may_end.set()
        assert await asyncio.gather(*asking) == [1, 1, 1, 2]

    asyncio.run(ask())


def test_later_calls_run_again() -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making()
        making.may_end.set()
        assert [await shared.run("a", making) for _ in range(3)] == [1, 2, 3]

    asyncio.run(ask())


def test_a_forgotten_flight_is_not_shared_with_later_callers() -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making()
        asking = await asked(shared, making, "a", "a")
        assert "a" in shared
        shared.forget("a")
        assert "a" not in shared
        later = await asked(shared, making, "a")
        [leaving] = await asked(shared, making, "a")
        asking[0].cancel()  # Cancelling a caller of the old task must not affect the new task.
        leaving.cancel()
        await asyncio.sleep(0)
        assert "a" in shared
        making.may_end.set()
        assert await asyncio.gather(asking[1], *later) == [1, 2]

    asyncio.run(ask())


@pytest.mark.parametrize("place", [0, 1])
def test_cancelling_one_caller_does_not_cancel_the_others(place: int) -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making()
        asking = await asked(shared, making, "a", "a", "a")
        asking.pop(place).cancel()
        await asyncio.sleep(0)
        making.may_end.set()
        assert await asyncio.gather(*asking) == [1, 1]

    asyncio.run(ask())


def test_cancelling_all_callers_cancels_the_task_and_the_next_call_starts_one() -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making()
        first, second = await asked(shared, making, "a", "a")
        for leaving in (first, second):
            leaving.cancel()
        await asyncio.wait({first, second})
        [third] = await asked(shared, making, "a")
        assert making.count == 2
        making.may_end.set()
        assert await third == 2
        assert making.end_count == 2

    asyncio.run(ask())


def test_each_caller_gets_the_error() -> None:
    async def ask() -> None:
        shared, making = SingleFlight(), Making(failure=ValueError("no"))
        asking = await asked(shared, making, "a", "a")
        making.may_end.set()
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert [str(one) for one in told] == ["no", "no"]

    asyncio.run(ask())


def test_an_error_without_callers_is_not_logged() -> None:
    complaints: list[dict[str, Any]] = []

    async def ask() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        shared, making = SingleFlight(), Making(failure=ValueError("no"))
        [asking] = await asked(shared, making, "a")
        asking.cancel()
        await asyncio.sleep(0)
        making.may_end.set()
        for _ in range(3):
            await asyncio.sleep(0)
        del asking, making
        gc.collect()

    asyncio.run(ask())
    assert complaints == []
