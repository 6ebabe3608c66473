"""What the loader's thread does beside loading, because it owns the connection that writes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from embedsink.errors import Unavailable
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.purge import PURGED_AT_ONCE, PurgeFilter

log = logging.getLogger(__name__)

T = TypeVar("T")

RETENTION_EVERY_S = 3_600.0
CLOCK_JUMP_S = 60.0


class LoaderTasks:
    """Calls that wait for the loader's thread.

    Args:
        wake: wakes that thread.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._has_ended = False

    def submit(self, act: Callable[[], T]) -> Future[T]:
        """Call a function in the loader's thread. Return a future with its result."""
        future: Future[T] = Future()
        self._waiting.append((act, future))
        self._wake.set()
        if self._has_ended:
            self.end()
        return future

    def run(self) -> None:
        """Call what waits. Only the loader's thread may do so."""
        while self._waiting:
            act, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(act())
            except Exception as error:  # noqa: BLE001  whoever waits gets it
                future.set_exception(error)

    def end(self) -> None:
        """Refuse what still waits; from now on, everything."""
        self._has_ended = True
        while self._waiting:
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(Unavailable(Reason.NOT_READY, "server: is stopping. Ask again.", retry_after_s=5))


class QuarantinePurge:
    """Deletes kept rejections in bounded steps. All of it belongs to the loader's thread.

    Args:
        store: has the rejections.
        publisher: makes the snapshots; it must not read the store's file during `purge`.
        room: what has to be free before the store is written to.
        days: how long rejections are kept; 0 is for ever.
    """

    def __init__(self, store: Store, publisher: Publisher, room: StoreDiskSpace, *, days: int) -> None:
        self._store = store
        self._publisher = publisher
        self._room = room
        self._days = days
        self._schedule()

    def purge(self, which: PurgeFilter) -> int:
        """Delete one step of these rejections, durably. Return their number: `PURGED_AT_ONCE` if there may be more.

        Raises:
            StoreRefused, StoreBroken: they may be deleted or not, as a restart shows.
        """
        count = self._delete(which)
        self._store.checkpoint()  # Until then it is only in memory.
        return count

    def seconds_to_next(self) -> float | None:
        """Return how long `purge_when_due` has nothing to do; None for ever."""
        return max(0.0, self._due_at - time.monotonic()) if self._days else None

    def purge_when_due(self) -> bool:
        """Delete one step of the rejections that are too old, if it is time to. Return whether there may be more.

        The first step comes an hour after the start, and each one after an hour in which the clock did not jump: a
        clock that is wrong at the start is usually set right soon, and must not empty the quarantine.
        """
        if self.seconds_to_next() != 0:
            return False
        if abs(time.time() - self._due_time - (time.monotonic() - self._due_at)) > CLOCK_JUMP_S:
            self._schedule()
            return False
        before = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=self._days)
        try:
            count = self._delete(PurgeFilter(loaded_before=before))
        except StoreRefused as error:
            log.warning("retention_waits", extra={"detail": f"store: {error}. The quarantine is purged in an hour"})
            count = 0
        if count:
            log.warning("quarantine_purged", extra={"count": count, "detail": f"older than {self._days} days"})
        if count < PURGED_AT_ONCE:
            self._schedule()
        return count == PURGED_AT_ONCE

    def _schedule(self) -> None:
        self._due_at, self._due_time = (clock() + RETENTION_EVERY_S for clock in (time.monotonic, time.time))

    def _delete(self, which: PurgeFilter) -> int:
        self._room.require()
        count = PURGED_AT_ONCE
        try:
            count = self._store.purge(which)
        finally:
            if count:  # A commit that fails may have taken effect.
                self._publisher.is_dirty = True
        return count
