"""The server's database: one connection loads, its cursors read."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from embedsink.errors import Unavailable
from embedsink.journal.segment import Segment
from embedsink.reasons import Reason
from embedsink.store import ledger
from embedsink.store.attach import attach, connect, file_of
from embedsink.store.duckdb_errors import (
    StoreBroken,
    StoreRefused,
    StoreTooSmall,
    duckdb_errors_translated,
    first_line,
    lacks_memory,
    unavailable_if_broken,
)
from embedsink.store.insert import LINE_BITS, changed_deployments, described, fill_session_ready, load_rows
from embedsink.store.ledger import Ledger, ledger_of_load
from embedsink.store.limits import RaisableSetting, StoreLimits
from embedsink.store.open_readers import OpenReaders
from embedsink.store.purge import PurgeFilter, purge_rejections
from embedsink.store.query import View
from embedsink.store.reader import Reader
from embedsink.store.revisions import Revisions
from embedsink.store.rollups import discard_rollups, roll_up, roll_up_late
from embedsink.store.salvage import Salvaged, salvage
from embedsink.store.schema import bring_up_to_date, check_duckdb_version, refuse_newer, transaction

WIDE_ROW_BYTES = 2_048
_CLOSE_TIMEOUT_S = 5.0
# When a load lacks memory: how long readers may continue, and how long interrupted readers may take to end.
_READER_GRACE_S = 1.0
_INTERRUPT_TIMEOUT_S = 4.0
_MEMORY_WAIT_S_MAX = 10.0
_MEMORY_POLL_S = 0.02
# The file is attached again after this many loaded bytes: DuckDB retains 10 MiB per million events of written row
# groups, regardless of the memory limit (docs/decisions/0007).
_REATTACH_BYTES = 128 * 1_048_576
# Events of one rollup batch; fewer if memory is insufficient, because senders choose the length of their texts.
_ROLLUP_BATCH_ROWS = (250_000, 50_000, 10_000, 2_000)
# Memory of a rollup row until the next checkpoint.
_ROLLUP_ROW_BYTES = 256


class Store:
    """The server's database. `load` and `checkpoint` belong to one thread; `reader` may be called from any."""

    def __init__(self, path: Path, limits: StoreLimits | None = None) -> None:
        limits = limits or StoreLimits()
        self.path = path
        self._spill = path.with_suffix(".spill")
        self.limits = limits
        self.opened_count = 0
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.revisions = Revisions()
        self._unwritten_bytes = 0  # the size of the segments loaded since the last checkpoint
        self._attached_bytes = 0  # the size of the segments loaded since the file was attached
        self._file: tuple[int, int] | None = None
        self._has_wide_rows = False
        self._memory = RaisableSetting("memory_limit", f"{limits.counted_bytes}B", f"{limits.counted_bytes_max}B")
        self._threads = RaisableSetting("threads", f"{limits.threads}", f"{max(limits.threads, limits.threads_max)}")
        self._lacked_memory = False  # whether the last checkpoint lacked memory
        self._views: dict[str, View] = {}  # the catalog of the open database
        self._lock = threading.RLock()  # also held while the reader count changes
        self._readers = OpenReaders(self._lock)
        self._closing: duckdb.DuckDBPyConnection | None = None  # its last reader closes it

    def open(self) -> None:
        """Open or create the database, migrate its schema, and create its views again if their files have changed.

        Raises:
            Misconfigured: DuckDB is too old or too new, the store is from a newer embedsink, or the migration failed.
            StoreRefused: the disk is full, or another process or earlier readers have it open; it is unchanged.
            StoreBroken: the file is not a sound database.
        """
        self.close()  # DuckDB would open the file twice in one process.
        check_duckdb_version()
        # The store has no log. DuckDB leaves one if a checkpoint fails while it closes; it belongs to no store.
        for log in self.path.parent.glob(f"{self.path.name}.wal*"):
            log.unlink()
        with duckdb_errors_translated(opening=True):
            if self.path.exists():
                refuse_newer(self.path)
            connection = connect(self.limits, spill=self._spill)
            try:
                attach(connection, self.path)
                # An up-to-date store is not written to, so it opens on a full disk.
                if bring_up_to_date(connection, self.path.name):
                    connection.execute("checkpoint store")
            except BaseException:
                connection.close()
                raise
        with self._lock:
            self._connection, self._unwritten_bytes, self._attached_bytes = connection, 0, 0
            self._file = file_of(self.path)
            self._views = {}
            self.opened_count += 1
        self.revisions.renew()

    def refuse_newer(self) -> None:
        """Check the version of the file without writing. An unreadable file counts as not newer.

        Raises:
            Misconfigured: it is from a newer embedsink or DuckDB.
        """
        with contextlib.suppress(duckdb.Error):
            refuse_newer(self.path)

    def close(self) -> None:
        """Close the database. Readers get Unavailable from then on.

        Raises:
            StoreRefused: reports still read it. It closes after the last of them.
        """
        with self._lock:
            if self._connection is not None:
                self._closing, self._connection = self._connection, None
        if self._closing is None:
            return
        if not self._readers.end(patience_s=0.0, timeout_s=_CLOSE_TIMEOUT_S):
            raise StoreRefused(f"{self.path.name}: is still read. It closes when its last reader has ended")
        try:
            self._closing.close()
        except duckdb.Error as error:
            raise StoreRefused(first_line(error)) from error
        self._closing = None

    @property
    def is_open(self) -> bool:
        """Whether the database is open."""
        return self._connection is not None

    @property
    def is_spilling(self) -> bool:
        """Whether reports or loads spill to disk."""
        with contextlib.suppress(OSError), os.scandir(self._spill) as entries:
            return any(True for _ in entries)
        return False

    def reader(self, scope: Mapping[str, object], *, uses_one_thread: bool = False) -> Reader:
        """Open a reader with this scope.

        Args:
            scope: session variables.
            uses_one_thread: the query takes milliseconds, so one thread is sufficient.

        Raises:
            Unavailable: `not_ready` while the store is closed or broken.
        """
        end = time.monotonic() + _MEMORY_WAIT_S_MAX
        with unavailable_if_broken():
            while True:
                try:
                    return self._reader(scope, uses_one_thread)
                except StoreTooSmall:
                    # A load uses all the usual memory at the moment, and raising the limit needs memory too.
                    if time.monotonic() >= end:
                        raise
                time.sleep(_MEMORY_POLL_S)

    def _reader(self, scope: Mapping[str, object], uses_one_thread: bool) -> Reader:
        with self._lock:
            if self._connection is None:
                raise Unavailable(Reason.NOT_READY, "store: is being opened. Retry.", retry_after_s=2)
            with duckdb_errors_translated(), contextlib.ExitStack() as stack:
                stack.enter_context(self._readers.counted())  # first, so that it is released last
                cursor = stack.enter_context(contextlib.closing(self._connection.cursor()))
                cursor.execute("use store")
                # A report over all time may sort millions of rows. Spilling needs memory too.
                stack.enter_context(self._memory.raised(cursor))
                stack.enter_context(self._threads.raised(cursor, only_if=not uses_one_thread))
                variables = {"session_gap_minutes": self.limits.session_gap_minutes, **scope}
                reader = Reader(cursor, variables, resources=stack, views=self._views)
            self._readers.add(reader)
            return reader

    def loaded_segments(self, *, from_number: int = 0) -> dict[str, int]:
        """Return the bytes of loaded segments from this number on, by identity.

        Segments that share a ledger row are not included: see `folded_to`.
        """
        with duckdb_errors_translated():
            return ledger.loaded_segments(self._load_connection(), from_number=from_number)

    def loaded_ranges(self, *, after: int) -> list[tuple[int, int]]:
        """Return the first and last segment number of each ledger row after a number."""
        with duckdb_errors_translated():
            return ledger.loaded_ranges(self._load_connection(), after=after)

    def folded_to(self) -> int:
        """Return the highest number of a segment that shares a ledger row; 0 without such a segment."""
        with duckdb_errors_translated():
            return ledger.folded_to(self._load_connection())

    def last_segment_number(self) -> int:
        """Return the highest number of a loaded segment; 0 if the store is empty."""
        with duckdb_errors_translated():
            return ledger.last_segment_number(self._load_connection())

    def fold_ledger(self, *, before: int) -> None:
        """Merge the ledger rows of old segments, one row a day. Segments from the number `before` on are not merged.

        Raises:
            StoreRefused, StoreBroken: nothing was changed.
        """
        with duckdb_errors_translated():
            ledger.fold_ledger(self._load_connection(), before=before)

    def load(self, *segments: Segment) -> Ledger:
        """Insert the rows of segments and their names in one transaction: all or nothing, and never twice.

        Each load compares its ids with those of seven days, regardless of its size. So several segments share a load.

        Args:
            segments: sealed, intact segments in the order of their numbers.

        Raises:
            SqlUnfit, StoreRefused, StoreBroken: the store has no rows of them.
        """
        variables = {
            "segments": described(segments),
            "segment_paths": [str(segment.path) for segment in segments],
            "line_bytes_max": max(segment.group_bytes_max for segment in segments),
            "loaded_from": min(segment.number for segment in segments) << LINE_BITS,
            "loaded_until": (max(segment.number for segment in segments) + 1) << LINE_BITS,
            "dedup_days": self.limits.dedup_days,
            "quarantine_bytes_per_day": self.limits.quarantine_bytes_per_day,
            "quarantine_count_per_day": self.limits.quarantine_count_per_day,
            "keeps_conflicts": shutil.disk_usage(self.path.parent).free >= self.limits.quarantine_free_bytes_min,
        }
        try:
            loaded, changed = self._load_with_retries(segments, variables)
        except (StoreRefused, StoreBroken):
            self.revisions.renew()  # The commit may have succeeded.
            raise
        if changed is None:
            self.revisions.renew()
        self.revisions.move(changed or (), number=segments[-1].number)
        byte_count = sum(segment.byte_count for segment in segments)
        self._unwritten_bytes += byte_count
        self._attached_bytes += byte_count
        if byte_count > WIDE_ROW_BYTES * loaded.received_count:
            self._has_wide_rows = True
        return loaded

    def _load_with_retries(
        self, segments: Sequence[Segment], variables: Mapping[str, object]
    ) -> tuple[Ledger, set[int] | None]:
        """Return the ledger and the changed deployments; None if these are unknown."""
        with contextlib.suppress(StoreTooSmall):
            return self._load(variables, [segment.number for segment in segments])
        with (
            contextlib.suppress(StoreTooSmall),
            duckdb_errors_translated(),
            self._memory.raised(self._load_connection()),
        ):
            return self._load_unless_committed(segments, variables)
        with self._readers.paused():
            self._end_readers()
            with duckdb_errors_translated(), self._memory.raised(self._load_connection()):
                return self._load_unless_committed(segments, variables)

    def _load_unless_committed(
        self, segments: Sequence[Segment], variables: Mapping[str, object]
    ) -> tuple[Ledger, set[int] | None]:
        # The commit may have been the step that failed.
        if self._has(segments[0]):
            return ledger_of_load(self._load_connection()), None
        return self._load(variables, [segment.number for segment in segments])

    def _end_readers(self) -> None:
        """Give readers a short time to end, then interrupt them. New readers must be paused."""
        self._readers.end(patience_s=_READER_GRACE_S, timeout_s=_READER_GRACE_S + _INTERRUPT_TIMEOUT_S)

    def _load(self, variables: Mapping[str, object], loaded: Sequence[int]) -> tuple[Ledger, set[int]]:
        connection = self._load_connection()
        with duckdb_errors_translated():
            for name, value in variables.items():
                connection.execute(f"set variable {name} = $1", [value])
            with transaction(connection):
                load_rows(connection)
                roll_up_late(connection, loaded)
                # Nothing may fail after the commit: the segments would be loaded again.
                return ledger_of_load(connection), changed_deployments(connection)

    def roll_up(self) -> bool:
        """Roll up a batch of loaded events, if enough wait. Return whether there was a batch.

        Raises:
            StoreRefused, StoreBroken: nothing was rolled up.
        """
        for at_once in _ROLLUP_BATCH_ROWS[:-1]:
            try:
                return self._roll_up(at_once)
            except StoreTooSmall:
                continue
        with duckdb_errors_translated(), self._memory.raised(self._load_connection()):
            return self._roll_up(_ROLLUP_BATCH_ROWS[-1])

    def _roll_up(self, at_once: int) -> bool:
        with duckdb_errors_translated(), transaction(self._load_connection()):
            row_count = roll_up(self._load_connection(), from_count=self.limits.rollup_from_count, at_once=at_once)
        self._unwritten_bytes += row_count * _ROLLUP_ROW_BYTES
        return row_count > 0

    def purge(self, which: PurgeFilter) -> int:
        """Delete the oldest matching rejections. Return their number: `PURGED_AT_ONCE` if there may be more.

        Raises:
            StoreRefused, StoreBroken: none is deleted, unless the commit failed.
        """
        try:
            with (
                duckdb_errors_translated(),
                self._memory.raised(self._load_connection()),
                transaction(self._load_connection()),
            ):
                count, deployments = purge_rejections(self._load_connection(), which)
        except (StoreRefused, StoreBroken):
            self.revisions.renew()
            raise
        if count:
            self.revisions.move(deployments, number=0)
        return count

    def reset_derived_tables(self) -> None:
        """Delete the rollups, which the loader recomputes, and recompute `session_ready` from the events."""
        with (
            duckdb_errors_translated(),
            self._memory.raised(self._load_connection()),
            transaction(self._load_connection()),
        ):
            discard_rollups(self._load_connection())
            fill_session_ready(self._load_connection())

    def salvage(
        self, files: Sequence[Path], *, journal_numbers: list[int], on_step: Callable[[], None] = lambda: None
    ) -> Salvaged:
        """Copy readable rows of damaged files, of segments that neither this store nor the journal has.

        Raises:
            StoreRefused, StoreBroken: a part of the rows is in the store.
        """
        connection = self._load_connection()
        with duckdb_errors_translated(), self._memory.raised(connection):
            salvaged = salvage(connection, files, journal_numbers=journal_numbers, on_step=on_step)
            with transaction(connection):
                fill_session_ready(connection)
            return salvaged

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of segments loaded since the last checkpoint."""
        return self._unwritten_bytes

    def checkpoint_when_due(self) -> None:
        """Checkpoint if the bytes loaded since the last one exceed the limit; until then they stay in memory."""
        if self._unwritten_bytes >= self.limits.checkpoint_bytes:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write everything into the file, so that a copy of it is complete."""
        try:
            with duckdb_errors_translated(), self._memory_for_checkpoint():
                self._load_connection().execute("checkpoint store")
        except StoreBroken as error:
            # The rows may be from an earlier process. The next try, after reopening, has more memory.
            self._lacked_memory = lacks_memory(error)
            self._has_wide_rows = self._has_wide_rows or self._lacked_memory
            raise
        self._lacked_memory = False
        self._unwritten_bytes = 0
        self._reattach_when_due()

    @contextlib.contextmanager
    def _memory_for_checkpoint(self) -> Iterator[None]:
        """Raise the memory limit before a checkpoint of wide rows: a failed checkpoint breaks the database."""
        connection = self._load_connection()
        with contextlib.ExitStack() as stack:
            if self._has_wide_rows:
                stack.enter_context(self._readers.paused())
                half_bytes = self.limits.counted_bytes_max // 2
                if self._lacked_memory or not self._memory.accepts(connection, f"{half_bytes}B"):
                    self._end_readers()
            stack.enter_context(self._memory.raised(connection, only_if=self._has_wide_rows))
            yield

    def _reattach_when_due(self) -> None:
        """Attach the file again, unless it has readers: see `_REATTACH_BYTES`. It takes milliseconds.

        Raises:
            StoreBroken: it could not be attached again, and is closed.
        """
        with self._lock:
            connection = self._load_connection()
            if self._attached_bytes < _REATTACH_BYTES or self._readers.count:
                return
            # Attaching would create an empty file, and publishing it would replace a complete snapshot.
            if file_of(self.path) != self._file:
                raise StoreBroken(f"{self.path.name}: was moved or replaced while it was open")
            try:
                connection.execute("use memory")
                connection.execute("detach store")
                attach(connection, self.path)
            except duckdb.Error as error:
                # Readers get Unavailable; the loader opens the store again.
                self._connection = None
                connection.close()
                raise StoreBroken(first_line(error)) from error
            self._attached_bytes = 0

    def _has(self, segment: Segment) -> bool:
        return segment.identity in self.loaded_segments(from_number=segment.number)

    def _load_connection(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise StoreBroken("store.duckdb: is closed")
        return self._connection
