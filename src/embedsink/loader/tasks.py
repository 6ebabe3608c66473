"""Tasks that the loader's thread runs besides loading, because it owns the connection that writes."""

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

RETENTION_INTERVAL_S = 3_600.0
CLOCK_JUMP_S = 60.0


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
        """Queue a call. Return a future with its result."""
        future: Future[T] = Future()
        self._queue.append((call, future))
        self._wake.set()
        if self._is_closed:
            self.close()
        return future

    def run(self) -> None:
        """Run the queued calls. Only the loader's thread may do this."""
        while self._queue:
            call, future = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001  the future raises it
                future.set_exception(error)

    def close(self) -> None:
        """Refuse queued and later calls."""
        self._is_closed = True
        while self._queue:
            _, future = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    Unavailable(Reason.NOT_READY, "server: is stopping. Retry later.", retry_after_s=5)
                )


class QuarantinePurge:
    """Deletion of quarantined envelopes in bounded steps. It belongs to the loader's thread.

    Args:
        store: the store.
        publisher: the publisher of snapshots. It must not copy the store's file during `purge`.
        disk_space: the free space that the store needs.
        days: the retention in days; 0 for no limit.
    """

    def __init__(self, store: Store, publisher: Publisher, disk_space: StoreDiskSpace, *, days: int) -> None:
        self._store = store
        self._publisher = publisher
        self._disk_space = disk_space
        self._days = days
        self._schedule()

    def purge_batch(self, selected: PurgeFilter) -> int:
        """Delete at most `PURGED_AT_ONCE` of the selected rejections, durably.

        Returns:
            The number of deleted rejections. If it is `PURGED_AT_ONCE`, more may remain.

        Raises:
            StoreRefused, StoreBroken: the rejections may or may not be deleted.
        """
        count = self._delete(selected)
        self._store.checkpoint()  # Without a checkpoint, the deletion would only be in memory.
        return count

    def seconds_to_next(self) -> float | None:
        """Return the seconds until `purge_when_due` is due; None if it never is."""
        return max(0.0, self._due_at - time.monotonic()) if self._days else None

    def purge_when_due(self) -> bool:
        """Delete one step of the envelopes that exceed their retention, if due. Return whether more may remain.

        A step is due one hour after the start, and then after each hour in which the clock did not jump. A clock that
        is wrong at the start is usually corrected soon, and must not empty the quarantine.
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
            log.warning("retention_delayed", extra={"detail": f"store: {error}. The purge is retried in an hour"})
            count = 0
        if count:
            log.warning("quarantine_purged", extra={"count": count, "detail": f"older than {self._days} days"})
        if count < PURGED_AT_ONCE:
            self._schedule()
        return count == PURGED_AT_ONCE

    def _schedule(self) -> None:
        self._due_at, self._due_time = (clock() + RETENTION_INTERVAL_S for clock in (time.monotonic, time.time))

    def _delete(self, selected: PurgeFilter) -> int:
        self._disk_space.require()
        count = PURGED_AT_ONCE
        try:
            count = self._store.purge(selected)
        finally:
            if count:  # A failed commit may have taken effect.
                self._publisher.is_dirty = True
        return count
