"""Who asks for what others are asking for in this moment shares their answer."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Flight:
    task: "asyncio.Task[Any]"
    asker_count: int = 0


class SingleFlight:
    """The answers that are being made. Belongs to one event loop."""

    def __init__(self) -> None:
        self._making: dict[Hashable, _Flight] = {}

    async def answer(self, question: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question; it is made once for all who ask while it is being made, and until all have left.

        Raises:
            EmbedsinkError: what `make` raises, to all of them.
        """
        making = self._making.get(question)
        if making is None:
            making = self._making[question] = _Flight(asyncio.create_task(make()))
            making.task.add_done_callback(_hear)
        making.asker_count += 1
        try:
            # Who leaves must not take the answer from the others.
            return await asyncio.shield(making.task)
        finally:
            making.asker_count -= 1
            if making.asker_count == 0:
                making.task.cancel()  # It is done, or nobody waits for it.
                if self._making.get(question) is making:
                    del self._making[question]

    def __contains__(self, question: Hashable) -> bool:
        """Whether who asks shares an answer that is being made."""
        return question in self._making

    def begin(self, question: Hashable) -> None:
        """Let who asks from now on be answered anew: what is loaded by then may lack in what is being made."""
        self._making.pop(question, None)


def _hear(made: "asyncio.Task[Any]") -> None:
    if not made.cancelled():
        made.exception()  # Whoever still waits is told. When all have left, nobody wants to know.
