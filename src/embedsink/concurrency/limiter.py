"""A limit on how many things run at once and how many wait, with fair shares for keys."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

_RETRY_AFTER_S = 5


def is_reserved(*, own: int, taken: int, of: int) -> bool:
    """Whether the next free place is for others: the last quarter is for keys that have less than a quarter.

    Args:
        own: how many places the key has.
        taken: how many all keys have.
        of: how many there are.
    """
    quarter = of // 4
    return of - taken <= quarter <= own


class ConcurrencyLimiter:
    """Runs so many at once and lets so many wait; it refuses the rest. It belongs to one event loop.

    The last quarter of the running and of the waiting places is for keys that have less than a quarter of them. A free
    place goes to the waiting key that runs least, and among equals by turns. So no key keeps the others out.

    Args:
        running_max: how many run at once.
        waiting_max: how many wait.
        what: what they are, in the sentence that refuses.
        setting: where the limit comes from, in the same sentence.
    """

    def __init__(
        self,
        running_max: int,
        *,
        waiting_max: int,
        what: str = "reports",
        setting: str = "EMBEDSINK_REPORT_WAITING_MAX",
    ) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._what = what
        self._setting = setting
        self._running: Counter[str] = Counter()
        # By key; the one whose turn is next stands first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def place(self, key_id: str) -> AsyncIterator[None]:
        """Hold a running place for a key.

        Raises:
            Unavailable: as many wait as may, or this key has its share of the waiting places.
        """
        await self._acquire(key_id)
        try:
            yield
        finally:
            self._release(key_id)

    async def _acquire(self, key_id: str) -> None:
        if self._may_run(key_id):  # A waiting key can't run now, so this overtakes nobody.
            self._running[key_id] += 1
            return
        self._check_waiting(key_id)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(key_id, turn)
            else:
                self._release(key_id)  # It was given the place in this very moment.
            raise

    def _may_run(self, key_id: str) -> bool:
        taken = self._running.total()
        return taken < self._running_max and not is_reserved(
            own=self._running[key_id], taken=taken, of=self._running_max
        )

    def _check_waiting(self, key_id: str) -> None:
        own, taken = len(self._waiting.get(key_id, ())), sum(map(len, self._waiting.values()))
        if taken >= self._waiting_max:
            busy = f"{self._what}: as many run and wait as may ({self._setting}). Ask again later."
        elif is_reserved(own=own, taken=taken, of=self._waiting_max):
            busy = (
                f"{self._what}: {own} requests of this key wait already, and the other places are for other keys "
                f"({self._setting}). Wait for their answers, or ask again later."
            )
        else:
            return
        raise Unavailable(Reason.OVERLOADED, busy, retry_after_s=_RETRY_AFTER_S)

    def _release(self, key_id: str) -> None:
        self._running[key_id] -= 1
        if not self._running[key_id]:
            del self._running[key_id]
        while (waiting := [key for key in self._waiting if self._may_run(key)]) != []:
            self._admit(min(waiting, key=self._running.__getitem__))

    def _admit(self, key_id: str) -> None:
        turns = self._waiting.pop(key_id)
        turn = turns.popleft()
        if turns:
            self._waiting[key_id] = turns  # behind the other keys
        if not turn.cancelled():
            turn.set_result(None)
            self._running[key_id] += 1

    def _leave(self, key_id: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key_id, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key_id, None)
