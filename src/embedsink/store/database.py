"""The server's own database: one connection loads, cursors read."""

import contextlib
import secrets
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from embedsink.errors import Unavailable
from embedsink.reasons import Reason
from embedsink.segment import Segment, number_of
from embedsink.store.attaching import attach, file_of
from embedsink.store.failures import StoreBroken, StoreRefused, StoreTooSmall, first_line, lacks_memory, translated
from embedsink.store.heeding import Seen, choose_form, heed_ready
from embedsink.store.limits import Raised, StoreLimits
from embedsink.store.loading import described, load_rows
from embedsink.store.reader import Reader, away_is_unavailable
from embedsink.store.schema import bring_up_to_date, check_duckdb_version, refuse_newer, transaction
from embedsink.store.selection import View
from embedsink.store.sums import forget_sums, sum_up, sum_up_late

WIDE_ROW_BYTES = 2_048
_ROWS_VERIFIED_AT_ONCE = 500_000
_CLOSE_TIMEOUT_S = 5.0
_ROOM_WAIT_S_MAX = 10.0
_ROOM_PAUSE_S = 0.02
# Loaded so much, the file is attached anew: until then DuckDB keeps something of each row group that was written, some
# 10 MiB a million events, and gives it up for no limit (docs/decisions/0007).
_RENEW_BYTES = 128 * 1_048_576
# So many events are summed up at once; fewer where they don't fit: senders choose how long their texts are.
_SUMMED_AT_ONCE = (250_000, 50_000, 10_000, 2_000)
# What a row of sums takes in memory until the next checkpoint.
_SUM_BYTES = 256


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of the envelopes of some segments: received = accepted + duplicate + quarantined."""

    segment_count: int
    received_count: int
    accepted_count: int
    duplicate_count: int
    quarantined_count: int


class Store:
    """The server's database. `load` and `checkpoint` belong to one thread; `reader` may be called from any."""

    def __init__(self, path: Path, limits: StoreLimits | None = None) -> None:
        limits = limits or StoreLimits()
        self.path = path
        self.opened_count = 0
        self._limits = limits
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._revision = ("", 0)
        self._waiting_bytes = 0  # of segments, loaded since the last checkpoint
        self._kept_bytes = 0  # of segments, loaded since the file was attached
        self._file: tuple[int, int] | None = None
        self._has_wide_rows = False
        self._seen: Seen | None = None
        self._memory = Raised("memory_limit", f"{limits.counted_bytes}B", f"{limits.counted_bytes_max}B")
        self._threads = Raised("threads", f"{limits.threads}", f"{max(limits.threads, limits.threads_max)}")
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._reading_count = 0
        self._views: dict[str, View] = {}  # of the database as it was opened
        self._lock = threading.RLock()  # a reader that can't be had is counted out while it is held

    def open(self) -> None:
        """Open or create the database, migrate its schema, and make its views again where they are not of these files.

        Raises:
            Misconfigured: DuckDB is too old or too new, the store was made by a newer embedsink, or it can't be brought
                up to date.
            StoreRefused: there was no room, or another program has it open. It is as it was.
            StoreBroken: the file is no sound database.
        """
        check_duckdb_version()
        # We keep no log. One that DuckDB left behind, when a checkpoint failed as it closed, belongs to no store.
        for log in self.path.parent.glob(f"{self.path.name}.wal*"):
            log.unlink()
        with translated(opening=True):
            if self.path.exists():
                refuse_newer(self.path)
            connection = duckdb.connect(":memory:", config=self._config())
            try:
                attach(connection, self.path)
                bring_up_to_date(connection, self.path.name)
                connection.execute("checkpoint store")
            except BaseException:
                connection.close()
                raise
        with self._lock:
            self._connection, self._waiting_bytes, self._kept_bytes = connection, 0, 0
            self._file = file_of(self.path)
            self._seen, self._views = None, {}
            self.opened_count += 1
        self._revision = (secrets.token_hex(8), 0)

    def close(self) -> None:
        """Close the database; readers are told that it is away.

        Raises:
            StoreRefused: reports still read it. It ends with the last of them.
        """
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is None:
            return
        until = time.monotonic() + _CLOSE_TIMEOUT_S
        while True:
            for reader in list(self._readers):
                reader.interrupt()  # Closing would wait for the longest report.
            try:
                connection.close()
                return
            except duckdb.Error as error:
                # DuckDB 2 refuses while a report still ends.
                if time.monotonic() > until:
                    raise StoreRefused(first_line(error)) from error
                time.sleep(0.01)

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._connection is not None

    @property
    def revision(self) -> str:
        """Another text whenever rows may have changed. Take it before you read, so that it is never newer than that."""
        opening, load_count = self._revision
        return f"{opening}-{load_count}"

    def reader(self, scope: Mapping[str, object], *, is_brief: bool = False) -> Reader:
        """A reader with this scope.

        Args:
            scope: session variables.
            is_brief: what is asked takes milliseconds, and so no second thread: that would have this thread's priority.

        Raises:
            Unavailable: `not_ready` while the store is closed or broken.
        """
        end = time.monotonic() + _ROOM_WAIT_S_MAX
        with away_is_unavailable():
            while True:
                try:
                    return self._reader(scope, is_brief)
                except StoreTooSmall:
                    # A load has all the usual memory just now, and even to ask for more takes some.
                    if time.monotonic() >= end:
                        raise
                time.sleep(_ROOM_PAUSE_S)

    def _reader(self, scope: Mapping[str, object], is_brief: bool) -> Reader:
        with self._lock:
            if self._connection is None:
                raise Unavailable(Reason.NOT_READY, "store: is being opened. Ask again.", retry_after_s=2)
            with translated(), contextlib.ExitStack() as stack:
                self._reading_count += 1
                stack.callback(self._end_reading)  # the first, so that it is the last that ends
                cursor = stack.enter_context(contextlib.closing(self._connection.cursor()))
                cursor.execute("use store")
                # A report over all time may sort millions of rows. It spills them, but in pieces that need room.
                stack.enter_context(self._memory.more(cursor))
                stack.enter_context(self._threads.more(cursor, only_if=not is_brief))
                reader = Reader(cursor, scope, held=stack, views=self._views)
            self._readers.add(reader)
            return reader

    def _end_reading(self) -> None:
        with self._lock:
            self._reading_count -= 1

    def loaded_segments(self, *, from_number: int = 0) -> set[str]:
        """The names of the segments of these numbers whose rows are in the store."""
        with translated():
            # Names begin with the number, in twelve digits.
            loaded = "select segment from loaded_segment where segment >= $1"
            found = self._loading().execute(loaded, [f"{from_number:012d}"]).fetchall()
        return {name for (name,) in found}

    def last_segment_number(self) -> int:
        """The highest number of a loaded segment; 0 before the first."""
        with translated():
            found = self._loading().execute("select max(segment) from loaded_segment").fetchone()
        return number_of(Path(found[0])) if found and found[0] else 0

    def load(self, *segments: Segment) -> Ledger:
        """Insert the rows of segments and their names in one transaction: all or nothing, and never twice.

        A load has its price, whatever it loads: it compares the new ids with those of seven days. So segments share it.

        Args:
            segments: sealed and sound ones, in the order of their numbers.

        Raises:
            SqlUnfit, StoreRefused, StoreBroken: nothing of them is in the store.
        """
        variables = {
            "segments": described(segments),
            "segment_paths": [str(segment.path) for segment in segments],
            "line_bytes_max": max(segment.group_bytes_max for segment in segments),
            "dedup_days": self._limits.dedup_days,
        }
        try:
            ledger = self._load_with_room(segments, variables)
        except (StoreRefused, StoreBroken):
            self._move_revision()  # The commit may have taken effect all the same.
            raise
        self._move_revision()
        byte_count = sum(segment.byte_count for segment in segments)
        self._waiting_bytes += byte_count
        self._kept_bytes += byte_count
        if byte_count > WIDE_ROW_BYTES * ledger.received_count:
            self._has_wide_rows = True
        return ledger

    def _load_with_room(self, segments: Sequence[Segment], variables: Mapping[str, object]) -> Ledger:
        numbers = [segment.number for segment in segments]
        try:
            return self._load(variables, numbers)
        except StoreTooSmall:
            with translated(), self._memory.more(self._loading()):
                # What failed may have been the commit, after all was done.
                return self._ledger() if self._has(segments[0]) else self._load(variables, numbers)

    def _move_revision(self) -> None:
        opening, load_count = self._revision
        self._revision = (opening, load_count + 1)

    def _load(self, variables: Mapping[str, object], loaded: Sequence[int]) -> Ledger:
        connection = self._loading()
        with translated():
            for name, value in variables.items():
                connection.execute(f"set variable {name} = $1", [value])
            # What fails may be the commit, after all was done: then all is looked at once more.
            seen, self._seen = self._seen, None
            with transaction(connection):
                load_rows(connection)
                sum_up_late(connection, loaded)
                seen = heed_ready(connection, seen, loaded_from=min(loaded))
                # Nothing may fail behind the commit: the segments would be loaded once more.
                ledger = self._ledger()
        self._seen = seen
        return ledger

    def sum_up(self) -> bool:
        """Sum up a part of what was loaded, if much of it waits. Whether there was any.

        Raises:
            StoreRefused, StoreBroken: nothing was summed up.
        """
        for at_once in _SUMMED_AT_ONCE[:-1]:
            try:
                return self._sum_up(at_once)
            except StoreTooSmall:
                continue
        with translated(), self._memory.more(self._loading()):
            return self._sum_up(_SUMMED_AT_ONCE[-1])

    def _sum_up(self, at_once: int) -> bool:
        with translated(), transaction(self._loading()):
            row_count = sum_up(self._loading(), from_count=self._limits.summed_from_count, at_once=at_once)
        self._waiting_bytes += row_count * _SUM_BYTES
        return row_count > 0

    def derive_anew(self) -> None:
        """Leave all sums to be made anew, of the events alone, and see anew whether these need what `ready` says."""
        self._seen = None  # Before it: a commit that fails may have taken effect.
        with translated(), self._memory.more(self._loading()), transaction(self._loading()):
            forget_sums(self._loading())
            choose_form(self._loading())

    def verify(self) -> Iterator[None]:
        """Read every row, in steps of some tenths of a second: DuckDB checks a block's checksum when it reads it.

        Raises:
            StoreDamaged: the file is damaged.
            StoreRefused, StoreBroken: it could not be read to the end.
        """
        with translated(), self._memory.more(self._loading()):
            tables = "select table_name from duckdb_tables() where database_name = 'store'"
            for (table,) in self._loading().execute(tables).fetchall():
                counted = self._loading().execute(f"select count(*) from {table}").fetchone()  # noqa: S608  our own
                for start in range(0, counted[0] if counted else 0, _ROWS_VERIFIED_AT_ONCE):
                    # Every value has to be looked at, or its block is not read.
                    self._loading().execute(
                        f"select bit_xor(hash({table})) from {table} where rowid >= $1 and rowid < $2",  # noqa: S608
                        [start, start + _ROWS_VERIFIED_AT_ONCE],
                    ).fetchall()
                    yield

    def checkpoint_when_due(self) -> None:
        """Checkpoint when much has been loaded since the last: until then it waits in memory."""
        if self._waiting_bytes >= self._limits.checkpoint_bytes:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Bring everything into the one file, so that a copy of it is complete."""
        try:
            # All the memory from the beginning, where rows are wide: a checkpoint that fails breaks the database.
            with translated(), self._memory.more(self._loading(), only_if=self._has_wide_rows):
                self._loading().execute("checkpoint store")
        except StoreBroken as error:
            # Those of an earlier program: the next try, after reopening, has the memory.
            self._has_wide_rows = self._has_wide_rows or lacks_memory(error)
            raise
        self._waiting_bytes = 0
        self._renew_when_due()

    def _renew_when_due(self) -> None:
        """Attach the file anew, in milliseconds, unless somebody reads it: see `_RENEW_BYTES`.

        Raises:
            StoreBroken: it could not be attached again, and is closed.
        """
        with self._lock:
            connection = self._loading()
            if self._kept_bytes < _RENEW_BYTES or self._reading_count:
                return
            # Else attaching would make an empty one, and publishing it would replace a snapshot that has everything.
            if file_of(self.path) != self._file:
                raise StoreBroken(f"{self.path.name}: was moved or replaced while it was open")
            try:
                connection.execute("use memory")
                connection.execute("detach store")
                attach(connection, self.path)
            except duckdb.Error as error:
                # Readers are told that it is away; whoever loads opens it.
                self._connection = None
                connection.close()
                raise StoreBroken(first_line(error)) from error
            self._kept_bytes = 0

    def _has(self, segment: Segment) -> bool:
        return segment.path.name in self.loaded_segments(from_number=segment.number)

    def _ledger(self) -> Ledger:
        """Of what was loaded last."""
        row = self._loading().execute(
            "select count(*), sum(received_count), sum(accepted_count), sum(duplicate_count), sum(quarantined_count) "
            "from loaded_segment where segment in (select unnest(getvariable('segments')).name)"
        )
        return Ledger(*map(int, row.fetchone() or ()))

    def _loading(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise StoreBroken("store.duckdb: is closed")
        return self._connection

    def _config(self) -> dict[str, Any]:
        return {
            # Never by itself, see checkpoint_when_due: one that fails in a commit would break the database.
            "checkpoint_threshold": "1TB",
            "memory_limit": f"{self._limits.counted_bytes}B",
            "threads": self._limits.threads,
            "temp_directory": str(self.path.with_suffix(".spill")),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
