"""The server's database: one connection loads, and its cursors read."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb

from embedsink.durable_files import device_and_inode, free_bytes, sync_file, sync_folder
from embedsink.errors import Unavailable
from embedsink.journal.segment import Segment
from embedsink.reasons import Reason
from embedsink.store.archive_rows import ArchiveRows
from embedsink.store.attach import attach, connect
from embedsink.store.checkpoints import Checkpoints
from embedsink.store.duckdb_errors import (
    StoreBroken,
    StoreRefused,
    StoreTooSmall,
    duckdb_errors_translated,
    first_line,
    unavailable_if_broken,
)
from embedsink.store.erasure import ErasedRows, delete_person
from embedsink.store.expiry import Expired, RetentionLimit, expire_events, finish_expiry, retention_limit
from embedsink.store.field_expiry import clear_extra, hash_questions
from embedsink.store.id_runs import IdRuns
from embedsink.store.insert import (
    changed_deployments,
    changes_directory,
    count_lines,
    fill_session_ready,
    first_ingest_seq,
    load_rows,
    load_variables,
    update_viewers,
)
from embedsink.store.ledger import Ledger, LoadCounts, count_load
from embedsink.store.limits import RaisableSetting, StoreLimits
from embedsink.store.open_readers import OpenReaders
from embedsink.store.purge import PurgeFilter, purge_rejections
from embedsink.store.reader import Reader, StoredTenants
from embedsink.store.revisions import Revisions
from embedsink.store.rewrite import delete_copy, has_much_free_space, used_bytes, write_copy
from embedsink.store.rollups import discard_rollups, roll_up, roll_up_late
from embedsink.store.salvage import Salvaged, salvage
from embedsink.store.schema import bring_up_to_date, check_duckdb_version, refuse_newer, transaction
from embedsink.store.session_variables import set_variables
from embedsink.store.totals import add_daily_totals, delete_daily_totals
from embedsink.store.view_catalog import View

# How long `close` waits for readers.
_CLOSE_TIMEOUT_S = 5.0
# When a new reader lacks memory: how long and how often it retries.
_MEMORY_WAIT_S_MAX = 10.0
_MEMORY_POLL_S = 0.02
# The file is attached again after this many loaded bytes. Otherwise DuckDB retains 10 MiB per million events of
# written row groups, regardless of the memory limit (docs/decisions/0007).
_REATTACH_BYTES = 128 * 1_048_576
# The maximum number of events in a rollup batch. If memory is insufficient, the next number is tried, because senders
# choose the length of their texts.
_ROLLUP_BATCH_ROWS = (250_000, 50_000, 10_000, 2_000)
# The memory that a rollup row takes until the next checkpoint.
_ROLLUP_ROW_BYTES = 256
# The memory that a deleted row takes until the next checkpoint.
_EXPIRED_ROW_BYTES = 64
# The free disk space that a rewrite leaves.
_REWRITE_SPARE_BYTES = 64 * 1_048_576


class _Loaded(NamedTuple):
    """The result of a load. `changed_deployments` is None if it is unknown; the directory then counts as changed."""

    counts: LoadCounts
    line_count: int
    changed_deployments: set[int] | None
    changes_directory: bool


class Store:
    """The server's database. Any thread may open a reader; the methods that write belong to the thread that loads.

    Args:
        path: the path of the file.
        limits: the limits; None for the default limits.
        stored_tenants: returns all forms in which the store may contain the tenants of a scope, such as hashes.
    """

    def __init__(self, path: Path, limits: StoreLimits | None = None, *, stored_tenants: StoredTenants = list) -> None:
        limits = StoreLimits() if limits is None else limits
        self.path = path
        self.limits = limits
        self._stored_tenants = stored_tenants
        self.opened_count = 0  # how often `open` has succeeded
        self.ledger = Ledger(self._load_connection)
        self.revisions = Revisions()
        self._spill = path.with_suffix(".spill")
        self._id_runs = IdRuns(path.parent)
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._closing_connection: duckdb.DuckDBPyConnection | None = None  # waits until its readers have ended
        self._bytes_since_attach = 0  # the size of the segments loaded since the file was attached
        self._file_inode: tuple[int, int] | None = None  # the device and inode of the attached file
        # Usual and raised values. An operator may set `threads_max` below `threads`, but raising must not lower it.
        self._memory = RaisableSetting("memory_limit", f"{limits.counted_bytes}B", f"{limits.counted_bytes_max}B")
        self._threads = RaisableSetting("threads", f"{limits.threads}", f"{max(limits.threads, limits.threads_max)}")
        self._views: dict[str, View] = {}  # a cache of the open database's views
        self._lock = threading.RLock()  # also held while the reader count changes
        self._readers = OpenReaders(self._lock)
        self._checkpoints = Checkpoints(self._load_connection, self._readers, self._memory, limits)

    def open(self) -> None:
        """Open or create the database, migrate its schema, and create its views again if their SQL has changed.

        Raises:
            Misconfigured: DuckDB is too old or too new, the store is from a newer embedsink, or the migration failed.
            StoreRefused: the disk is full, another process has the file open, or a reader has not ended yet. The
                file is unchanged.
            StoreBroken: the file is not a sound database.
        """
        self.close()  # DuckDB would not refuse to open the file twice in one process.
        check_duckdb_version()
        self._delete_write_ahead_logs()
        with duckdb_errors_translated(opening=True):
            if self.path.exists():
                refuse_newer(self.path)
            connection = self._connect()
        with self._lock:
            self._connection = connection
            self._checkpoints.unwritten_bytes = 0
            self._bytes_since_attach = 0
            self._file_inode = device_and_inode(self.path)
            self._views = {}
            self.opened_count += 1
        self.revisions.renew()

    def _delete_write_ahead_logs(self) -> None:
        """Delete the log that DuckDB leaves if its checkpoint fails at closing: the journal still has those rows."""
        for log in self.path.parent.glob(f"{self.path.name}.wal*"):  # also `.wal.checkpoint` and `.wal.recovery`
            log.unlink()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Attach the file to a new connection, and bring its schema up to date."""
        connection = connect(self.limits, spill=self._spill)
        try:
            attach(connection, self.path)
            # Without a log, only a checkpoint saves the changes. Without changes, the store opens even on a full disk.
            is_migrated = bring_up_to_date(connection, self.path.name)
            if update_viewers(connection, self.limits.viewer_attribute) or is_migrated:
                connection.execute("checkpoint store")
        except BaseException:
            connection.close()
            raise
        return connection

    def refuse_newer(self) -> None:
        """Check the version of the file without writing. A file that can't be read passes.

        Raises:
            Misconfigured: the file is from a newer embedsink or DuckDB.
        """
        with contextlib.suppress(duckdb.Error):
            refuse_newer(self.path)

    def close(self) -> None:
        """Close the database, and interrupt its readers. New readers get Unavailable.

        Raises:
            StoreRefused: a reader has not ended yet. Call `close` again later.
        """
        self._id_runs.clear()
        with self._lock:
            if self._connection is not None:
                # If its readers don't end in time, a later call closes this connection.
                self._closing_connection = self._connection
                self._connection = None
        if self._closing_connection is None:
            return
        if not self._readers.end(patience_s=0.0, timeout_s=_CLOSE_TIMEOUT_S):
            raise StoreRefused(f"{self.path.name}: is still being read. It closes when the last reader finishes")
        try:
            self._closing_connection.close()
        except duckdb.Error as error:
            raise StoreRefused(first_line(error)) from error
        self._closing_connection = None

    @property
    def is_open(self) -> bool:
        """Whether the database is open."""
        return self._connection is not None

    @property
    def is_spilling(self) -> bool:
        """Whether reports or loads spill to disk."""
        with contextlib.suppress(OSError), os.scandir(self._spill) as entries:
            return next(entries, None) is not None
        return False

    def reader(self, scope: Mapping[str, object], *, is_short: bool = False) -> Reader:
        """Open a reader with this scope.

        Args:
            scope: session variables.
            is_short: whether queries take only milliseconds. For them, DuckDB keeps its usual number of threads.

        Raises:
            Unavailable: the store is closed, is broken or lacks memory (reason `not_ready`), or the disk is full
                (`storage_low`).
        """
        give_up_at = time.monotonic() + _MEMORY_WAIT_S_MAX
        with unavailable_if_broken():
            while True:
                try:
                    return self._open_reader(scope, is_short)
                except StoreTooSmall:
                    # A load may use all of the usual memory. Then even setting a higher limit fails, so wait.
                    if time.monotonic() >= give_up_at:
                        raise
                time.sleep(_MEMORY_POLL_S)

    def _open_reader(self, scope: Mapping[str, object], is_short: bool) -> Reader:
        """Open a reader, and raise the limits of memory and threads until the reader is closed.

        Raises:
            Unavailable: the store is closed (reason `not_ready`).
            StoreTooSmall: memory is insufficient, or new readers are paused.
        """
        with self._lock:
            if self._connection is None:
                raise Unavailable(Reason.NOT_READY, "store: is being opened. Retry.", retry_after_s=2)
            with duckdb_errors_translated(), contextlib.ExitStack() as stack:
                stack.enter_context(self._readers.counted())  # first: the reader counts until its cursor is closed
                cursor = stack.enter_context(contextlib.closing(self._connection.cursor()))
                cursor.execute("use store")
                # A report over all time may sort millions of rows. Even a sort that spills to disk needs memory.
                stack.enter_context(self._memory.raised(cursor))
                stack.enter_context(self._threads.raised(cursor, is_needed=not is_short))
                variables = {"session_gap_minutes": self.limits.session_gap_minutes, **scope}
                # The reader takes over the resources: closing the reader releases them.
                reader = Reader(
                    cursor, variables, resources=stack, views=self._views, stored_tenants=self._stored_tenants
                )
            self._readers.add(reader)
            return reader

    def load(self, *segments: Segment) -> LoadCounts:
        """Insert the rows and the names of segments in one transaction: all or nothing, and never twice.

        Load several segments at once: most of a load takes about as long for one segment as for several.

        Args:
            segments: sealed, intact segments in the order of their numbers.

        Raises:
            SqlFailed: nothing was inserted, and a retry does not help.
            StoreRefused, StoreBroken: nothing was inserted, unless the commit failed after taking effect.
        """
        try:
            loaded = self._load_with_retries(segments)
        except (StoreRefused, StoreBroken):
            self.revisions.renew()  # The commit may have succeeded.
            raise
        self.revisions.record_change(loaded.changed_deployments, number=segments[-1].number)
        if loaded.changes_directory:
            self.revisions.record_directory_change()
        byte_count = sum(segment.byte_count for segment in segments)
        self._checkpoints.add_load(byte_count, line_count=loaded.line_count)
        self._bytes_since_attach += byte_count
        return loaded.counts

    def _load_with_retries(self, segments: Sequence[Segment]) -> _Loaded:
        """Load segments. If memory is insufficient, retry with more memory, and finally without readers too."""
        variables = load_variables(segments, self.limits, free_bytes=free_bytes(self.path.parent))
        with contextlib.suppress(StoreTooSmall):  # The next try has more memory.
            return self._load(segments, variables)
        with contextlib.suppress(StoreTooSmall), self._raised_memory():  # The last try also has the readers' memory.
            return self._load_unless_committed(segments, variables)
        with self._readers.paused():
            self._readers.end_soon()
            with self._raised_memory():
                return self._load_unless_committed(segments, variables)

    def _load_unless_committed(self, segments: Sequence[Segment], variables: Mapping[str, object]) -> _Loaded:
        """Load segments, unless an earlier try committed them before it failed."""
        # One transaction commits all segments, so it is enough to check the first.
        if self._is_loaded(segments[0]):
            counts = count_load(self._load_connection())
            # None: unknown. Results of dbt and users are no envelopes, so the number of lines may be greater.
            return _Loaded(counts, counts.received_count, changed_deployments=None, changes_directory=True)
        return self._load(segments, variables)

    def _load(self, segments: Sequence[Segment], variables: Mapping[str, object]) -> _Loaded:
        """Insert the rows of segments in one transaction."""
        connection = self._load_connection()
        self._id_runs.forget_from(first_ingest_seq(segments[0].number))  # They lack the rows of segments loaded late.
        with duckdb_errors_translated():
            set_variables(connection, variables)
            with transaction(connection):
                load_rows(connection, self._id_runs)
                # `roll_up` only continues after its last batch, so it would omit segments that are loaded late.
                roll_up_late(connection, [segment.number for segment in segments])
                # Count inside the transaction: if counting failed after the commit, the segments would be loaded again.
                return _Loaded(
                    count_load(connection),
                    count_lines(connection),
                    changed_deployments(connection),
                    changes_directory(connection),
                )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Change rows in this block: in one transaction, with more memory, and with temporary tables of its own.

        After an error, all revisions change, because the commit may have succeeded.
        """
        try:
            with self._raised_memory(), contextlib.closing(self._load_connection().cursor()) as connection:
                connection.execute("use store")
                with transaction(connection):
                    yield connection
        except BaseException:
            self.revisions.renew()
            raise

    @contextlib.contextmanager
    def _raised_memory(self) -> Iterator[None]:
        """Raise the memory limit in this block, and translate DuckDB's errors."""
        with duckdb_errors_translated(), self._memory.raised(self._load_connection()):
            yield

    def roll_up(self) -> bool:
        """Add a batch of loaded events to the rollups, which reports read. Return False if there are too few events.

        Raises:
            StoreRefused, StoreBroken: nothing was rolled up.
        """
        # The last size is the smallest, and it is tried with more memory.
        for event_count_max in _ROLLUP_BATCH_ROWS[:-1]:
            try:
                return self._roll_up(event_count_max)
            except StoreTooSmall:
                continue
        with self._raised_memory():
            return self._roll_up(_ROLLUP_BATCH_ROWS[-1])

    def _roll_up(self, event_count_max: int) -> bool:
        """Roll up at most `event_count_max` events in one transaction. Return False if there are too few events."""
        with duckdb_errors_translated(), transaction(self._load_connection()):
            event_count_min = self.limits.rollup_from_count
            row_count = roll_up(
                self._load_connection(), event_count_min=event_count_min, event_count_max=event_count_max
            )
        # Like loaded segments, rollup rows take memory until the next checkpoint.
        self._checkpoints.unwritten_bytes += row_count * _ROLLUP_ROW_BYTES
        return row_count > 0

    def add_id_run(self) -> bool:
        """Add a run of hashes of ids, which makes loads faster (store/id_runs.py). Return False if there are too few.

        Raises:
            StoreRefused, StoreBroken: no ids were added.
        """
        try:
            with duckdb_errors_translated():
                return self._id_runs.add(self._load_connection())
        except OSError as error:
            raise StoreRefused(f"the hashes of ids can't be written: {error}") from error

    @property
    def has_id_runs(self) -> bool:
        """Whether hashes of ids take disk space."""
        return self._id_runs.exist

    def delete_id_runs_if_disk_is_low(self) -> None:
        """Delete the hashes of ids if the disk is low on space. Loads then read all ids."""
        self._id_runs.clear_if_disk_is_low()

    def purge(self, selected: PurgeFilter) -> int:
        """Delete the oldest matching rejections. Return their number: `PURGED_AT_ONCE` if there may be more.

        Raises:
            StoreRefused, StoreBroken: no rejection was deleted, unless the commit failed after taking effect.
        """
        with self._changing() as connection:
            count, deployments = purge_rejections(connection, selected)
        if count:
            self.revisions.record_change(deployments, number=0)  # 0: no segment was loaded
        return count

    @contextlib.contextmanager
    def archive_rows(self, limit: RetentionLimit | None = None) -> Iterator[ArchiveRows]:
        """Return the rows for an archive, with more memory in this block; with a limit, only those beyond it.

        Raises:
            StoreRefused, StoreBroken: the rows can't be read, or their files can't be written.
        """
        with self._raised_memory(), contextlib.closing(ArchiveRows(self._load_connection(), limit)) as rows:
            yield rows

    def retention_limit(
        self, loaded_before: datetime | None, by_deployment: Mapping[int, datetime | None]
    ) -> RetentionLimit:
        """Return the limit for rows that were loaded before a time (UTC), which may depend on the deployment.

        Args:
            loaded_before: the time; None for no limit.
            by_deployment: the times of the deployments that have one of their own.

        Raises:
            StoreRefused, StoreBroken: the ledger can't be read.
        """
        with duckdb_errors_translated():
            return retention_limit(self._load_connection(), loaded_before, by_deployment)

    def expire(self, limit: RetentionLimit, *, first: int = 0, below: int | None = None) -> Expired:
        """Delete the rows beyond their retention among the next rows, in one transaction.

        Args:
            limit: which rows are beyond their retention.
            first: the smallest ingest_seq; 0, or the `next_seq` of the step before.
            below: only rows with an ingest_seq below this one; None for no limit.

        Raises:
            StoreRefused, StoreBroken: nothing was deleted, unless the commit failed after taking effect.
        """
        with self._changing() as connection:
            expired = expire_events(connection, limit, first=first, below=below)
        if expired.row_count:
            self.revisions.record_change(expired.deployments, number=0)  # 0: no segment was loaded
            self._checkpoints.unwritten_bytes += expired.row_count * _EXPIRED_ROW_BYTES
        return expired

    def add_daily_totals(self, *, loaded_before: datetime) -> int:
        """Add the totals of the oldest days that must be totaled before old events can be deleted, in one transaction.

        Args:
            loaded_before: the old events were loaded before this time in UTC, a midnight.

        Returns:
            The number of totaled days. If it is 0, the events may be deleted.

        Raises:
            StoreRefused, StoreBroken: no day was totaled, unless the commit failed after taking effect.
        """
        gap_minutes = self.limits.session_gap_minutes
        return self._change_totals(partial(add_daily_totals, loaded_before=loaded_before, gap_minutes=gap_minutes))

    def delete_daily_totals(self) -> int:
        """Delete all daily totals. Return the number of totaled days.

        Raises:
            StoreRefused, StoreBroken: nothing was deleted, unless the commit failed after taking effect.
        """
        return self._change_totals(delete_daily_totals)

    def _change_totals(self, change: Callable[[duckdb.DuckDBPyConnection], int]) -> int:
        """Change the daily totals in one transaction. Return the number of days, which `change` returns."""
        with self._changing() as connection:
            day_count = change(connection)
        if day_count:
            self.revisions.renew()
        return day_count

    def finish_expiry(self) -> None:
        """Delete what was derived from deleted events.

        Raises:
            StoreRefused, StoreBroken: nothing was deleted, unless the commit failed after taking effect.
        """
        with self._changing() as connection:
            finish_expiry(connection)
        # Events of sessions whose `ready` event was deleted may have lost their deployment.
        self.revisions.renew()

    def expire_fields(
        self,
        *,
        question_before: datetime | None,
        extra_before: datetime | None,
        hash_question: Callable[[str], str],
    ) -> int:
        """Delete fields of the oldest events that were loaded before a time (UTC), in one transaction.

        Args:
            question_before: for the texts of AI questions, which hashes replace; None to keep them.
            extra_before: for fields that are not in the protocol; None to keep them.
            hash_question: returns the hash of the text of a question.

        Returns:
            The number of changes; 0 if nothing remains to delete. An event that loses a question and other fields
            counts twice.

        Raises:
            StoreRefused, StoreBroken: nothing was deleted, unless the commit failed after taking effect.
        """
        count = 0
        with self._changing() as connection:
            if question_before is not None:
                count += hash_questions(connection, loaded_before=question_before, hash_question=hash_question)
            if extra_before is not None:
                count += clear_extra(connection, loaded_before=extra_before)
        if count:
            self.revisions.renew()
            self._checkpoints.unwritten_bytes += count * _EXPIRED_ROW_BYTES
        return count

    def has_much_free_space(self) -> bool:
        """Return whether so much of the file is free that `rewrite` is worth its time, as of the last checkpoint."""
        with duckdb_errors_translated():
            return has_much_free_space(self._load_connection())

    def rewrite(self, draft: Path) -> None:
        """Replace the file by a copy without free space. Reports continue while it is written, and end at the exchange.

        After a kill at any moment, the old or the new file has all rows. The next `open` creates missing views.

        Args:
            draft: the path of the copy until it is complete, in the same folder.

        Raises:
            StoreRefused, StoreBroken, OSError: the file is unchanged. The store may be closed.
        """
        delete_copy(draft)
        self.checkpoint()
        try:
            with self._raised_memory():
                needed_bytes = used_bytes(self._load_connection())
                if free_bytes(draft.parent) < needed_bytes + _REWRITE_SPARE_BYTES:
                    raise StoreRefused(f"a copy without free space needs {needed_bytes:,} bytes on the disk")
                write_copy(self._load_connection(), draft)
            self.close()
            sync_file(draft)
            draft.replace(self.path)
        except BaseException:
            delete_copy(draft)  # It takes the space that other work needs.
            raise
        sync_folder(self.path.parent)
        self.open()

    def erase(
        self,
        people: Sequence[Mapping[str, object]],
        draft: Path,
        *,
        on_deleted: Callable[[Sequence[ErasedRows]], None] = lambda rows: None,
    ) -> None:
        """Delete the rows of people, and replace the file by a copy, whose blocks don't have them.

        After a kill at any moment, either no row or all of them are deleted, and another call is needed.

        Args:
            people: the variables that select each person, as `Person.variables` returns them.
            draft: the path of the copy until it is complete, in the same folder.
            on_deleted: called with the rows of each person before the deletion is committed.

        Raises:
            StoreRefused, StoreBroken, OSError: no row or all of them are deleted. The file may still have them in free
                blocks, so call this again. The store may be closed.
        """
        with self._changing() as connection:
            on_deleted([delete_person(connection, variables) for variables in people])
        self.revisions.renew()
        self.rewrite(draft)  # Free blocks of the old file have the rows.

    def reset_derived_tables(self) -> None:
        """Delete the rollups, which the loader recomputes. Recompute `session_ready` from the `ready` events."""
        with self._changing() as connection:
            discard_rollups(connection)
            fill_session_ready(connection)

    def salvage(
        self, files: Sequence[Path], *, journal_numbers: list[int], on_step: Callable[[], None] = lambda: None
    ) -> Salvaged:
        """Copy the readable rows of damaged files into this store.

        Rows of segments that the store or the journal (`journal_numbers`) has are skipped. `on_step` is called between
        steps.

        Raises:
            StoreRefused, StoreBroken: a part of the rows may have been copied.
        """
        connection = self._load_connection()
        self._id_runs.clear()  # They lack the salvaged rows.
        with self._raised_memory():
            salvaged = salvage(connection, files, journal_numbers=journal_numbers, on_step=on_step)
            with transaction(connection):
                fill_session_ready(connection)  # Salvaged `ready` events may belong in this table.
            return salvaged

    @property
    def unwritten_bytes(self) -> int:
        """The size of the segments and rollups added since the last checkpoint, in bytes. Their rows are in memory."""
        return self._checkpoints.unwritten_bytes

    def checkpoint_when_due(self) -> None:
        """Checkpoint if the segments and rollups added since the last checkpoint reach `checkpoint_bytes`."""
        if self.unwritten_bytes >= self.limits.checkpoint_bytes:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write everything into the file, so that a copy of the file is complete.

        After a deletion of fields, this waits up to 15 s for the readers that began before it.

        Raises:
            StoreRefused, StoreBroken: the checkpoint failed. After StoreBroken, open the store again.
        """
        self._checkpoints.write()
        self._reattach_when_due()

    def _reattach_when_due(self) -> None:
        """Attach the file again after `_REATTACH_BYTES` loaded bytes, unless it has readers. This takes milliseconds.

        DuckDB then frees memory that it retains for written rows as long as the file is attached.

        Raises:
            StoreBroken: the file was moved or replaced; or attaching failed, and the store is closed.
        """
        with self._lock:
            connection = self._load_connection()
            if self._bytes_since_attach < _REATTACH_BYTES or self._readers.count:
                return
            # If the file is gone, attaching would create an empty one, which would be published as the snapshot.
            if device_and_inode(self.path) != self._file_inode:
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
            self._bytes_since_attach = 0

    def _is_loaded(self, segment: Segment) -> bool:
        """Return whether a segment is loaded."""
        return segment.identity in self.ledger.loaded_segment_sizes(from_number=segment.number)

    def _load_connection(self) -> duckdb.DuckDBPyConnection:
        """Return the connection that loads. Raise StoreBroken if the store is closed."""
        if self._connection is None:
            raise StoreBroken("store.duckdb: is closed")
        return self._connection
