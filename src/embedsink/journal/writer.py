"""The journal: a durable log of accepted and quarantined envelopes in NDJSON segments.

Group commit: requests that arrive within two turns of the event loop share an fdatasync. Requests that arrive while
the fdatasync runs share the next one. A group consists of lines and a trailer line with their byte count and CRC-32.

    submit ─▶ pending ─▶ committer thread: write, fdatasync ─▶ callbacks      <number>-<random>.open
                                  └─ after a second or 8 MiB: seal           <number>-<random>-<bytes>.ndjson
"""

import asyncio
import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedsink.durable_files import is_disk_full
from embedsink.errors import Unavailable
from embedsink.journal.capacity import MEASURE_INTERVAL_S, Capacity
from embedsink.journal.limits import JournalLimits
from embedsink.journal.open_segment import OpenSegment
from embedsink.journal.recovery import Recovery, recover, recover_deferred
from embedsink.journal.segment import OPEN, SEALED, new_identity, number_of, trailer
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# An idle journal checks this often whether its folder still exists.
_IDLE_CHECK_S = 5.0
# The codes of errors for lack of a free file descriptor.
_NO_FREE_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_DISK_FULL_MESSAGE = "disk: is full. The operator must free space. Then resend."


@dataclass(slots=True)
class JournalCounters:
    """Counters since the start, for `/metrics`."""

    group_count: int = 0
    byte_count: int = 0
    sync_duration_s: float = 0.0
    segment_count: int = 0


OnDurable = Callable[[Unavailable | None], None]
"""A callback of submitted lines. It is called once, in the event loop's thread.

Its argument is None when the lines are durable, else the error.
"""

_Submission = tuple[bytes, OnDurable]
"""Submitted lines and their callback."""


class Journal:
    """A durable append-only log. An event loop submits lines; the committer thread writes them to the open segment.

    Args:
        folder: the folder of the segments; it is created if missing, else recovered.
        damaged_folder: the folder for damaged files.
        limits: see `JournalLimits`.
        after_number: the highest segment number that was used before, in case the folder was emptied.
        on_recovered: called with the results of the recovery. If the disk is full, it is called again in the committer
            thread for the rest, when there is space.
        on_sealed: called in the committer thread with the number of each sealed segment.
        on_failure: called once in the committer thread, when the disk has failed and the journal has ended.
    """

    _loop: asyncio.AbstractEventLoop  # set by start()
    _folder_descriptor: int  # set by start()

    def __init__(
        self,
        folder: Path,
        *,
        damaged_folder: Path,
        limits: JournalLimits,
        after_number: int = 0,
        on_recovered: Callable[[Recovery], None] = lambda recovery: None,
        on_sealed: Callable[[int], None] = lambda number: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.limits = limits
        self.counters = JournalCounters()
        self.failure: Exception | None = None  # why the journal has ended
        recovery = recover(folder, damaged_folder=damaged_folder, after_number=after_number)
        on_recovered(recovery)
        self.last_number = recovery.last_number  # the newest segment with durable lines
        self.capacity = Capacity(
            folder, free_bytes_min=limits.free_bytes_min, journal_bytes_max=limits.journal_bytes_max
        )
        self._damaged_folder = damaged_folder
        self._deferred = recovery.deferred  # segments that can't be recovered until the disk has space
        self._on_recovered = on_recovered
        self._on_sealed = on_sealed
        self._on_failure = on_failure
        self._next_number = self.last_number + 1
        self._segment: OpenSegment | None = None
        self._pending: deque[_Submission] = deque()
        # Each counter has one writer, so that no thread can overwrite another's update.
        self._submitted_bytes = 0
        self._committed_bytes = 0
        self._wake = threading.Event()
        self._is_wake_scheduled = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the committer thread for the running event loop."""
        self._loop = asyncio.get_running_loop()
        # Keep this descriptor open, so that a server without free descriptors can still seal.
        self._folder_descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Commit pending lines, seal the open segment and end the committer thread."""
        self._is_closing = True
        self._wake.set()
        if self._thread:
            await asyncio.to_thread(self._thread.join)

    def submit(self, lines: bytes, on_durable: OnDurable) -> None:
        """Add whole lines to the next group. The lines are durable when `on_durable` is called with None.

        If the write fails, `on_durable` is called with an error: `overloaded`, `storage_low` or `storage_failed`.

        Raises:
            Unavailable: the journal has failed (reason `storage_failed`), the server is stopping or too many bytes are
                pending (`overloaded`), or the disk or the journal is full (`storage_low`). Nothing is stored, and
                `on_durable` is not called.
        """
        self._check_limits(len(lines))
        self._submitted_bytes += len(lines)
        self._pending.append((lines, on_durable))
        if not self._is_wake_scheduled:
            # Wake the committer at the end of the loop's next turn, hence two calls. A committer woken now would take
            # one line, and compete for the interpreter with the callbacks that follow (docs/decisions/0006).
            self._is_wake_scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._wake_committer)

    def append(self, lines: bytes) -> "asyncio.Future[None]":
        """Submit lines. Return a future that completes when the lines are durable, or raises Unavailable.

        Raises:
            Unavailable: the journal does not accept the lines.
        """
        return as_future(lambda on_durable: self.submit(lines, on_durable))

    @property
    def is_recovered(self) -> bool:
        """Whether all segments of earlier runs are sealed. On a full disk, some can't be recovered yet."""
        return not self._deferred

    def segments(self) -> list[Path]:
        """Return the paths of the sealed segments, oldest first."""
        return [path for path in sorted(self.folder.glob(f"*{SEALED}")) if number_of(path) and path.is_file()]

    def _wake_committer(self) -> None:
        """Wake the committer thread. Later submissions schedule this again."""
        self._is_wake_scheduled = False
        self._wake.set()

    def _check_limits(self, byte_count: int) -> None:
        """Raise Unavailable if the journal has failed, is closing, or has no space for these bytes."""
        if self.failure is not None:
            raise self._failure_error()
        if self._is_closing:
            raise Unavailable(Reason.OVERLOADED, "server: is stopping. Wait, then resend.", retry_after_s=5)
        pending_bytes = self._submitted_bytes - self._committed_bytes
        if pending_bytes + byte_count > self.limits.pending_bytes_max:
            raise Unavailable(Reason.OVERLOADED)
        if self.capacity.refusal:
            raise Unavailable(Reason.STORAGE_LOW, self.capacity.refusal, retry_after_s=10)

    def _run(self) -> None:
        """Run the committer thread."""
        try:
            self._commit_until_closed()
        except Exception as error:
            # Log every error: a thread that ends silently would look idle.
            log.error("bug", exc_info=error)
            self._fail(error)
        if self.failure is not None:
            # Run this in the loop's thread, so that no lines can be submitted after it and wait forever.
            self._call_soon(self._fail_pending)
        if self._segment:
            self._segment.close()  # The segment could not be sealed. The next start seals it.
        os.close(self._folder_descriptor)

    def _commit_until_closed(self) -> None:
        """Commit a group whenever lines are submitted, until the journal is closed or fails."""
        is_last = False
        self._check_disk()  # before the first wait, so that a full disk refuses lines from the start
        while self.failure is None and not is_last:
            self._wake.wait(self._seconds_to_wait())
            self._wake.clear()
            # Read this before taking the last group, so that the group has all lines submitted before `close`.
            is_last = self._is_closing
            self._check_disk()
            if self.failure is None:
                self._commit(self._take_pending())
            if self.failure is None:
                self._seal_when_due(is_closing=is_last)

    def _check_disk(self) -> None:
        """Measure the free space when due, and recover deferred segments if there is space.

        On a disk error, end the journal.
        """
        open_bytes = self._segment.durable_bytes if self._segment else 0
        try:
            self.capacity.measure_when_due(open_bytes=open_bytes)
            if self._deferred and not self.capacity.refusal:
                self._recover_deferred()
        except OSError as error:
            self._fail(error)

    def _recover_deferred(self) -> None:
        """Recover the segments for which the disk had no space at the start."""
        recovery = recover_deferred(self._deferred, damaged_folder=self._damaged_folder)
        self._deferred = recovery.deferred
        self._on_recovered(recovery)
        for path in recovery.sealed:
            self.capacity.add(path.stat().st_size)
            self._on_sealed(number_of(path))
        if self._deferred:
            self.capacity.refuse(_DISK_FULL_MESSAGE)

    def _take_pending(self) -> list[_Submission]:
        """Remove the pending submissions, and return them."""
        # Pop one by one: if the deque were replaced, a concurrent append could be lost.
        group = []
        while self._pending:
            group.append(self._pending.popleft())
        return group

    def _commit(self, group: Sequence[_Submission]) -> None:
        """Commit a group unless it is empty. After a bug, the group is pending again: `_fail_pending` answers it."""
        if not group:
            return
        try:
            self._commit_lines(group)
        except Exception:
            self._pending.extendleft(reversed(group))
            raise

    def _commit_lines(self, group: Sequence[_Submission]) -> None:
        """Write the lines of a group durably, and schedule the callbacks."""
        lines = b"".join([lines for lines, _ in group])
        failure = self._write_durably(lines + trailer(lines))
        if lines and failure is None and self._segment:  # The probes of `/readyz` have no lines.
            self._segment.has_lines = True
            # The open segment has the number `_next_number`. Set this before the callbacks, which may read it.
            self.last_number = self._next_number
        self._committed_bytes += len(lines)  # after a failure too: these bytes are no longer pending
        # Answer only after the fsync: a 202 promises that the event survives power loss.
        self._call_soon(_answer, group, failure)

    def _write_durably(self, group: bytes) -> Unavailable | None:
        """Write and sync a group. Return None if the group is durable, else the error for its submissions."""
        try:
            if self._segment is None:
                self._segment = self._open_segment()
            self._segment.write(group)
        except OSError as error:
            if is_disk_full(error):
                is_undone = self._undo_write()
                if is_undone:
                    return Unavailable(Reason.STORAGE_LOW, retry_after_s=10)
            if error.errno in _NO_FREE_DESCRIPTOR:  # No segment could be opened, so nothing was written.
                return Unavailable(Reason.OVERLOADED, "server: has no free file descriptor. Wait, then resend.")
            return self._fail(error)
        started_at = time.perf_counter()
        try:
            self._segment.sync()
        except OSError as error:
            # End the journal: a second fsync could succeed without writing, because the kernel drops the dirty flag.
            return self._fail(error)
        self.counters.sync_duration_s += time.perf_counter() - started_at
        self.counters.group_count += 1
        self.counters.byte_count += len(group)
        return None

    def _open_segment(self) -> OpenSegment:
        """Create the file of a new segment.

        A segment without lines is deleted, and the next segment reuses that number. So a gap in the numbers means a
        loss.
        """
        segment = OpenSegment(self.folder / f"{new_identity(self._next_number)}{OPEN}")
        try:
            self._sync_folder()
        except OSError:
            segment.seal()  # Delete the segment (it has no lines), because its name may not be durable.
            raise
        return segment

    def _undo_write(self) -> bool:
        """Undo a write for which the disk had no space, and refuse appends. Return whether the undo succeeded."""
        try:
            if self._segment:
                self._segment.undo_write()
        except OSError:
            return False  # The caller ends the journal.
        self.capacity.refuse(_DISK_FULL_MESSAGE)
        return True

    def _seconds_to_wait(self) -> float:
        """Return how many seconds the committer thread may wait for lines before it has other work."""
        if self.capacity.refusal:
            return MEASURE_INTERVAL_S  # The disk is full: measure soon whether it has space again.
        if self._segment is None or not self._segment.has_lines:
            return _IDLE_CHECK_S
        # The open segment is sealed at this age.
        return max(0.0, self._segment.opened_at + self.limits.segment_seal_s - time.monotonic())

    def _seal_when_due(self, *, is_closing: bool) -> None:
        """Seal the open segment if it is old or large enough, or if the journal is closing."""
        segment = self._segment
        if segment is None:
            return
        # A segment without lines has only probes of `/readyz`. Its age does not matter, but its size is limited.
        is_old = segment.has_lines and time.monotonic() >= segment.opened_at + self.limits.segment_seal_s
        is_large = segment.durable_bytes >= self.limits.segment_bytes_max
        if is_old or is_large or is_closing:
            self._seal(segment)

    def _seal(self, segment: OpenSegment) -> None:
        """Seal the open segment durably, and report its number. On a disk error, end the journal."""
        try:
            segment.seal()
            self._segment = None
            self._sync_folder()
        except OSError as error:
            is_still_open = self._segment is not None  # `seal` failed, not the sync of the folder.
            if is_disk_full(error) and is_still_open:
                # The new name needs disk space too. The segment stays open until the disk has space.
                self.capacity.refuse(_DISK_FULL_MESSAGE)
            else:
                self._fail(error)
            return
        if segment.has_lines:
            self._next_number += 1
            self.capacity.add(segment.durable_bytes)
            self.counters.segment_count += 1
            self._on_sealed(number_of(segment.path))

    def _sync_folder(self) -> None:
        os.fsync(self._folder_descriptor)

    def _fail(self, error: Exception) -> Unavailable:
        """End the journal. Return the error for the senders of lines that are not durable."""
        self.failure = error
        log.error("journal_failed", extra={"detail": str(error) or type(error).__name__})
        # The last group may be in the file, but its senders get an error and resend. Remove the group: the next start
        # would load it too, and only events with an id are deduplicated. A failed disk may refuse the truncation.
        with contextlib.suppress(OSError):
            if self._segment:
                self._segment.undo_write()
        self._on_failure()
        return self._failure_error()

    def _failure_error(self) -> Unavailable:
        return Unavailable(Reason.STORAGE_FAILED, f"journal: {self.failure}. The server is stopping.", retry_after_s=5)

    def _fail_pending(self) -> None:
        """Answer all pending submissions with the failure of the journal."""
        _answer(self._take_pending(), self._failure_error())

    def _call_soon(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop's thread. If the loop is closed, no requests are left to answer."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)


def as_future(submit: Callable[[OnDurable], None]) -> "asyncio.Future[None]":
    """Call `submit` with a callback, and return a future of the running event loop that the callback completes."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_durable(failure: Unavailable | None) -> None:
        if future.done():
            return  # The waiter was cancelled.
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    submit(on_durable)
    return future


def _answer(group: Sequence[_Submission], failure: Unavailable | None) -> None:
    """Call each callback of a group. A bug in a callback does not affect the rest."""
    for _, on_durable in group:
        try:
            on_durable(failure)
        except Exception as error:
            log.error("bug", exc_info=error)
