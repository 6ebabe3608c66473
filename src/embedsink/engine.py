"""Everything that a server, or a command on its own data folder, has open: journal, store, loader and keys."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.key_store import KeyStore
from embedsink.clock_watch import ClockWatch
from embedsink.concurrency.cpu_meter import CpuMeter
from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.concurrency.priority import give_way_to_ingest
from embedsink.concurrency.throttle import Throttle
from embedsink.data_folder import DataFolder, FolderLock, advice_on, nested_message
from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.ingest.dbt_syncs import DbtSyncs
from embedsink.ingest.pipeline import Outcome
from embedsink.ingest.quarantine_budget import QuarantineBudget
from embedsink.ingest.records import counted_lines
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.writer import Journal, JournalLimits, OnDurable
from embedsink.loader.backoff import BUSY_SHARE, Rests
from embedsink.loader.loader import Loader
from embedsink.loader.notifier import LoadNotifier
from embedsink.permissions import restricted_umask
from embedsink.reports.opaque_numbers import OpaqueNumbers
from embedsink.settings import Settings
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import EVERYTHING

log = logging.getLogger(__name__)

_KEYS_GONE = (
    "does not exist. Until it is back every key is refused with 401, senders and readers alike, and no open download "
    "goes on; what was acknowledged is kept and loaded. Put the file back, and its keys hold again within a second; "
    "without a copy make new ones with `embedsink keys create`."
)

CLOCK_LOOK_EVERY_S = 1.0
# Who sent what was imported from a file.
IMPORT_KEY_ID = "import"
# Questions to the store about single syncs, at once. Each takes some milliseconds.
SYNC_LOOKUPS_MAX = 2
# Each may keep a snapshot on the disk that was replaced long ago.
SNAPSHOT_DOWNLOADS_MAX = 4


def now_ms() -> int:
    """The server's clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Engine:
    """An open data folder. Use it as an asynchronous context manager.

    Args:
        folder: where everything lies; made if missing.
        settings: the limits.
        on_failed: called, in another thread, once the disk has failed and nothing more can be accepted.
        closing_s_max: how long closing may go on loading; what is left is loaded at the next start. Without, all is.
        has_senders: whether loading rests while the event loop is busy; where nobody sends, it would only take longer.
    """

    def __init__(
        self,
        folder: DataFolder,
        settings: Settings,
        *,
        on_failed: Callable[[], None] = lambda: None,
        closing_s_max: float | None = None,
        has_senders: bool = False,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.rules = settings.rules()
        self.counters: Counter[str] = Counter()
        self.replaying = asyncio.Lock()
        self.opaque = OpaqueNumbers()
        # Each holds the interpreter for a while.
        self.sync_parsing = ConcurrencyLimiter(1, waiting_max=settings.report_waiting_max, what="syncs")
        self.report_slots = ConcurrencyLimiter(settings.report_concurrency_max, waiting_max=settings.report_waiting_max)
        self.throttle = Throttle(waiting_max=settings.report_waiting_max)
        self.snapshot_slots = ConcurrencyLimiter(
            SNAPSHOT_DOWNLOADS_MAX,
            waiting_max=0,
            what="analytics.duckdb",
            setting=f"{SNAPSHOT_DOWNLOADS_MAX} downloads at once, and {SNAPSHOT_DOWNLOADS_MAX - 1} of one key",
        )
        # Beside the reports: what takes milliseconds must not wait for a year's.
        self.short_query_slots = ConcurrencyLimiter(
            1, waiting_max=settings.live_max, what="live", setting="EMBEDSINK_LIVE_MAX"
        )
        # A thread for each place of a report, and one for what takes milliseconds.
        self.read_pool = ThreadPoolExecutor(
            settings.report_concurrency_max + 1, thread_name_prefix="reading", initializer=give_way_to_ingest
        )
        self._on_failed = on_failed
        self._closing_s_max = closing_s_max
        self._has_senders = has_senders
        self._quarantine_budget = QuarantineBudget(
            bytes_per_day=settings.quarantine_bytes_per_day, count_per_day=settings.quarantine_count_per_day
        )
        self._lock = FolderLock(folder)
        self._last_sealed = LastSealed(folder.last_sealed)

    async def __aenter__(self) -> Self:
        """Open the folder.

        Raises:
            Misconfigured: it can't be opened; the text says why and what to do.
        """
        if exposed := self.folder.make():
            log.warning("folder_exposed", extra={"detail": _exposure(self.folder, exposed)})
        async with AsyncExitStack() as opened:
            opened.enter_context(restricted_umask())
            opened.enter_context(self._lock)
            try:
                self.folder.rename_former_folders()
                self._open(opened)
            except OSError as error:
                where = error.filename or self.folder.path
                raise Misconfigured(f"{where}: {error.strerror}. {advice_on(error)}") from error
            self._opened = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what is pending, load it, publish a last snapshot and unlock the folder."""
        await self._opened.aclose()

    def _open(self, opened: AsyncExitStack) -> None:
        """Open everything. What `opened` has by then is closed again, the last first, also where it fails half-way."""
        settings = self.settings
        self.store = Store(self.folder.store, _store_limits(settings))
        self.loader = Loader(
            self.folder,
            self.store,
            snapshot_interval_s=settings.snapshot_interval_s,
            closing_s_max=self._closing_s_max,
            on_loaded=self._tell_of_load,
            on_removed=lambda byte_count: self.journal.space.remove(byte_count),
            rests=self._rests() if self._has_senders else None,
            is_tight=lambda: self.journal.space.is_tight,
            quarantine_days=settings.quarantine_retention_days,
        )
        opened.callback(self.read_pool.shutdown, wait=False)  # The store ends what is still read.
        opened.push_async_callback(asyncio.to_thread, self.loader.close)
        try:
            self.loader.open_store()
        except (OSError, StoreRefused) as error:
            # Ingest does not wait for it: the loader tries again.
            self.loader.tell(f"store: {error}. Loading begins when that has changed")
        self._count_quarantine_of_today()
        self.journal = self._recovered_journal()
        for nested in self.folder.nested():
            log.warning("nested_folder", extra={"detail": nested_message(nested)})
        self.keys = KeyCache(KeyStore(self.folder.keys), time.time)
        self.syncs = DbtSyncs(
            self.journal,
            self.store,
            bytes_max=settings.sync_bytes_max,
            lookups=ConcurrencyLimiter(SYNC_LOOKUPS_MAX, waiting_max=settings.report_waiting_max, what="syncs"),
        )
        self.load_notifier = LoadNotifier(self.loader, self.journal, listeners_max=settings.live_max)
        self.journal.start()
        opened.push_async_callback(self.journal.close)
        opened.callback(self.load_notifier.close)
        for watch in (self._watch_keys(), self._watch_clock()):
            opened.callback(asyncio.create_task(watch).cancel)
        # Last: it opens the store again by itself, and may do so only under the lock.
        self.loader.wake(self.journal.last_number)
        self.loader.start()

    def _recovered_journal(self) -> Journal:
        """The journal, and what was found in it told."""
        journal = Journal(
            self.folder.journal,
            damaged=self.folder.damaged,
            limits=_journal_limits(self.settings),
            after_number=max(self.loader.last_number, self._last_sealed.read()),
            on_sealed=self._note_sealed,
            on_failed=self._on_failed,
        )
        for found in (*journal.recovery.notes, *journal.recovery.damaged):
            log.warning("journal_recovered", extra={"detail": found})
        self.loader.status.damaged += journal.recovery.damaged
        return journal

    def _note_sealed(self, number: int) -> None:
        self._last_sealed.write(number)
        self.loader.wake(number)

    def _count_quarantine_of_today(self) -> None:
        try:
            with self.store.reader(EVERYTHING, is_brief=True) as reader:
                rows = reader.dicts("quarantine_of_today")
        except EmbedsinkError as error:
            # The loader repairs a damaged store. Ingest does not wait for that, so today's budgets begin again.
            log.warning("quarantine_not_counted", extra={"detail": str(error)})
            return
        self._quarantine_budget.begin_with((row["key_id"], row["byte_count"], row["row_count"]) for row in rows)

    def _rests(self) -> Rests:
        """Of the loader: where senders want all of the event loop, and the journal has room for what then waits."""
        loop = CpuMeter()
        return Rests(lambda: loop.share() >= BUSY_SHARE and self.journal.space.has_headroom)

    def _tell_of_load(self) -> None:
        self.syncs.forget_loaded()
        self.load_notifier.tell()

    async def _watch_keys(self) -> None:
        while True:
            await asyncio.sleep(self.settings.keys_reload_s)
            try:
                if self.keys.refresh() and not self.folder.keys.exists():
                    log.warning("keys_gone", extra={"detail": f"{self.folder.keys}: {_KEYS_GONE}"})
            except Misconfigured as error:
                log.error("keys_trouble", extra={"detail": str(error)})

    async def _watch_clock(self) -> None:
        watch = ClockWatch()
        while True:
            await asyncio.sleep(CLOCK_LOOK_EVERY_S)
            if jump := watch.jump():
                shown, expected = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in jump)
                log.warning("clock_jumped", extra={"shown": shown, "expected": expected})

    def submit_rejections(self, outcome: Outcome, on_durable: OnDurable, *, key_id: str, is_scoped: bool) -> None:
        """Journal a body with rejections: what was accepted, and those or only their counts if there is no room.

        Args:
            outcome: what became of it.
            on_durable: called once it is durable, or with the reason why nothing of it is kept.
            key_id: of its key.
            is_scoped: whether that key is good for some deployments only. Without it counts don't name the deployment:
                senders could invent any number of them.

        Raises:
            Unavailable: nothing of it is kept.
        """
        lines, count = outcome.rejection_lines, outcome.rejected_count
        size = len(lines)
        has_room = self.journal.space.has_room_to_spare(free_bytes_min=self.settings.quarantine_free_bytes_min)
        is_kept = has_room and self._quarantine_budget.has_room(key_id, byte_count=size, count=count)
        if not is_kept:
            deployment = outcome.deployment if is_scoped else None
            lines = counted_lines(outcome.reasons, received_at=now_ms(), key_id=key_id, deployment=deployment)

        def charge(failure: Unavailable | None) -> None:
            if failure is None and is_kept:
                self._quarantine_budget.charge(key_id, byte_count=size, count=count)
            elif failure is None:
                self.counters["unkept"] += count
            on_durable(failure)

        lines = outcome.lines + lines
        self.submit(lines, charge, accepted=outcome.accepted_count, quarantined=count, deployment=outcome.deployment)

    def submit(
        self, lines: bytes, on_durable: OnDurable, *, accepted: int, quarantined: int, deployment: int | None = None
    ) -> None:
        """Journal lines of so many envelopes, and count them when they are durable.

        Args:
            lines: of the journal.
            on_durable: told once they are durable, or why nothing of them is kept.
            accepted, quarantined: how many envelopes they hold.
            deployment: the one that all of them name; None where that is not known.

        Raises:
            Unavailable: nothing of them is kept.
        """

        def count(failure: Unavailable | None) -> None:
            if failure is None:
                self.counters["accepted"] += accepted
                self.counters["quarantined"] += quarantined
                self.load_notifier.note(deployment)
            on_durable(failure)

        self.journal.submit(lines, count)


def _exposure(folder: DataFolder, exposed: list[Path]) -> str:
    others = f" and {len(exposed) - 1:,} more" if exposed[1:] else ""
    return (
        f"{exposed[0]}{others}: other users may read or change it, and this user can't restrict it. "
        f"As its owner, run `chmod -R g-w,o= {folder.path}`."
    )


def _store_limits(settings: Settings) -> StoreLimits:
    return StoreLimits(
        memory_bytes=settings.store_memory_bytes,
        memory_bytes_max=settings.store_memory_bytes_max,
        threads=settings.store_threads,
        threads_max=settings.store_threads_max,
        dedup_days=settings.dedup_days,
        session_gap_minutes=settings.session_gap_minutes,
        quarantine_bytes_per_day=settings.quarantine_bytes_per_day,
        quarantine_count_per_day=settings.quarantine_count_per_day,
        quarantine_free_bytes_min=settings.quarantine_free_bytes_min,
    )


def _journal_limits(settings: Settings) -> JournalLimits:
    return JournalLimits(
        segment_seal_s=settings.segment_seal_s,
        segment_bytes_max=settings.segment_bytes_max,
        pending_bytes_max=settings.pending_bytes_max,
        journal_bytes_max=settings.journal_bytes_max,
        free_bytes_min=settings.free_bytes_min,
    )
