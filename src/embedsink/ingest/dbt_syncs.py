"""The results of dbt syncs: one for each deployment and job, readable as soon as it is durable.

    record ─▶ journal ─▶ memory, then answer ─▶ loader ─▶ store, then out of memory
    find ◀────────────── memory, or else the store

After a restart, or after a damaged store was replaced, the results that the store lacks are read from the journal when
the first request needs them.
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
from embedsink.journal.writer import Journal, wait_for
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync
from embedsink.protocol.strict_json import encode
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.reader import EVERYTHING

log = logging.getLogger(__name__)

VIEW = "sync_result"
LOADED_VIEW = "sync_in_scope"

Name = tuple[int, str]  # deployment and job


@dataclass(frozen=True, slots=True)
class Recorded:
    """A durable result. It is stored as JSON: as objects, a long list of files takes twenty times the memory."""

    digest: str
    content: bytes

    @property
    def result(self) -> dict[str, Any]:
        """The fields of spec 2.1, with the count of cubes under `CUBE_COUNT_FIELD`."""
        fields: dict[str, Any] = orjson.loads(self.content)
        return fields


class DbtSyncs:
    """The results of an open data folder. Its methods belong to the event loop, except `forget_loaded`.

    Args:
        journal: the journal for new results.
        store: the store that the loader copies them to.
        bytes_max: the maximum size of the results that are not loaded yet, in bytes.
        lookups: the limit of concurrent queries to the store.
    """

    def __init__(self, journal: Journal, store: Store, *, bytes_max: int, lookups: ConcurrencyLimiter) -> None:
        self._journal = journal
        self._store = store
        self._bytes_max = bytes_max
        self._lookups = lookups
        self._unloaded: dict[Name, Recorded] = {}
        self._unloaded_bytes = 0
        self._recording: dict[Name, asyncio.Task[bool]] = {}
        self._unread_segments: list[Path] = []
        self._opened_count = 0  # the value of `store.opened_count` when the segments were listed
        self._recovery_lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def find(self, deployment: int, job_id: str, *, key_id: str) -> Recorded | None:
        """Return the result of a job; None if the job has none.

        Raises:
            Unavailable: the store can't answer now.
        """
        name = deployment, job_id
        while True:
            await self._recover()
            # Look in memory first: the loader stores a result before it is removed from memory.
            recorded = self._unloaded.get(name) or await self._find_loaded(name, key_id)
            # A store that was replaced meanwhile may lack results, because it began from an older snapshot.
            if recorded or self._opened_count == self._store.opened_count:
                return recorded

    async def record(self, sync: Sync, *, key_id: str) -> bool:
        """Make a result durable. Return whether it is new: recording an equal result again changes nothing.

        Raises:
            Refused: `conflict` when the job has a different result.
            Unavailable: nothing was stored.
        """
        name = sync.deployment, sync.job_id
        while (other := self._recording.get(name)) is not None:
            await asyncio.wait([other])
        # A task of its own: if the request is cancelled, the next one for this job still waits for the journal.
        task = self._recording[name] = asyncio.create_task(self._record(sync, key_id))
        task.add_done_callback(lambda _: self._recording.pop(name))
        return await asyncio.shield(task)

    def forget_loaded(self) -> None:
        """Remove from memory the results that the store has. The loader calls this in its thread, after a load."""
        names = list(self._unloaded)
        if not names:
            return
        try:
            loaded = self._loaded_of(names)
        except Unavailable as error:
            # They stay in memory until a later load.
            log.warning("sync_lookup_failed", extra={"detail": str(error)})
            return
        with contextlib.suppress(RuntimeError):  # The loop is closed: no request can follow.
            self._loop.call_soon_threadsafe(self._remove, loaded)

    async def _record(self, sync: Sync, key_id: str) -> bool:
        known = await self.find(sync.deployment, sync.job_id, key_id=key_id)
        if known is not None:
            _check_equal(sync, known)
            return False
        line = sync_line(sync, key_id=key_id)
        if self._unloaded and self._unloaded_bytes + len(line) > self._bytes_max:
            detail = "syncs: too many bytes wait for the loader (EMBEDSINK_SYNC_BYTES_MAX). Wait, then resend."
            raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=5)
        await wait_for(lambda on_durable: self._journal.submit(line, on_durable))
        self._add(sync)
        return True

    def _add(self, sync: Sync) -> None:
        recorded = Recorded(sync.digest, encode(sync.result))
        # The first result of a job counts, as it does in the loader.
        if self._unloaded.setdefault((sync.deployment, sync.job_id), recorded) is recorded:
            self._unloaded_bytes += len(recorded.content)

    def _remove(self, names: set[Name]) -> None:
        for name in names:
            if recorded := self._unloaded.pop(name, None):
                self._unloaded_bytes -= len(recorded.content)

    async def _recover(self) -> None:
        """Read the results from the journal that the store may lack: after the start, or with a new store."""
        async with self._recovery_lock:
            if self._opened_count != self._store.opened_count:
                self._opened_count = self._store.opened_count
                self._unread_segments = self._journal.segments()
            while self._unread_segments:
                for sync in await asyncio.to_thread(self._missing_in_store, self._unread_segments[0]):
                    self._add(sync)
                del self._unread_segments[0]

    def _missing_in_store(self, segment: Path) -> list[Sync]:
        """Return the results in a segment that the store does not have."""
        try:
            syncs = _read_segment(segment)
        except OSError as error:
            detail = f"journal: a segment can't be read ({error.strerror}). Wait, then retry."
            raise Unavailable(Reason.NOT_READY, detail, retry_after_s=5) from None
        if not syncs:
            return []
        loaded = self._loaded_of([(sync.deployment, sync.job_id) for sync in syncs])
        return [sync for sync in syncs if (sync.deployment, sync.job_id) not in loaded]

    def _loaded_of(self, names: list[Name]) -> set[Name]:
        """Return the names whose results the store has."""
        scope = {**EVERYTHING, "sync_job_ids": [job_id for _, job_id in names]}
        with self._store.reader(scope, is_brief=True) as reader:
            return {(row["deployment"], row["sync_job_id"]) for row in reader.dicts(LOADED_VIEW)}.intersection(names)

    async def _find_loaded(self, name: Name, key_id: str) -> Recorded | None:
        async with self._lookups.slot(key_id):
            return await asyncio.to_thread(self._query_store, name)

    def _query_store(self, name: Name) -> Recorded | None:
        deployment, job_id = name
        with self._store.reader({"deployments": [deployment], "sync_job_ids": [job_id]}, is_brief=True) as reader:
            return next((_recorded(row) for row in reader.dicts(VIEW)), None)


def _check_equal(sync: Sync, known: Recorded) -> None:
    if sync.digest != known.digest:
        problem = f"syncJobId: {preview(sync.job_id)} already has a different result in deployment {sync.deployment}"
        raise Refused(Reason.CONFLICT, f"{problem}. Record a new sync under its own job ID.")


def _read_segment(segment: Path) -> list[Sync]:
    try:
        content = segment.read_bytes()
    except FileNotFoundError:
        return []  # The segment was loaded and deleted meanwhile, so the store has its results.
    syncs = list(read_syncs(content))
    # The loader never loads any part of a damaged segment.
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
        CUBE_COUNT_FIELD: row["cube_count"],
        "completedAt": row["completed_at_text"],
        "durationMs": row["duration_ms"],
    }
    return Recorded(row["digest"], encode(result))
