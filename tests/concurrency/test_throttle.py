"""The throttle: queries run concurrently on an idle loop, and one at a time with pauses on a busy loop."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest

import embedsink.concurrency.throttle
from embedsink.concurrency.throttle import PAUSE_FACTOR, CpuMeter, Throttle
from embedsink.errors import Unavailable

# These tests measure time.
pytestmark = pytest.mark.alone

TOOK_S = 0.05


class SlowQuery:
    """A slow query that records when each run started and ended."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    async def __call__(self) -> int:
        began_at = time.monotonic()
        await asyncio.sleep(TOOK_S)
        self.times.append((began_at, time.monotonic()))
        return len(self.times)


async def make_busy() -> None:
    """Keep the loop busy, as senders do."""
    while True:
        until = time.monotonic() + 0.004
        while time.monotonic() < until:
            pass
        await asyncio.sleep(0.001)


def run_busy(use: Callable[[Throttle], Awaitable[None]], *, waiting_max: int = 64) -> None:
    """Use a throttle whose loop has been busy for more than a sample interval."""

    async def run() -> None:
        throttle, sending = Throttle(waiting_max=waiting_max), asyncio.create_task(make_busy())
        await asyncio.sleep(0.3)
        try:
            await use(throttle)
        finally:
            sending.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("waiting_max", [0, 64])
def test_queries_on_an_idle_loop_run_concurrently_and_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, waiting_max: int
) -> None:
    # On a busy machine the loop would wait for a CPU and count as busy.
    monkeypatch.setattr(CpuMeter, "_demand_s", lambda _: 0.0)

    async def use() -> None:
        throttle, start_counter, all_begun = Throttle(waiting_max=waiting_max), itertools.count(1), asyncio.Event()

        async def query() -> int:
            if (number := next(start_counter)) == 5:
                all_begun.set()
            await asyncio.wait_for(all_begun.wait(), 10)
            return number

        assert await asyncio.gather(*(throttle.run(query, key_id="k") for _ in range(5))) == [1, 2, 3, 4, 5]

    asyncio.run(use())


def test_queries_on_a_busy_loop_run_one_at_a_time_with_pauses() -> None:
    query = SlowQuery()

    async def use(throttle: Throttle) -> None:
        assert await asyncio.gather(*(throttle.run(query, key_id="k") for _ in range(4))) == [1, 2, 3, 4]

    run_busy(use)
    for (began_at, ended_at), (next_at, _) in itertools.pairwise(query.times):
        assert next_at - ended_at >= PAUSE_FACTOR * (ended_at - began_at)


def test_a_long_query_runs_concurrently_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.concurrency.throttle, "TURN_S_MAX", TOOK_S)
    query, ended = SlowQuery(), asyncio.Event()

    async def query_slowly() -> None:
        await ended.wait()

    async def use(throttle: Throttle) -> None:
        long = asyncio.create_task(throttle.run(query_slowly, key_id="k"))
        await asyncio.sleep(0)
        started_at = time.monotonic()
        assert await throttle.run(query, key_id="k") == 1
        assert not long.done()
        assert query.times[0][0] - started_at >= TOOK_S * (1 + PAUSE_FACTOR) * 0.9
        ended.set()
        await long

    run_busy(use)


def test_cancelling_a_caller_cancels_its_query() -> None:
    results: list[str] = []

    async def query() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            results.append("ended")

    async def use(throttle: Throttle) -> None:
        leaving = asyncio.create_task(throttle.run(query, key_id="k"))
        await asyncio.sleep(TOOK_S)
        leaving.cancel()
        await asyncio.wait({leaving})
        await asyncio.sleep(TOOK_S)
        assert results == ["ended"]

    run_busy(use)


def test_waiting_for_a_cpu_counts_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    query = SlowQuery()
    # The loop waits for a CPU for a third of the time.
    monkeypatch.setattr(CpuMeter, "_demand_s", lambda _: time.monotonic() / 3)

    async def use() -> None:
        throttle = Throttle(waiting_max=64)
        await asyncio.sleep(0.3)
        await asyncio.gather(throttle.run(query, key_id="k"), throttle.run(query, key_id="k"))

    asyncio.run(use())
    [(_, ended_at), (next_at, _)] = query.times
    assert next_at > ended_at


def test_a_cancelled_or_failed_query_frees_its_turn() -> None:
    query = SlowQuery()

    async def fail() -> int:
        raise ValueError("no")

    async def use(throttle: Throttle) -> None:
        leaving = [asyncio.create_task(throttle.run(query, key_id="k")) for _ in range(3)]
        await asyncio.sleep(TOOK_S / 2)
        for result in leaving:
            result.cancel()
        await asyncio.wait(leaving)
        with pytest.raises(ValueError, match="no"):
            await throttle.run(fail, key_id="k")
        assert await throttle.run(query, key_id="k") == 1

    run_busy(use)


def test_the_number_of_waiting_queries_is_limited() -> None:
    query = SlowQuery()

    async def use(throttle: Throttle) -> None:
        results = await asyncio.gather(*(throttle.run(query, key_id="k") for _ in range(4)), return_exceptions=True)
        assert [isinstance(result, Unavailable) for result in results] == [False, False, False, True]

    run_busy(use, waiting_max=2)
