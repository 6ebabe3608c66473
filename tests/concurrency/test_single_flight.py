"""Single flight: concurrent calls share a task, and cancelling one does not affect the others."""

import asyncio
import gc
from typing import Any

import pytest

from embedsink.concurrency.single_flight import SingleFlight


class Call:
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


async def start_callers(flights: SingleFlight, call: Call, *keys: str) -> list[asyncio.Task[int]]:
    """Start concurrent callers. Return their tasks."""
    callers = [asyncio.create_task(flights.run(key, call)) for key in keys]
    for _ in range(3):
        await asyncio.sleep(0)
    return callers


def test_concurrent_calls_with_one_key_run_once() -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call()
        callers = await start_callers(flights, call, "a", "a", "a", "b")
        call.may_end.set()
        assert await asyncio.gather(*callers) == [1, 1, 1, 2]

    asyncio.run(scenario())


def test_later_calls_run_again() -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call()
        call.may_end.set()
        assert [await flights.run("a", call) for _ in range(3)] == [1, 2, 3]

    asyncio.run(scenario())


def test_a_forgotten_flight_is_not_shared_with_later_callers() -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call()
        callers = await start_callers(flights, call, "a", "a")
        assert "a" in flights
        flights.forget("a")
        assert "a" not in flights
        later = await start_callers(flights, call, "a")
        [leaving] = await start_callers(flights, call, "a")
        callers[0].cancel()  # Cancelling a caller of the old task must not affect the new task.
        leaving.cancel()
        await asyncio.sleep(0)
        assert "a" in flights
        call.may_end.set()
        assert await asyncio.gather(callers[1], *later) == [1, 2]

    asyncio.run(scenario())


@pytest.mark.parametrize("index", [0, 1])
def test_cancelling_one_caller_does_not_cancel_the_others(index: int) -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call()
        callers = await start_callers(flights, call, "a", "a", "a")
        callers.pop(index).cancel()
        await asyncio.sleep(0)
        call.may_end.set()
        assert await asyncio.gather(*callers) == [1, 1]

    asyncio.run(scenario())


def test_cancelling_all_callers_cancels_the_task_and_the_next_call_starts_one() -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call()
        first, second = await start_callers(flights, call, "a", "a")
        for leaving in (first, second):
            leaving.cancel()
        await asyncio.wait({first, second})
        [later_caller] = await start_callers(flights, call, "a")
        assert call.count == 2
        call.may_end.set()
        assert await later_caller == 2
        assert call.end_count == 2

    asyncio.run(scenario())


def test_each_caller_gets_the_error() -> None:
    async def scenario() -> None:
        flights, call = SingleFlight(), Call(failure=ValueError("no"))
        callers = await start_callers(flights, call, "a", "a")
        call.may_end.set()
        results = await asyncio.gather(*callers, return_exceptions=True)
        assert [str(error) for error in results] == ["no", "no"]

    asyncio.run(scenario())


def test_an_error_without_callers_is_not_logged() -> None:
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        flights, call = SingleFlight(), Call(failure=ValueError("no"))
        [caller] = await start_callers(flights, call, "a")
        caller.cancel()
        await asyncio.sleep(0)
        call.may_end.set()
        for _ in range(3):
            await asyncio.sleep(0)
        del caller, call
        gc.collect()

    asyncio.run(scenario())
    assert complaints == []
