"""The deletion of events and of some of their fields, after their retention."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from embedsink.archive.archive import Archive
from embedsink.archive.target import ArchiveFailed
from embedsink.data_folder import DataFolder
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.retention_schedule import INTERVAL_S, RetentionSchedule
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.expiry import RetentionLimit
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
        event_days_of: the events, actions and losses of the deployments that have days of their own.
        hash_question: returns the hash of the text of a question. With `question_days`, the default does not suffice.
        keeps_totals: whether the daily totals of deleted events remain.
    """

    event_days: int = 0
    question_days: int = 0
    extra_days: int = 0
    event_days_of: Mapping[int, int] = field(default_factory=dict)
    hash_question: Callable[[str], str] = str
    keeps_totals: bool = True

    @property
    def has_limits(self) -> bool:
        """Whether there may be something to delete."""
        return self.has_event_limits or self.question_days + self.extra_days > 0 or not self.keeps_totals

    @property
    def has_event_limits(self) -> bool:
        """Whether there are events to delete."""
        return self.event_days > 0 or any(self.event_days_of.values())


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
        self._is_delayed = False  # whether the present run deletes no more events
        self._schedule = RetentionSchedule()
        self._next_seq = 0  # the first ingest_seq that the present run has not examined
        # What the present run has totaled: the days of the events that were loaded before a time; the number of their
        # segments, because one may be loaded late; how often the store was opened, because a rebuild may lose totals.
        self._totaled: tuple[datetime, int, int] | None = None
        self._expired_count = 0  # events, by the present run, which has several steps
        self._changed_count = 0  # events whose fields were deleted
        self._must_finish = True  # A killed process may not have finished its run.
        self._must_give_space_back = False
        self._has_checked_archive = False
        self._complete_at = time.monotonic()  # the end of the last complete run, or else the start

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next run is due; None if there is no retention limit."""
        return self._schedule.seconds_to_next() if self._retention.has_limits else None

    @property
    def overdue_s(self) -> float:
        """The seconds since the last complete run, or else since the start, beyond two hours. Any thread may call it.

        A failed run, a missing run and a run that takes long all count.
        """
        if not self._retention.has_limits:
            return 0.0
        return max(0.0, time.monotonic() - self._complete_at - 2 * INTERVAL_S)

    def expire_when_due(self) -> bool:
        """Delete a batch of what is beyond the retention if a run is due. Return whether another round is needed."""
        self._check_archive_once()
        if not self._retention.has_limits or not self._schedule.is_due():
            return False
        try:
            may_have_more = self._expire()
        except (StoreRefused, OSError) as error:
            log.warning("retention_delayed", extra={"detail": f"store: {error}. The retention is retried in an hour"})
            self._end_run()
            return not self._store.is_open  # The next round opens it again.
        if not may_have_more:
            self._end_run()
        return may_have_more

    def _check_archive_once(self) -> None:
        """Log a warning soon after the start if the archive can't be used. Its first use may be months later.

        The check has a thread of its own, because an archive that does not answer must not delay loads.
        """
        if self._archive is None or not self._retention.has_event_limits or self._has_checked_archive:
            return
        self._has_checked_archive = True
        threading.Thread(target=_check_archive, args=(self._archive,), name="archive check", daemon=True).start()

    def _expire(self) -> bool:
        """Delete a batch of events, or else of fields, or else finish the run. Return whether more may remain."""
        self._disk_space.require()
        try:
            may_have_more = self._delete_totals() or self._expire_events() or self._expire_fields()
            if not may_have_more:
                self._complete()
        except Exception:
            self._publisher.is_dirty = True  # A failed commit may have taken effect.
            raise
        return may_have_more

    def _complete(self) -> None:
        """Finish a run. Its deletions are complete before the rewrite of the store, which may need more space."""
        if self._must_finish:
            self._finish()
        if not self._is_delayed:
            self._complete_at = time.monotonic()
        if self._must_give_space_back:
            self._give_space_back()

    def _delete_totals(self) -> bool:
        """Delete all daily totals if they are off. Return whether there were some."""
        count = 0 if self._retention.keeps_totals else self._store.delete_daily_totals()
        if count:
            log.info("daily_totals_deleted", extra={"count": count})
        self._record_change(count)
        return count > 0

    def _expire_events(self) -> bool:
        """Total the oldest days, or else delete the next events beyond their retention. Return whether more may remain.

        If the archive fails, or while an erasure is pending, delete nothing until the next run: the person must be
        neither archived nor totaled. The deletion of fields archives and totals nothing, so it continues.
        """
        if not self._retention.has_event_limits or self._is_delayed:
            return False
        keeps_events = self._archive is not None or self._retention.keeps_totals
        if keeps_events and self._has_pending_erasures():
            detail = "a person is being erased, so no event is deleted. This is retried in an hour"
            log.warning("retention_delayed", extra={"detail": f"erasures: {detail}"})
            self._is_delayed = True
            return False
        # The totals and the deletion need the same time: the clock may pass midnight between them.
        now = self._retention_time()
        if self._add_totals(now):
            return True
        if self._archive is None:
            return self._delete(self._limit(now))
        try:
            return self._archive_and_delete(self._archive, self._limit(now))
        except ArchiveFailed as error:
            log.error("archive_failed", extra={"detail": f"{error} No event is deleted. This is retried in an hour"})
            self._is_delayed = True
            return False

    def _retention_time(self) -> datetime:
        """Return the time in UTC from which the days of the retention are counted.

        With daily totals, it is a midnight, and advances an hour after the next midnight, so that late events and AI
        answers still count. With an archive, it is a midnight, so that a day has a few files instead of a few an hour.
        With limits by deployment, it is a midnight, so that fewer sessions are split.
        """
        now = _now()
        if self._retention.keeps_totals:
            now -= _TOTALS_DELAY
        elif self._archive is None and not self._retention.event_days_of:
            return now
        return now.replace(hour=0, minute=0, second=0, microsecond=0)

    def _add_totals(self, now: datetime) -> bool:
        """Total the oldest days that lose events. Return whether there were some."""
        loaded_before = _days_before(now, self._retention.event_days)
        if not self._retention.keeps_totals or loaded_before is None:
            return False
        # The search for days reads all events to delete, so don't repeat it before each deletion of a batch.
        segment_count = self._store.ledger.row_count(loaded_before=loaded_before)
        before = (loaded_before, segment_count, self._store.opened_count)
        if self._totaled == before:
            return False
        count = self._store.add_daily_totals(loaded_before=loaded_before)
        if count:
            log.info("daily_totals_added", extra={"count": count})
        else:
            self._totaled = before
        self._record_change(count)
        return count > 0

    def _limit(self, now: datetime) -> RetentionLimit:
        """Return which events are beyond their retention."""
        by_deployment = {
            deployment: _days_before(now, days) for deployment, days in self._retention.event_days_of.items()
        }
        return self._store.retention_limit(_days_before(now, self._retention.event_days), by_deployment)

    def _expire_fields(self) -> bool:
        """Delete the fields of a batch of events. Return whether more may remain."""
        now = _now()
        question_before = _days_before(now, self._retention.question_days)
        extra_before = _days_before(now, self._retention.extra_days)
        if question_before is None and extra_before is None:
            return False
        changed_count = self._store.expire_fields(
            question_before=question_before,
            extra_before=extra_before,
            hash_question=self._retention.hash_question,
        )
        self._changed_count += changed_count
        self._record_change(changed_count)
        return changed_count > 0

    def _delete(self, limit: RetentionLimit, *, below: int | None = None) -> bool:
        """Delete the events beyond their retention among the next ones. Return whether more may remain.

        Args:
            limit: which events are beyond their retention.
            below: only events with an ingest_seq below this one; None for no limit.
        """
        expired = self._store.expire(limit, first=self._next_seq, below=below)
        self._expired_count += expired.row_count
        self._record_change(expired.row_count)
        if expired.next_seq is None:
            return False
        self._next_seq = expired.next_seq
        return True

    def _record_change(self, count: int) -> None:
        """Make the publisher save a change of rows or days."""
        if count:
            self._publisher.is_dirty = True
            self._publisher.checkpoint_when_due()
            self._must_finish = True

    def _finish(self) -> None:
        """Delete what was derived from deleted events and the files that have them, and log what the run has deleted.

        Both snapshots and the newest segment still contain the events. Without new events, nothing else would replace
        them.
        """
        if self._is_delayed and not (self._expired_count or self._changed_count):
            return  # A delay may last for days. Its hourly runs must not publish snapshots without changes.
        # Rows that still have to be deleted need the deployments of deleted `ready` events.
        if self._retention.has_event_limits and not self._is_delayed:
            self._store.finish_expiry()
        self._publisher.replace_snapshots()
        self._log_run()
        self._must_finish = self._is_delayed
        self._must_give_space_back = True

    def _log_run(self) -> None:
        """Log what the run has deleted, and begin to count again."""
        if self._expired_count:
            detail = f"older than {self._retention.event_days} days"
            if self._retention.event_days_of:
                detail = "older than the retention of their deployment"
            log.info("events_expired", extra={"count": self._expired_count, "detail": detail})
        if self._changed_count:
            log.info("fields_expired", extra={"count": self._changed_count})
        self._expired_count = self._changed_count = 0

    def _archive_and_delete(self, archive: Archive, limit: RetentionLimit) -> bool:
        """Archive and delete the events beyond their retention among the next ones. Return whether more may remain.

        Deletions follow at once, so that no segment that is loaded late is deleted without having been archived.
        """
        with self._store.archive_rows(limit) as rows:
            batch = rows.next_range(self._next_seq)
            if batch is None:
                return False
            if not rows.has_rows(batch):
                self._next_seq = batch.below
                return True
            added = archive.add(rows, batch)
        detail = f"{added.file_count} files in {archive.target.name}"
        log.info("events_archived", extra={"count": added.row_count, "detail": detail})
        self._next_seq = batch.first
        while self._delete(limit, below=batch.below):
            pass
        self._next_seq = batch.below
        return True

    def _give_space_back(self) -> None:
        """Rewrite the store's file if much of it is free. Without space for that, the next run tries again."""
        self._publisher.wait_for_source()
        self._store.checkpoint()  # Deleted rows are free from the next checkpoint on.
        if self._store.has_much_free_space():
            self._store.rewrite(self._draft)
            self._publisher.is_dirty = True
        self._must_give_space_back = False

    def _end_run(self) -> None:
        """End this run. The next one begins with the oldest rows."""
        self._is_delayed = False
        self._next_seq = 0
        self._totaled = None
        self._schedule.postpone()


def _check_archive(archive: Archive) -> None:
    """Log a warning if an archive can't be used."""
    try:
        archive.check()
    except ArchiveFailed as error:
        log.warning("archive_unusable", extra={"detail": f"{error} Until then, the retention deletes no event"})


def _now() -> datetime:
    """Return the present time in UTC."""
    return naive_utc(datetime.now(UTC))


def _days_before(time: datetime, days: int) -> datetime | None:
    """Return the time this number of days earlier; None for 0."""
    return time - timedelta(days=days) if days else None
