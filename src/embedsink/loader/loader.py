"""The loader: a thread that loads sealed segments into the store, and rebuilds a damaged store.

sealed segments ─▶ check their CRCs ─▶ one transaction: rows + names ─▶ store.duckdb ─▶ snapshots (publisher.py)
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator

from embedsink.archive.archive import Archive
from embedsink.concurrency.priority import lower_priority
from embedsink.data_folder import DataFolder
from embedsink.journal.segment import Segment, number_of
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.erasure import StoreErasure
from embedsink.loader.event_retention import EventRetention, Retention
from embedsink.loader.pending import PendingSegments
from embedsink.loader.publisher import Publisher
from embedsink.loader.quarantine_purge import QuarantinePurge
from embedsink.loader.rebuild import rebuild
from embedsink.loader.rollups_and_id_runs import RollupsAndIdRuns
from embedsink.loader.segment_checks import SegmentChecks
from embedsink.loader.status import LoaderStatus, error_message
from embedsink.loader.tasks import LoaderTasks
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreDamaged, StoreRefused, is_disk_full
from embedsink.store.rewrite import delete_copy

log = logging.getLogger(__name__)

# The pause after an error of loading.
RETRY_AFTER_S = 2.0
# The time limit for the last snapshot of a closing server. Without that snapshot, the next start publishes one.
LAST_SNAPSHOT_S_MAX = 8.0
# A snapshot that is expected to take this time is left to the next start.
_SLOW_SNAPSHOT_S = 4.0
# How often an idle loader checks whether the disk has space for the hashes of ids.
_DISK_CHECK_S = 10.0
# A thread that takes longer to end is blocked by its disk. The server then exits without it.
_THREAD_END_S_MAX = 4.0
_DIGITS = re.compile(r"\d+")


class Loader:
    """The thread that loads sealed segments into the store. Only it may write to the store.

    Args:
        folder: the data folder; the store is its `store.duckdb`.
        store: the store, which is not open yet.
        snapshot_interval_s: the minimum time between two snapshots.
        on_loaded: called in the loader's thread after each load.
        on_removed: called in that thread with the size in bytes of each segment that leaves the journal.
        closing_s_max: how long `close` may spend on loading, in seconds; None for no limit.
        is_low_on_space: returns whether the journal needs space, so that one snapshot suffices to delete a segment.
        quarantine_days: the retention of quarantined envelopes in days; 0 for no limit.
        retention: how many days events and some of their fields are stored; None for no limit.
        archive: the archive that gets the events before they are deleted; None for none.
        has_pending_erasures: returns whether people are being erased, whose events must not be archived or totaled.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        *,
        snapshot_interval_s: float = 10.0,
        on_loaded: Callable[[], None] = lambda: None,
        on_removed: Callable[[int], None] = lambda byte_count: None,
        closing_s_max: float | None = None,
        is_low_on_space: Callable[[], bool] = lambda: False,
        quarantine_days: int = 0,
        retention: Retention | None = None,
        archive: Archive | None = None,
        has_pending_erasures: Callable[[], bool] = lambda: False,
    ) -> None:
        self.status = LoaderStatus()
        self.last_number = 0  # All segments up to this number are loaded, in damaged/ or lost.
        self._folder = folder
        self._store = store
        self._on_loaded = on_loaded
        self._closing_s_max = closing_s_max
        self._damaged_files = DamagedFiles(folder.damaged, messages=self.status.damaged)
        self._damaged_files.report_existing()
        self._pending = PendingSegments(folder.journal, on_removed=on_removed)
        self._checks = SegmentChecks(folder.journal, store, pending=self._pending, damaged=self._damaged_files)
        self._disk_space = StoreDiskSpace(folder.path)
        self._last_sealed_number = 0  # the highest sealed number that the journal has reported
        self._is_closing = False
        self._load_until = math.inf  # in monotonic seconds; `close` sets it to its time limit
        self._wake = threading.Event()
        self._publisher = self._create_publisher(snapshot_interval_s, is_low_on_space)
        self._rollups_and_id_runs = RollupsAndIdRuns(store, self._publisher)
        self.tasks = LoaderTasks(self._wake)
        self.quarantine = QuarantinePurge(store, self._publisher, self._disk_space, days=quarantine_days)
        self.retention = EventRetention(
            folder,
            store,
            self._publisher,
            self._disk_space,
            retention=retention or Retention(),
            archive=archive,
            has_pending_erasures=has_pending_erasures,
        )
        self.erasure = self._create_erasure()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def _create_publisher(self, interval_s: float, is_low_on_space: Callable[[], bool]) -> Publisher:
        return Publisher(
            self._folder,
            self._store,
            self._pending,
            checks=self._checks,
            damaged=self._damaged_files,
            disk_space=self._disk_space,
            status=self.status,
            interval_s=interval_s,
            on_change=self._wake.set,
            is_low_on_space=is_low_on_space,
        )

    def _create_erasure(self) -> StoreErasure:
        return StoreErasure(
            self._folder,
            self._store,
            self._publisher,
            damaged=self._damaged_files,
            disk_space=self._disk_space,
        )

    def start(self) -> None:
        """Start the thread. Call `open_store` first."""
        self._thread.start()

    def on_sealed(self, number: int) -> None:
        """Wake the thread, because the segment with this number was sealed."""
        self._last_sealed_number = max(self._last_sealed_number, number)
        self._pending.on_sealed()
        self._wake.set()

    def close(self) -> None:
        """Load sealed segments, publish a last snapshot and close the store, within the time limit.

        The next start loads the rest.
        """
        if self._closing_s_max is not None:
            self._load_until = time.monotonic() + self._closing_s_max
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            timeout_s = None if self._closing_s_max is None else self._seconds_to_end()
            self._thread.join(timeout_s)
        # A copy may still run, if there was no time to wait for its end.
        self._publisher.abandon()
        if self._thread.is_alive():
            detail = "loader: is not responding. The server exits without waiting for it. Check the disk"
            log.error("loader_failed", extra={"detail": detail})
        else:
            self._store.close()

    def open_store(self) -> None:
        """Open the store, and create it if it and all snapshots are missing.

        A broken store is rebuilt first, and so is a missing store if a snapshot exists.

        Raises:
            Misconfigured: a rebuild would not help.
            OSError, StoreRefused: the disk has no space now, or another program has the store open.
        """
        delete_copy(self._folder.rebuilt)  # of a killed server
        has_snapshot = self._folder.snapshot.exists() or self._folder.previous.exists()
        if has_snapshot and not self._folder.store.exists():
            self._rebuild("is missing")
        else:
            try:
                self._open_and_read_ledger()
            except StoreBroken as error:
                self._rebuild(str(error))
        # Publish even if nothing is loaded: the snapshot may be missing, damaged or older than the store.
        self._publisher.is_dirty = True

    def waiting_since(self) -> float | None:
        """Return when the oldest pending segment was written, in epoch seconds; None if all are loaded."""
        return self._pending.waiting_since

    def load_pending(self) -> Iterator[None]:
        """Load all pending segments, oldest first. Yield after each transaction. Then report lost segments."""
        # Read this before the folder is listed: a segment up to this number that the listing lacks was lost.
        sealed_number = self._last_sealed_number
        for batch in self._pending.batches():
            self._load(self._checks.check_batch(batch))
            yield
        self._checks.check_up_to(sealed_number)
        # No reader has to wait for a segment up to this number: each one is loaded, rejected or lost.
        self._advance_to(sealed_number)

    def publish(self) -> None:
        """Publish a snapshot now, and wait for it."""
        self._publisher.publish()

    def _run(self) -> None:
        """Run the loader's thread."""
        try:
            lower_priority()
            self._run_until_closed()
        except BaseException as error:
            # Log every error: a thread that ends silently would look idle.
            log.error("bug", exc_info=error)
            self.status.thread_error = (
                f"loader: stopped because of a bug ({type(error).__name__}); see the log. Nothing is loaded until the "
                "next start."
            )
        finally:
            self.tasks.close()

    def _run_until_closed(self) -> None:
        """Load and publish whenever a segment is sealed, or a retry, a snapshot or a purge is due."""
        is_last = False
        while not is_last:
            self._wake.wait(self._seconds_to_next())
            self._wake.clear()
            # Read this before the last round, so that the round loads all segments that were sealed before `close`.
            is_last = self._is_closing
            self.run_once(is_last=is_last)
            # A task may change the store's file, which must not change while a child copies it.
            if not self._publisher.reads_store:
                self.tasks.run()

    def run_once(self, *, is_last: bool) -> None:
        """Load pending segments, and publish a snapshot if it is due or `is_last`. The loader's thread calls this."""
        # Loading and publishing each clear their own error: one may succeed while the other fails.
        self.status.load_error = self._run_step(self._load_round)
        # If the store broke while loading, `load_error` already reports it.
        if self.status.load_error is None and self._store.is_open:
            step = self._publish_last if is_last else self._publisher.advance
            self._run_publisher(step)

    def _run_publisher(self, step: Callable[[], None]) -> None:
        """Run a step of the publisher, and set `snapshot_error`. An error remains until a snapshot is published."""
        snapshot_count = self.status.snapshot_count
        error = self._run_step(step)
        has_published = self.status.snapshot_count > snapshot_count
        if error or has_published:
            self.status.snapshot_error = error

    def _publish_last(self) -> None:
        """Publish a last snapshot before the server ends, unless it has no new rows, or would take too long."""
        has_limit = self._closing_s_max is not None
        takes_too_long = has_limit and self._publisher.expected_duration_s() >= _SLOW_SNAPSHOT_S
        if self._publisher.has_work and not takes_too_long:
            self._publisher.publish(until=self._load_until + LAST_SNAPSHOT_S_MAX)

    def _load_round(self) -> None:
        """Load all pending segments. Then roll up a batch of events or, with too few, delete what is too old.

        While the server is closing, stop after the transaction that exceeds the time limit.
        """
        self._store.delete_id_runs_if_disk_is_low()
        self._synchronize_with_store()
        self._disk_space.require()
        for _ in self.load_pending():
            # Publish during a long load too: snapshots free the journal's space.
            self._run_publisher(self._publisher.advance)
            if time.monotonic() >= self._load_until:
                return
            self._disk_space.require()
            self._rollups_and_id_runs.add_when_due()  # One batch per load, so that they keep up during a long load.
        self._advance_past_damaged()
        may_have_more = (
            self._rollups_and_id_runs.add_when_due()
            or self.quarantine.purge_when_due()
            or self.retention.expire_when_due()
        )
        if may_have_more:
            self._wake.set()  # The next round does more, after it has loaded newly sealed segments.

    def _synchronize_with_store(self) -> None:
        """Open the store if it is closed. After a load error, read again which segments the store has.

        If the store has segments that were not known to be loaded, readers are notified, and a snapshot is due.
        """
        if self._store.is_open and not self.status.load_error:
            return
        known_segments = set(self._pending.loaded_sizes)
        if self._store.is_open:
            self._read_loaded_segments()
        else:
            self.open_store()
        # A load may have been committed although it raised an error, or a rebuild may have salvaged rows.
        new_segments = self._pending.loaded_sizes.keys() - known_segments
        if new_segments:
            self._publisher.is_dirty = True
            self._on_loaded()

    def _advance_past_damaged(self) -> None:
        """Advance to the number of the newest segment in `damaged/`. No reader may wait for it: it is never loaded."""
        damaged_number = max(map(number_of, self._folder.damaged.iterdir()), default=0)
        self._advance_to(damaged_number)

    def _advance_to(self, number: int) -> None:
        """Raise `last_number` to this number, and notify readers."""
        if number > self.last_number:
            self.last_number = number
            self._on_loaded()

    def _run_step(self, step: Callable[[], None]) -> str | None:
        """Run a step. Return None after success. After an error, recover a broken store and return a message."""
        try:
            step()
            return None
        except Exception as error:  # noqa: BLE001  returned as a message
            failure = error
        try:
            self._recover_from(failure)
        except Exception as error:  # noqa: BLE001  returned as a message
            failure = error  # The recovery failed too, for example on a full disk.
        message = error_message(failure)
        self._log_and_postpone_snapshot(message)
        return message

    def _recover_from(self, failure: Exception) -> None:
        """Close a broken store, so that the next round opens it again. If its file is damaged, rebuild it at once.

        Other errors need no recovery. Ingest continues meanwhile, because the journal stores all events.
        """
        if not isinstance(failure, StoreBroken):
            return
        if is_disk_full(failure):
            self._disk_space.raise_requirement()
        is_damaged = isinstance(failure, StoreDamaged)
        if not is_damaged:
            self.status.reopened_count += 1
        self._publisher.reset()  # A running copy has the broken store as its source.
        self._store.close()
        if is_damaged:
            self._rebuild(str(failure))

    def report_error(self, message: str) -> None:
        """Report why the store can't be opened. The loader retries."""
        # Log first: the log omits a message that is in the status already.
        self._log_and_postpone_snapshot(message)
        self.status.load_error = message

    def _log_and_postpone_snapshot(self, message: str) -> None:
        """Log an error unless it was logged before, and postpone the next snapshot, which may be what failed."""
        present_errors = filter(None, (self.status.load_error, self.status.snapshot_error))
        # Compare without digits, because DuckDB's messages name a different block each time.
        logged = {_DIGITS.sub("", text) for text in present_errors}
        if _DIGITS.sub("", message) not in logged:
            log.error("loader_failed", extra={"detail": message})
        self._publisher.postpone(RETRY_AFTER_S)

    def _load(self, segments: list[Segment]) -> None:
        """Load segments in one transaction, and update the status. If SQL fails on a segment, find it by bisection."""
        if not segments:
            return
        started_at = time.monotonic()
        try:
            counts = self._store.load(*segments)
        except SqlFailed as error:
            self._bisect(segments, error)
            return
        self._pending.add_loaded(segments)
        self.status.load_duration_s += time.monotonic() - started_at
        self.status.add(counts)
        # Set `last_number` after the counts: an import reads the counts once it has reached the last segment.
        self.last_number = max(self.last_number, segments[-1].number)
        self._publisher.is_dirty = True
        self._on_loaded()
        self._publisher.checkpoint_when_due()

    def _bisect(self, segments: list[Segment], error: SqlFailed) -> None:
        """Load each half separately, to find the segment on which SQL fails. If there is one segment, reject it."""
        if len(segments) == 1:
            self._checks.reject(segments[0].path, str(error))
        else:
            half = len(segments) // 2
            self._load(segments[:half])
            self._load(segments[half:])

    def _read_loaded_segments(self) -> None:
        """Read which segments of the journal's folder are loaded, and the highest loaded number.

        The ledger is the store's table of loaded segments. Gaps before a segment are reported before it is loaded, so
        only later gaps remain to be reported.
        """
        oldest_number = self._pending.oldest_number()
        if oldest_number is None:
            self._pending.loaded_sizes = {}
        else:
            self._pending.loaded_sizes = self._store.ledger.loaded_segment_sizes(from_number=oldest_number)
        self.last_number = self._store.ledger.last_segment_number()
        self._checks.start_after(self.last_number)

    def _rebuild(self, why: str) -> None:
        """Rebuild the store and open it. The next round loads the journal."""
        self._disk_space.require()
        rebuilt = rebuild(
            self._folder, self._store.limits, damaged_files=self._damaged_files, why=why, on_step=self._check_deadline
        )
        self._open_and_read_ledger()
        # Segments missing before the snapshot's number were reported before the snapshot was published.
        self._checks.report_gaps_in_rebuilt_store(after=rebuilt.snapshot_number)
        salvaged = rebuilt.salvaged
        if salvaged.row_count or salvaged.lost_count:
            self._damaged_files.report_salvage(salvaged.row_count, lost_count=salvaged.lost_count)

    def _check_deadline(self) -> None:
        """End a rebuild with StoreRefused if the server is stopping and the time for loading is over."""
        if time.monotonic() >= self._load_until:
            raise StoreRefused("the server is stopping, and the next start rebuilds the store")

    def _open_and_read_ledger(self) -> None:
        """Open the store or create it, and read which segments it has. If the reading fails, close the store again."""
        self._store.open()
        try:
            self._read_loaded_segments()
        except (StoreBroken, StoreRefused):
            self._store.close()
            raise

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until the next round, if no segment is sealed before then; None if no round is due."""
        if self.status.load_error:
            return RETRY_AFTER_S
        snapshot_due_s = self._publisher.seconds_to_next()
        if snapshot_due_s is not None:
            return snapshot_due_s  # Deletions are hourly, so they can wait for the round of the next snapshot.
        due_s = [self.quarantine.seconds_to_next(), self.retention.seconds_to_next()]
        if self._store.has_id_runs:
            due_s.append(_DISK_CHECK_S)
        return min((seconds for seconds in due_s if seconds is not None), default=None)

    def _seconds_to_end(self) -> float:
        """Return the seconds for which `close` waits: for loading, the last snapshot and the end of the thread."""
        return max(0.0, self._load_until - time.monotonic()) + LAST_SNAPSHOT_S_MAX + _THREAD_END_S_MAX
