"""The register of erasures: all requests in `erasures/`, and the people whose deliveries are rejected."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.data_folder import advice_on
from embedsink.durable_files import is_disk_full
from embedsink.erasure.person_rows import identifying_texts
from embedsink.erasure.request import Erasure, ErasureFolder
from embedsink.errors import Misconfigured, Unavailable
from embedsink.privacy.erased_people import ErasedPeople, ErasedPerson
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# The maximum number of requests that are not finished.
PENDING_MAX = 1_000
_DAY_MS = 86_400_000
# The kinds of rows that an erasure removes.
_KINDS = ("events", "actions", "rejections", "losses", "directoryUsers", "damagedLines")


class ErasureRegister:
    """The requests of a data folder. Its methods belong to the event loop, except where they say otherwise.

    Args:
        path: the folder `erasures/`.
        privacy: the privacy rules at the start of the server.
        block_days: how many days deliveries of an erased person are rejected.
        certificate_days: how many days certificates are stored; 0 for no limit.
        on_erased_people: called with the people whose deliveries are to be rejected from now on.

    Raises:
        Misconfigured: a file can't be read or is damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        privacy: Privacy,
        block_days: int,
        certificate_days: int,
        on_erased_people: Callable[[ErasedPeople], None],
    ) -> None:
        self._privacy = privacy
        self._block_days = block_days
        self._certificate_days = certificate_days
        self._on_erased_people = on_erased_people
        self._files = ErasureFolder(path)
        self._files.delete_drafts()
        self._erasures = {erasure.id: erasure for erasure in self._files.read()}
        self._blocking: set[str] = set()  # the ids of the erasures whose people are blocked
        self._adding = asyncio.Lock()

    def __getitem__(self, erasure_id: str) -> Erasure:
        return self._erasures[erasure_id]

    def find(self, erasure_id: str) -> Erasure | None:
        """Return a request, without the files that were searched; None if it does not exist."""
        return self._erasures.get(erasure_id)

    def all(self) -> list[Erasure]:
        """Return all requests, the newest first, without the files that were searched."""
        return list(reversed(self._erasures.values()))

    def pending(self) -> list[Erasure]:
        """Return the requests that are not finished, the oldest first. Any thread may call it."""
        return [erasure for erasure in tuple(self._erasures.values()) if erasure.result is None]

    def delay_s(self) -> float:
        """Return the age of the oldest request that is not finished; 0 without one. Any thread may call it."""
        oldest = next(iter(self.pending()), None)
        # The clock may have been set back.
        return 0.0 if oldest is None else max(0.0, time.time() - oldest.requested_at / 1_000)

    async def with_files(self, erasure: Erasure) -> Erasure:
        """Return a request with the files that were searched.

        It reads them from the file, because all certificates together would take much memory.

        Raises:
            Unavailable: the file of the request can't be read.
        """
        try:
            return await run_in_daemon_thread(partial(self._files.read_one, erasure.id), name="erasures")
        except Misconfigured as error:
            raise Unavailable(Reason.STORAGE_FAILED, str(error)) from error

    async def add(self, person: Person, *, key_id: str | None, deleted_user: dict[str, Any] | None) -> Erasure:
        """Store a request durably, and begin to reject the person's deliveries. See `Erasures.request`."""
        async with self._adding:  # Two first requests must not create two salts.
            if len(self.pending()) >= PENDING_MAX:
                detail = f"erasures: {PENDING_MAX:,} requests are pending. Retry when some of them are finished."
                raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=60)
            try:
                read_salt = partial(self._files.salt, may_create=not self._erasures)
                salt = await run_in_daemon_thread(read_salt, name="erasures")
                erasure = self._create(person, salt, key_id)
                if deleted_user is not None:
                    # The provider may create the user again, or have another one with the same viewer.
                    erasure = replace(erasure, deleted_user_id=deleted_user["id"]).with_removed(
                        {}, identifying_texts(deleted_user)
                    )
                await self.save(erasure)
            except OSError as error:
                reason = Reason.STORAGE_LOW if is_disk_full(error) else Reason.STORAGE_FAILED
                detail = f"erasures: {error.strerror}. {advice_on(error)}"
                raise Unavailable(reason, detail, retry_after_s=10) from error
        self.block_people()
        return erasure

    async def save(self, erasure: Erasure) -> None:
        """Write a request durably.

        Raises:
            OSError: it can't be written. The former version remains.
        """
        await run_in_daemon_thread(partial(self._files.write, erasure), name="erasures")
        self._erasures[erasure.id] = erasure.without_files()

    def save_removed(self, erasure_id: str, counts: dict[str, int], texts: Iterable[str]) -> None:
        """Write durably what is being removed. A thread other than that of the event loop calls it.

        Raises:
            OSError: it can't be written. The former version remains.
        """
        erasure = self._erasures[erasure_id].with_removed(counts, texts)
        self._files.write(erasure)
        self._erasures[erasure_id] = erasure

    def block_people(self) -> None:
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
        salt = self._files.salt() if blocking else b""
        self._on_erased_people(ErasedPeople(salt, tuple(one.blocked for one in blocking if one.blocked is not None)))
        self._blocking = ids

    async def expire(self) -> None:
        """Delete the digests of people that are no longer blocked, and old certificates."""
        now = time.time_ns() // 1_000_000
        for erasure in list(self._erasures.values()):
            try:
                await self._expire_one(erasure, now)
            except (Unavailable, OSError) as error:
                # The others must expire, and pending erasures continue. The next call tries again.
                log.warning("erasure_not_expired", extra={"detail": str(error)})
        self.block_people()

    async def _expire_one(self, erasure: Erasure, now: int) -> None:
        """Delete the certificate of an erasure, or its digests, or nothing. `now` is in epoch milliseconds."""
        if erasure.result is None or erasure.blocked_until > now:
            return
        if self._certificate_days and erasure.result.finished_at < now - self._certificate_days * _DAY_MS:
            await run_in_daemon_thread(partial(self._files.delete, erasure.id), name="erasures")
            del self._erasures[erasure.id]
        elif erasure.blocked is not None:
            await self.save(replace(await self.with_files(erasure), blocked=None))

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
