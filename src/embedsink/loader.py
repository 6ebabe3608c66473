"""The loader: one thread that brings sealed segments into the store, publishes snapshots and tidies the journal.

sealed segments ─▶ check their CRCs ─▶ one transaction: rows + names ─▶ store.duckdb
                                                                          └─ checkpoint, copy ─▶ analytics.duckdb
a segment is deleted only when a snapshot covers it
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from embedsink import snapshot
from embedsink.aside import Aside
from embedsink.backlog import Backlog
from embedsink.errors import EmbedsinkError
from embedsink.folder import DataFolder
from embedsink.priority import give_way_to_ingest
from embedsink.resting import Rests
from embedsink.segment import Segment, inspect, number_of
from embedsink.store import Ledger, SqlUnfit, Store, StoreBroken, StoreDamaged, StoreRefused

log = logging.getLogger(__name__)

RETRY_AFTER_S = 2.0
SUMS_AGAIN_S = 60.0
SNAPSHOT_SHARE_MAX = 1 / 20
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class LoaderStatus:
    """What the loader did and found, for `/readyz` and `/metrics`. Written by its thread alone."""

    segment_count: int = 0
    received_count: int = 0
    accepted_count: int = 0
    duplicate_count: int = 0
    quarantined_count: int = 0
    load_duration_s: float = 0.0
    snapshot_count: int = 0
    snapshot_duration_s: float = 0.0
    snapshot_at: float | None = None
    reopened_count: int = 0
    load_trouble: str | None = None
    snapshot_trouble: str | None = None
    end_trouble: str | None = None
    damaged: list[str] = field(default_factory=list)

    @property
    def trouble(self) -> str | None:
        """What keeps it from loading or from publishing, in sentences; None when nothing does."""
        return self.end_trouble or " ".join(filter(None, (self.load_trouble, self.snapshot_trouble))) or None

    def count(self, ledger: Ledger) -> None:
        """Add what was loaded."""
        self.segment_count += ledger.segment_count
        self.received_count += ledger.received_count
        self.accepted_count += ledger.accepted_count
        self.duplicate_count += ledger.duplicate_count
        self.quarantined_count += ledger.quarantined_count


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
    ) -> None:
        self.status = LoaderStatus()
        self._folder = folder
        self._store = store
        self._aside = Aside(folder.aside, told=self.status.damaged)
        self._aside.look()
        self._snapshot_interval_s = snapshot_interval_s
        self._on_loaded = on_loaded
        self._backlog = Backlog(folder.journal, on_removed=on_removed)
        self._closing_s_max = closing_s_max
        self._rests = rests or Rests()
        self._snapshot_due_at = 0.0
        self._sums_due_at = 0.0
        self._is_verified = False
        self._is_from_snapshot = False
        self.last_number = 0  # the highest that is in the store, or damaged and aside, and so are all before it
        self._is_dirty = False
        self._wake = threading.Event()
        self._closing = False
        self._load_until = math.inf  # in monotonic seconds; bounded when closing
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)

    def start(self) -> None:
        """Begin to load; call `open_store` first."""
        self._thread.start()

    def wake(self) -> None:
        """Look for sealed segments now."""
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
            self._thread.join()
        self._store.close()

    def open_store(self) -> None:
        """Open the store; a missing one is begun from the snapshot, a broken one is set aside first.

        Raises:
            Misconfigured: nothing that a rebuild could mend.
            OSError, StoreRefused: there is no room for it now, or another program has it open.
        """
        if not self._folder.store.exists():
            self._begin_from_snapshot()
        try:
            self._open_as_it_is()
        except StoreBroken as error:
            self._begin_again(str(error))
            self._open_again()
        self._aside.look_for_a_gap(self._folder.journal, after=self.last_number)
        # Also when nothing was loaded since: the snapshot may be missing, damaged or older than the store.
        self._is_dirty = True

    def waiting_since(self) -> float | None:
        """When the oldest sealed segment was written that is not in the store; epoch seconds, None when all are."""
        return self._backlog.waiting_since

    def load_waiting(self) -> Iterator[None]:
        """Load every sealed segment that the store does not have yet, oldest first: a transaction with each step."""
        for some in self._backlog.waiting():
            began_at = time.monotonic()
            self._load([segment for path in some if (segment := self._inspected(path))])
            yield
            self._rests.rest_after(time.monotonic() - began_at)  # also after what was done with the step

    def publish(self) -> None:
        """Publish a snapshot now, and delete the segments that it covers, but for the newest.

        The newest one stays, so that the numbers of the journal go on after a restart.
        """
        started_at = time.monotonic()
        self._store.checkpoint()
        copying_s = snapshot.replace_by_copy(self._folder.snapshot, self._folder.store)
        self._backlog.delete_loaded()
        self._is_dirty = False
        # The share is of the disk. A small copy's child may wait long for a busy processor, and nobody waits for it.
        self._snapshot_due_at = time.monotonic() + max(self._snapshot_interval_s, copying_s / SNAPSHOT_SHARE_MAX)
        self.status.snapshot_count += 1
        self.status.snapshot_duration_s += time.monotonic() - started_at
        self.status.snapshot_at = time.time()

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

    def _work_until_closed(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._seconds_to_snapshot())
            self._wake.clear()
            is_last = self._closing
            self.work_once(is_last=is_last)

    def work_once(self, *, is_last: bool) -> None:
        """Load what is sealed, and publish a snapshot when one is due, or when it `is_last`. Its own thread does."""
        # Each clears its own trouble: that loading goes on does not mean that snapshots do.
        self.status.load_trouble = self._trouble_with(self._load_round)
        # One that broke while it was loaded into says why already.
        is_good = self.status.load_trouble is None and self._store.is_open
        if is_good and (is_last or time.monotonic() >= self._snapshot_due_at):
            self.status.snapshot_trouble = self._trouble_with(self._publish_what_is_new)

    def _load_round(self) -> None:
        known = self._backlog.loaded
        if not self._store.is_open:
            self.open_store()
        elif self.status.load_trouble:
            self._look_what_is_loaded()
        if not self._backlog.loaded <= known:
            # What was refused was committed all the same.
            self._is_dirty = True
            self._on_loaded()
        for _ in self.load_waiting():
            # A long backlog must not keep snapshots, and with them the journal's room, waiting.
            if time.monotonic() >= self._snapshot_due_at:
                self.status.snapshot_trouble = self._trouble_with(self._publish_what_is_new)
            if time.monotonic() >= self._load_until:
                return
            self._sum_up()
        self._pass_what_lies_aside()
        if self._sum_up():
            self._wake.set()  # There may be more, but what was sealed meanwhile comes first.

    def _sum_up(self) -> bool:
        """Sums of what was loaded, if much waits for them. Whether any were made.

        Where there is no room for them, nothing else waits: reports read those events one by one.
        """
        if time.monotonic() < self._sums_due_at:
            return False
        try:
            is_made = self._store.sum_up()
        except StoreRefused as error:
            log.warning("sums_wait", extra={"detail": f"store: {error}. Sums are tried again in {SUMS_AGAIN_S:g} s"})
            self._sums_due_at = time.monotonic() + SUMS_AGAIN_S
            return False
        if is_made:
            self._is_dirty = True
            self._store.checkpoint_when_due()
        return is_made

    def _pass_what_lies_aside(self) -> None:
        """All that can be loaded is. Nobody has to wait for a newest segment that is damaged."""
        aside = max(map(number_of, self._folder.aside.iterdir()), default=0)
        if aside > self.last_number:
            self.last_number = aside
            self._on_loaded()

    def _publish_what_is_new(self) -> None:
        # Opening looks at little of a store. What is damaged must not replace a snapshot that is sound.
        if self._is_dirty and self._verify():
            self.publish()

    def _verify(self) -> bool:
        """Whether all of the store could be read; once after each opening. Closing does not wait for it."""
        if not self._is_verified:
            for _ in self._store.verify():
                if time.monotonic() >= self._load_until:
                    return False
            self._is_verified = True
            self._is_from_snapshot = False
        return True

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
        is_damaged = isinstance(failure, StoreDamaged)
        self.status.reopened_count += not is_damaged
        # Ingest goes on: the journal keeps everything until the store is back.
        self._store.close()
        if is_damaged:
            self._begin_again(str(failure))

    def tell(self, trouble: str) -> None:
        """Say what keeps the store from being opened; it is tried again soon."""
        self.status.load_trouble = self._try_again_soon(trouble)

    def _try_again_soon(self, trouble: str) -> str:
        # Of the same trouble DuckDB names another block each time.
        known = {_DIGITS.sub("", text) for text in (self.status.load_trouble, self.status.snapshot_trouble) if text}
        if _DIGITS.sub("", trouble) not in known:
            log.error("loader_trouble", extra={"detail": trouble})
        self._snapshot_due_at = time.monotonic() + RETRY_AFTER_S
        return trouble

    def _inspected(self, path: Path) -> Segment | None:
        """A segment to load; None when it is damaged: then it lies aside."""
        segment = inspect(path)
        if segment.damage is None:
            return segment
        self._aside.keep_segment(path, f"{segment.damage.why} after offset {segment.damage.end:,}")
        self._backlog.remove(segment)
        return None

    def _load(self, segments: list[Segment]) -> None:
        if not segments:
            return
        started_at = time.monotonic()
        try:
            ledger = self._store.load(*segments)
        except SqlUnfit as error:
            self._load_without_the_unfit(segments, error)
            return
        self._backlog.loaded |= {segment.path.name for segment in segments}
        self.last_number = max(self.last_number, segments[-1].number)
        self._is_dirty = True
        self.status.load_duration_s += time.monotonic() - started_at
        self.status.count(ledger)
        self._on_loaded()
        self._store.checkpoint_when_due()

    def _load_without_the_unfit(self, segments: list[Segment], error: SqlUnfit) -> None:
        """Halve them until it stands alone."""
        if len(segments) == 1:
            self._aside.keep_segment(segments[0].path, str(error))
            self._backlog.remove(segments[0])
        else:
            half = len(segments) // 2
            self._load(segments[:half])
            self._load(segments[half:])

    def _look_what_is_loaded(self) -> None:
        # Not of all time: a busy server makes a segment a second, for years.
        oldest = self._backlog.oldest_number()
        self._backlog.loaded = set() if oldest is None else self._store.loaded_segments(from_number=oldest)
        self.last_number = self._store.last_segment_number()

    def _begin_again(self, why: str) -> None:
        """Without the store as it is: from the snapshot; or, where that is what was damaged, from the journal alone."""
        if self._is_from_snapshot:
            # What only the two of them held is in aside/, and the gap in the journal's numbers tells of it.
            self._aside.keep_store(
                self._folder.store, why, instead="begun anew from the journal: the snapshot is damaged too"
            )
            self._aside.keep_snapshot(self._folder.snapshot)
            self._is_from_snapshot = False
        else:
            self._aside.keep_store(self._folder.store, why, instead="rebuilt from the snapshot and the journal")
            self._begin_from_snapshot()

    def _begin_from_snapshot(self) -> None:
        if self._folder.snapshot.exists():
            snapshot.replace_by_copy(self._folder.store, self._folder.snapshot)
            self._is_from_snapshot = True

    def _open_again(self) -> None:
        try:
            self._open_as_it_is()
        except StoreBroken as error:
            self._begin_again(str(error))
            self._open_as_it_is()

    def _open_as_it_is(self) -> None:
        self._store.open()
        self._is_verified = False
        try:
            if self._is_from_snapshot:
                self._store.derive_anew()  # Should that be what was wrong.
            self._look_what_is_loaded()
        except (StoreBroken, StoreRefused):
            self._store.close()
            raise

    def _seconds_to_snapshot(self) -> float | None:
        if not self._is_dirty and self.status.trouble is None:
            return None
        return max(0.0, self._snapshot_due_at - time.monotonic())


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
