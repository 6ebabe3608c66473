"""Checkpoints of the open store: when rows are in the file, and what memory and readers that takes."""

import contextlib
import time
from collections.abc import Callable, Iterator

import duckdb

from embedsink.store.duckdb_errors import StoreBroken, duckdb_errors_translated, lacks_memory
from embedsink.store.limits import RaisableSetting, StoreLimits
from embedsink.store.open_readers import INTERRUPT_TIMEOUT_S, OpenReaders

# Above this average size, the rows of a load count as wide. A checkpoint of wide rows gets more memory.
WIDE_ROW_BYTES = 2_048
# How long a checkpoint waits for readers that began before an UPDATE (sql/README.md, workarounds).
_EARLIER_READERS_S_MAX = 10.0
_POLL_INTERVAL_S = 0.02


class Checkpoints:
    """Writes what was loaded into the file. It belongs to the thread that loads.

    Args:
        get_connection: returns the connection that loads, or raises StoreBroken if the store is closed.
        readers: the open readers, which a checkpoint may have to end.
        memory: the memory limit, which a checkpoint of wide rows raises.
        limits: the limits of the store.
    """

    def __init__(
        self,
        get_connection: Callable[[], duckdb.DuckDBPyConnection],
        readers: OpenReaders,
        memory: RaisableSetting,
        limits: StoreLimits,
    ) -> None:
        self._get_connection = get_connection
        self._readers = readers
        self._memory = memory
        self._limits = limits
        self.unwritten_bytes = 0  # the size of what was added since the last checkpoint
        self.has_wide_rows = False  # whether rows are so long that checkpoints need more memory
        self._lacked_memory = False  # whether the last checkpoint lacked memory

    def add_load(self, byte_count: int, *, line_count: int) -> None:
        """Count the loaded bytes and lines of segments."""
        self.unwritten_bytes += byte_count
        if byte_count > WIDE_ROW_BYTES * line_count:
            self.has_wide_rows = True  # From now on, each checkpoint gets more memory.

    def write(self) -> None:
        """Write everything into the file.

        Raises:
            StoreRefused, StoreBroken: the checkpoint failed. After StoreBroken, open the store again.
        """
        try:
            with duckdb_errors_translated():
                self._write_beside_readers()
        except StoreBroken as error:
            self._lacked_memory = lacks_memory(error)
            if self._lacked_memory:
                # An earlier process may have loaded wide rows. The next try, after reopening, gets more memory.
                self.has_wide_rows = True
            raise
        self._lacked_memory = False
        self.unwritten_bytes = 0

    def _write_beside_readers(self) -> None:
        """Checkpoint. After an UPDATE, wait for the readers that began before it, and finally interrupt them."""
        earlier_readers = self._readers.opened()
        interrupt_at = time.monotonic() + _EARLIER_READERS_S_MAX
        while True:
            try:
                with self._enough_memory():
                    self._get_connection().execute("checkpoint store")
                return
            except duckdb.TransactionException:
                if time.monotonic() >= interrupt_at + INTERRUPT_TIMEOUT_S:
                    raise
            if time.monotonic() >= interrupt_at:
                # Interrupt again after each wait, because a reader may begin another query.
                for reader in earlier_readers:
                    reader.interrupt()
            time.sleep(_POLL_INTERVAL_S)

    @contextlib.contextmanager
    def _enough_memory(self) -> Iterator[None]:
        """Raise the memory limit in this block if rows are wide: a checkpoint that lacks memory breaks the database.

        Meanwhile, new readers wait. Open readers are ended first if the last checkpoint lacked memory, or if more than
        half of the raised limit is in use.
        """
        connection = self._get_connection()
        with contextlib.ExitStack() as stack:
            if self.has_wide_rows:
                stack.enter_context(self._readers.paused())
                half_bytes = self._limits.counted_bytes_max // 2
                # DuckDB refuses limits below the memory in use, so this shows whether half of the raised limit is free.
                may_lack_memory = self._lacked_memory or not self._memory.accepts(connection, f"{half_bytes}B")
                if may_lack_memory:
                    self._readers.end_soon()
            stack.enter_context(self._memory.raised(connection, is_needed=self.has_wide_rows))
            yield
