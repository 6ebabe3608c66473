"""How many may do something at once, and how many may wait for it."""

import asyncio

from embedsink.errors import Unavailable
from embedsink.reasons import Reason


class Slots:
    """So many at once, and so many who wait; whoever comes then is refused. An asynchronous context manager.

    `what` is what they are and `limit` how many may be there, in the sentence that refuses.
    """

    def __init__(
        self,
        count: int,
        *,
        waiting_max: int,
        what: str = "reports",
        limit: str = "as many are waiting as may (EMBEDSINK_REPORT_WAITING_MAX)",
    ) -> None:
        self._semaphore = asyncio.Semaphore(count)
        self._waiting_max = waiting_max
        self._what = what
        self._limit = limit
        self._waiting = 0

    async def __aenter__(self) -> None:
        if self._semaphore.locked() and self._waiting >= self._waiting_max:
            busy = f"{self._what}: {self._limit}. Ask again later."
            raise Unavailable(Reason.OVERLOADED, busy, retry_after_s=5)
        self._waiting += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
