"""The publisher of snapshots. It works while loading continues, and deletes the segments that snapshots cover.

checkpoint ─▶ child process: copy, fsync, verify ─▶ analytics.duckdb; the old one becomes analytics.previous.duckdb

A segment is deleted when the previous snapshot covers it too. If the disk is low on space, the last snapshot suffices.
"""

import logging
import math
import time
from collections.abc import Callable

from embedsink.data_folder import DataFolder
from embedsink.durable_files import free_bytes
from embedsink.loader.copy_file import FREE_BYTES_MIN
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.pending import PendingSegments
from embedsink.loader.segment_checks import SegmentChecks
from embedsink.loader.snapshot import STALLED_S, CopyProcess, publish_copy, stall_message
from embedsink.loader.status import LoaderStatus
from embedsink.store.database import Store

log = logging.getLogger(__name__)

# The share of the time for which the disk may be busy with snapshots.
DISK_SHARE_MAX = 1 / 20
# The size of the segments that may be loaded without a checkpoint while a copy runs. DuckDB spills what exceeds its
# memory. After a kill, these segments are loaded again in about 2 s.
UNWRITTEN_BYTES_MAX = 96 * 1_048_576
# The speed that is assumed for a snapshot before the first one of a process.
_COPIED_BYTES_PER_S = 150 * 1_048_576

_PREVIOUS_DELETED = (
    "was deleted, because the disk has no space for the next snapshot. The server creates it again when there is space."
)


class Publisher:
    """The publisher of the loader's snapshots. It belongs to the loader's thread.

    Args:
        folder: the data folder.
        store: the store, which the loader opens and closes.
        pending: the sealed segments in the journal's folder.
        checks: the segment checks, which delete covered segments.
        damaged: the folder of damaged files.
        disk_space: the check of the free disk space.
        status: the status to update.
        interval_s: the minimum time between two snapshots.
        on_change: called in another thread when `advance` can make progress.
        is_low_on_space: returns whether the journal needs space, so that one snapshot suffices to delete a segment.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        pending: PendingSegments,
        *,
        checks: SegmentChecks,
        damaged: DamagedFiles,
        disk_space: StoreDiskSpace,
        status: LoaderStatus,
        interval_s: float,
        on_change: Callable[[], None],
        is_low_on_space: Callable[[], bool],
    ) -> None:
        self.is_dirty = False  # whether the last snapshot is older than the store
        self._last_disk_busy_s: float | None = None  # the disk time of the last snapshot; None before the first
        self._folder = folder
        self._store = store
        self._pending = pending
        self._checks = checks
        self._damaged = damaged
        self._disk_space = disk_space
        self._status = status
        self._interval_s = interval_s
        self._on_change = on_change
        self._is_low_on_space = is_low_on_space
        self._due_at = 0.0  # the earliest start of the next copy, in monotonic seconds
        self._started_at = 0.0  # the start of the last copy, in monotonic seconds
        self._copy: CopyProcess | None = None
        self._killed_copy: CopyProcess | None = None  # Its process may still exist, if its disk hangs.
        self._has_unreported_stall = False  # whether the next `advance` has to report a stalled copy
        self._replacing_count = 0  # how many copies must still be published, also without new rows
        self._replaced_number = 0  # The newest segment is deleted too if its number is at most this one.
        # The loaded size of each segment in the running copy and in the last snapshot, by identity.
        self._copied_sizes: dict[str, int] = {}
        self._covered_sizes: dict[str, int] = {}

    @property
    def has_work(self) -> bool:
        """Whether the last snapshot lacks loaded rows."""
        return self.is_dirty or self._copy is not None

    @property
    def reads_store(self) -> bool:
        """Whether a child is copying the store's file, which must not change meanwhile."""
        return self._copy is not None and self._copy.needs_source

    def expected_duration_s(self) -> float:
        """Return how long the disk should be busy with the next snapshot: as with the last one, or else by its size.

        Waits for a CPU don't count: a small store is copied on a busy machine too.
        """
        if self._last_disk_busy_s is not None:
            return self._last_disk_busy_s
        return self._folder.store.stat().st_size / _COPIED_BYTES_PER_S

    def seconds_to_next(self) -> float | None:
        """Return the seconds until `advance` is due; None if nothing is due before the next load."""
        if self._copy is not None:
            # `on_change` reports the end of the copy. If the copy stalls instead, `advance` has to kill it.
            return max(0.0, STALLED_S - self._copy.stalled_s)
        if self._killed_copy is not None and self._killed_copy.is_running:
            return STALLED_S  # Check again later whether the killed process still hangs.
        return max(0.0, self._due_at - time.monotonic()) if self.is_dirty else None

    def advance(self) -> None:
        """Publish a copy that has finished, or kill a copy that has stalled. Start a copy if one is due.

        If the journal needs space, the segments whose rows are in the last snapshot are deleted first.

        Raises:
            StoreDamaged: the store is damaged. The snapshots are unchanged.
            StoreRefused, StoreBroken, OSError: no snapshot is possible now. The snapshots are unchanged.
        """
        if self._is_low_on_space():
            self._checks.delete_covered(self._covered_sizes)
        if self._copy is not None:
            if not self._copy.is_running:
                self._publish(self._copy)
            elif self._copy.stalled_s >= STALLED_S:
                self._abandon_stalled()
        if self._has_unreported_stall:
            self._has_unreported_stall = False
            raise OSError(stall_message(self._folder.store))
        if self.is_dirty and self._is_due():
            self._start_copy()

    def publish(self, *, until: float = math.inf) -> None:
        """Publish a snapshot of all loaded rows, and wait until it is published.

        Args:
            until: the end of the wait, in monotonic seconds. A copy that has not ended by then is killed.

        Raises:
            StoreDamaged, StoreRefused, StoreBroken, OSError: see `advance`.
        """
        copy = self._copy
        # A running copy lacks the rows that were loaded after its start.
        if self.is_dirty or copy is None:
            self.abandon()
            copy = self._start_copy()
        has_ended = copy.wait(until=until)
        if has_ended:
            self._publish(copy)
            return
        self.abandon()
        # At `until`, return without an error: the copy may only be slow.
        if time.monotonic() < until:
            raise OSError(stall_message(self._folder.store))

    def checkpoint_when_due(self) -> None:
        """Checkpoint if many rows were loaded since the last checkpoint.

        A checkpoint changes the store's file, so it is postponed while a child copies that file. With
        `UNWRITTEN_BYTES_MAX` or more unwritten, this method waits for the child instead.
        """
        if self.reads_store:
            if self._store.unwritten_bytes < UNWRITTEN_BYTES_MAX:
                return
            self.wait_for_source()
        self._store.checkpoint_when_due()

    def wait_for_source(self) -> None:
        """Wait until no child copies the store's file, so that it can be changed.

        Raises:
            StoreRefused: the disk has filled up during the wait.
        """
        copy = self._copy
        if copy is not None and copy.needs_source:
            is_copied = copy.wait(only_for_source=True)
            if not is_copied:
                self._abandon_stalled()
            self._disk_space.require()

    def postpone(self, seconds: float) -> None:
        """Start no copy for this number of seconds."""
        self._due_at = time.monotonic() + seconds

    @property
    def is_replacing(self) -> bool:
        """Whether a snapshot may have rows that were deleted before `replace_snapshots`. Any thread may read it."""
        return self._replacing_count > 0

    def replace_snapshots(self) -> None:
        """Publish two snapshots, even if nothing is loaded any more, because the present ones have deleted rows.

        Afterwards, all segments that are loaded now are deleted, also the newest one: any of them may have the rows.
        """
        # A running copy may have the rows too.
        self._replacing_count = 2 if self._copy is None else 3
        self._replaced_number = self._store.ledger.last_segment_number()
        self.is_dirty = True

    def abandon(self) -> None:
        """Kill a running copy, if there is one. The next copy replaces it."""
        if self._copy is not None:
            self._copy.abandon()
            self._killed_copy = self._copy
            self._copy = None
            self._replacing_count = min(2, self._replacing_count)  # The killed copy can't become a snapshot.
            self.is_dirty = True

    def reset(self) -> None:
        """Kill a running copy, and forget which segments snapshots cover, because the store is replaced."""
        self.abandon()
        self._copied_sizes = {}
        self._covered_sizes = {}
        self.is_dirty = True

    def _is_due(self) -> bool:
        """Return whether a copy is due and none exists. While a killed copy still hangs, a new copy would hang too."""
        if self._killed_copy is not None and not self._killed_copy.is_running:
            self._killed_copy = None
        return self._copy is None and self._killed_copy is None and time.monotonic() >= self._due_at

    def _start_copy(self) -> CopyProcess:
        """Checkpoint the store, and start a child process that copies it."""
        self._delete_older_copies()
        self._started_at = time.monotonic()
        self._disk_space.require()
        # The ledger is the table of loaded segments; compacting merges its rows. A segment that is still in the journal
        # needs a row of its own, so merge only the rows of older segments. Without a segment in the journal, the limit
        # is unknown, so merge none.
        self._store.ledger.compact(before=self._pending.oldest_number() or 0)
        self._store.checkpoint()
        self._disk_space.reset_requirement()
        self._copied_sizes = dict(self._pending.loaded_sizes)
        self._copy = CopyProcess(
            self._folder.store, self._folder.snapshot, verifies_predecessor=True, on_change=self._on_change
        )
        self.is_dirty = False
        return self._copy

    def _publish(self, copy: CopyProcess) -> None:
        """Publish a copy whose process has ended. Delete the segments whose rows are in the previous snapshot too."""
        self._copy = None
        has_newer_rows = self.is_dirty
        self.is_dirty = True  # It stays true if this method raises an error.
        disk_busy_s = copy.finish()
        if copy.predecessor_damage:
            # The published snapshot was damaged after its verification. Keep the previous one, and the segments that
            # only the published one covers.
            self._damaged.link_database(self._folder.snapshot, copy.predecessor_damage)
        publish_copy(copy, self._folder.snapshot, previous=self._folder.previous)
        if not copy.predecessor_damage:
            # `publish_copy` has made the snapshot of these segments the previous one, so both snapshots cover them.
            self._checks.delete_covered(self._covered_sizes, newest_up_to=self._replaced_number)
            self._replacing_count = max(0, self._replacing_count - 1)
        self._covered_sizes = self._copied_sizes
        self.is_dirty = has_newer_rows or self._replacing_count > 0
        # Count disk time only: the process of a small copy may wait a while for a CPU, which delays no other work.
        self.postpone(max(self._interval_s, disk_busy_s / DISK_SHARE_MAX))
        self._last_disk_busy_s = disk_busy_s
        self._status.snapshot_count += 1
        self._status.snapshot_duration_s += time.monotonic() - self._started_at
        self._status.snapshot_at = self._folder.snapshot.stat().st_mtime

    def _abandon_stalled(self) -> None:
        """Kill a stalled copy. The next `advance` raises the error. A load that finds the stall must not fail."""
        self.abandon()
        self._has_unreported_stall = True

    def _delete_older_copies(self) -> None:
        """Make space for a copy of the store: delete damaged databases, and only then the previous snapshot."""
        copy_bytes = self._folder.store.stat().st_size
        while free_bytes(self._folder.path) < copy_bytes + FREE_BYTES_MIN:
            is_deleted = self._damaged.delete_oldest_database("the disk has no space for the next snapshot")
            if is_deleted:
                continue
            if not self._folder.previous.exists():
                return  # With reflinks, the copy needs no space. Without them, it fails.
            self._folder.previous.unlink()
            detail = f"{self._folder.previous.name}: {_PREVIOUS_DELETED}"
            log.warning("previous_snapshot_deleted", extra={"detail": detail})
