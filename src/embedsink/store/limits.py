"""How much memory and how many threads the database may take: as a rule, and while somebody needs more."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

# read_json counts a buffer of 32 MiB, however small the file is. A segment of the usual size touches 8 of them.
_UNTOUCHED_BYTES = 24 * 1_048_576


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """DuckDB's memory as a rule, the program's where more is needed, threads, and how long ids are known.

    `threads_max` is while a report is read: two of them halve its time, and loading alone leaves a core to receiving.
    `checkpoint_bytes` is how much of the journal waits in memory for the next checkpoint. `summed_from_count` events
    have to wait before they are summed up; until then reports read them one by one. `session_gap_minutes` is a variable
    of every reader. `quarantine_…` limit what a load keeps of conflicts, for each key and UTC day, and on the disk.
    """

    memory_bytes: int = 64 * 1_048_576
    memory_bytes_max: int = 768 * 1_048_576
    threads: int = 1
    threads_max: int = 2
    checkpoint_bytes: int = 20 * 1_048_576
    dedup_days: int = 7
    summed_from_count: int = 100_000
    session_gap_minutes: int = 30
    quarantine_bytes_per_day: int = 64 * 1_048_576
    quarantine_count_per_day: int = 100_000
    quarantine_free_bytes_min: int = 0

    @property
    def counted_bytes(self) -> int:
        """What DuckDB may count as a rule: what it counts and never touches comes on top."""
        return self.memory_bytes + _UNTOUCHED_BYTES

    @property
    def counted_bytes_max(self) -> int:
        """What DuckDB may count: half, since it leaves out the program, and what its allocator holds back."""
        return max(self.counted_bytes, self.memory_bytes_max // 2)


class Raised:
    """A setting of all of DuckDB: more while anybody needs it, such as a step that has to hold 2,048 huge strings."""

    def __init__(self, name: str, usual: str, most: str) -> None:
        self._name = name
        self._usual = usual
        self._most = most
        self._needing_count = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def more(self, connection: duckdb.DuckDBPyConnection, *, only_if: bool = True) -> Iterator[None]:
        with self._lock:
            self._needing_count += only_if
        try:
            with self._lock:
                self._set(connection)
            yield
        finally:
            # Also where it is what it was: a memory_limit makes DuckDB give back what it holds for nothing, 40 MiB.
            with self._lock, contextlib.suppress(duckdb.Error):  # It keeps what it still needs.
                self._needing_count -= only_if
                self._set(connection)

    def can_be(self, connection: duckdb.DuckDBPyConnection, value: str) -> bool:
        """Return whether DuckDB can do with a value, such as a limit below what it may have now."""
        with self._lock:
            try:
                connection.execute(f"set global {self._name} = '{value}'")
                self._set(connection)
            except duckdb.OutOfMemoryException:
                return False
        return True

    def _set(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"set global {self._name} = '{self._most if self._needing_count else self._usual}'")
