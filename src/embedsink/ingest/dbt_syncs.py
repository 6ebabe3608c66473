"""The results of dbt syncs: one for each deployment and job, found as soon as it is durable.

    keep ─▶ journal ─▶ held in memory, and answered ─▶ loader ─▶ store, and no longer held
    find ◀────────────── held, or else in the store

What was not loaded before a restart, or is missing in a store that had to be begun anew, is read from the journal when
somebody asks.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.errors import Refused, Unavailable, preview
from embedsink.ingest.records import read_syncs, sync_line
from embedsink.journal.segment import find_damage
from embedsink.journal.writer import Journal, OnDurable, wait_for
from embedsink.protocol.dbt_sync import COUNT_FIELD, Sync
from embedsink.protocol.strict_json import encode
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.reader import EVERYTHING

log = logging.getLogger(__name__)

VIEW = "sync_result"
LOADED_VIEW = "sync_in_scope"

Name = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A result that is durable, as JSON: a list of many files takes twenty times the room as objects."""

    digest: str
    content: bytes

    @property
    def result(self) -> dict[str, Any]:
        """The fields of spec 2.1, the count of cubes under `COUNT_FIELD`."""
        found: dict[str, Any] = orjson.loads(self.content)
        return found


class DbtSyncs:
    """The results of an open data folder. Its methods belong to the event loop, but for `forget_loaded`.

    Args:
        journal: where new ones go.
        store: where the loader brings them.
        bytes_max: how many bytes of results may wait for the loader.
        lookups: gives a place to each question to the store.
    """

    def __init__(
        self,
        journal: Journal,
        store: Store,
        *,
        bytes_max: int,
        lookups: ConcurrencyLimiter,
    ) -> None:
        self._journal = journal
        self._store = store
        self._unread: list[Path] = []
        self._opened_count = 0  # of the store, when `_unread` was made
        self._bytes_max = bytes_max
        self._lookups = lookups
        self._held: dict[Name, Recorded] = {}
        self._held_bytes = 0
        self._being_kept: dict[Name, asyncio.Event] = {}
        self._reading = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def find(self, deployment: int, job_id: str, *, key_id: str) -> Recorded | None:
        """The result of a job; None when there is none.

        Raises:
            Unavailable: the store can't be asked now.
        """
        return await self._look_up((deployment, job_id), key_id)

    async def keep(self, sync: Sync, *, key_id: str) -> bool:
        """Make a result durable; whether it is new. The same again changes nothing.

        Raises:
            Refused: `conflict` when the job has another result.
            Unavailable: nothing is kept of it.
        """
        name = (sync.deployment, sync.job_id)
        while (being_kept := self._being_kept.get(name)) is not None:
            await being_kept.wait()
        self._being_kept[name] = asyncio.Event()
        is_submitted = False
        try:
            known = await self._look_up(name, key_id)
            if known is not None:
                return _is_new(sync, known)
            durable = wait_for(lambda on_durable: self._submit(sync, key_id, on_durable))
            is_submitted = True
        finally:
            # Once it is submitted the journal's answer lets others, also when whoever sent it has left meanwhile.
            if not is_submitted:
                self._let_others(name)
        await durable
        return True

    def forget_loaded(self) -> None:
        """Hold no longer what the store has. Called in the loader's thread, after a load."""
        names = list(self._held)
        if not names:
            return
        try:
            loaded = self._loaded_of(names)
        except Unavailable as error:
            # They are held until a later load.
            log.warning("syncs_held", extra={"detail": str(error)})
            return
        with contextlib.suppress(RuntimeError):  # A closed loop has nobody left to ask.
            self._loop.call_soon_threadsafe(self._forget, loaded)

    def _submit(self, sync: Sync, key_id: str, on_durable: OnDurable) -> None:
        line = sync_line(sync, key_id=key_id)
        if self._held and self._held_bytes + len(line) > self._bytes_max:
            waiting = "syncs: as many bytes wait for the loader as may (EMBEDSINK_SYNC_BYTES_MAX). Send it again."
            raise Unavailable(Reason.OVERLOADED, waiting, retry_after_s=5)

        def durable(failure: Unavailable | None) -> None:
            if failure is None:
                self._hold(sync)
            self._let_others((sync.deployment, sync.job_id))
            on_durable(failure)

        self._journal.submit(line, durable)

    def _hold(self, sync: Sync) -> None:
        recorded = Recorded(sync.digest, encode(sync.result))
        # The first one counts, as it does when they are loaded.
        if self._held.setdefault((sync.deployment, sync.job_id), recorded) is recorded:
            self._held_bytes += len(recorded.content)

    def _forget(self, names: set[Name]) -> None:
        for name in names:
            if recorded := self._held.pop(name, None):
                self._held_bytes -= len(recorded.content)

    def _let_others(self, name: Name) -> None:
        self._being_kept.pop(name).set()

    async def _look_up(self, name: Name, key_id: str) -> Recorded | None:
        while True:
            await self._read_what_waits()
            # In this order: the loader has brought it into the store before it is no longer held.
            found = self._held.get(name) or await self._find_loaded(name, key_id)
            # A store that was opened anew meanwhile may have begun from a snapshot, which is older.
            if found or self._opened_count == self._store.opened_count:
                return found

    async def _read_what_waits(self) -> None:
        """Hold what the journal has and the store may lack: after the start, and after the store was opened anew."""
        async with self._reading:
            if self._opened_count != self._store.opened_count:
                self._opened_count = self._store.opened_count
                self._unread = self._journal.segments()
            while self._unread:
                for sync in await asyncio.to_thread(self._missing_of, self._unread[0]):
                    self._hold(sync)
                del self._unread[0]

    def _missing_of(self, path: Path) -> list[Sync]:
        """The results in a segment that the store does not have."""
        try:
            found = _syncs_of(path)
        except OSError as error:
            unreadable = f"journal: a segment can't be read ({error.strerror}). Ask again."
            raise Unavailable(Reason.NOT_READY, unreadable, retry_after_s=5) from None
        if not found:
            return []
        loaded = self._loaded_of([(sync.deployment, sync.job_id) for sync in found])
        return [sync for sync in found if (sync.deployment, sync.job_id) not in loaded]

    def _loaded_of(self, names: list[Name]) -> set[Name]:
        """Those of these that the store has."""
        with self._store.reader(
            {**EVERYTHING, "sync_job_ids": [job_id for _, job_id in names]}, is_brief=True
        ) as reader:
            return {(row["deployment"], row["sync_job_id"]) for row in reader.dicts(LOADED_VIEW)}.intersection(names)

    async def _find_loaded(self, name: Name, key_id: str) -> Recorded | None:
        async with self._lookups.slot(key_id):
            return await asyncio.to_thread(self._ask_the_store, name)

    def _ask_the_store(self, name: Name) -> Recorded | None:
        deployment, job_id = name
        with self._store.reader({"deployments": [deployment], "sync_job_ids": [job_id]}, is_brief=True) as reader:
            return next((_recorded(row) for row in reader.dicts(VIEW)), None)


def _is_new(sync: Sync, known: Recorded) -> bool:
    if sync.digest != known.digest:
        taken = f"syncJobId: {preview(sync.job_id)} has another result in deployment {sync.deployment}, which stays."
        raise Refused(Reason.CONFLICT, f"{taken} Record a new sync under its own job.")
    return False


def _syncs_of(path: Path) -> list[Sync]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []  # Loaded meanwhile, and covered by a snapshot: the store has it.
    syncs = list(read_syncs(content))
    # A damaged segment is set aside whole, and so nothing of it is ever loaded.
    return syncs if syncs and find_damage(content) is None else []


def _recorded(row: dict[str, Any]) -> Recorded:
    result = {
        "syncJobId": row["sync_job_id"],
        "generatedFiles": [{"path": path} for path in row["paths"]],
        "manifestStats": {
            "models": row["model_count"],
            "sources": row["source_count"],
            "macros": row["macro_count"],
        },
        COUNT_FIELD: row["cube_count"],
        "completedAt": row["completed_at_text"],
        "durationMs": row["duration_ms"],
    }
    return Recorded(row["digest"], encode(result))
