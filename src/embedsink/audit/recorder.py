"""The recorder of a server: it appends concurrent entries together, and counts repetitions instead of writing each."""

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from embedsink.audit.entry import LIST_ITEMS_MAX, Action, Entry, Outcome
from embedsink.audit.trail import AuditTrail
from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# The actions that clients can repeat quickly.
REPEATABLE = frozenset({Action.LOGIN, Action.LOGIN_FAILED, Action.LOGOUT, Action.SESSION_ENDED, Action.EXPORT})
# In a period, this number of entries of one actor, action and outcome is written, and one for each further target. The
# others are counted, and the last entry of the period has their number.
PERIOD_S = 60.0
ENTRIES_PER_PERIOD = 20
# The entries that one append writes at most, so that a lock of the trail is held briefly.
BATCH_MAX = 256
# How long an action waits for its entry, and the shutdown for all entries.
WRITE_S_MAX = 10.0
CLOSE_S_MAX = 5.0


_Group = tuple[Action, str, Outcome]


@dataclass(slots=True)
class _Repetitions:
    """The entries of one actor, action and outcome in a period.

    Attributes:
        futures: the futures of the entries that are written at once, by the content of the entry.
        written_targets: the targets of the entries that are written at once.
        count: the number of entries that are only counted.
        last_counted: the last entry that was only counted.
        targets: the number of counted entries by target.
        addresses: the number of counted entries by client address.
        has_one_detail: whether all counted entries have the same detail.
        is_unwritable: whether the count could not be written, so that further entries are refused.
    """

    futures: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    written_targets: set[str | None] = field(default_factory=set)
    count: int = 0
    last_counted: Entry | None = None
    targets: Counter[str | None] = field(default_factory=Counter)
    addresses: Counter[str | None] = field(default_factory=Counter)
    has_one_detail: bool = True
    is_unwritable: bool = False

    def add(self, entry: Entry) -> None:
        """Count an entry. Remember a limited number of targets and addresses."""
        self.count += entry.count
        self.has_one_detail = self.last_counted is None or (
            self.has_one_detail and _without_size(self.last_counted.detail) == _without_size(entry.detail)
        )
        self.last_counted = entry
        for counter, value in ((self.targets, entry.target), (self.addresses, entry.client_address)):
            if value in counter or len(counter) < LIST_ITEMS_MAX:
                counter[value] += entry.count

    def take(self) -> Entry | None:
        """Return one entry for all that were counted, and begin to count again; None without any."""
        last, count = self.last_counted, self.count
        if last is None:
            return None
        detail: dict[str, Any] = _without_size(last.detail) if self.has_one_detail else {}
        detail["repeated_within_s"] = PERIOD_S
        for name, counter in (("targets", self.targets), ("client_addresses", self.addresses)):
            if len(counter) > 1:
                detail[name] = {str(value): number for value, number in counter.items()}
            if counter.total() < count:
                detail[f"entries_with_other_{name}"] = count - counter.total()
        target = last.target if len(self.targets) == 1 else None
        address = last.client_address if len(self.addresses) == 1 else None
        self.last_counted, self.count, self.targets, self.addresses = None, 0, Counter(), Counter()
        self.futures.clear()
        self.written_targets.clear()
        return replace(last, count=count, target=target, client_address=address, detail=detail)


class Recorder:
    """Records what the server does. It belongs to the event loop.

    Within a minute, equal entries of a repeatable action are written once. So are the first `ENTRIES_PER_PERIOD` that
    differ, of one actor and outcome, and the first one for each target. The others are counted, and one entry at the
    end of the minute has their number.

    Args:
        trail: the audit trail.
    """

    def __init__(self, trail: AuditTrail) -> None:
        self.trail = trail
        self._queue: list[tuple[Entry, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._repetitions: dict[_Group, _Repetitions] = {}
        self._periods: set[asyncio.Task[None]] = set()
        self._is_closing = asyncio.Event()

    async def record(self, entry: Entry) -> None:
        """Return when the entry is durable, or is counted as a repetition.

        Raises:
            Unavailable: the entry can't be written (`storage_low`, `storage_failed`).
        """
        if entry.action not in REPEATABLE:
            await _wait(self._append(entry))
            return
        group = (entry.action, entry.actor, entry.outcome)
        repetitions = self._repetitions.get(group) or self._begin_period(group)
        content = json.dumps(
            [entry.target, entry.client_address, _without_size(entry.detail)], sort_keys=True, default=str
        )
        earlier = repetitions.futures.get(content)
        if earlier is not None and earlier.done() and earlier.exception() is not None:
            earlier = None  # Try to write this one.
        has_many = len(repetitions.futures.keys() - {content}) >= ENTRIES_PER_PERIOD
        is_counted = earlier is not None or (has_many and entry.target in repetitions.written_targets)
        if is_counted and not repetitions.is_unwritable:
            if earlier is not None:
                await _wait(earlier)  # If it can't be written, refuse its repetitions too.
            if self._repetitions.get(group) is not repetitions:  # The period has ended meanwhile.
                repetitions = self._begin_period(group)
            repetitions.add(entry)
            return
        future = repetitions.futures[content] = self._append(entry)
        repetitions.written_targets.add(entry.target)
        try:
            await _wait(future)
        except Exception:
            if repetitions.futures.get(content) is future:
                del repetitions.futures[content]
                repetitions.written_targets.discard(entry.target)
            raise

    async def record_or_log(self, entry: Entry) -> None:
        """Record an action that takes place even if it can't be recorded, such as a logout. Log a failure."""
        try:
            await self.record(entry)
        except EmbedsinkError as error:
            _log_failure(error, entry)

    async def close(self) -> None:
        """Write the counted repetitions, and wait for all entries, but not long for a disk that hangs."""
        self._is_closing.set()
        tasks = {*self._periods, *([self._writing] if self._writing is not None else [])}
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S_MAX)

    def _begin_period(self, group: _Group) -> _Repetitions:
        """Begin to count the entries of an actor, action and outcome."""
        repetitions = self._repetitions[group] = _Repetitions()
        period = asyncio.create_task(self._write_repetitions(group, repetitions))
        self._periods.add(period)
        period.add_done_callback(self._periods.discard)
        return repetitions

    def _append(self, entry: Entry) -> asyncio.Future[None]:
        """Append an entry together with the others that wait. The future raises Unavailable if that fails."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.exception())  # A cancelled request does not retrieve it.
        self._queue.append((entry, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return future

    async def _write(self) -> None:
        """Append the queue in batches, each with one fsync, until it is empty."""
        while self._queue:
            batch, self._queue = self._queue[:BATCH_MAX], self._queue[BATCH_MAX:]
            try:
                append = partial(self.trail.append, [entry for entry, _ in batch])
                await run_in_daemon_thread(append, name="audit")
            except Exception as error:  # noqa: BLE001  the futures raise it
                for _, future in batch:
                    future.set_exception(error)
            else:
                for _, future in batch:
                    future.set_result(None)

    async def _write_repetitions(self, group: _Group, repetitions: _Repetitions) -> None:
        """At the end of each period, write one entry with the number of repetitions. End after one without any."""
        while True:
            await self._wait_for_end_of_period()
            counted = repetitions.take()
            if counted is None:
                if self._repetitions.get(group) is repetitions:
                    del self._repetitions[group]
                return
            while not await self._is_written(counted):
                repetitions.is_unwritable = True  # Further entries are not counted, but refused.
                if self._is_closing.is_set():
                    return
                await self._wait_for_end_of_period()
            repetitions.is_unwritable = False

    async def _wait_for_end_of_period(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PERIOD_S):
                await self._is_closing.wait()

    async def _is_written(self, entry: Entry) -> bool:
        """Append an entry, and return whether that succeeded. Log a failure."""
        try:
            await _wait(self._append(entry))
        except EmbedsinkError as error:
            _log_failure(error, entry)
            return False
        except Exception as error:
            log.error("bug", exc_info=error)
            return False
        return True


async def _wait(future: asyncio.Future[None]) -> None:
    """Wait until an entry is durable. Cancelling the waiter does not cancel the entry.

    Raises:
        Unavailable: the entry can't be written, or not within `WRITE_S_MAX`. Then it may be written later.
    """
    try:
        async with asyncio.timeout(WRITE_S_MAX):
            await asyncio.shield(future)
    except TimeoutError:
        detail = f"audit: a write takes more than {WRITE_S_MAX:g} s. Check the disk, and that no command is stopped."
        raise Unavailable(Reason.STORAGE_FAILED, detail, retry_after_s=5) from None


def _without_size(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detail of an entry without the size of a file, in which repetitions may differ."""
    return {name: value for name, value in detail.items() if name != "bytes"}


def _log_failure(error: EmbedsinkError, entry: Entry) -> None:
    log.error("audit_failed", extra={"detail": str(error), "action": str(entry.action), "actor": entry.actor})
