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
# The period in which repetitions are counted, and the entries of one actor, action and outcome that it has at most,
# without the one that has the count.
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
    """The entries of one actor, action and outcome in a period. `rest` is the last entry that was only counted."""

    written: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    count: int = 0
    rest: Entry | None = None
    targets: Counter[str | None] = field(default_factory=Counter)
    addresses: Counter[str | None] = field(default_factory=Counter)
    has_one_detail: bool = True
    is_unwritable: bool = False

    def add(self, entry: Entry) -> None:
        """Count an entry. Remember a limited number of targets and addresses."""
        self.count += entry.count
        self.has_one_detail = self.rest is None or (
            self.has_one_detail and _compared(self.rest.detail) == _compared(entry.detail)
        )
        self.rest = entry
        for counter, value in ((self.targets, entry.target), (self.addresses, entry.client_address)):
            if value in counter or len(counter) < LIST_ITEMS_MAX:
                counter[value] += entry.count

    def take(self) -> Entry | None:
        """Return one entry for all that were counted, and begin to count again; None without any."""
        rest, count = self.rest, self.count
        if rest is None:
            return None
        detail: dict[str, Any] = _compared(rest.detail) if self.has_one_detail else {}
        detail["repeated_within_s"] = PERIOD_S
        for name, counter in (("targets", self.targets), ("client_addresses", self.addresses)):
            if len(counter) > 1:
                detail[name] = {str(value): number for value, number in counter.items()}
        target = rest.target if len(self.targets) == 1 else None
        address = rest.client_address if len(self.addresses) == 1 else None
        self.rest, self.count, self.targets, self.addresses = None, 0, Counter(), Counter()
        self.written.clear()
        return replace(rest, count=count, target=target, client_address=address, detail=detail)


class Recorder:
    """Records what the server does. It belongs to the event loop.

    In a period of a minute, an entry of a repeatable action is written at once if it differs from the earlier ones of
    its actor, action and outcome, and those are fewer than `ENTRIES_PER_PERIOD`. The others are counted, and one entry
    at the end of the period has their number.

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
        content = json.dumps([entry.target, entry.client_address, _compared(entry.detail)], sort_keys=True, default=str)
        earlier = repetitions.written.get(content)
        if earlier is not None and earlier.done() and earlier.exception() is not None:
            earlier = None  # Try to write this one.
        is_counted = earlier is not None or len(repetitions.written.keys() - {content}) >= ENTRIES_PER_PERIOD
        if is_counted and not repetitions.is_unwritable:
            if earlier is not None:
                await _wait(earlier)  # If it can't be written, refuse its repetitions too.
            if self._repetitions.get(group) is not repetitions:  # The period has ended meanwhile.
                repetitions = self._begin_period(group)
            repetitions.add(entry)
            return
        future = repetitions.written[content] = self._append(entry)
        try:
            await _wait(future)
        except EmbedsinkError:
            if repetitions.written.get(content) is future:
                del repetitions.written[content]
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
            rest = repetitions.take()
            if rest is None:
                if self._repetitions.get(group) is repetitions:
                    del self._repetitions[group]
                return
            while not await self._is_written(rest):
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


def _compared(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detail of an entry without the size of a file, in which repetitions may differ."""
    return {name: value for name, value in detail.items() if name != "bytes"}


def _log_failure(error: EmbedsinkError, entry: Entry) -> None:
    log.error("audit_failed", extra={"detail": str(error), "action": str(entry.action), "actor": entry.actor})
