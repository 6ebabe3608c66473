"""Everything that a server, or a command on its own data folder, has open: journal, store, loader and keys."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Self

from uuid_utils import uuid7

from embedsink.busyness import Busyness
from embedsink.envelope import Parsed, Rejection, body_rejection_line, journal_lines
from embedsink.errors import Misconfigured, Refused, Unavailable
from embedsink.folder import DataFolder, FolderLock
from embedsink.journal import Journal, JournalLimits, Settled
from embedsink.keys import KeyFile, KeyRing
from embedsink.live import Live
from embedsink.loader import Loader
from embedsink.pace import Pace
from embedsink.priority import give_way_to_ingest
from embedsink.resting import BUSY_SHARE, Rests
from embedsink.settings import Settings
from embedsink.slots import Slots
from embedsink.store import Store, StoreLimits, StoreRefused
from embedsink.syncs import Syncs

log = logging.getLogger(__name__)

_KEYS_GONE = (
    "does not exist. Until it is back every key is refused with 401, senders and readers alike, and no open download "
    "goes on; what was acknowledged is kept and loaded. Put the file back, and its keys hold again within a second; "
    "without a copy make new ones with `embedsink keys create`."
)

# Who sent what was imported from a file.
IMPORT_KEY_ID = "import"
# Questions to the store about single syncs, at once. Each takes some milliseconds.
SYNC_LOOKUPS_MAX = 2
# Each may keep a snapshot on the disk that was replaced long ago.
SNAPSHOT_DOWNLOADS_MAX = 4


def now_ms() -> int:
    """The server's clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Sink:
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
        self.report_slots = Slots(settings.report_concurrency_max, waiting_max=settings.report_waiting_max)
        self.pace = Pace(waiting_max=settings.report_waiting_max)
        self.snapshot_places = Slots(
            SNAPSHOT_DOWNLOADS_MAX,
            waiting_max=0,
            what="analytics.duckdb",
            limit=f"{SNAPSHOT_DOWNLOADS_MAX} are downloading it, as many as may at once",
        )
        # Beside the reports: what is new is asked for in milliseconds, and must not wait for a year's.
        self.live_slots = Slots(1, waiting_max=settings.live_max, what="live")
        # A thread for each place of a report, and one for what is new.
        self.reading = ThreadPoolExecutor(
            settings.report_concurrency_max + 1, thread_name_prefix="reading", initializer=give_way_to_ingest
        )
        self._on_failed = on_failed
        self._closing_s_max = closing_s_max
        self._has_senders = has_senders
        self._lock = FolderLock(folder)

    async def __aenter__(self) -> Self:
        self.folder.make()
        async with AsyncExitStack() as opened:
            opened.enter_context(self._lock)
            self._open(opened)
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
        )
        opened.callback(self.reading.shutdown, wait=False)  # The store ends what is still read.
        opened.push_async_callback(asyncio.to_thread, self.loader.close)
        try:
            self.loader.open_store()
        except (OSError, StoreRefused) as error:
            # Ingest does not wait for it: the loader tries again.
            self.loader.tell(f"store: {error}. Loading begins when that has changed")
        self.journal = Journal(
            self.folder.journal,
            aside=self.folder.aside,
            limits=_journal_limits(settings),
            after_number=self.loader.last_number,
            on_sealed=self.loader.wake,
            on_failed=self._on_failed,
        )
        for found in (*self.journal.recovery.cut, *self.journal.recovery.damaged):
            log.warning("journal_recovered", extra={"detail": found})
        self.loader.status.damaged += self.journal.recovery.damaged
        self.keys = KeyRing(KeyFile(self.folder.keys), time.time)
        self.syncs = Syncs(
            self.journal,
            self.store,
            bytes_max=settings.sync_bytes_max,
            lookups=Slots(SYNC_LOOKUPS_MAX, waiting_max=settings.report_waiting_max, what="syncs"),
        )
        self.live = Live(self.loader, self.journal, listeners_max=settings.live_max)
        self.journal.start()
        opened.push_async_callback(self.journal.close)
        opened.callback(self.live.close)
        watching = asyncio.create_task(self._watch_keys())
        opened.callback(watching.cancel)
        # Last: it opens the store again by itself, and may do so only under the lock.
        self.loader.wake()
        self.loader.start()

    def _rests(self) -> Rests:
        """Of the loader: where senders want all of the event loop, and the journal has room for what then waits."""
        loop = Busyness()
        return Rests(lambda: loop.share() >= BUSY_SHARE and self.journal.space.is_ample)

    def _tell_of_load(self) -> None:
        self.syncs.forget_loaded()
        self.live.tell()

    async def _watch_keys(self) -> None:
        while True:
            await asyncio.sleep(self.settings.keys_reload_s)
            try:
                if self.keys.refresh() and not self.folder.keys.exists():
                    log.warning("keys_gone", extra={"detail": f"{self.folder.keys}: {_KEYS_GONE}"})
            except Misconfigured as error:
                log.error("keys_trouble", extra={"detail": str(error)})

    def keep(
        self,
        parsed: Parsed,
        settled: Settled,
        *,
        key_id: str,
    ) -> None:
        """Journal a delivery: its accepted envelopes, its rejections and what the forwarder lost.

        Args:
            parsed: the delivery.
            settled: told once it is durable, or why nothing of it is kept.
            key_id: who sent it.

        Raises:
            Unavailable: nothing of it is kept.
        """
        lines = journal_lines(parsed, key_id=key_id, new_id=uuid7)
        self.submit(lines, settled, accepted=len(parsed.accepted), quarantined=len(parsed.rejected))

    def keep_body(
        self,
        body: bytes,
        refusal: Refused,
        settled: Settled,
        *,
        received_at: int,
        key_id: str,
    ) -> None:
        """The same for a body that can't be read: it is quarantined, with the reason.

        Raises:
            Unavailable: it is not kept.
        """
        rejection = Rejection(None, refusal.reason, str(refusal), body)
        line = body_rejection_line(rejection, received_at=received_at, key_id=key_id, new_id=uuid7)
        self.submit(line, settled, accepted=0, quarantined=1)

    def submit(self, lines: bytes, settled: Settled, *, accepted: int, quarantined: int) -> None:
        """Journal lines of so many envelopes, and count them when they are durable.

        Raises:
            Unavailable: nothing of them is kept.
        """

        def count(failure: Unavailable | None) -> None:
            if failure is None:
                self.counters["accepted"] += accepted
                self.counters["quarantined"] += quarantined
            settled(failure)

        self.journal.submit(lines, count)


def _store_limits(settings: Settings) -> StoreLimits:
    return StoreLimits(
        memory_bytes=settings.store_memory_bytes,
        memory_bytes_max=settings.store_memory_bytes_max,
        threads=settings.store_threads,
        threads_max=settings.store_threads_max,
        dedup_days=settings.dedup_days,
    )


def _journal_limits(settings: Settings) -> JournalLimits:
    return JournalLimits(
        segment_seal_s=settings.segment_seal_s,
        segment_bytes_max=settings.segment_bytes_max,
        pending_bytes_max=settings.pending_bytes_max,
        journal_bytes_max=settings.journal_bytes_max,
        free_bytes_min=settings.free_bytes_min,
    )
