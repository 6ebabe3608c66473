"""The engine: it opens the journal, the store, the loader and the keys of a data folder, and connects them."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from embedsink.archive.archive import Archive
from embedsink.archive.target import open_target
from embedsink.audit.changes import secret_file_of
from embedsink.audit.entry import SERVER, Action, Entry, Via
from embedsink.audit.recorder import Recorder
from embedsink.audit.trail import AuditTrail
from embedsink.auth.key_cache import KeyCache
from embedsink.auth.key_store import KeyStore
from embedsink.clock_watch import watch_clock
from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.concurrency.priority import lower_priority
from embedsink.concurrency.single_flight import SingleFlight
from embedsink.concurrency.throttle import Throttle
from embedsink.data_folder import DataFolder, FolderLock, advice_on, nested_message
from embedsink.directory.directory import Directory
from embedsink.directory.viewer import viewer_of
from embedsink.erasure.erasures import Erasures
from embedsink.erasure.register import ErasureRegister
from embedsink.erasure.request import Erasure
from embedsink.erasure.run import ErasureRun
from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.ingest.dbt_syncs import DbtSyncs
from embedsink.ingest.pipeline import ParseResult
from embedsink.ingest.quarantine_budget import QuarantineBudget
from embedsink.ingest.records import rejection_count_lines
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.limits import JournalLimits
from embedsink.journal.recovery import Recovery
from embedsink.journal.writer import Journal, OnDurable
from embedsink.key_scope import EVERYTHING
from embedsink.loader.event_retention import Retention
from embedsink.loader.loader import Loader
from embedsink.loader.notifier import LoadNotifier
from embedsink.permissions import restricted_umask
from embedsink.privacy.erased_people import ErasedPeople
from embedsink.privacy.internal import read_internal_people
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.privacy.rules import read_privacy_rules
from embedsink.reports.number_cipher import NumberCipher
from embedsink.settings import NO_ARCHIVE, Settings
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.limits import StoreLimits

log = logging.getLogger(__name__)

_KEYS_MISSING = (
    "does not exist. The server refuses every key with 401 and ends open downloads. Acknowledged events are kept and "
    "loaded. Put the file back, and its keys are valid again within a second. Without a copy, create new keys with "
    "`embedsink keys create`."
)

# The key id of events that were imported from a file.
IMPORT_KEY_ID = "import"
# The maximum number of concurrent queries for single dbt syncs. Each takes a few milliseconds.
SYNC_LOOKUPS_MAX = 2
# Logins at the identity provider that are finished at the same time, and those that wait.
LOGINS_MAX = 4
LOGINS_WAITING_MAX = 32
# The maximum number of concurrent downloads of the snapshot. A download keeps its snapshot on the disk, even after a
# newer one has replaced it.
SNAPSHOT_DOWNLOADS_MAX = 4


def now_ms() -> int:
    """Return the server's time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Limiters:
    """The limiters of concurrent work. Each one gives all keys fair shares."""

    reports: ConcurrencyLimiter
    dashboards: Throttle
    # Live queries take milliseconds: they run one at a time, and must not wait for a report that covers a year.
    live: ConcurrencyLimiter
    snapshots: ConcurrencyLimiter
    # Parsing a dbt sync occupies the interpreter, so only one runs.
    sync_parsing: ConcurrencyLimiter
    sync_lookups: ConcurrencyLimiter
    # The directory answers one request at a time.
    directory: ConcurrencyLimiter
    # Anyone can send authorization codes, and each causes a request to the identity provider.
    logins: ConcurrencyLimiter

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Create the limiters for the running event loop.

        If all slots are in use, the error message names `subject` and `setting`.
        """
        waiting_max = settings.report_waiting_max
        return cls(
            reports=ConcurrencyLimiter(settings.report_concurrency_max, waiting_max=waiting_max),
            dashboards=Throttle(waiting_max=waiting_max),
            live=ConcurrencyLimiter(1, waiting_max=settings.live_max, subject="live", setting="EMBEDSINK_LIVE_MAX"),
            snapshots=ConcurrencyLimiter(
                SNAPSHOT_DOWNLOADS_MAX,
                waiting_max=0,
                subject="analytics.duckdb",
                # This limit is fixed, so the message names it. The last slot is reserved for a key without a download.
                setting=f"{SNAPSHOT_DOWNLOADS_MAX} concurrent downloads, {SNAPSHOT_DOWNLOADS_MAX - 1} per key",
            ),
            sync_parsing=ConcurrencyLimiter(1, waiting_max=waiting_max, subject="syncs"),
            sync_lookups=ConcurrencyLimiter(SYNC_LOOKUPS_MAX, waiting_max=waiting_max, subject="syncs"),
            directory=ConcurrencyLimiter(1, waiting_max=waiting_max, subject="directory"),
            logins=ConcurrencyLimiter(
                LOGINS_MAX, waiting_max=LOGINS_WAITING_MAX, subject="login", setting=f"{LOGINS_MAX} at a time"
            ),
        )


class Engine:
    """An open data folder. Use it as an asynchronous context manager.

    Args:
        folder: the data folder; it is created if missing.
        settings: the limits.
        on_journal_failure: called once in another thread, when the disk has failed and the journal has ended.
        closing_s_max: how long closing may spend on loading, in seconds; None for no limit. The next start loads the
            rest.
    """

    store: Store
    loader: Loader
    journal: Journal
    keys: KeyCache
    syncs: DbtSyncs
    directory: Directory
    erasures: Erasures
    load_notifier: LoadNotifier
    audit: Recorder
    privacy: Privacy

    def __init__(
        self,
        folder: DataFolder,
        settings: Settings,
        *,
        on_journal_failure: Callable[[], None] = lambda: None,
        closing_s_max: float | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.rules = settings.rules()
        self.counters: Counter[str] = Counter()
        self.limiters = Limiters.from_settings(settings)
        self.reader_threads = _create_reader_threads(settings)
        self.live_queries = SingleFlight()  # Live streams with equal filters share queries.
        self.replay_lock = asyncio.Lock()
        self.number_cipher = NumberCipher()  # hides from limited keys how much others send
        self._on_journal_failure = on_journal_failure
        self._closing_s_max = closing_s_max  # the time for loading at close
        self._quarantine_budget = QuarantineBudget(
            bytes_per_day=settings.quarantine_bytes_per_day, count_per_day=settings.quarantine_count_per_day
        )
        self._last_sealed = LastSealed(folder.last_sealed)

    async def __aenter__(self) -> Self:
        """Open the folder.

        Raises:
            Misconfigured: the folder can't be opened.
        """
        exposed_paths = self.folder.create()
        if exposed_paths:
            log.warning("folder_exposed", extra={"detail": _exposure_message(self.folder, exposed_paths)})
        async with AsyncExitStack() as closers:
            closers.enter_context(restricted_umask())
            closers.enter_context(FolderLock(self.folder))
            try:
                self.folder.migrate_former_damaged_folder()
                self._open(closers)
            except OSError as error:
                path = error.filename or self.folder.path
                raise Misconfigured(f"{path}: {error.strerror}. {advice_on(error)}") from error
            self._closers = closers.pop_all()  # Keep everything open after this block.
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit and load pending events, publish a last snapshot and unlock the folder."""
        await self._closers.aclose()

    def _open(self, closers: AsyncExitStack) -> None:
        """Open all parts. `closers` closes them in reverse order, even if opening a later part fails."""
        settings = self.settings
        self.privacy = read_privacy(self.folder, needs_secret=settings.question_retention_days > 0)
        self.store = Store(self.folder.store, _store_limits(settings), stored_tenants=self.privacy.stored_tenants)
        self.loader = self._create_loader()
        # Don't wait for queries: the loader is closed first, and closes the store, which ends them.
        closers.callback(self.reader_threads.shutdown, wait=False)
        closers.push_async_callback(asyncio.to_thread, self.loader.close)
        try:
            self.loader.open_store()
        except (OSError, StoreRefused) as error:
            # Ingest does not need the store, and the loader retries.
            self.loader.report_error(f"store: {error}. Loading continues when this is resolved.")
        self._restore_quarantine_budget()
        self.journal = self._open_journal()
        for nested in self.folder.nested_data_folders():
            log.warning("nested_folder", extra={"detail": nested_message(nested)})
        self.keys = KeyCache(KeyStore(self.folder.keys), time.time)
        self.audit = Recorder(AuditTrail(self.folder))
        closers.push_async_callback(self.audit.close)
        self.syncs = DbtSyncs(
            self.journal, self.store, bytes_max=settings.sync_bytes_max, lookups=self.limiters.sync_lookups
        )
        self.directory = Directory(
            self.journal,
            self.store,
            bytes_max=settings.directory_bytes_max,
            body_bytes_max=settings.body_bytes_max,
            on_deleted=self._erase_deleted_users if settings.erase_on_scim_delete == "on" else None,
        )
        self.erasures = self._open_erasures()
        self.load_notifier = LoadNotifier(self.loader, self.journal, listeners_max=settings.live_max)
        self._start(closers)

    def _start(self, closers: AsyncExitStack) -> None:
        """Start the threads and the background tasks."""
        self.journal.start()
        closers.push_async_callback(self.journal.close)
        closers.callback(self.load_notifier.close)
        for watch in (_watch_keys(self.keys, self.folder, self.settings.keys_reload_s), watch_clock()):
            task = asyncio.create_task(watch)
            closers.callback(task.cancel)
        # The journal files of earlier processes are complete, and may not be loaded yet.
        self.loader.on_sealed(self.journal.last_number)
        # Start the loader after the parts that its callbacks use.
        self.loader.start()
        self.erasures.start()
        closers.push_async_callback(self.erasures.close)

    def _open_erasures(self) -> Erasures:
        register = ErasureRegister(
            self.folder.erasures,
            privacy=self.privacy,
            block_days=self.settings.erasure_block_days,
            certificate_days=self.settings.audit_days,
            on_erased_people=self._reject_erased,
        )
        run = ErasureRun(
            self.folder,
            journal=self.journal,
            loader=self.loader,
            store=self.store,
            directory=self.directory,
            privacy=self.privacy,
            register=register,
            on_finished=self._record_erased,
        )
        return Erasures(register, run)

    def _reject_erased(self, people: ErasedPeople) -> None:
        """Reject the deliveries of these people from now on."""
        self.privacy = replace(self.privacy, erased=people)

    async def _record_erased(self, erasure: Erasure) -> None:
        """Record in the audit trail that a person is erased, but not who. Raise Unavailable if that fails."""
        entry = Entry(
            action=Action.ERASED,
            actor=SERVER,
            via=Via.SERVER,
            target=f"erasures/{erasure.id}",
            detail={"removed": erasure.removed},
        )
        await self.audit.record(entry)

    async def _erase_deleted_users(self, users: list[dict[str, Any]]) -> None:
        """Request the erasure of people whom the identity provider deletes."""
        attribute = self.settings.viewer_attribute
        for user in users:
            viewer = viewer_of(user, attribute)
            if viewer:
                await self.audit.record(Entry(action=Action.ERASURE, actor=SERVER, via=Via.SERVER, target="erasures"))
                await self.erasures.request(Person(viewer), key_id=None, deleted_user=user)

    def _create_loader(self) -> Loader:
        # The journal and the erasures are opened after the loader is created, so the lambdas read them when called.
        return Loader(
            self.folder,
            self.store,
            snapshot_interval_s=self.settings.snapshot_interval_s,
            closing_s_max=self._closing_s_max,
            on_loaded=self._on_loaded,
            # The loader has deleted or moved a journal file.
            on_removed=lambda byte_count: self.journal.capacity.remove(byte_count),
            is_low_on_space=lambda: self.journal.capacity.is_low_on_space,
            quarantine_days=self.settings.quarantine_retention_days,
            retention=Retention(
                event_days=self.settings.retention_days,
                question_days=self.settings.question_retention_days,
                extra_days=self.settings.extra_retention_days,
                event_days_of=self.settings.deployment_retention_days(),
                keeps_totals=self.settings.daily_totals == "on",
                hash_question=lambda text: self.privacy.hashes("query", text)[0],
            ),
            archive=_open_archive(self.settings, self.folder),
            has_pending_erasures=lambda: bool(self.erasures.register.pending()),
        )

    def _open_journal(self) -> Journal:
        return Journal(
            self.folder.journal,
            damaged_folder=self.folder.damaged,
            limits=_journal_limits(self.settings),
            # Even if the folder was emptied, new journal files get higher numbers than all earlier ones: the loader
            # rejects a number that was loaded before.
            after_number=max(self.loader.last_number, self._last_sealed.read()),
            on_recovered=self._report_recovery,
            on_sealed=self._on_sealed,
            on_failure=self._on_journal_failure,
        )

    def _report_recovery(self, recovery: Recovery) -> None:
        """Log the results of a recovery of the journal. `/readyz` lists damage until the next start.

        The journal may call this in its thread.
        """
        for message in (*recovery.notes, *recovery.damaged):
            log.warning("journal_recovered", extra={"detail": message})
        self.loader.status.damaged.extend(recovery.damaged)

    def _restore_quarantine_budget(self) -> None:
        """Count the rejections that were quarantined today against the daily budget of each key."""
        try:
            with self.store.reader(EVERYTHING.variables(), is_short=True) as reader:
                rows = reader.dicts("quarantine_today")
        except EmbedsinkError as error:
            # The loader repairs a damaged store. Ingest does not wait for the repair, so today's usage starts at zero.
            log.warning("quarantine_count_failed", extra={"detail": str(error)})
            return
        self._quarantine_budget.restore_usage((row["key_id"], row["byte_count"], row["row_count"]) for row in rows)

    def _on_sealed(self, number: int) -> None:
        """Record the number of a sealed segment (a complete journal file), and wake the loader.

        The journal calls this in its thread.
        """
        self._last_sealed.write(number)
        self.loader.on_sealed(number)

    def _on_loaded(self) -> None:
        """Forget the dbt syncs that are loaded, and notify readers of the load. The loader calls this in its thread."""
        self.syncs.forget_loaded()
        self.load_notifier.notify()

    def submit_with_rejections(
        self, result: ParseResult, on_durable: OnDurable, *, key_id: str, is_scoped: bool
    ) -> None:
        """Submit the lines of a body with rejections to the journal.

        The rejections are stored if their daily budget and the disk have space for them, else only counted.

        Args:
            result: the result of validating the body.
            on_durable: called with None when the lines are durable, else with the error of the journal.
            key_id: the id of the sender's key.
            is_scoped: whether the key is limited to some deployments. Only then do the counts name the deployment:
                with another key, a sender could create a row for each invented deployment.

        Raises:
            Unavailable: nothing is stored.
        """
        rejected_count = result.rejected_count
        rejected_bytes = len(result.rejection_lines)
        stores_rejections = self._has_quarantine_space(key_id, rejected_bytes, rejected_count)
        rejection_lines = result.rejection_lines
        if not stores_rejections:
            deployment = result.deployment if is_scoped else None
            rejection_lines = rejection_count_lines(
                result.reasons, received_at=now_ms(), key_id=key_id, deployment=deployment
            )

        def count_rejections(failure: Unavailable | None) -> None:
            if failure is None and stores_rejections:
                self._quarantine_budget.charge(key_id, byte_count=rejected_bytes, count=rejected_count)
            elif failure is None:
                self.counters["not_stored"] += rejected_count
            on_durable(failure)

        self.submit_counted(
            result.accepted_lines + rejection_lines,
            count_rejections,
            accepted=result.accepted_count,
            quarantined=rejected_count,
            deployment=result.deployment,
            tenant=result.tenant,
        )

    def _has_quarantine_space(self, key_id: str, byte_count: int, count: int) -> bool:
        """Return whether the disk has headroom, and a key's daily budget has space for these bytes and rejections."""
        has_headroom = self.journal.capacity.has_headroom(free_bytes_min=self.settings.quarantine_free_bytes_min)
        return has_headroom and self._quarantine_budget.is_within_budget(key_id, byte_count=byte_count, count=count)

    def submit_counted(
        self,
        lines: bytes,
        on_durable: OnDurable,
        *,
        accepted: int,
        quarantined: int,
        deployment: int | None = None,
        tenant: str | None = None,
    ) -> None:
        """Submit lines to the journal, and count their envelopes when they are durable.

        Args:
            lines: journal lines.
            on_durable: called with None when the lines are durable, else with the error of the journal.
            accepted: the number of accepted envelopes in the lines.
            quarantined: the number of quarantined envelopes in the lines.
            deployment: the deployment of all envelopes in the lines; None if unknown.
            tenant: the tenant of all envelopes in the lines; None if unknown.

        Raises:
            Unavailable: nothing is stored.
        """

        def count_envelopes(failure: Unavailable | None) -> None:
            if failure is None:
                self.counters["accepted"] += accepted
                self.counters["quarantined"] += quarantined
                self.load_notifier.note_acknowledged(deployment, tenant)
            on_durable(failure)

        self.journal.submit(lines, count_envelopes)


async def _watch_keys(keys: KeyCache, folder: DataFolder, interval_s: float) -> None:
    """Reload the keys whenever `keys.json` has changed. Log a missing or invalid file."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            has_changed = await run_in_daemon_thread(keys.refresh, name="keys")  # Reading 10,000 keys takes 0.25 s.
            if has_changed and not folder.keys.exists():
                log.warning("keys_gone", extra={"detail": f"{folder.keys}: {_KEYS_MISSING}"})
        except Misconfigured as error:
            log.error("keys_unreadable", extra={"detail": str(error)})
        except Exception as error:
            # Continue: if this task ended, revoked keys would remain valid.
            log.error("bug", exc_info=error)


def _create_reader_threads(settings: Settings) -> ThreadPoolExecutor:
    """Return a pool with a thread for each running report, and one thread for live queries."""
    return ThreadPoolExecutor(
        settings.report_concurrency_max + 1, thread_name_prefix="reading", initializer=lower_priority
    )


def _exposure_message(folder: DataFolder, exposed_paths: list[Path]) -> str:
    """Return a warning about files that other users may read or change."""
    remainder = f" and {len(exposed_paths) - 1:,} more" if len(exposed_paths) > 1 else ""
    return (
        f"{exposed_paths[0]}{remainder}: other users may read or change it, and this user can't change its "
        f"permissions. As the owner, run `chmod -R g-w,o= {folder.path}`."
    )


def read_privacy(folder: DataFolder, *, needs_secret: bool = False) -> Privacy:
    """Return the privacy rules and the internal people of a data folder. The first rule that hashes creates a secret.

    Args:
        folder: the data folder.
        needs_secret: whether to create a secret even if no rule hashes.

    Raises:
        Misconfigured: a file of the rules or secrets can't be read or is invalid, or the secrets are missing.
        OSError: the secret can't be written.
    """
    rules = read_privacy_rules(folder.privacy_rules)
    secret_file = secret_file_of(folder)
    secrets = secret_file.read_or_create() if rules.has_hashes or needs_secret else secret_file.read()
    return Privacy(rules, secrets, read_internal_people(folder.internal_people))


def _open_archive(settings: Settings, folder: DataFolder) -> Archive | None:
    """Return the archive of the settings; None without one. It need not be reachable yet.

    Raises:
        Misconfigured: the archive is in the data folder, or the extension for object storage is missing.
    """
    if settings.archive == NO_ARCHIVE:
        return None
    return Archive(open_target(settings.archive, data=folder.path))


def _store_limits(settings: Settings) -> StoreLimits:
    return StoreLimits(
        memory_bytes=settings.store_memory_bytes,
        memory_bytes_max=settings.store_memory_bytes_max,
        threads=settings.store_threads,
        threads_max=settings.store_threads_max,
        dedup_days=settings.dedup_days,
        session_gap_minutes=settings.session_gap_minutes,
        viewer_attribute=settings.viewer_attribute,
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
