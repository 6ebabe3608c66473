"""The deletion of events and of some of their fields, after their retention."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from embedsink.archive.archive import Archive
from embedsink.archive.target import ArchiveFailed
from embedsink.clock_watch import ClockWatch
from embedsink.data_folder import DataFolder
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.loader.quarantine_purge import RETENTION_INTERVAL_S
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.timezones import naive_utc

log = logging.getLogger(__name__)

# How long after midnight the events of a day are totaled.
_TOTALS_DELAY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days events and some of their fields are stored; 0 for no limit.

    Args:
        event_days: events, actions and losses.
        question_days: the texts of AI questions, which hashes replace.
        extra_days: fields that are not in the protocol.
        hash_question: returns the hash of the text of a question.
        keeps_totals: whether the daily totals of deleted events remain.
    """

    event_days: int = 0
    question_days: int = 0
    extra_days: int = 0
    hash_question: Callable[[str], str] = str
    keeps_totals: bool = True

    @property
    def has_limits(self) -> bool:
        """Whether there may be something to delete."""
        return self.event_days + self.question_days + self.extra_days > 0 or not self.keeps_totals


class EventRetention:
    """Deletion of old events and fields in bounded steps. It belongs to the loader's thread.

    Args:
        folder: the data folder.
        store: the store.
        publisher: the publisher of snapshots.
        disk_space: the check of the free disk space.
        retention: how many days events and fields are stored.
        archive: the archive that gets the events before they are deleted; None for none.
        has_pending_erasures: returns whether people are being erased, whose events must not be archived or totaled.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        publisher: Publisher,
        disk_space: StoreDiskSpace,
        *,
        retention: Retention,
        archive: Archive | None = None,
        has_pending_erasures: Callable[[], bool] = lambda: False,
    ) -> None:
        self._draft = folder.rebuilt
        self._store = store
        self._publisher = publisher
        self._disk_space = disk_space
        self._retention = retention
        self._archive = archive
        self._has_pending_erasures = has_pending_erasures
        self._has_archive_failed = False  # in the present run
        self._clock_watch = ClockWatch()
        self._expired_count = 0  # events, by the present run, which has several steps
        self._changed_count = 0  # events whose fields were deleted
        self._must_finish = True  # A killed process may not have finished its run.
        self._schedule()

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next run is due; None if there is no retention limit."""
        return max(0.0, self._due_at - time.monotonic()) if self._retention.has_limits else None

    def expire_when_due(self) -> bool:
        """Delete a batch of what is beyond the retention if a run is due. Return whether more may remain.

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
        """Total days, or delete a batch of events or fields, or finish the run. Return the number of days or rows."""
        self._disk_space.require()
        try:
            # The totals and the deletion need the same limit: the clock may pass midnight between them.
            before = self._event_limit()
            totaled_count = self._change_totals(before)
            expired_count = 0 if totaled_count else self._expire_events(before)
            changed_count = 0 if totaled_count or expired_count else self._expire_fields()
            if not totaled_count and not expired_count and not changed_count and self._must_finish:
                if self._retention.event_days:
                    self._store.finish_expiry()
                self._give_space_back()
        except Exception:
            self._publisher.is_dirty = True  # A failed commit may have taken effect.
            raise
        if totaled_count or expired_count or changed_count:
            self._publisher.is_dirty = True
            self._publisher.checkpoint_when_due()
            self._expired_count += expired_count
            self._changed_count += changed_count
            self._must_finish = True
        elif self._must_finish:
            self._publisher.is_dirty = True
            self._log_run()
            self._must_finish = False
        return totaled_count + expired_count + changed_count

    def _event_limit(self) -> datetime | None:
        """Return the time before which loaded events are deleted now, in UTC; None to delete no event.

        With daily totals, it is a midnight, and moves an hour after midnight: what still arrives, and AI questions that
        are still open, belong to the totals. While people are being erased, their events must neither be archived nor
        totaled.
        """
        before = _days_ago(self._retention.event_days)
        keeps_totals = self._retention.keeps_totals
        if before is None or ((keeps_totals or self._archive is not None) and self._has_pending_erasures()):
            return None
        return _midnight_of(before - _TOTALS_DELAY) if keeps_totals else before

    def _change_totals(self, before: datetime | None) -> int:
        """Total the oldest days that lose events, or delete all totals if they are off. Return the number of days."""
        if not self._retention.keeps_totals:
            count = self._store.delete_daily_totals()
            if count:
                log.info("daily_totals_deleted", extra={"count": count})
            return count
        count = 0 if before is None else self._store.add_daily_totals(loaded_before=before)
        if count:
            log.info("daily_totals_added", extra={"count": count})
        return count

    def _expire_events(self, before: datetime | None) -> int:
        """Delete a batch of the events that were loaded before a time. Return their number.

        If the archive fails, delete nothing until the next run. Fields are not archived, so their deletion continues.
        """
        if before is None or self._has_archive_failed:
            return 0
        if self._archive is None:
            return self._store.expire(loaded_before=before)
        try:
            return self._archive_and_delete(self._archive, before)
        except ArchiveFailed as error:
            log.error("archive_failed", extra={"detail": f"{error} No event is deleted. This is retried in an hour"})
            self._has_archive_failed = True
            return 0

    def _expire_fields(self) -> int:
        """Delete the fields of a batch of events. Return the number of events."""
        question_before = _days_ago(self._retention.question_days)
        extra_before = _days_ago(self._retention.extra_days)
        if question_before is None and extra_before is None:
            return 0
        return self._store.expire_fields(
            question_before=question_before,
            extra_before=extra_before,
            hash_question=self._retention.hash_question,
        )

    def _log_run(self) -> None:
        """Log what the run has deleted, and begin to count again."""
        if self._expired_count:
            detail = f"older than {self._retention.event_days} days"
            log.info("events_expired", extra={"count": self._expired_count, "detail": detail})
        if self._changed_count:
            log.info("fields_expired", extra={"count": self._changed_count})
        self._expired_count = self._changed_count = 0

    def _archive_and_delete(self, archive: Archive, loaded_before: datetime) -> int:
        """Archive a batch of the events that were loaded before a time, then delete it. Return the number of rows.

        Deletions follow at once, so that no segment that is loaded late is deleted without having been archived.
        """
        # Only whole days, so that the archive gets a few files a day instead of a few an hour.
        loaded_before = _midnight_of(loaded_before)
        with self._store.archive_rows() as rows:
            batch = rows.next_range(0, loaded_before=loaded_before)
            if batch is None:
                return 0
            added = archive.add(rows, batch)
        detail = f"{added.file_count} files in {archive.target.name}"
        log.info("events_archived", extra={"count": added.row_count, "detail": detail})
        total_count = 0
        while count := self._store.expire(loaded_before=loaded_before, below=batch.below):
            total_count += count
            self._publisher.checkpoint_when_due()
        return total_count

    def _give_space_back(self) -> None:
        """Rewrite the store's file if much of it is free. Without space for that, the next run tries again."""
        self._publisher.wait_for_source()
        self._store.checkpoint()  # Deleted rows are free from the next checkpoint on.
        if self._store.has_much_free_space():
            self._store.rewrite(self._draft)

    def _schedule(self) -> None:
        """Schedule the next run."""
        self._has_archive_failed = False
        self._due_at = time.monotonic() + RETENTION_INTERVAL_S


def _days_ago(days: int) -> datetime | None:
    """Return the time before this number of days, in UTC; None for 0."""
    return naive_utc(datetime.now(UTC)) - timedelta(days=days) if days else None


def _midnight_of(instant: datetime) -> datetime:
    """Return the start of the day of a time."""
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)
