"""The deletion of events after the retention."""

import logging
import time
from datetime import UTC, datetime, timedelta

from embedsink.clock_watch import ClockWatch
from embedsink.data_folder import DataFolder
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.loader.quarantine_purge import RETENTION_INTERVAL_S
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.timezones import naive_utc

log = logging.getLogger(__name__)


class EventRetention:
    """Deletion of old events in bounded steps. It belongs to the loader's thread.

    Args:
        folder: the data folder.
        store: the store.
        publisher: the publisher of snapshots.
        disk_space: the check of the free disk space.
        days: the retention in days; 0 for no limit.
    """

    def __init__(
        self, folder: DataFolder, store: Store, publisher: Publisher, disk_space: StoreDiskSpace, *, days: int
    ) -> None:
        self._draft = folder.rebuilt
        self._store = store
        self._publisher = publisher
        self._disk_space = disk_space
        self._days = days
        self._clock_watch = ClockWatch()
        self._expired_count = 0  # by the present run, which has several steps
        self._must_finish = True  # A killed process may not have finished its run.
        self._schedule()

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next run is due; None if there is no retention limit."""
        return max(0.0, self._due_at - time.monotonic()) if self._days else None

    def expire_when_due(self) -> bool:
        """Delete a batch of the events beyond the retention if a run is due. Return whether more may remain.

        A run is due one hour after the start, and then after each hour in which the clock did not jump. A clock that is
        wrong at the start is usually corrected soon, and must not empty the store.
        """
        if self.seconds_to_next() != 0:
            return False
        if self._clock_watch.poll() is not None:
            self._schedule()
            return False
        try:
            count = self._expire()
        except StoreRefused as error:
            log.warning("retention_delayed", extra={"detail": f"store: {error}. The retention is retried in an hour"})
            count = 0
        if not count:
            self._schedule()
        return count > 0

    def _expire(self) -> int:
        """Delete a batch of events, or finish the run if none remains. Return the number of deleted rows."""
        self._disk_space.require()
        loaded_before = naive_utc(datetime.now(UTC)) - timedelta(days=self._days)
        try:
            count = self._store.expire(loaded_before=loaded_before)
            if not count and self._must_finish:
                self._store.finish_expiry()
                self._give_space_back()
        except Exception:
            self._publisher.is_dirty = True  # A failed commit may have taken effect.
            raise
        if count:
            self._publisher.is_dirty = True
            self._publisher.checkpoint_when_due()
            self._expired_count += count
            self._must_finish = True
        elif self._must_finish:
            self._publisher.is_dirty = True
            if self._expired_count:
                detail = f"older than {self._days} days"
                log.info("events_expired", extra={"count": self._expired_count, "detail": detail})
            self._expired_count = 0
            self._must_finish = False
        return count

    def _give_space_back(self) -> None:
        """Rewrite the store's file if much of it is free. Without space for that, the next run tries again."""
        self._publisher.wait_for_source()
        self._store.checkpoint()  # Deleted rows are free from the next checkpoint on.
        if self._store.has_much_free_space():
            self._store.rewrite(self._draft)

    def _schedule(self) -> None:
        """Schedule the next run."""
        self._due_at = time.monotonic() + RETENTION_INTERVAL_S
