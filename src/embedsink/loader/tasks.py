"""Calls that other threads submit to the loader's thread. Only this thread may use the connection that writes."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from embedsink.errors import Unavailable
from embedsink.reasons import Reason

T = TypeVar("T")


class LoaderTasks:
    """A queue of calls for the loader's thread.

    Args:
        wake: the event that wakes the thread.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call. Return a future for the result. After `close`, the future raises Unavailable."""
        future: Future[T] = Future()
        self._queue.append((call, future))
        self._wake.set()
        if self._is_closed:
            self.close()  # This also refuses the new call.
        return future

    def run(self) -> None:
        """Run the queued calls. Only the loader's thread may do this."""
        while self._queue:
            call, future = self._queue.popleft()
            is_cancelled = not future.set_running_or_notify_cancel()
            if is_cancelled:
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001  the future raises it
                future.set_exception(error)

    def close(self) -> None:
        """Refuse queued and later calls."""
        self._is_closed = True
        while True:
            try:
                _, future = self._queue.popleft()
            except IndexError:
                return  # The queue is empty. `submit` may call this in another thread at the same time.
            is_cancelled = not future.set_running_or_notify_cancel()
            if not is_cancelled:
                future.set_exception(
                    Unavailable(Reason.NOT_READY, "server: is stopping. Retry later.", retry_after_s=5)
                )
