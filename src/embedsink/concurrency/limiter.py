"""A limit on how many tasks run and how many wait, with fair shares for keys."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

_RETRY_AFTER_S = 5


def is_reserved(*, used_by_key: int, used: int, total: int) -> bool:
    """Return whether a key may not have the next free slot, because that slot is reserved for other keys.

    The last quarter of the slots is reserved for keys that use less than a quarter.

    Args:
        used_by_key: the number of slots that the key uses.
        used: the number of slots that all keys use.
        total: the number of slots.
    """
    quarter = total // 4
    is_last_quarter = total - used <= quarter
    return is_last_quarter and used_by_key >= quarter


class ConcurrencyLimiter:
    """A limiter of running and waiting tasks. It refuses further tasks. It belongs to one event loop.

    No key can starve the others:

    - The last quarter of the running slots is reserved for keys that use less than a quarter; likewise for waiting.
    - A free slot goes to the waiting key with the fewest running tasks. Keys with equally many take turns.

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
        self._running: Counter[str] = Counter()  # by key
        # For each waiting task, by key, a future that is done when the task may run. The next key in turn is first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def slot(self, key_id: str) -> AsyncIterator[None]:
        """Acquire a running slot for a key, and release it at the end of the block.

        Raises:
            Unavailable: all waiting slots are in use, or the free slots are reserved for other keys.
        """
        await self._acquire(key_id)
        try:
            yield
        finally:
            self._release(key_id)

    async def _acquire(self, key_id: str) -> None:
        """Acquire a running slot for a key, after waiting if necessary.

        Raises:
            Unavailable: no waiting slot is free for this key.
        """
        # This overtakes no waiting task: `_release` has already assigned every slot that a waiting task may use.
        if self._may_run(key_id):
            self._running[key_id] += 1
            return
        self._check_waiting_slots(key_id)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key_id, deque()).append(turn)
        try:
            await turn  # `_admit` completes the future, and counts this task as running.
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove_waiting(key_id, turn)  # The task was still waiting.
            else:
                self._release(key_id)  # The slot was assigned before the cancellation arrived.
            raise

    def _may_run(self, key_id: str) -> bool:
        """Return whether a running slot is free for a key."""
        used = self._running.total()
        if used >= self._running_max:
            return False
        return not is_reserved(used_by_key=self._running[key_id], used=used, total=self._running_max)

    def _check_waiting_slots(self, key_id: str) -> None:
        """Raise Unavailable if no waiting slot is free for a key."""
        used = sum(len(turns) for turns in self._waiting.values())
        if used >= self._waiting_max:
            message = f"{self._subject}: all running and waiting slots are in use ({self._setting}). Retry later."
            raise Unavailable(Reason.OVERLOADED, message, retry_after_s=_RETRY_AFTER_S)
        used_by_key = len(self._waiting.get(key_id, ()))
        if is_reserved(used_by_key=used_by_key, used=used, total=self._waiting_max):
            message = (
                f"{self._subject}: this key uses {used_by_key} of the {self._waiting_max} waiting slots, and the free "
                f"slots are reserved for other keys ({self._setting}). Wait for their responses, or retry later."
            )
            raise Unavailable(Reason.OVERLOADED, message, retry_after_s=_RETRY_AFTER_S)

    def _release(self, key_id: str) -> None:
        """Release a running slot of a key, and assign the free slots to waiting tasks."""
        self._running[key_id] -= 1
        if self._running[key_id] == 0:
            del self._running[key_id]  # Otherwise every key that was ever used would remain.
        while candidates := [key for key in self._waiting if self._may_run(key)]:
            # Of keys with equally many running tasks, `min` returns the first, whose turn is next.
            self._admit(min(candidates, key=self._running.__getitem__))

    def _admit(self, key_id: str) -> None:
        """Let the first waiting task of a key run. If it was cancelled, only remove it; `_release` admits another."""
        turns = self._waiting.pop(key_id)
        turn = turns.popleft()
        if turns:
            self._waiting[key_id] = turns  # Insert the key again, after the other keys.
        if not turn.cancelled():
            turn.set_result(None)
            self._running[key_id] += 1

    def _remove_waiting(self, key_id: str, turn: asyncio.Future[None]) -> None:
        """Remove a cancelled task from the waiting tasks of a key, unless `_admit` has removed it."""
        turns = self._waiting.get(key_id, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key_id, None)
