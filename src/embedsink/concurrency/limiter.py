"""A limit on how many tasks run and how many wait, with fair shares for keys."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

_RETRY_AFTER_S = 5


def is_reserved(*, own: int, used: int, total: int) -> bool:
    """Return whether the next free slot is reserved for other keys.

    The last quarter of the slots is for keys that use less than a quarter.

    Args:
        own: the number of slots that the key uses.
        used: the number that all keys use.
        total: the number of slots.
    """
    quarter = total // 4
    return total - used <= quarter <= own


class ConcurrencyLimiter:
    """A limiter of running and waiting tasks; it refuses the rest. It belongs to one event loop.

    The last quarter of the running and of the waiting slots is for keys that use less than a quarter of them. A free
    slot goes to the waiting key with the fewest running tasks. Keys with equally many take turns. So no key can starve
    the others.

    Args:
        running_max: the number of tasks that may run.
        waiting_max: the number of tasks that may wait.
        subject: the tasks' name in the error message.
        setting: the setting that limits them, for the same message.
    """

    def __init__(
        self,
        running_max: int,
        *,
        waiting_max: int,
        subject: str = "reports",
        setting: str = "EMBEDSINK_REPORT_WAITING_MAX",
    ) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._subject = subject
        self._setting = setting
        self._running: Counter[str] = Counter()
        # By key. The key whose turn is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def slot(self, key_id: str) -> AsyncIterator[None]:
        """Acquire a running slot for a key, and release it at the end of the block.

        Raises:
            Unavailable: all waiting slots are in use, or this key has its share of them.
        """
        await self._acquire(key_id)
        try:
            yield
        finally:
            self._release(key_id)

    async def _acquire(self, key_id: str) -> None:
        if self._may_run(key_id):  # No waiting key can run at this moment, so this task overtakes none.
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
                self._release(key_id)  # The slot was assigned before the cancellation arrived.
            raise

    def _may_run(self, key_id: str) -> bool:
        used = self._running.total()
        return used < self._running_max and not is_reserved(
            own=self._running[key_id], used=used, total=self._running_max
        )

    def _check_waiting(self, key_id: str) -> None:
        own, used = len(self._waiting.get(key_id, ())), sum(map(len, self._waiting.values()))
        if used >= self._waiting_max:
            message = f"{self._subject}: all running and waiting slots are in use ({self._setting}). Retry later."
        elif is_reserved(own=own, used=used, total=self._waiting_max):
            message = (
                f"{self._subject}: {own} requests of this key are waiting already, and the other slots are reserved "
                f"for other keys ({self._setting}). Wait for their responses, or retry later."
            )
        else:
            return
        raise Unavailable(Reason.OVERLOADED, message, retry_after_s=_RETRY_AFTER_S)

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
            self._waiting[key_id] = turns  # after the other keys
        if not turn.cancelled():
            turn.set_result(None)
            self._running[key_id] += 1

    def _leave(self, key_id: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key_id, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key_id, None)
