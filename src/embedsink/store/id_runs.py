"""Sorted hashes of the ids of stored envelopes, which limit the ids that a load reads (docs/decisions/0035).

A run has the hashes of the ids in a range of `ingest_seq`. The runs cover one range after another, from the start of
the deduplication window on. Envelopes after the last run are compared one by one, and so are those in a run with a hash
of the load. So a hash never decides whether an id is a duplicate.
"""

import logging
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import duckdb

from embedsink.durable_files import free_bytes
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

if TYPE_CHECKING:  # numpy takes 12 MiB of memory, so that small stores do without it.
    from numpy import uint64
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

# The number of envelopes of a kind in a run. DuckDB reads the ids of as many in 10 ms.
RUN_ROWS = 524_288
# Greater than every ingest_seq.
_END = (1 << 63) - 1
# A run is added only with this free disk space. Below the minimum, all runs are deleted: ingest needs the space.
FREE_BYTES_TO_ADD = 256 * 1_048_576
FREE_BYTES_MIN = 64 * 1_048_576


@dataclass(frozen=True, slots=True)
class _Run:
    """The sorted hashes of the ids with start <= ingest_seq < end.

    Args:
        start: the first ingest_seq.
        end: the ingest_seq after the last one.
        offset: the position of the hashes in the file, in bytes.
        byte_count: their size in bytes.
    """

    start: int
    end: int
    offset: int
    byte_count: int


class IdRuns:
    """The runs of an open store. They belong to the thread that loads.

    The hashes are in a file without a name, which ends with the process. So no file can be older than the store.

    Args:
        folder: the folder on whose disk the file is.
        rows: the number of envelopes of a kind in a run.
    """

    def __init__(self, folder: Path, *, rows: int = RUN_ROWS) -> None:
        self._folder = folder
        self._rows = rows
        self._runs: list[_Run] = []  # in the order of ingest_seq, without gaps
        self._file: IO[bytes] | None = None

    def clear(self) -> None:
        """Forget all runs, because the store is closed or has other rows."""
        self._runs = []
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def exist(self) -> bool:
        """Whether there is a file of runs."""
        return self._file is not None

    def clear_if_disk_is_low(self) -> None:
        """Delete all runs if less than `FREE_BYTES_MIN` is free. Loads then read all ids."""
        if self._file is not None and free_bytes(self._folder) < FREE_BYTES_MIN:
            log.warning(
                "id_runs_deleted", extra={"detail": "store: the disk is low on space. Loads read all ids instead"}
            )
            self.clear()

    def forget_from(self, ingest_seq: int) -> None:
        """Forget the runs with this `ingest_seq` or a later one. Call this before rows from there on are inserted."""
        self._runs = [run for run in self._runs if run.end <= ingest_seq]

    def add(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Add a run of the oldest envelopes after the last run, and forget the runs before the deduplication window.

        Args:
            connection: a connection to the store, outside a transaction, which has loaded segments.

        Returns:
            Whether a run was added. Otherwise there are too few envelopes, the disk is low on space, or nothing was
            loaded yet.

        Raises:
            OSError: the file can't be written or mapped, and no runs remain.
        """
        [(window_from,)] = connection.execute("select getvariable('dedup_window_from')::bigint").fetchall()
        if window_from is None or free_bytes(self._folder) < FREE_BYTES_TO_ADD:
            return False
        self._runs = [run for run in self._runs if run.end > window_from]
        start = self._runs[-1].end if self._runs else window_from
        sql = read_sql("deduplication")
        set_variables(connection, {"run_from": start, "run_rows": self._rows})
        [(end,)] = connection.execute(sql["run_end"]).fetchall()
        if end is None:
            return False
        set_variables(connection, {"run_end": end})
        hashes = _sorted_hashes(connection, sql["run_hash"])
        try:
            run = _Run(start, end, self._write(hashes.data.cast("B")), hashes.nbytes)
            self._may_contain(run, hashes[:1])  # Some file systems can't map files.
        except OSError:
            self.clear()
            raise
        self._runs.append(run)
        return True

    def ranges_to_compare(self, connection: duckdb.DuckDBPyConnection, compared_from: int) -> list[tuple[int, int]]:
        """Return the ranges of `ingest_seq` that may have an id of the table `compared_id`: each one's start and end.

        Args:
            connection: a connection to the store, in the transaction that loads.
            compared_from: the first `ingest_seq` to compare with.
        """
        if not self._runs:
            return [(compared_from, _END)]
        hashes = _sorted_hashes(connection, "select id_hash_of(id) as hash from compared_id")
        try:
            runs = [run for run in self._runs if run.end > compared_from and self._may_contain(run, hashes)]
        except OSError as error:  # The process may have no memory for the mapping.
            log.warning("id_runs_unreadable", extra={"detail": f"store: {error}. Loads read all ids instead"})
            self.clear()
            return [(compared_from, _END)]
        before, after = (0, self._runs[0].start), (self._runs[-1].end, _END)
        ranges = [before, *((run.start, run.end) for run in runs), after]
        return [(max(start, compared_from), end) for start, end in ranges if end > compared_from]

    def _may_contain(self, run: _Run, hashes: "NDArray[uint64]") -> bool:
        """Return whether a run has one of these hashes, which are sorted."""
        import numpy

        # The mapping ends with this call. So the pages don't count as memory of the process between two loads.
        mapping = mmap.mmap(self._file_descriptor(), run.byte_count, offset=run.offset, access=mmap.ACCESS_READ)
        stored = numpy.frombuffer(mapping, numpy.uint64)
        return bool((stored.take(stored.searchsorted(hashes), mode="clip") == hashes).any())

    def _write(self, content: memoryview) -> int:
        """Write the hashes of a run into a free part of the file. Return its offset in bytes."""
        offset = 0
        for run in sorted(self._runs, key=lambda run: run.offset):
            if offset + len(content) <= run.offset:
                break
            offset = -(-(run.offset + run.byte_count) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        written = 0
        while written < len(content):
            written += os.pwrite(self._file_descriptor(), content[written:], offset + written)
        return offset

    def _file_descriptor(self) -> int:
        """Return the descriptor of the file, which is created first."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  `clear` closes it
        return self._file.fileno()


def _sorted_hashes(connection: duckdb.DuckDBPyConnection, sql: str) -> "NDArray[uint64]":
    """Return the column `hash` of a query, sorted."""
    hashes = cast("NDArray[uint64]", connection.execute(sql).fetchnumpy()["hash"])
    hashes.sort()
    return hashes
