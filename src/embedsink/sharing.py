"""Who asks for what others are asking for in this moment shares their answer."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Shared:
    """The answers that are being made. Belongs to one event loop."""

    def __init__(self) -> None:
        self._making: dict[Hashable, asyncio.Task[Any]] = {}

    async def answer(self, question: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question; it is made once for all who ask while it is being made.

        Raises:
            EmbedsinkError: what `make` raises, to all of them.
        """
        making: asyncio.Task[T] | None = self._making.get(question)
        if making is None:
            making = self._making[question] = asyncio.create_task(make())
            making.add_done_callback(lambda made: self._end(question, made))
        # Who leaves must not take the answer from the others.
        return await asyncio.shield(making)

    def _end(self, question: Hashable, made: "asyncio.Task[Any]") -> None:
        del self._making[question]
        if not made.cancelled():
            made.exception()  # Whoever still waits is told. When all have left, nobody wants to know.
