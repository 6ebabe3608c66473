"""Calls in a daemon thread: one that hangs, for example on a broken disk, does not delay the exit of the process."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def run_in_daemon_thread(call: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a call in a new thread. Return a future of the running event loop with its result or its exception.

    Unlike the threads of `asyncio.to_thread`, a daemon thread is not joined at the exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(set_outcome: Callable[[], None]) -> None:
        if not future.cancelled():
            set_outcome()

    def run() -> None:
        try:
            set_outcome = partial(future.set_result, call())
        except BaseException as error:  # noqa: BLE001  the future raises it
            set_outcome = partial(future.set_exception, _as_exception(error))
        with contextlib.suppress(RuntimeError):  # The event loop is closed.
            loop.call_soon_threadsafe(finish, set_outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _as_exception(error: BaseException) -> Exception:
    """Return an error that a future can raise. A future refuses StopIteration. SystemExit would end the event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    exception = RuntimeError(f"{type(error).__name__}: {error}")
    exception.__cause__ = error
    return exception
