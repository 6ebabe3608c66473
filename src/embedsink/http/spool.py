"""Spool files: a report is written completely to a temporary file before its first byte is sent.

So a slow client neither keeps a transaction of the store open nor occupies a slot for reports. A report is stopped
before it uses the disk space that the journal needs.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from io import FileIO
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, Any, TypeVar

from embedsink.durable_files import free_bytes
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.execute import OpenReader, interrupt_and_wait, query_timeout
from embedsink.reasons import Reason
from embedsink.store.reader import Reader

# A file beyond this size moves from memory to the disk.
SPOOLED_BYTES_MAX = 1_048_576
# While the disk is almost full, responses up to this size are written to memory.
IN_MEMORY_BYTES_MAX = 8 * 1_048_576
SPACE_CHECK_INTERVAL_S = 0.25
# Reports may write this much between two checks, in addition to the space that the journal needs.
RESERVED_BYTES = 128 * 1_048_576
_ALMOST_FULL = "is almost full"

T = TypeVar("T")


async def spool_query(
    engine: Engine,
    open_reader: OpenReader,
    write: Callable[[Reader, "SpoolFile"], T],
    *,
    key_id: str,
) -> tuple[IO[bytes], T]:
    """Run a query that writes to a spool file, in one transaction. Return the file, and the result of `write`.

    On a full disk, responses of up to `IN_MEMORY_BYTES_MAX` still succeed.

    Args:
        engine: the open data folder.
        open_reader: opens the reader, usually one of the store.
        write: the function to call in a thread.
        key_id: the key whose share of slots is used.

    Raises:
        Unavailable: too many queries wait or the query exceeds the time limit (`overloaded`), the store is not open
            (`not_ready`), or the disk is almost full (`storage_low`).
    """
    async with engine.limiters.reports.slot(key_id), query_timeout(engine):
        query = _SpooledQuery(engine, open_reader)
        running = asyncio.get_running_loop().run_in_executor(engine.reader_threads, query.run, write)
        try:
            while not await _has_ended_within(running, SPACE_CHECK_INTERVAL_S):
                if query.lacks_file_space() or query.is_spilling_without_space():
                    query.interrupt()
        except asyncio.CancelledError:
            await interrupt_and_wait(running, query.interrupt)
            query.file.close()
            raise
        result = await running
        # The file may have grown since the last check.
        if query.lacks_file_space():
            query.file.close()
            raise _no_space_error(_ALMOST_FULL)
        return query.file, result


async def _has_ended_within(running: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait for a task, at most for the timeout. Return whether the task has ended."""
    done, _ = await asyncio.wait({running}, timeout=timeout_s)
    return bool(done)


class _SpooledQuery:
    """A query, and the unnamed file to which the query writes."""

    def __init__(self, engine: Engine, open_reader: OpenReader) -> None:
        self._engine = engine
        self._open_reader = open_reader
        self._reader: Reader | None = None
        self.file: SpoolFile
        # An almost full disk is left to the journal. Some systems, such as macOS, have no files in memory.
        if self._is_disk_almost_full() and hasattr(os, "memfd_create"):
            self.file = _MemoryFile(os.memfd_create("report"), "w+")
        else:
            self.file = _DiskFile(engine.folder.path)

    def run(self, write: Callable[[Reader, "SpoolFile"], T]) -> T:
        """Run the query in this thread, and return the result of `write`. After a failure, close the file.

        Raises:
            Unavailable: the store is not open (`not_ready`), or the disk has no space (`storage_low`).
        """
        try:
            with self._open_reader() as reader, reader.consistent():
                self._reader = reader
                return write(reader, self.file)
        except OSError as error:
            self.file.close()
            raise _no_space_error(str(error.strerror)) from error
        except BaseException as error:
            self.file.close()
            # `interrupt` ended the query, because the disk is almost full or because the request was cancelled.
            # After a cancellation, `interrupt_and_wait` ignores this error.
            if self.file.refuses_writes:
                raise _no_space_error(_ALMOST_FULL) from error
            raise

    def lacks_file_space(self) -> bool:
        """Return whether a `_MemoryFile` exceeds its limit, or a `_DiskFile` takes space of an almost full disk."""
        if isinstance(self.file, _MemoryFile):
            return self.file.byte_count > IN_MEMORY_BYTES_MAX
        # Up to this size, a `_DiskFile` usually takes no space of the disk: it begins in memory.
        return self.file.byte_count > SPOOLED_BYTES_MAX and self._is_disk_almost_full()

    def is_spilling_without_space(self) -> bool:
        """Return whether queries write intermediate results to a disk on which the journal will soon refuse events."""
        return self._engine.store.is_spilling and self._is_disk_almost_full()

    def interrupt(self) -> None:
        """Refuse all further writes to the file, and interrupt the query."""
        self.file.refuses_writes = True
        if self._reader is not None:
            self._reader.interrupt()

    def _is_disk_almost_full(self) -> bool:
        """Return whether reports could soon use the disk space that the journal needs."""
        return free_bytes(self._engine.folder.path) < self._engine.settings.free_bytes_min + RESERVED_BYTES


class _DiskFile(SpooledTemporaryFile[bytes]):
    """A file that begins in memory. It moves to the disk when it grows or when DuckDB writes to it."""

    refuses_writes = False
    _is_on_disk = False

    def __init__(self, folder: Path) -> None:
        super().__init__(SPOOLED_BYTES_MAX, dir=str(folder))
        self._folder = folder

    def open_scratch(self) -> IO[bytes]:
        """Open a second temporary file on the disk, which the Arrow format needs."""
        return TemporaryFile(dir=self._folder)

    @property
    def byte_count(self) -> int:
        """The size on the disk; 0 while the file is in memory."""
        # Calling `fileno` earlier would move the file to the disk.
        return _file_bytes(self) if self._is_on_disk else 0

    def rollover(self) -> None:
        """Move the file to the disk."""
        super().rollover()
        self._is_on_disk = True

    def write(self, chunk: Any) -> int:
        """Write a chunk, unless the query was interrupted."""
        # The disk is almost full, or the request was cancelled and this error is ignored.
        if self.refuses_writes:
            raise OSError(errno.ENOSPC, _ALMOST_FULL)
        return super().write(chunk)

    def writelines(self, chunks: Iterable[Any]) -> None:
        """Write chunks, unless the query was interrupted. The inherited method would bypass `write`."""
        for chunk in chunks:
            self.write(chunk)


class _MemoryFile(FileIO):
    """A file in memory with a descriptor, so that DuckDB can write to it."""

    refuses_writes = False
    _scratch: "_MemoryFile | None" = None

    def open_scratch(self) -> "_MemoryFile":
        """Open a second temporary file, which the Arrow format needs. Its size counts as a part of this file."""
        self._scratch = _MemoryFile(os.memfd_create("scratch"), "w+")
        return self._scratch

    @property
    def byte_count(self) -> int:
        """The size in memory, including the file of `open_scratch`."""
        scratch_bytes = 0 if self._scratch is None else self._scratch.byte_count
        return _file_bytes(self) + scratch_bytes

    def write(self, chunk: Any) -> int:
        """Write a chunk, unless the query was interrupted or the file would be too large for memory."""
        if self.refuses_writes or self.tell() + len(chunk) > IN_MEMORY_BYTES_MAX:
            # The server uses files in memory only while the disk is almost full, so that is the cause.
            raise OSError(errno.ENOSPC, _ALMOST_FULL)
        return super().write(chunk)


SpoolFile = _MemoryFile | _DiskFile


def _file_bytes(file: SpoolFile) -> int:
    """Return the size of an open file, or 0: the thread of the query may close the file at any time."""
    try:
        return os.fstat(file.fileno()).st_size
    except (ValueError, OSError):
        return 0


def _no_space_error(cause: str) -> Unavailable:
    """Return the error of a report for which the disk has no space."""
    detail = f"disk: {cause}. The server writes reports to it before it sends them. Request fewer rows, or retry later."
    return Unavailable(Reason.STORAGE_LOW, detail, retry_after_s=5)
