"""A throttle for dashboard queries, so that they leave CPU time to ingest (docs/decisions/0011).

While the event loop is idle, queries run concurrently. While it is busy, they run one at a time, with pauses.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from embedsink.concurrency.limiter import ConcurrencyLimiter

# The event loop counts as busy when it computes, or waits for a CPU, for this share of the time.
BUSY_SHARE = 0.25
# The pause after a query, as a multiple of the query's duration.
PAUSE_FACTOR = 1.0
# A slower query gives up its turn and runs concurrently with the next one, so that it can't block all pages.
TURN_S_MAX = 1.0
# Linux: nanoseconds for which a thread has run and waited for a CPU.
SCHEDSTAT = "/proc/self/task/{}/schedstat"
_SAMPLE_INTERVAL_S = 0.25

T = TypeVar("T")


class Throttle:
    """A throttle that measures how busy the thread of its event loop is.

    Args:
        waiting_max: the number of queries that may wait; later ones are refused.
    """

    def __init__(self, *, waiting_max: int) -> None:
        self._turns = ConcurrencyLimiter(1, waiting_max=waiting_max)
        self._paused_until = 0.0
        self._loop_meter = CpuMeter()  # It measures this thread, which runs the event loop.

    async def run(self, query: Callable[[], Coroutine[Any, Any, T]], *, key_id: str) -> T:
        """Run a query when it is this key's turn, and return the result.

        While the event loop is idle, a turn ends when its query starts, so that queries run concurrently. While the
        loop is busy, the turn ends with the query, or after `TURN_S_MAX`.

        Raises:
            Unavailable: too many queries wait.
        """
        async with self._turns.slot(key_id):
            pause_s = self._paused_until - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            task = asyncio.create_task(query())
            if self._loop_meter.busy_share() >= BUSY_SHARE:
                await self._wait_during_turn(task)
        return await task

    async def _wait_during_turn(self, task: asyncio.Task[T]) -> None:
        """Wait until a query ends, at most `TURN_S_MAX`. A slower query continues concurrently with the next one.

        Delay the next query in proportion to the wait, to leave time to ingest.
        """
        started_at = time.monotonic()
        try:
            await asyncio.wait({task}, timeout=TURN_S_MAX)
        except asyncio.CancelledError:
            task.cancel()  # `asyncio.wait` does not cancel the query.
            raise
        finally:
            ended_at = time.monotonic()
            self._paused_until = ended_at + PAUSE_FACTOR * (ended_at - started_at)


class CpuMeter:
    """A meter of the CPU demand of the thread that creates it. Only one thread may read it.

    Time spent waiting for a CPU counts as busy: a thread that gets no CPU would otherwise look idle. Without the
    statistics of Linux, a thread can measure only itself: to other threads it looks idle.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._schedstat = Path(SCHEDSTAT.format(threading.get_native_id()))
        self._share = 0.0
        self._sampled_at = time.monotonic()
        self._sampled_demand_s = self._demand_s()

    def busy_share(self) -> float:
        """Return the share of time for which the thread was busy, measured over `_SAMPLE_INTERVAL_S` or more."""
        now = time.monotonic()
        if now >= self._sampled_at + _SAMPLE_INTERVAL_S:
            demand_s = self._demand_s()
            self._share = (demand_s - self._sampled_demand_s) / (now - self._sampled_at)
            self._sampled_at = now
            self._sampled_demand_s = demand_s
        return self._share

    def _demand_s(self) -> float:
        """Return the seconds for which the thread has run or waited for a CPU so far."""
        try:
            run_ns, waited_ns, _timeslice_count = map(int, self._schedstat.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return self._run_s()
        # Kernels without these statistics report zeros.
        return (run_ns + waited_ns) / 1e9 if run_ns else self._run_s()

    def _run_s(self) -> float:
        """Return the seconds of CPU time of the thread; 0 if another thread calls this, which can't measure them."""
        return time.thread_time() if threading.get_ident() == self._thread else 0.0
