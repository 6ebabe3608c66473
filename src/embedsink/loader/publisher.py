"""Publishes snapshots beside loading, and deletes the segments that they cover.

checkpoint ─▶ child process: copy, fsync, verify both ─▶ analytics.duckdb ─▶ (its predecessor) analytics.previous.duckdb
a segment is deleted only when the previous snapshot covers it too
"""

import logging
import math
import shutil
import time
from collections.abc import Callable

from embedsink.data_folder import DataFolder
from embedsink.loader.copy_file import ROOM_BYTES_MIN
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.pending import PendingSegments
from embedsink.loader.segment_checks import SegmentChecks
from embedsink.loader.snapshot import STALLED_S, Copy, put_into_place, stalled
from embedsink.loader.status import LoaderStatus
from embedsink.store.database import Store

log = logging.getLogger(__name__)

# The share of the time in which the disk may be busy with snapshots.
SNAPSHOT_SHARE_MAX = 1 / 20
# So much of the journal is loaded without a checkpoint while a copy is made. DuckDB spills what it has no memory for,
# and after a kill it is loaded again, some 2 s.
UNWRITTEN_BYTES_MAX = 96 * 1_048_576


class Publisher:
    """The loader's side of snapshots. All of it belongs to the loader's thread.

    Args:
        folder: the data folder.
        store: the store, which the loader opens and closes.
        backlog: the sealed segments.
        intake: deletes those that are covered.
        damaged: the folder of damaged files.
        room: what has to be free before the store is written to.
        status: gets counts and times.
        interval_s: least time between two snapshots.
        on_change: called in another thread when `advance` has something to do.
        is_tight: whether the segments take room that the journal needs.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        backlog: PendingSegments,
        *,
        intake: SegmentChecks,
        damaged: DamagedFiles,
        room: StoreDiskSpace,
        status: LoaderStatus,
        interval_s: float,
        on_change: Callable[[], None],
        is_tight: Callable[[], bool],
    ) -> None:
        self.is_dirty = False
        self._folder = folder
        self._store = store
        self._backlog = backlog
        self._intake = intake
        self._damaged = damaged
        self._room = room
        self._status = status
        self._interval_s = interval_s
        self._on_change = on_change
        self._is_tight = is_tight
        self._due_at = 0.0
        self._copy: Copy | None = None
        self._hung: Copy | None = None  # was killed; its process may still exist
        self._is_stall_reported = True
        self._begun_at = 0.0
        self._copied: dict[str, int] = {}  # the segments that the running copy covers, by identity, with their bytes
        self._covered: dict[str, int] = {}  # those that the last snapshot is known to cover

    @property
    def has_work(self) -> bool:
        """Whether the last snapshot lacks anything that is loaded."""
        return self.is_dirty or self._copy is not None

    @property
    def reads_store(self) -> bool:
        """Whether a copy is being made of the store's file: nothing may write to it then."""
        return self._copy is not None and self._copy.needs_source

    def seconds_to_next(self) -> float | None:
        """Return how long `advance` has nothing to do; None if it waits for a load."""
        if self._copy is not None:
            return max(0.0, STALLED_S - self._copy.stalled_s)
        if self._hung is not None and self._hung.is_running:
            return STALLED_S
        return max(0.0, self._due_at - time.monotonic()) if self.is_dirty else None

    def advance(self) -> None:
        """Publish a copy that is complete, or begin one that is due.

        Raises:
            StoreDamaged: the store is damaged. The snapshots are as they were.
            StoreRefused, StoreBroken, OSError: no snapshot now. The snapshots are as they were.
        """
        if self._is_tight():
            self._intake.delete(self._covered)
        if self._copy is not None:
            if not self._copy.is_running:
                self._finish(self._copy)
            elif self._copy.stalled_s >= STALLED_S:
                self._give_up(self._copy)
        if not self._is_stall_reported:
            self._is_stall_reported = True
            raise OSError(stalled(self._folder.store))
        if self.is_dirty and self._is_due():
            self._begin()

    def publish(self, *, until: float = math.inf) -> None:
        """Publish a snapshot of everything that is loaded, and wait for it, but not after `until`.

        Raises:
            StoreDamaged, StoreRefused, StoreBroken, OSError: see `advance`.
        """
        copy = self._copy
        if self.is_dirty or copy is None:
            self.abandon()
            copy = self._begin()
        if copy.wait(until=until):
            self._finish(copy)
            return
        self._give_up(copy)
        if time.monotonic() < until:
            raise OSError(stalled(self._folder.store))

    def checkpoint_when_due(self) -> None:
        """Checkpoint when much was loaded since the last one. Within limits, a copy that reads the file goes first."""
        copy = self._copy
        if copy is not None and copy.needs_source:
            if self._store.unwritten_bytes < UNWRITTEN_BYTES_MAX:
                return
            if not copy.wait(only_for_source=True):
                self._give_up(copy)
            self._room.require()  # It may have waited for long.
        self._store.checkpoint_when_due()

    def put_off(self, seconds: float) -> None:
        """Begin no snapshot for so long."""
        self._due_at = time.monotonic() + seconds

    def abandon(self) -> None:
        """Kill a running copy."""
        if self._copy is not None:
            self._copy.abandon()
            self._copy, self._hung, self.is_dirty = None, self._copy, True

    def forget(self) -> None:
        """Assume nothing about the snapshots: the store that they were made from is not the same any more."""
        self.abandon()
        self._copied, self._covered = {}, {}
        self.is_dirty = True

    def _is_due(self) -> bool:
        if self._hung is not None and not self._hung.is_running:
            self._hung = None
        # A second process would hang as well.
        return self._copy is None and self._hung is None and time.monotonic() >= self._due_at

    def _begin(self) -> Copy:
        self._make_room()
        self._begun_at = time.monotonic()
        self._room.require()
        # A segment that is in the journal has to be known by its name.
        self._store.fold_ledger(before=self._backlog.oldest_number() or 0)
        self._store.checkpoint()
        self._room.forget()
        self._copied = dict(self._backlog.loaded)
        self._copy = Copy(self._folder.store, self._folder.snapshot, verifies_target=True, on_change=self._on_change)
        self.is_dirty = False
        return self._copy

    def _finish(self, copy: Copy) -> None:
        self._copy, was_dirty, self.is_dirty = None, self.is_dirty, True
        copying_s = copy.finish()
        if copy.target_damage:
            # It was sound when it was published. The previous snapshot stays, and so do the segments since then.
            self._damaged.keep_copy(self._folder.snapshot, copy.target_damage)
        put_into_place(copy, self._folder.snapshot, previous=self._folder.previous)
        if not copy.target_damage:
            self._intake.delete(self._covered)
        self._covered, self.is_dirty = self._copied, was_dirty
        # The share is of the disk. A small copy's child may wait long for a busy processor, and nobody waits for it.
        self.put_off(max(self._interval_s, copying_s / SNAPSHOT_SHARE_MAX))
        self._status.snapshot_count += 1
        self._status.snapshot_duration_s += time.monotonic() - self._begun_at
        self._status.snapshot_at = self._folder.snapshot.stat().st_mtime

    def _give_up(self, copy: Copy) -> None:
        copy.abandon()
        self._copy, self._hung = None, copy
        self._is_stall_reported, self.is_dirty = False, True

    def _make_room(self) -> None:
        """Delete other copies where there is no room for a new one: evidence first, then the previous snapshot."""
        size = self._folder.store.stat().st_size
        while shutil.disk_usage(self._folder.path).free < size + ROOM_BYTES_MIN:
            if self._damaged.delete_oldest_copy():
                continue
            if not self._folder.previous.exists():
                return
            self._folder.previous.unlink()
            log.warning("previous_snapshot_deleted", extra={"detail": f"{self._folder.previous.name}: {_NO_ROOM}"})


_NO_ROOM = "was deleted, since there is no room for the next snapshot. It is kept again when there is."
