"""The loader: one thread that brings sealed segments into the store, and rebuilds a damaged store.

sealed segments ─▶ check their CRCs ─▶ one transaction: rows + names ─▶ store.duckdb ─▶ snapshots (publisher.py)
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator

from embedsink.concurrency.priority import give_way_to_ingest
from embedsink.data_folder import DataFolder
from embedsink.errors import EmbedsinkError
from embedsink.journal.segment import Segment, number_of
from embedsink.loader.backoff import Rests
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.pending import PendingSegments
from embedsink.loader.publisher import Publisher
from embedsink.loader.rebuild import rebuild
from embedsink.loader.segment_checks import SegmentChecks
from embedsink.loader.status import LoaderStatus
from embedsink.loader.tasks import LoaderTasks, QuarantinePurge
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlUnfit, StoreBroken, StoreDamaged, StoreRefused, is_disk_full

log = logging.getLogger(__name__)

RETRY_AFTER_S = 2.0
SUMS_AGAIN_S = 60.0
# At the end of a server, the last snapshot may take so long. Without it the next start has more to load.
LAST_SNAPSHOT_S_MAX = 8.0
# The loader's thread ends within this time, or hangs with its disk and is left behind.
_END_S_MAX = 4.0
_DIGITS = re.compile(r"\d+")


class Loader:
    """Owns the store's loading side. `wake` it when a segment was sealed.

    Args:
        folder: the data folder; the store is its `store.duckdb`.
        store: not yet open.
        snapshot_interval_s: least time between two snapshots.
        on_loaded: called in the loader's thread after each load.
        on_removed: called there with the bytes of each segment that it takes out of the journal.
        closing_s_max: how long `close` goes on loading what is left; without, until all is loaded.
        rests: between loads; without, none.
        is_tight: whether segments take room that the journal needs.
        quarantine_days: how long rejections are kept; 0 is for ever.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        *,
        snapshot_interval_s: float = 10.0,
        on_loaded: Callable[[], None] = lambda: None,
        on_removed: Callable[[int], None] = lambda byte_count: None,
        closing_s_max: float | None = None,
        rests: Rests | None = None,
        is_tight: Callable[[], bool] = lambda: False,
        quarantine_days: int = 0,
    ) -> None:
        self.status = LoaderStatus()
        self._folder = folder
        self._store = store
        self._damaged = DamagedFiles(folder.damaged, told=self.status.damaged)
        self._damaged.look()
        self._on_loaded = on_loaded
        self._backlog = PendingSegments(folder.journal, on_removed=on_removed)
        self._intake = SegmentChecks(folder.journal, store, backlog=self._backlog, damaged=self._damaged)
        self._closing_s_max = closing_s_max
        self._rests = rests or Rests()
        self._sums_due_at = 0.0
        self.last_number = 0  # the highest that is in the store, or damaged and aside, and so are all before it
        self._sealed_number = 0  # the highest of which the journal told
        self._room = StoreDiskSpace(folder.path)
        self._wake = threading.Event()
        self._publisher = Publisher(
            folder,
            store,
            self._backlog,
            intake=self._intake,
            damaged=self._damaged,
            room=self._room,
            status=self.status,
            interval_s=snapshot_interval_s,
            on_change=self._wake.set,
            is_tight=is_tight,
        )
        self.tasks = LoaderTasks(self._wake)
        self.quarantine = QuarantinePurge(store, self._publisher, self._room, days=quarantine_days)
        self._closing = False
        self._load_until = math.inf  # in monotonic seconds; bounded when closing
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)

    def start(self) -> None:
        """Begin to load; call `open_store` first."""
        self._thread.start()

    def wake(self, sealed_number: int = 0) -> None:
        """Look for sealed segments now; the one of this number has just been sealed."""
        self._sealed_number = max(self._sealed_number, sealed_number)
        self._backlog.grow()
        self._wake.set()

    def close(self) -> None:
        """Load what is sealed, publish a last snapshot and close the store. What is left then waits in the journal."""
        if self._closing_s_max is not None:
            self._load_until = time.monotonic() + self._closing_s_max
        self._closing = True
        self._rests.end()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(None if self._closing_s_max is None else self._seconds_to_end())
        self._publisher.abandon()
        if self._thread.is_alive():
            log.error("loader_trouble", extra={"detail": "loader: hangs, and is left behind. Look at the disk"})
        else:
            self._store.close()

    def open_store(self) -> None:
        """Open the store. Rebuild it first when it is missing or broken.

        Raises:
            Misconfigured: nothing that a rebuild could mend.
            OSError, StoreRefused: there is no room for it now, or another program has it open.
        """
        is_new = not self._folder.store.exists()
        if is_new and (self._folder.snapshot.exists() or self._folder.previous.exists()):
            self._rebuild("is missing")
        else:
            try:
                self._open_as_it_is()
            except StoreBroken as error:
                self._rebuild(str(error))
        # Also when nothing was loaded since: the snapshot may be missing, damaged or older than the store.
        self._publisher.is_dirty = True

    def waiting_since(self) -> float | None:
        """When the oldest sealed segment was written that is not in the store; epoch seconds, None when all are."""
        return self._backlog.waiting_since

    def load_waiting(self) -> Iterator[None]:
        """Load every sealed segment that the store does not have yet, oldest first: a transaction with each step."""
        sealed_number = self._sealed_number  # before the look: it is there, or it was lost
        for some in self._backlog.waiting():
            began_at = time.monotonic()
            self._load(self._intake.sound(some))
            yield
            self._rests.rest_after(time.monotonic() - began_at)  # also after what was done with the step
        self._intake.check_up_to(sealed_number)
        self._pass(sealed_number)

    def publish(self) -> None:
        """Publish a snapshot now, and wait for it."""
        self._publisher.publish()

    def _work(self) -> None:
        try:
            give_way_to_ingest()
            self._work_until_closed()
        except BaseException as error:
            # Whatever it was: a thread that ended unseen would look like one that has nothing to do.
            log.error("bug", exc_info=error)
            self.status.end_trouble = (
                f"loader: has ended ({type(error).__name__}). It is a bug; see the log. Nothing is loaded until the "
                "next start"
            )
        finally:
            self.tasks.end()

    def _work_until_closed(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._seconds_to_next())
            self._wake.clear()
            is_last = self._closing
            self.work_once(is_last=is_last)
            if not self._publisher.reads_store:
                self.tasks.run()

    def work_once(self, *, is_last: bool) -> None:
        """Load what is sealed, and publish a snapshot when one is due, or when it `is_last`. Its own thread does."""
        # Each clears its own trouble: that loading goes on does not mean that snapshots do.
        self.status.load_trouble = self._trouble_with(self._load_round)
        # A store that broke while it was loaded into says why already.
        if self.status.load_trouble is None and self._store.is_open:
            self._look_after_snapshots(self._publish_last if is_last else self._publisher.advance)

    def _look_after_snapshots(self, act: Callable[[], None]) -> None:
        count = self.status.snapshot_count
        trouble = self._trouble_with(act)
        # Until a snapshot is published, the last trouble holds.
        if trouble or self.status.snapshot_count > count:
            self.status.snapshot_trouble = trouble

    def _publish_last(self) -> None:
        if self._publisher.has_work:
            self._publisher.publish(until=self._load_until + LAST_SNAPSHOT_S_MAX)

    def _load_round(self) -> None:
        known = self._backlog.loaded
        if not self._store.is_open:
            self.open_store()
        elif self.status.load_trouble:
            self._look_what_is_loaded()
        if not self._backlog.loaded.keys() <= known.keys():
            # What was refused was committed all the same.
            self._publisher.is_dirty = True
            self._on_loaded()
        self._room.require()
        for _ in self.load_waiting():
            # A long backlog must not keep snapshots, and with them the journal's room, waiting.
            self._look_after_snapshots(self._publisher.advance)
            if time.monotonic() >= self._load_until:
                return
            self._room.require()
            self._roll_up()
        self._pass_what_lies_aside()
        if self._roll_up() or self.quarantine.purge_when_due():
            self._wake.set()  # There may be more, but what was sealed meanwhile comes first.

    def _roll_up(self) -> bool:
        """Sums of what was loaded, if much waits for them. Whether any were made.

        Where there is no room for them, nothing else waits: reports read those events one by one.
        """
        if time.monotonic() < self._sums_due_at:
            return False
        try:
            is_made = self._store.roll_up()
        except StoreRefused as error:
            log.warning("sums_wait", extra={"detail": f"store: {error}. Sums are tried again in {SUMS_AGAIN_S:g} s"})
            self._sums_due_at = time.monotonic() + SUMS_AGAIN_S
            return False
        if is_made:
            self._publisher.is_dirty = True
            self._publisher.checkpoint_when_due()
        return is_made

    def _pass_what_lies_aside(self) -> None:
        """All that can be loaded is. Nobody has to wait for a newest segment that is damaged."""
        self._pass(max(map(number_of, self._folder.damaged.iterdir()), default=0))

    def _pass(self, number: int) -> None:
        if number > self.last_number:
            self.last_number = number
            self._on_loaded()

    def _trouble_with(self, act: Callable[[], None]) -> str | None:
        """What went wrong, in a sentence; None when nothing did. A store that broke is away then, or begun again."""
        try:
            act()
            return None
        except Exception as error:  # noqa: BLE001  told below
            failure = error
        try:
            # Not in the `except` above: what recovers a store may meet a full disk, too.
            self._recover_from(failure)
        except Exception as error:  # noqa: BLE001  told below
            failure = error
        return self._try_again_soon(_sentence(failure))

    def _recover_from(self, failure: Exception) -> None:
        if not isinstance(failure, StoreBroken):
            return
        if is_disk_full(failure):
            self._room.ask_for_more()
        is_damaged = isinstance(failure, StoreDamaged)
        self.status.reopened_count += not is_damaged
        # Ingest goes on: the journal keeps everything until the store is back.
        self._publisher.forget()
        self._store.close()
        if is_damaged:
            self._rebuild(str(failure))

    def tell(self, trouble: str) -> None:
        """Say what keeps the store from being opened; it is tried again soon."""
        self.status.load_trouble = self._try_again_soon(trouble)

    def _try_again_soon(self, trouble: str) -> str:
        # Of the same trouble DuckDB names another block each time.
        known = {_DIGITS.sub("", text) for text in (self.status.load_trouble, self.status.snapshot_trouble) if text}
        if _DIGITS.sub("", trouble) not in known:
            log.error("loader_trouble", extra={"detail": trouble})
        self._publisher.put_off(RETRY_AFTER_S)
        return trouble

    def _load(self, segments: list[Segment]) -> None:
        if not segments:
            return
        started_at = time.monotonic()
        try:
            ledger = self._store.load(*segments)
        except SqlUnfit as error:
            self._load_without_the_unfit(segments, error)
            return
        self._backlog.add_loaded(segments)
        self.last_number = max(self.last_number, segments[-1].number)
        self._publisher.is_dirty = True
        self.status.load_duration_s += time.monotonic() - started_at
        self.status.count(ledger)
        self._on_loaded()
        self._publisher.checkpoint_when_due()

    def _load_without_the_unfit(self, segments: list[Segment], error: SqlUnfit) -> None:
        """Halve them until it stands alone."""
        if len(segments) == 1:
            self._intake.keep_aside(segments[0].path, str(error))
        else:
            half = len(segments) // 2
            self._load(segments[:half])
            self._load(segments[half:])

    def _look_what_is_loaded(self) -> None:
        # Not of all time: a busy server makes a segment a second, for years.
        oldest = self._backlog.oldest_number()
        self._backlog.loaded = {} if oldest is None else self._store.loaded_segments(from_number=oldest)
        self.last_number = self._store.last_segment_number()
        self._intake.begin(self.last_number)

    def _rebuild(self, why: str) -> None:
        """Rebuild the store and open it. The journal is loaded next."""
        self._room.require()
        rebuilt = rebuild(
            self._folder, self._store.limits, damaged_files=self._damaged, why=why, on_step=self._check_for_end
        )
        self._open_as_it_is()
        self._intake.check_rebuilt(after=rebuilt.complete_to)
        salvaged = rebuilt.salvaged
        if salvaged.row_count or salvaged.lost_count:
            self._damaged.tell_salvaged(salvaged.row_count, lost_count=salvaged.lost_count)

    def _check_for_end(self) -> None:
        if time.monotonic() >= self._load_until:
            raise StoreRefused("the server ends, and the rebuild begins again at the next start")

    def _open_as_it_is(self) -> None:
        self._store.open()
        try:
            self._look_what_is_loaded()
        except (StoreBroken, StoreRefused):
            self._store.close()
            raise

    def _seconds_to_next(self) -> float | None:
        seconds = RETRY_AFTER_S if self.status.load_trouble else self._publisher.seconds_to_next()
        return self.quarantine.seconds_to_next() if seconds is None else seconds

    def _seconds_to_end(self) -> float:
        return max(0.0, self._load_until - time.monotonic()) + LAST_SNAPSHOT_S_MAX + _END_S_MAX


def _sentence(failure: Exception) -> str:
    match failure:
        case StoreDamaged():
            return f"store: {failure}. It is being rebuilt"
        case StoreBroken():
            return f"store: {failure}. It is being reopened"
        case StoreRefused() | OSError():
            return f"store: {failure}. Loading goes on when that has changed"
        case EmbedsinkError():
            return str(failure)
    log.error("bug", exc_info=failure)
    return f"loader: {type(failure).__name__}. It is a bug; see the log. Loading is tried again"
