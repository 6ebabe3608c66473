"""Queries for a request. They have a concurrency limit and a time limit, and end when the client disconnects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from embedsink.auth.keys import Key
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.key_scope import EVERYTHING, KeyScope
from embedsink.reasons import Reason
from embedsink.store.reader import Reader

INTERRUPT_INTERVAL_S = 0.25

T = TypeVar("T")
# Opens a reader. It is called in the thread of the query.
OpenReader = Callable[[], AbstractContextManager[Reader]]


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Cancel `work` when the client disconnects, as browsers do when a user clicks a link.

    Raises:
        ClientDisconnect: the client disconnected before the result was known.
    """
    work_task = asyncio.ensure_future(work)
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        disconnect_task.result()  # Raises an error of `receive`.
        raise ClientDisconnect
    finally:
        work_task.cancel()
        disconnect_task.cancel()
        # Wait until both tasks have ended. Ignore errors: the client has disconnected, or the result is already known.
        await asyncio.gather(work_task, disconnect_task, return_exceptions=True)


async def run_query(
    engine: Engine,
    slot: AbstractAsyncContextManager[None],
    open_reader: OpenReader,
    query: Callable[[Reader], T],
) -> T:
    """Run a query in a thread, in a slot of a concurrency limiter.

    Args:
        engine: the open data folder.
        slot: the slot, from a limiter.
        open_reader: opens the reader, usually one of the store.
        query: the function to call in the thread.

    Raises:
        Unavailable: too many queries wait or the query exceeds the time limit (`overloaded`), or the store is not open
            (`not_ready`).
    """
    readers: list[Reader] = []  # contains the reader once the thread has opened it

    def read() -> T:
        with open_reader() as reader:
            readers.append(reader)
            return query(reader)

    def interrupt() -> None:
        for reader in readers:
            reader.interrupt()

    async with slot, query_timeout(engine):
        running = asyncio.get_running_loop().run_in_executor(engine.reader_threads, read)
        try:
            # A cancellation does not end the thread. So keep the slot until the interrupted query has ended.
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await interrupt_and_wait(running, interrupt)
            raise


async def run_short_query(engine: Engine, key: Key, query: Callable[[Reader], T], *, scope: KeyScope = EVERYTHING) -> T:
    """Run a query of a few milliseconds, such as reading descriptions of views, without waiting for reports.

    Args:
        engine: the open data folder.
        key: the key whose share of slots is used.
        query: the function to call in a thread.
        scope: the scope of the reader, if the query reads rows.

    Raises:
        Unavailable: too many queries wait or the query exceeds the time limit (`overloaded`), or the store is not open
            (`not_ready`).
    """
    open_reader = partial(engine.store.reader, scope.variables(), is_short=True)
    return await run_query(engine, engine.limiters.live.slot(key.key_id), open_reader, query)


@contextlib.asynccontextmanager
async def query_timeout(engine: Engine) -> AsyncIterator[None]:
    """Cancel the block after the time limit of a report, so that no query occupies its slot forever.

    Raises:
        Unavailable: the time limit was exceeded (`overloaded`).
    """
    limit_s = engine.settings.report_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        detail = f"report: took longer than {limit_s:g} s (EMBEDSINK_REPORT_TIMEOUT_S). Request a shorter period."
        raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=5) from None


async def interrupt_and_wait(running: asyncio.Future[Any], interrupt: Callable[[], None]) -> None:
    """Interrupt a query, and wait until its thread has ended. The caller holds the slot until then.

    Repeat the interrupt, because an interrupt between two SQL statements has no effect.
    """
    while not running.done():
        interrupt()
        with contextlib.suppress(asyncio.CancelledError):  # The caller is already handling a cancellation.
            await asyncio.wait({running}, timeout=INTERRUPT_INTERVAL_S)
    if not running.cancelled():
        running.exception()  # Marks the exception as retrieved. The client has disconnected, so it is not needed.


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
