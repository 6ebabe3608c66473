"""The limits of the store. Memory and threads have a usual limit, and a higher one for expensive work."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

# DuckDB's read_json reserves a buffer of 32 MiB, of which a segment of the usual size uses 8 MiB.
_UNUSED_BUFFER_BYTES = 24 * 1_048_576


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The limits of the store. The defaults are those of the settings.

    Args:
        memory_bytes: DuckDB's usual memory limit.
        memory_bytes_max: the maximum memory of the process during expensive work.
        threads: DuckDB's usual number of threads. Loading with one thread leaves a core to ingest.
        threads_max: the number of threads while a report is read.
        checkpoint_bytes: the size of the segments and rollups that are added between two checkpoints.
        dedup_days: how long an id is compared with those of new events.
        rollup_from_count: the minimum number of events in a rollup batch. Until then, reports read the events.
        session_gap_minutes: the variable of this name, for every reader.
        viewer_attribute: the attribute of the directory's users that joins viewers (macro `viewer_of`).
        quarantine_bytes_per_day: the maximum size of the id conflicts stored for each key and UTC day.
        quarantine_count_per_day: the maximum number of these conflicts.
        quarantine_free_bytes_min: the free disk space below which conflicts are only counted.
    """

    memory_bytes: int = 64 * 1_048_576
    memory_bytes_max: int = 768 * 1_048_576
    threads: int = 1
    threads_max: int = 2
    checkpoint_bytes: int = 20 * 1_048_576
    dedup_days: int = 7
    rollup_from_count: int = 100_000
    session_gap_minutes: int = 30
    viewer_attribute: str = "externalId"
    quarantine_bytes_per_day: int = 64 * 1_048_576
    quarantine_count_per_day: int = 100_000
    quarantine_free_bytes_min: int = 64 * 1_048_576

    @property
    def counted_bytes(self) -> int:
        """DuckDB's usual memory limit: `memory_bytes`, and the part of a buffer that DuckDB counts but never uses."""
        return self.memory_bytes + _UNUSED_BUFFER_BYTES

    @property
    def counted_bytes_max(self) -> int:
        """The value of DuckDB's raised memory limit, for expensive work. It is never below the usual limit.

        It is half of the process's memory, because DuckDB does not count the rest of the process, nor the freed memory
        that its allocator retains.
        """
        return max(self.counted_bytes, self.memory_bytes_max // 2)


class RaisableSetting:
    """A global setting of DuckDB with a usual and a raised value. The raised one applies while a caller needs it."""

    def __init__(self, name: str, usual: str, raised: str) -> None:
        self._name = name
        self._usual_value = usual
        self._raised_value = raised
        self._raised_count = 0  # the callers that need the raised value at the moment
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def raised(self, connection: duckdb.DuckDBPyConnection, *, is_needed: bool = True) -> Iterator[None]:
        """Raise the setting in this block. Several blocks may do so at the same time; the last one to end lowers it.

        If `is_needed` is false, only set the current value again, so that DuckDB releases unused memory.
        """
        added_count = 1 if is_needed else 0
        with self._lock:
            self._raised_count += added_count
        try:
            with self._lock:
                self._apply(connection)
            yield
        finally:
            # Set the value even if it has not changed, because DuckDB then releases 40 MiB of unused memory. DuckDB
            # refuses the usual limit while it uses more. In that case, a later block lowers the limit.
            with self._lock, contextlib.suppress(duckdb.Error):
                self._raised_count -= added_count
                self._apply(connection)

    def accepts(self, connection: duckdb.DuckDBPyConnection, value: str) -> bool:
        """Try a value, and return whether DuckDB accepts it, such as a limit above the memory in use."""
        with self._lock:
            try:
                connection.execute(f"set global {self._name} = '{value}'")
                self._apply(connection)  # Restore the old value.
            except duckdb.OutOfMemoryException:
                return False
        return True

    def _apply(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Set the raised value if a caller needs it, else the usual one."""
        value = self._raised_value if self._raised_count else self._usual_value
        connection.execute(f"set global {self._name} = '{value}'")
