"""The erasure of people on a live server.

    request ─▶ erasures/<id>.json ─▶ deliveries of the person are rejected
            ─▶ directory ─▶ store ─▶ two snapshots ─▶ journal, damaged/ ─▶ search of all files ─▶ certificate

Each step can be repeated, so an erasure that a kill interrupts begins again at the next start.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.data_folder import DataFolder
from embedsink.directory.directory import Directory
from embedsink.erasure.damaged_segments import count_lines, lines_of_person, remove_lines
from embedsink.erasure.file_search import FileSearch
from embedsink.erasure.request import Erasure, ErasureFolder, Result
from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.journal.writer import Journal
from embedsink.loader.loader import Loader
from embedsink.privacy.erased_people import ErasedPeople, ErasedPerson
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.erasure import ErasedRows
from embedsink.store.reader import Reader

log = logging.getLogger(__name__)

# The maximum number of requests that are not finished.
PENDING_MAX = 1_000
# The maximum number of people that one rewrite of the store erases.
PEOPLE_AT_ONCE = 20
RETRY_AFTER_S = 60.0
# How often what is no longer needed is deleted.
_EXPIRY_INTERVAL_S = 3_600.0
_POLL_S = 0.1
_DAY_MS = 86_400_000
# The kinds of rows that an erasure removes.
_KINDS = ("events", "actions", "rejections", "losses", "directoryUsers", "damagedLines")
# The attributes of a user of the directory that identify a person.
_IDENTIFYING = ("userName", "externalId", "displayName")


class Erasures:
    """The erasures of an open data folder. Its methods belong to the event loop.

    Args:
        folder: the data folder.
        journal: the journal.
        loader: the loader.
        store: the store.
        directory: the directory of viewers.
        privacy: the privacy rules at the start of the server.
        block_days: how many days deliveries of an erased person are rejected.
        certificate_days: how many days certificates are stored; 0 for no limit.
        on_erased_people: called with the people whose deliveries are to be rejected from now on.
        on_finished: called with each finished erasure.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        journal: Journal,
        loader: Loader,
        store: Store,
        directory: Directory,
        privacy: Privacy,
        block_days: int,
        certificate_days: int,
        on_erased_people: Callable[[ErasedPeople], None],
        on_finished: Callable[[Erasure], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._loader = loader
        self._store = store
        self._directory = directory
        self._privacy = privacy
        self._block_days = block_days
        self._certificate_days = certificate_days
        self._on_erased_people = on_erased_people
        self._on_finished = on_finished
        self._search = FileSearch(folder, store)
        self._files = ErasureFolder(folder.erasures)
        self._files.delete_drafts()
        self._erasures = {erasure.id: erasure for erasure in self._files.read()}
        self._blocking: set[str] = set()  # the ids of the erasures whose people are blocked
        self._failure: str | None = None  # why the last attempt failed
        self._wake = asyncio.Event()
        self._requesting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Block the people of earlier requests, and continue with the pending ones."""
        self._block_people()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop between two steps. The next start continues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def find(self, erasure_id: str) -> Erasure | None:
        """Return a request, without the files that were searched; None if it does not exist."""
        return self._erasures.get(erasure_id)

    async def with_files(self, erasure: Erasure) -> Erasure:
        """Return a request with the files that were searched. They are read: they would take much memory.

        Raises:
            Unavailable: the file of the request can't be read.
        """
        try:
            return await run_in_daemon_thread(partial(self._files.read_one, erasure.id), name="erasures")
        except Misconfigured as error:
            raise Unavailable(Reason.STORAGE_FAILED, str(error)) from error

    def all(self) -> list[Erasure]:
        """Return all requests, the newest first, without the files that were searched."""
        return list(reversed(self._erasures.values()))

    @property
    def has_pending(self) -> bool:
        """Whether a request is not finished. Any thread may read it."""
        return bool(self._pending())

    async def request(
        self, person: Person, *, key_id: str | None, deleted_user: dict[str, Any] | None = None
    ) -> Erasure:
        """Store a request durably, and begin to reject the person's deliveries.

        Args:
            person: the person.
            key_id: the id of the key that requests it; None for a command and for the directory.
            deleted_user: the user whose deletion from the directory is the request. If that fails, the erasure deletes
                the user.

        Raises:
            Unavailable: too many requests are pending (`overloaded`), or the request can't be written (`storage_low`).
        """
        if len(self._pending()) >= PENDING_MAX:
            detail = f"erasures: {PENDING_MAX:,} are pending. Retry when some are finished."
            raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=60)
        async with self._requesting:  # Two first requests must not create two salts.
            try:
                read_salt = partial(self._files.salt, may_create=not self._erasures)
                salt = await run_in_daemon_thread(read_salt, name="erasures")
                erasure = self._create(person, salt, key_id)
                if deleted_user is not None:
                    # The provider may create the user again, or have another one with the same viewer.
                    erasure = replace(erasure, deleted_user_id=deleted_user["id"]).with_removed(
                        {}, _texts_of(deleted_user)
                    )
                await run_in_daemon_thread(partial(self._files.write, erasure), name="erasures")
            except OSError as error:
                detail = f"erasures: {error.strerror}. Free space on the disk, then retry."
                raise Unavailable(Reason.STORAGE_LOW, detail, retry_after_s=10) from error
            self._erasures[erasure.id] = erasure
        self._block_people()
        self._wake.set()
        return erasure

    async def wait_until_finished(self, erasure_id: str) -> Erasure:
        """Return a request when it is finished.

        Raises:
            Unavailable: the erasure can't continue now. The request remains.
        """
        await _until(lambda: self._erasures[erasure_id].result is not None or self._failure is not None)
        if self._failure is not None:
            detail = f"{self._failure}. The request is stored. The next start of the server continues with it."
            raise Unavailable(Reason.NOT_READY, detail)
        return self._erasures[erasure_id]

    async def wait_until_loaded(self) -> None:
        """Wait until everything is loaded that was submitted to the journal before.

        Raises:
            Unavailable: the loader reports an error.
        """
        await self._journal.append(b"")  # durable after everything before it
        number = self._journal.last_number
        await self._until_loader(lambda: self._loader.last_number >= number)

    def _create(self, person: Person, salt: bytes, key_id: str | None) -> Erasure:
        """Return a new request."""
        people = ErasedPeople(salt)
        now = time.time_ns() // 1_000_000
        tenants = None if person.tenants is None else self._privacy.stored_tenants(sorted(person.tenants))
        return Erasure(
            id=str(uuid4()),
            requested_at=now,
            key_id=key_id,
            deployments=None if person.deployments is None else sorted(person.deployments),
            tenant_count=None if person.tenants is None else len(person.tenants),
            blocked_until=now + self._block_days * _DAY_MS,
            person=person,
            blocked=ErasedPerson(
                frozenset(map(people.digest, self._privacy.stored_forms("viewer", person.viewer))),
                person.deployments,
                None if tenants is None else frozenset(map(people.digest, tenants)),
            ),
            removed=dict.fromkeys(_KINDS, 0),
        )

    def _pending(self) -> list[Erasure]:
        return [erasure for erasure in tuple(self._erasures.values()) if erasure.result is None]

    def _block_people(self) -> None:
        """Reject the deliveries of all people of pending requests, and of those that are still blocked."""
        now = time.time_ns() // 1_000_000
        blocking = [
            erasure
            for erasure in self._erasures.values()
            if erasure.blocked is not None and (erasure.result is None or erasure.blocked_until > now)
        ]
        ids = {erasure.id for erasure in blocking}
        if ids == self._blocking:
            return
        self._blocking = ids
        salt = self._files.salt() if blocking else b""
        self._on_erased_people(ErasedPeople(salt, tuple(one.blocked for one in blocking if one.blocked is not None)))

    async def _run(self) -> None:
        """Run pending requests, and delete what is no longer needed."""
        while True:
            self._wake.clear()
            try:
                await self._expire()
                if pending := self._pending()[:PEOPLE_AT_ONCE]:
                    await self._erase(pending)
                    self._failure = None
                    continue
            except (EmbedsinkError, OSError) as error:
                self._failure = str(error).removesuffix(".")
                detail = f"{self._failure}. The erasure is retried in {RETRY_AFTER_S:g} s"
                log.warning("erasure_delayed", extra={"detail": detail})
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            except Exception as error:
                # Continue: if this task ended, no later request would be finished.
                self._failure = "erasures: an error in embedsink prevents them. Report it with the traceback in the log"
                log.error("bug", exc_info=error)
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            try:
                async with asyncio.timeout(_EXPIRY_INTERVAL_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _expire(self) -> None:
        """Delete the digests of people that are no longer blocked, and old certificates."""
        now = time.time_ns() // 1_000_000
        for erasure in list(self._erasures.values()):
            if erasure.result is None or erasure.blocked_until > now:
                continue
            if self._certificate_days and erasure.result.finished_at < now - self._certificate_days * _DAY_MS:
                await run_in_daemon_thread(partial(self._files.delete, erasure.id), name="erasures")
                del self._erasures[erasure.id]
            elif erasure.blocked is not None:
                await self._save(replace(erasure, blocked=None))
        self._block_people()

    async def _erase(self, erasures: Sequence[Erasure]) -> None:
        """Erase the people of these requests, and finish the requests."""
        ids = [erasure.id for erasure in erasures]
        people = [erasure.person for erasure in erasures if erasure.person is not None]
        await self.wait_until_loaded()
        for erasure_id, person in zip(ids, people, strict=True):
            await self._delete_from_directory(erasure_id, person)
        await self.wait_until_loaded()
        variables = [person.variables(self._privacy) for person in people]
        on_deleted = partial(self._record_deleted, ids)
        erase = partial(self._loader.erasure.erase, variables, on_deleted=on_deleted)
        last_number = await self._in_loader(erase)
        # Both snapshots have the rows until two more are published.
        for _ in range(2):
            await self._publish()
        await self._in_loader(partial(self._loader.erasure.delete_files, up_to=last_number))
        for erasure_id, person in zip(ids, people, strict=True):
            await self._delete_damaged_lines(erasure_id, person)
        await self._finish(ids, people)

    async def _delete_damaged_lines(self, erasure_id: str, person: Person) -> None:
        """Delete the lines of the person in `damaged/`. Store their number first, as a kill would lose it."""
        lines = self._folder.damaged, lines_of_person(person, self._privacy)
        count = await run_in_daemon_thread(partial(count_lines, *lines), name="erasures")
        if count:
            await self._save(self._erasures[erasure_id].with_removed({"damagedLines": count}, ()))
        await run_in_daemon_thread(partial(remove_lines, *lines), name="erasures")

    async def _delete_from_directory(self, erasure_id: str, person: Person) -> None:
        """Delete the users of the directory who are the person. They belong to no deployment and no tenant."""
        if person.is_limited:
            return
        erasure = self._erasures[erasure_id]
        users = await run_in_daemon_thread(partial(self._read_users, person, erasure.deleted_user_id), name="erasures")
        count = len(users) if erasure.deleted_user_id is None else 1
        texts = [text for user in users for text in _texts_of(orjson.loads(user["resource"]))]
        await self._save(erasure.with_removed({"directoryUsers": count}, texts))
        for user in users:
            await self._directory.delete_user(user["user_id"])

    def _read_users(self, person: Person, deleted_user_id: str | None) -> list[dict[str, Any]]:
        """Return the users of the directory to delete, which the store still has."""
        with self._store.reader(person.variables(self._privacy)) as reader:
            users = reader.dicts("person_directory")
        return [user for user in users if deleted_user_id in (None, user["user_id"])]

    def _record_deleted(self, ids: Sequence[str], deleted: Sequence[ErasedRows]) -> None:
        """Store what is being removed. The loader calls this in its thread, before the deletion is committed."""
        for erasure_id, rows in zip(ids, deleted, strict=True):
            counts = {
                "events": rows.event_count,
                "actions": rows.action_count,
                "rejections": rows.rejection_count,
                "losses": rows.loss_count,
            }
            erasure = self._erasures[erasure_id].with_removed(counts, rows.texts)
            self._files.write(erasure)
            self._erasures[erasure_id] = erasure

    async def _in_loader(self, call: Callable[[], Any]) -> Any:
        """Run a call in the loader's thread, and return its result."""
        return await asyncio.wrap_future(self._loader.tasks.submit(call))

    async def _publish(self) -> None:
        """Wait until a snapshot is published that was started after this call.

        Raises:
            Unavailable: the loader reports an error.
        """
        status = self._loader.status
        count = status.snapshot_count
        await self._in_loader(self._loader.erasure.request_snapshot)
        await self._until_loader(lambda: status.snapshot_count > count)

    async def _until_loader(self, is_done: Callable[[], bool]) -> None:
        """Wait until a function returns true. Raise Unavailable if the loader reports an error before that."""
        status = self._loader.status
        await _until(lambda: is_done() or status.error is not None)
        if not is_done():
            raise Unavailable(Reason.NOT_READY, status.error or "loader: has failed.")

    def _check_erased(self, person: Person, deleted_user_id: str | None) -> None:
        """Check that the store has no rows of a person. A rebuild from a former snapshot brings them back.

        Raises:
            Unavailable: it has rows of the person.
        """
        with self._store.reader(person.variables(self._privacy)) as reader:
            counts = count_rows(reader)
        counts["directoryUsers"] = len(self._read_users(person, deleted_user_id))
        if any(counts.values()):
            raise Unavailable(Reason.NOT_READY, "erasures: the store has rows of the person again")

    async def _finish(self, ids: Sequence[str], people: Sequence[Person]) -> None:
        """Check that nothing remains, search all files for the people, and write the certificates.

        Raises:
            Unavailable: rows remain, or the store can't be read now.
            OSError: the search has failed, or a certificate can't be written.
        """
        for erasure_id, person in zip(ids, people, strict=True):
            check = partial(self._check_erased, person, self._erasures[erasure_id].deleted_user_id)
            await run_in_daemon_thread(check, name="erasures")
        texts = {}
        for erasure_id in ids:
            erasure = self._erasures[erasure_id]
            viewers = [] if erasure.person is None else self._privacy.stored_forms("viewer", erasure.person.viewer)
            # A person who is erased in some deployments only may remain in others.
            is_limited = erasure.person is not None and erasure.person.is_limited
            texts[erasure_id] = erasure.texts if is_limited else [*dict.fromkeys([*viewers, *erasure.texts])]
        all_texts = list(dict.fromkeys(text for ones in texts.values() for text in ones))
        files = await self._search.run(all_texts)
        for erasure_id, own_texts in texts.items():
            found = {file.path: len(remaining.intersection(own_texts)) for file, remaining in files}
            result = Result(
                finished_at=time.time_ns() // 1_000_000,
                text_count=len(own_texts),
                searched={file.path: file.byte_count for file, _ in files},
                found={path: count for path, count in found.items() if count},
                searched_count=len(files),
                found_count=sum(count > 0 for count in found.values()),
            )
            finished = self._erasures[erasure_id].finished(result)
            await self._save(finished)
            log.info(
                "person_erased", extra={"detail": f"erasure {erasure_id}", "count": sum(finished.removed.values())}
            )
            await self._on_finished(finished)

    async def _save(self, erasure: Erasure) -> None:
        """Write a request durably."""
        await run_in_daemon_thread(partial(self._files.write, erasure), name="erasures")
        self._erasures[erasure.id] = erasure.without_files()


async def _until(is_reached: Callable[[], bool]) -> None:
    """Wait until a function returns true."""
    while True:
        if is_reached():
            return
        await asyncio.sleep(_POLL_S)


def count_rows(reader: Reader) -> dict[str, int]:
    """Return how many rows an erasure would remove, by kind. The reader has `Person.variables`."""
    [row] = reader.dicts("person_count")
    return {
        "events": row["event_count"],
        "actions": row["action_count"],
        "rejections": row["rejection_count"],
        "losses": row["loss_count"],
        "directoryUsers": row["directory_user_count"],
    }


def _texts_of(user: dict[str, Any]) -> Iterable[str]:
    """Yield the texts of a user of the directory that identify the person."""
    for name in _IDENTIFYING:
        if user.get(name):
            yield str(user[name])
    for email in user.get("emails") or ():
        if email.get("value"):
            yield str(email["value"])
