"""Calls in a daemon thread: one that hangs, for example on a broken disk, does not delay the exit of the process."""

import asyncio
import contextlib
import threading
from collections.abc import Callable


def run_in_daemon_thread(call: Callable[[], None], *, name: str) -> asyncio.Future[None]:
    """Run a call in a new thread. Return a future of the running event loop, which raises the call's exception.

    Unlike the threads of `asyncio.to_thread`, a daemon thread is not joined at the exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish(error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            call()
        except Exception as raised:  # noqa: BLE001  the future raises it
            error = raised
        with contextlib.suppress(RuntimeError):  # The event loop is closed.
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
