"""The journal: the durable list of everything accepted or quarantined, in NDJSON segments.

Requests of two turns of the event loop, and those that arrive while an fsync runs, share the next one (group commit).
A group is its lines and a trailer line with their byte count and CRC-32; after one write and one fdatasync, all its
waiters are told at once.
The journal knows bytes, not fields.

    append ─▶ pending ─▶ committer thread: write, fdatasync ─▶ waiters        <number>-<random>.open
                                  └─ after a second or 8 MiB: seal           <number>-<random>-<bytes>.ndjson
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedsink.durable_files import rename_new
from embedsink.errors import Unavailable
from embedsink.journal.capacity import MEASURE_EVERY_S, NO_DESCRIPTOR, Capacity
from embedsink.journal.recovery import DISK_FULL, Recovery, recover, recover_left
from embedsink.journal.segment import OPEN, SEALED, number_of, sealed_name, trailer
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# An idle journal looks so often whether its folder is still there.
_LOOK_EVERY_S = 5.0
_FULL = "disk: is full. The operator has to make room; then resend."


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """Bytes and seconds; the settings of the same names say what they are for."""

    segment_seal_s: float = 1.0
    segment_bytes_max: int = 8 * 1_048_576
    pending_bytes_max: int = 32 * 1_048_576
    journal_bytes_max: int = 4_096 * 1_048_576
    free_bytes_min: int = 8 * 1_048_576


@dataclass(slots=True)
class JournalCounters:
    """What the journal did since the start, for `/metrics`."""

    group_count: int = 0
    byte_count: int = 0
    sync_duration_s: float = 0.0
    segment_count: int = 0


OnDurable = Callable[[Unavailable | None], None]
"""Told once, in the event loop's thread: None when the lines are durable, or why nothing of them is kept."""

Waiter = tuple[bytes, OnDurable]


class Journal:
    """Appends durably. One committer thread owns the open segment; one event loop appends.

    Args:
        folder: where the segments lie; it is made if missing, and recovered if not.
        damaged: where recovery keeps what it had to cut off or set aside.
        limits: see `JournalLimits`.
        after_number: the highest segment number that a store knows: the folder may have been emptied since.
        on_sealed: called in the committer thread with the number of each segment that was sealed.
        on_failed: called in the committer thread once, when the disk failed and the journal has ended.
    """

    _loop: asyncio.AbstractEventLoop  # from start() on
    _folder_descriptor: int  # from start() on

    def __init__(
        self,
        folder: Path,
        *,
        damaged: Path,
        limits: JournalLimits = JournalLimits(),
        after_number: int = 0,
        on_sealed: Callable[[int], None] = lambda number: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.limits = limits
        self.counters = JournalCounters()
        self.failed: Exception | None = None
        self.recovery: Recovery = recover(folder, damaged=damaged, after_number=after_number)
        self._damaged = damaged
        self._on_sealed = on_sealed
        self._on_failed = on_failed
        self.last_number = self.recovery.last_number  # of a segment that holds durable lines
        self._next_number = self.last_number + 1
        self._segment: _OpenSegment | None = None
        self.space = Capacity(folder, free_bytes_min=limits.free_bytes_min, journal_bytes_max=limits.journal_bytes_max)
        self._pending: deque[Waiter] = deque()
        # Two counters with one writer each, so that neither thread can lose the other's sum.
        self._appended_bytes = 0
        self._settled_bytes = 0
        self._wake = threading.Event()
        self._is_waking = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to commit, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        # Held open, so that a server without descriptors left can still seal.
        self._folder_descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Commit what is pending and seal the open segment."""
        self._closing = True
        self._wake.set()
        if self._thread:
            await asyncio.to_thread(self._thread.join)

    def submit(self, lines: bytes, on_durable: OnDurable) -> None:
        """Whole lines, to be made durable with the next group. Promise nothing before `on_durable` is told.

        Raises:
            Unavailable: `overloaded`, `storage_low` or `storage_failed`; nothing is kept of the lines, and
                `on_durable` is never called. It is told the same when the write itself fails.
        """
        self._refuse_when_full(len(lines))
        self._appended_bytes += len(lines)
        self._pending.append((lines, on_durable))
        if not self._is_waking:
            # A turn of the loop later. Woken now, the committer would take one line and fight for the interpreter with
            # every callback that follows; at the end of this turn, with those of the next (docs/decisions/0006).
            self._is_waking = True
            self._loop.call_soon(self._loop.call_soon, self._wake_committer)

    def append(self, lines: bytes) -> "asyncio.Future[None]":
        """`submit`, for those who can wait: the future ends when the lines are durable, or raises what `submit` does.

        Raises:
            Unavailable: nothing is kept of the lines.
        """
        return wait_for(lambda on_durable: self.submit(lines, on_durable))

    def segments(self) -> list[Path]:
        """The sealed segments, oldest first."""
        return [path for path in sorted(self.folder.glob(f"*{SEALED}")) if number_of(path) and path.is_file()]

    def _wake_committer(self) -> None:
        self._is_waking = False
        self._wake.set()

    def _refuse_when_full(self, byte_count: int) -> None:
        if self.failed is not None or self._closing:
            ended = "journal: has ended. Wait for the server's restart."
            raise Unavailable(Reason.STORAGE_FAILED, ended, retry_after_s=5)
        if self._appended_bytes - self._settled_bytes + byte_count > self.limits.pending_bytes_max:
            raise Unavailable(Reason.OVERLOADED)
        if self.space.refusal:
            raise Unavailable(Reason.STORAGE_LOW, self.space.refusal, retry_after_s=10)

    def _work(self) -> None:
        try:
            self._commit_until_closed()
        except Exception as error:
            # Whatever it was: a thread that ended unseen would look like one that has nothing to do.
            log.error("bug", exc_info=error)
            self._fail(error)
        if self.failed is not None:
            # In the loop's thread, so that no append can slip in behind it and wait for ever.
            self._call_soon(self._fail_pending)
        if self._segment:
            self._segment.close()  # It could not be sealed: the next start does.
        os.close(self._folder_descriptor)

    def _commit_until_closed(self) -> None:
        is_last = False
        self._look_at_disk()
        while self.failed is None and not is_last:
            self._wake.wait(self._seconds_to_wait())
            self._wake.clear()
            # Asked before the last group is taken: what was appended before the closing is in it.
            is_last = self._closing
            if self._look_at_disk() and (group := self._take_pending()):
                self._commit(group)
            self._seal_when_due(is_closing=is_last)

    def _look_at_disk(self) -> bool:
        """Measure the room when that is due; whether the folder is still the one that was opened."""
        try:
            self.space.measure_when_due(open_bytes=self._segment.end if self._segment else 0)
            if self.recovery.left and not self.space.refusal:
                self._recover_left()
        except OSError as error:
            self._fail(error)
        return self.failed is None

    def _recover_left(self) -> None:
        """Recover the segments for which there was no room at the start."""
        for path in recover_left(self.recovery, damaged=self._damaged):
            self.space.add(path.stat().st_size)
            log.warning("journal_recovered", extra={"detail": f"journal {path.name}: is recovered, with room again."})
            self._on_sealed(number_of(path))
        if self.recovery.left:
            self.space.refuse(_FULL)

    def _take_pending(self) -> list[Waiter]:
        # One by one, because a list could be swapped away between its look-up and its append.
        group = []
        while self._pending:
            group.append(self._pending.popleft())
        return group

    def _commit(self, group: Sequence[Waiter]) -> None:
        try:
            self._commit_lines(group)
        except Exception:
            self._pending.extendleft(reversed(group))  # They are told, too, when the journal ends.
            raise

    def _commit_lines(self, group: Sequence[Waiter]) -> None:
        lines = b"".join([lines for lines, _ in group])
        failure = self._write_durably(lines + trailer(lines))
        if lines and failure is None and self._segment:
            self._segment.holds_lines = True
            self.last_number = self._next_number  # before anybody is told that the lines are durable
        self._settled_bytes += len(lines)
        # Answer only after the fsync: a 202 promises that the event survives power loss.
        self._call_soon(_answer, group, failure)

    def _write_durably(self, group: bytes) -> Unavailable | None:
        try:
            segment = self._segment = self._segment or self._open_segment()
            segment.write(group)
        except OSError as error:
            if error.errno in DISK_FULL and self._cut_back():
                return Unavailable(Reason.STORAGE_LOW, retry_after_s=10)
            if error.errno in NO_DESCRIPTOR:  # Nothing was written: a segment could not be opened.
                return Unavailable(Reason.OVERLOADED, "server: has no file descriptor left. Wait, then resend.")
            return self._fail(error)
        started_at = time.perf_counter()
        try:
            segment.sync()
        except OSError as error:
            # A retried fsync can succeed without having written: the kernel drops the dirty flag. So it ends here.
            return self._fail(error)
        self.counters.sync_duration_s += time.perf_counter() - started_at
        self.counters.group_count += 1
        self.counters.byte_count += len(group)
        return None

    def _open_segment(self) -> "_OpenSegment":
        # The random part makes a name unique for ever: no store that outlives this folder can mistake it for loaded.
        # The number is taken only by a segment that is sealed with lines in it, so a gap means that one is lost.
        path = self.folder / f"{self._next_number:012d}-{secrets.token_hex(4)}{OPEN}"
        segment = _OpenSegment(path)
        try:
            self._sync_folder()
        except OSError:
            segment.seal()  # Its name may not last, so nothing is written to it.
            raise
        return segment

    def _cut_back(self) -> bool:
        """Undo a write for which there was no room; whether the segment is whole again."""
        try:
            if self._segment:
                self._segment.cut_back()
        except OSError:
            return False  # The caller then fails the journal.
        self.space.refuse(_FULL)
        return True

    def _seconds_to_wait(self) -> float:
        if self.space.refusal:
            return MEASURE_EVERY_S
        if self._segment is None or not self._segment.holds_lines:
            return _LOOK_EVERY_S
        return max(0.0, self._segment.opened_at + self.limits.segment_seal_s - time.monotonic())

    def _seal_when_due(self, *, is_closing: bool) -> None:
        segment = self._segment
        if segment is None or self.failed is not None:
            return
        # One without lines is only as old as the probes of `/readyz` in it; but it may not grow for ever.
        is_old = segment.holds_lines and time.monotonic() >= segment.opened_at + self.limits.segment_seal_s
        if is_old or is_closing or segment.end >= self.limits.segment_bytes_max:
            self._seal(segment)

    def _seal(self, segment: "_OpenSegment") -> None:
        try:
            segment.seal()
            self._segment = None
            self._sync_folder()
        except OSError as error:
            if error.errno in DISK_FULL and self._segment is not None:
                self.space.refuse(_FULL)  # The name needs room, too. It stays open until there is some.
            else:
                self._fail(error)
            return
        if segment.holds_lines:
            self._next_number += 1
            self.space.add(segment.end)
            self.counters.segment_count += 1
            self._on_sealed(number_of(segment.path))

    def _sync_folder(self) -> None:
        os.fsync(self._folder_descriptor)

    def _fail(self, error: Exception) -> Unavailable:
        self.failed = error
        log.error("journal_failed", extra={"detail": str(error) or type(error).__name__})
        # Its group is refused, so the next start should not find it. If the disk can't do even that, it counts once
        # by its ids.
        with contextlib.suppress(OSError):
            if self._segment:
                self._segment.cut_back()
        self._on_failed()
        return self._ended()

    def _ended(self) -> Unavailable:
        return Unavailable(Reason.STORAGE_FAILED, f"journal: {self.failed}. The server ends itself.", retry_after_s=5)

    def _fail_pending(self) -> None:
        _answer(self._take_pending(), self._ended())

    def _call_soon(self, call: Callable[..., None], *arguments: object) -> None:
        # A closed loop has no waiters left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)


def wait_for(keep: Callable[[OnDurable], None]) -> "asyncio.Future[None]":
    """What `keep` is told, as a future of the running event loop."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_durable(failure: Unavailable | None) -> None:
        if future.done():
            return  # Who waited was cancelled.
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    keep(on_durable)
    return future


def _answer(group: Sequence[Waiter], failure: Unavailable | None) -> None:
    for _, on_durable in group:
        try:
            on_durable(failure)
        except Exception as error:
            log.error("bug", exc_info=error)


class _OpenSegment:
    """The file that grows. `end` is where its last durable group ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        # Without any it is not worth loading: the probes of an idle server would make a segment each.
        self.holds_lines = False
        self.opened_at = time.monotonic()
        self._written = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o640)

    def write(self, group: bytes) -> None:
        """Write it all, however short the single writes are."""
        view = memoryview(group)
        while view:
            written = os.write(self._descriptor, view)
            self._written += written
            view = view[written:]

    def sync(self) -> None:
        """Make it durable.

        Raises:
            OSError: it is not, or the file is no longer the one that was written.
        """
        fdatasync(self._descriptor)
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise OSError(errno.ENOENT, "the open segment was deleted", str(self.path))
        if status.st_size != self._written:
            raise OSError(errno.ESTALE, "the open segment was changed by another program", str(self.path))
        self.end = self._written

    def cut_back(self) -> None:
        if os.fstat(self._descriptor).st_size > self.end:  # Another program may have truncated it further.
            os.ftruncate(self._descriptor, self.end)
        self._written = self.end

    def seal(self) -> None:
        """Give it its final name; the caller makes the name durable."""
        if self.holds_lines:
            rename_new(self.path, self.path.with_name(sealed_name(self.path.stem, self.end)))
        else:
            self.path.unlink()
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)


fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
