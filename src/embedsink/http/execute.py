"""What is made for a reader: in one of the places for it, and for no longer than the reader is there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from embedsink.auth.key import Key
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.reasons import Reason
from embedsink.store.reader import EVERYTHING, Reader

STOP_EVERY_S = 0.25

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """What is answered, as long as somebody waits for it: browsers leave at each click.

    Raises:
        ClientDisconnect: nobody does any more, and what was done for it ends.
    """
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_leave(request.receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        leaving.result()
        raise ClientDisconnect
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)  # Nobody is there to be told of a failure.


async def run_query(
    engine: Engine,
    place: AbstractAsyncContextManager[None],
    variables: Mapping[str, object],
    ask: Callable[[Reader], T],
    *,
    is_brief: bool = False,
) -> T:
    """What a reader of the store with these variables answers, in a thread and in a place of a limiter.

    Raises:
        Unavailable: too many wait for a place already, the store is away, or it takes longer than it may.
    """
    readers: list[Reader] = []

    def read() -> T:
        with engine.store.reader(variables, is_brief=is_brief) as reader:
            readers.append(reader)
            return ask(reader)

    def stop() -> None:
        for reader in readers:
            reader.interrupt()

    async with place, query_timeout(engine):
        reading = asyncio.get_running_loop().run_in_executor(engine.read_pool, read)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await stop_and_wait(reading, stop)
            raise


async def run_short_query(engine: Engine, key: Key, ask: Callable[[Reader], T]) -> T:
    """What a reader of the whole store answers within milliseconds, beside the reports: what describes views, not rows.

    Raises:
        Unavailable: too many wait for it already, or the store is away.
    """
    return await run_query(engine, engine.short_query_slots.place(key.key_id), EVERYTHING, ask, is_brief=True)


@contextlib.asynccontextmanager
async def query_timeout(engine: Engine) -> AsyncIterator[None]:
    """Cancels what takes longer than a report may: with one that never ends, its place would be lost for good.

    Raises:
        Unavailable: it has been cancelled.
    """
    limit_s = engine.settings.report_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        long = f"report: took longer than {limit_s:g} s (EMBEDSINK_REPORT_TIMEOUT_S). Ask for a shorter period."
        raise Unavailable(Reason.OVERLOADED, long, retry_after_s=5) from None


async def stop_and_wait(working: asyncio.Future[Any], stop: Callable[[], None]) -> None:
    """Stop it, and wait until its thread has ended: until then it works, and the place is its."""
    while not working.done():
        stop()
        with contextlib.suppress(asyncio.CancelledError):  # It is heard already.
            await asyncio.wait({working}, timeout=STOP_EVERY_S)
    if not working.cancelled():
        working.exception()  # Nobody is there to be told.


async def _leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
