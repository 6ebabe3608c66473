"""The results of dbt syncs: one for each deployment and job, readable as soon as it is durable.

    record ─▶ journal ─▶ memory ─▶ response          the loader moves the result from memory to the store
    find   ◀──────────── memory, else the store

After a restart, or after a damaged store was replaced, the first request reads the results that the store lacks from
the journal.
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
from embedsink.journal.segment import damage_of
from embedsink.journal.writer import Journal
from embedsink.key_scope import EVERYTHING
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync
from embedsink.protocol.strict_json import encode
from embedsink.reasons import Reason
from embedsink.store.database import Store

log = logging.getLogger(__name__)

_RESULT_VIEW = "sync_result"
_LOADED_JOBS_VIEW = "sync_in_scope"

Job = tuple[int, str]
"""A deployment and the id of its job."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A durable result. It is encoded as JSON: as objects, a long list of files takes twenty times the memory."""

    digest: str
    encoded: bytes

    @property
    def result(self) -> dict[str, Any]:
        """The fields of spec 2.1, with `CUBE_COUNT_FIELD` instead of the vendor's name for the number of cubes."""
        fields: dict[str, Any] = orjson.loads(self.encoded)
        return fields


class DbtSyncs:
    """The results of an open data folder. Its methods belong to the event loop, except `forget_loaded`.

    Args:
        journal: the journal for new results.
        store: the store into which the loader loads them.
        bytes_max: the maximum size of the results that are not loaded yet, in bytes.
        lookups: the limiter of queries to the store.
    """

    def __init__(self, journal: Journal, store: Store, *, bytes_max: int, lookups: ConcurrencyLimiter) -> None:
        self._journal = journal
        self._store = store
        self._bytes_max = bytes_max
        self._lookups = lookups
        self._unloaded: dict[Job, StoredResult] = {}
        self._unloaded_bytes = 0
        self._recording: dict[Job, asyncio.Task[bool]] = {}  # the running task of each job
        self._unread_segments: list[Path] = []  # segments from which `_recover` still has to read
        self._opened_count_at_recovery = 0  # the value of `store.opened_count` when the segments were listed
        self._recovery_lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def find(self, deployment: int, job_id: str, *, key_id: str) -> StoredResult | None:
        """Return the result of a job; None if the job has none.

        Raises:
            Unavailable: the store can't answer now.
        """
        job = (deployment, job_id)
        while True:
            await self._recover()
            # Look in memory first: a result is removed from memory only after it is in the store.
            result = self._unloaded.get(job)
            if result is None:
                result = await self._find_loaded(job, key_id)
            # A store that was replaced during the query may lack results, so recover them and query again.
            was_store_replaced = self._opened_count_at_recovery != self._store.opened_count
            if result is not None or not was_store_replaced:
                return result

    async def record(self, sync: Sync, *, key_id: str) -> bool:
        """Make the result of a sync durable, and return True. Return False if an equal result is already recorded.

        Raises:
            Refused: a different result is already recorded for the job (reason `conflict`).
            Unavailable: the journal or the store is not available, or too many bytes wait for the loader. The result is
                not stored, except that after `storage_failed` it may be stored.
        """
        job = (sync.deployment, sync.job_id)
        # While another request records a result of the job, wait: its result may be equal.
        while job in self._recording:
            await asyncio.wait([self._recording[job]])
        # A separate, shielded task goes on if this request is cancelled. It stays in `_recording`, so that the next
        # request for the job waits until it ends.
        task = asyncio.create_task(self._record(sync, key_id))
        self._recording[job] = task
        task.add_done_callback(lambda _: self._recording.pop(job))
        return await asyncio.shield(task)

    def forget_loaded(self) -> None:
        """Remove from memory the results that the store has. The loader calls this in its thread, after a load."""
        jobs = list(self._unloaded)
        if not jobs:
            return
        try:
            loaded = self._find_loaded_jobs(jobs)
        except Unavailable as error:
            # The results stay in memory until a later load.
            log.warning("sync_lookup_failed", extra={"detail": str(error)})
            return
        with contextlib.suppress(RuntimeError):  # If the loop is closed, no request can follow.
            self._loop.call_soon_threadsafe(self._remove, loaded)

    async def _record(self, sync: Sync, key_id: str) -> bool:
        """Write a result to the journal, add it to memory, and return True. Return False if an equal result exists."""
        existing = await self.find(sync.deployment, sync.job_id, key_id=key_id)
        if existing is not None:
            _check_equal(sync, existing)
            return False
        line = sync_line(sync, key_id=key_id)
        # If no result waits for the loader, accept a result of any size: the size of a body is limited.
        if self._unloaded and self._unloaded_bytes + len(line) > self._bytes_max:
            detail = "syncs: too many bytes wait for the loader (EMBEDSINK_SYNC_BYTES_MAX). Wait, then resend."
            raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=5)
        await self._journal.append(line)
        self._add(sync)
        return True

    def _add(self, sync: Sync) -> None:
        """Add a result to memory, unless the job has one. The loader also keeps the first result of a job."""
        job = (sync.deployment, sync.job_id)
        if job not in self._unloaded:
            result = StoredResult(sync.digest, encode(sync.result))
            self._unloaded[job] = result
            self._unloaded_bytes += len(result.encoded)

    def _remove(self, jobs: set[Job]) -> None:
        """Remove the results of these jobs from memory."""
        for job in jobs:
            result = self._unloaded.pop(job, None)
            if result is not None:
                self._unloaded_bytes -= len(result.encoded)

    async def _recover(self) -> None:
        """Add to memory the journal's results that the store lacks, once after each opening of the store.

        A restart empties the memory, and a store that replaces a damaged one may lack loaded results.
        """
        async with self._recovery_lock:
            if self._opened_count_at_recovery != self._store.opened_count:
                self._opened_count_at_recovery = self._store.opened_count
                self._unread_segments = self._journal.segments()
            while self._unread_segments:
                for sync in await asyncio.to_thread(self._find_missing_in_store, self._unread_segments[0]):
                    self._add(sync)
                del self._unread_segments[0]  # only after success, so that the next request retries a failed read

    def _find_missing_in_store(self, segment: Path) -> list[Sync]:
        """Return the results in a segment that the store does not have.

        Raises:
            Unavailable: the segment can't be read, or the store can't answer now.
        """
        try:
            syncs = _read_segment(segment)
        except OSError as error:
            detail = f"journal: a segment can't be read ({error.strerror}). Wait, then retry."
            raise Unavailable(Reason.NOT_READY, detail, retry_after_s=5) from None
        if not syncs:
            return []
        loaded = self._find_loaded_jobs([(sync.deployment, sync.job_id) for sync in syncs])
        return [sync for sync in syncs if (sync.deployment, sync.job_id) not in loaded]

    def _find_loaded_jobs(self, jobs: list[Job]) -> set[Job]:
        """Return the subset of the jobs whose results the store has."""
        # A scope limits what a reader reads: here to these job ids, in all deployments.
        scope = {**EVERYTHING.variables(), "sync_job_ids": [job_id for _, job_id in jobs]}
        with self._store.reader(scope, is_short=True) as reader:
            loaded = {(row["deployment"], row["sync_job_id"]) for row in reader.dicts(_LOADED_JOBS_VIEW)}
        # The query finds these job ids in all deployments, so select the given pairs.
        return loaded.intersection(jobs)

    async def _find_loaded(self, job: Job, key_id: str) -> StoredResult | None:
        """Return the result of a job in the store, or None. Lookups are limited, with fair shares for keys."""
        async with self._lookups.slot(key_id):
            return await asyncio.to_thread(self._query_store, job)

    def _query_store(self, job: Job) -> StoredResult | None:
        """Return the result of a job in the store, or None. This blocks, so a thread calls it."""
        deployment, job_id = job
        scope = {**EVERYTHING.variables(), "deployments": [deployment], "sync_job_ids": [job_id]}
        with self._store.reader(scope, is_short=True) as reader:
            rows = reader.dicts(_RESULT_VIEW)
        return _to_result(rows[0]) if rows else None


def _check_equal(sync: Sync, existing: StoredResult) -> None:
    """Raise Refused if a sync differs from the existing result of the same job (reason `conflict`)."""
    if sync.digest != existing.digest:
        problem = f"syncJobId: {preview(sync.job_id)} already has a different result in deployment {sync.deployment}"
        raise Refused(Reason.CONFLICT, f"{problem}. Record a new sync under its own job ID.")


def _read_segment(segment: Path) -> list[Sync]:
    """Return the results in a segment; none if the segment is damaged, because the loader rejects all of it."""
    try:
        content = segment.read_bytes()
    except FileNotFoundError:
        return []  # The segment was loaded and deleted meanwhile, so the store has the results.
    syncs = list(read_syncs(content))
    # Most segments have no results, and the check for damage reads every byte.
    if not syncs or damage_of(segment.name, content) is not None:
        return []
    return syncs


def _to_result(row: dict[str, Any]) -> StoredResult:
    """Convert a row of the view `sync_result` to a result."""
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
    return StoredResult(row["digest"], encode(result))
