"""Limits on the memory and threads of the database: the usual ones, and higher ones for expensive work."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

# read_json counts a buffer of 32 MiB, however small the file is. A segment of the usual size touches 8 of them.
_UNTOUCHED_BYTES = 24 * 1_048_576


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of the store.

    `memory_bytes` is DuckDB's usual memory, `memory_bytes_max` that of the process for expensive work. `threads_max`
    applies while a report is read: two threads halve its time, and loading with one leaves a core to ingestion.
    `checkpoint_bytes` of the journal are loaded between two checkpoints. `rollup_from_count` events are rolled up
    together; until then reports read them one by one. `session_gap_minutes` is a variable of every reader.
    `quarantine_…` limit the stored conflicts, for each key and UTC day, and by free disk space.
    """

    memory_bytes: int = 64 * 1_048_576
    memory_bytes_max: int = 768 * 1_048_576
    threads: int = 1
    threads_max: int = 2
    checkpoint_bytes: int = 20 * 1_048_576
    dedup_days: int = 7
    rollup_from_count: int = 100_000
    session_gap_minutes: int = 30
    quarantine_bytes_per_day: int = 64 * 1_048_576
    quarantine_count_per_day: int = 100_000
    quarantine_free_bytes_min: int = 0

    @property
    def counted_bytes(self) -> int:
        """The usual memory limit of DuckDB, with the memory that it counts but never touches."""
        return self.memory_bytes + _UNTOUCHED_BYTES

    @property
    def counted_bytes_max(self) -> int:
        """The higher memory limit: half, because DuckDB counts neither the process nor what its allocator retains."""
        return max(self.counted_bytes, self.memory_bytes_max // 2)


class RaisableSetting:
    """A global setting of DuckDB with a usual and a higher value, which applies while any caller needs it."""

    def __init__(self, name: str, usual: str, raised: str) -> None:
        self._name = name
        self._usual_value = usual
        self._raised_value = raised
        self._raised_count = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def raised(self, connection: duckdb.DuckDBPyConnection, *, only_if: bool = True) -> Iterator[None]:
        """Raise the setting in this block, unless `only_if` is false."""
        with self._lock:
            self._raised_count += only_if
        try:
            with self._lock:
                self._set(connection)
            yield
        finally:
            # Also without a change: setting memory_limit makes DuckDB release 40 MiB of unused memory.
            with self._lock, contextlib.suppress(duckdb.Error):  # DuckDB retains memory in use
                self._raised_count -= only_if
                self._set(connection)

    def accepts(self, connection: duckdb.DuckDBPyConnection, value: str) -> bool:
        """Return whether DuckDB accepts a value, such as a lower memory limit."""
        with self._lock:
            try:
                connection.execute(f"set global {self._name} = '{value}'")
                self._set(connection)
            except duckdb.OutOfMemoryException:
                return False
        return True

    def _set(self, connection: duckdb.DuckDBPyConnection) -> None:
        value = self._raised_value if self._raised_count else self._usual_value
        connection.execute(f"set global {self._name} = '{value}'")
