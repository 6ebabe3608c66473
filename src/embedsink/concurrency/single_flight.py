"""Single flight: concurrent calls with the same key share one task and its result."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Flight:
    """A running task, and the number of callers that wait for it."""

    task: "asyncio.Task[Any]"
    caller_count: int = 0


class SingleFlight:
    """The running tasks by key. It belongs to one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}

    async def run(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `call`, which runs once for all concurrent callers with the same key.

        The shared task is cancelled when its last caller is cancelled.

        Raises:
            Exception: the exception that `call` raised, for each caller.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(call()))
            # Otherwise asyncio would log an exception that no caller retrieves.
            flight.task.add_done_callback(_retrieve_exception)
        flight.caller_count += 1
        try:
            # Cancelling one caller must not cancel the shared task.
            return await asyncio.shield(flight.task)
        finally:
            flight.caller_count -= 1
            if flight.caller_count == 0:
                flight.task.cancel()  # No effect if the task is done.
                # After `forget`, the key may belong to a newer task.
                if self._flights.get(key) is flight:
                    del self._flights[key]

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a caller with this key would share a running task."""
        return key in self._flights

    def forget(self, key: Hashable) -> None:
        """Let the next caller with this key start a new task. Present callers still get the result of the old task.

        Call this after new rows are loaded, because the old task may miss those rows.
        """
        self._flights.pop(key, None)


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Mark the exception of a task as retrieved, so that asyncio does not log it when all callers were cancelled."""
    if not task.cancelled():
        task.exception()
