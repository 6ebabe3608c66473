"""The purge of quarantined envelopes: on request, and after the retention."""

import logging
from datetime import UTC, datetime, timedelta

from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.retention_schedule import RetentionSchedule
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.purge import PURGED_AT_ONCE, PurgeFilter
from embedsink.store.timezones import naive_utc

log = logging.getLogger(__name__)


class QuarantinePurge:
    """Deletion of quarantined envelopes in bounded steps. It belongs to the loader's thread.

    Args:
        store: the store.
        publisher: the publisher of snapshots. It must not copy the store's file during a purge.
        disk_space: the check of the free disk space.
        days: the retention in days; 0 for no limit.
    """

    def __init__(self, store: Store, publisher: Publisher, disk_space: StoreDiskSpace, *, days: int) -> None:
        self._store = store
        self._publisher = publisher
        self._disk_space = disk_space
        self._days = days
        self._schedule = RetentionSchedule()
        self._must_finish = True  # A killed process may not have replaced the snapshots.

    def purge_batch(self, selected: PurgeFilter) -> int:
        """Delete at most `PURGED_AT_ONCE` of the selected rejections durably.

        Returns:
            The number of deleted rejections. If it is `PURGED_AT_ONCE`, more may remain.

        Raises:
            StoreRefused, StoreBroken: the rejections may or may not be deleted.
        """
        count = self._delete(selected)
        self._store.checkpoint()  # Without a checkpoint, the deletion would only be in memory.
        return count

    def seconds_to_next(self) -> float | None:
        """Return the seconds until a purge is due; None if there is no retention limit."""
        return self._schedule.seconds_to_next() if self._days else None

    def purge_when_due(self) -> bool:
        """Delete a batch of the rejections beyond the retention if a purge is due. Return whether more may remain."""
        if not self._days or not self._schedule.is_due():
            return False
        before = naive_utc(datetime.now(UTC)) - timedelta(days=self._days)
        try:
            count = self._delete(PurgeFilter(loaded_before=before))
        except StoreRefused as error:
            log.warning("retention_delayed", extra={"detail": f"store: {error}. The purge is retried in an hour"})
            count = 0
        if count:
            log.warning("quarantine_purged", extra={"count": count, "detail": f"older than {self._days} days"})
        may_remain = count == PURGED_AT_ONCE
        if not may_remain:
            if self._must_finish:
                self._publisher.replace_snapshots()
                self._must_finish = False
            self._schedule.postpone()
        return may_remain

    def _delete(self, selected: PurgeFilter) -> int:
        """Delete a batch of rejections, and schedule two snapshots without them. Return the number of rejections."""
        self._disk_space.require()
        try:
            count = self._store.purge(selected)
        except Exception:
            self._publisher.is_dirty = True  # A failed commit may have taken effect.
            raise
        if count:
            self._publisher.replace_snapshots()
        return count
