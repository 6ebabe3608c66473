"""How fast pages are answered: at once while senders leave room, else one after the other, with rests between."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from embedsink.concurrency.cpu_meter import CpuMeter
from embedsink.concurrency.limiter import ConcurrencyLimiter

# Of the time, how much the event loop computes, or waits for a processor, where senders keep it busy.
BUSY_SHARE = 0.25
# After an answer, so many times as long as it took.
RESTS = 1.0
# What takes longer goes on beside the next: a question about years must not keep all pages from their answers.
TURN_S_MAX = 1.0

T = TypeVar("T")


class Throttle:
    """Lets answers be made. Belongs to one event loop, whose thread it watches.

    `waiting_max` is how many may wait; whoever comes then is refused.
    """

    def __init__(self, *, waiting_max: int) -> None:
        self._turn = ConcurrencyLimiter(1, waiting_max=waiting_max)
        self._rest_until = 0.0
        self._loop = CpuMeter()

    async def answer(self, make: Callable[[], Coroutine[Any, Any, T]], *, key_id: str) -> T:
        """What `make` answers, when it is this key's turn.

        Raises:
            Unavailable: too many wait.
        """
        async with self._turn.place(key_id):
            if (rest_s := self._rest_until - time.monotonic()) > 0:
                await asyncio.sleep(rest_s)
            making = asyncio.create_task(make())
            if self._loop.share() >= BUSY_SHARE:
                await self._keep_the_turn(making)
        return await making

    async def _keep_the_turn(self, making: asyncio.Task[T]) -> None:
        began_at = time.monotonic()
        try:
            await asyncio.wait({making}, timeout=TURN_S_MAX)
        except asyncio.CancelledError:
            making.cancel()
            raise
        finally:
            ended_at = time.monotonic()
            self._rest_until = ended_at + RESTS * (ended_at - began_at)
