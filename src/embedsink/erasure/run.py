"""The steps of an erasure. Each one can be repeated, so an erasure that a kill interrupts begins again."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.data_folder import DataFolder
from embedsink.directory.directory import Directory
from embedsink.erasure.damaged_segments import PersonLines, count_lines, remove_lines
from embedsink.erasure.file_search import FileSearch
from embedsink.erasure.person_rows import count_all_rows, count_unnamed_rejections, directory_users, identifying_texts
from embedsink.erasure.register import ErasureRegister
from embedsink.erasure.request import Erasure, Result
from embedsink.erasure.search_files import SearchedFile, is_in_path
from embedsink.errors import Unavailable
from embedsink.journal.writer import Journal
from embedsink.loader.loader import Loader
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.erasure import ErasedRows

log = logging.getLogger(__name__)

_POLL_S = 0.1
T = TypeVar("T")
_HIDDEN = "…"


class ErasureRun:
    """The execution of requests on a live server. Its methods belong to the event loop.

    Args:
        folder: the data folder.
        journal: the journal.
        loader: the loader.
        store: the store.
        directory: the directory of viewers.
        privacy: the privacy rules at the start of the server.
        register: the register of the requests.
        on_finished: called with each finished erasure before its certificate is stored, and again after a failure.
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
        register: ErasureRegister,
        on_finished: Callable[[Erasure], Awaitable[None]],
    ) -> None:
        self._damaged = folder.damaged
        self._journal = journal
        self._loader = loader
        self._store = store
        self._directory = directory
        self._privacy = privacy
        self._register = register
        self._on_finished = on_finished
        self._search = FileSearch(folder, store)
        # The ids of pending requests whose people have no rows in the store. After an error, the next attempt does not
        # rewrite the store again, because a rewrite ends running reports.
        self._without_rows: set[str] = set()
        # How often the store had been opened after the last rewrite.
        self._opened_count = 0
        # Whether a segment, a snapshot or a damaged database may have their rows.
        self._has_former_files = False

    async def erase(self, erasures: Sequence[Erasure]) -> None:
        """Erase the people of pending requests, and finish the requests.

        Raises:
            Unavailable: the loader reports an error, or rows remain.
            StoreRefused, StoreBroken, OSError: see `StoreErasure.erase`. The requests remain pending.
        """
        people = {erasure.id: erasure.person for erasure in erasures if erasure.person is not None}
        # Delete the rows of all people even if one is new: a rebuild after the last rewrite may have restored rows.
        if not people.keys() <= self._without_rows:
            await self._delete_rows(people)
            self._without_rows = set(people)
        await self._delete_former_files()
        for erasure_id, person in people.items():
            await self._delete_damaged_lines(erasure_id, person)
        for erasure_id, person in people.items():
            await self._check_erased(erasure_id, person)
        await self._finish(people)

    async def _delete_rows(self, people: Mapping[str, Person]) -> None:
        """Delete the users of people from the directory, and rewrite the store without the people's rows."""
        await self.wait_until_loaded()
        for erasure_id, person in people.items():
            await self._delete_from_directory(erasure_id, person)
        await self.wait_until_loaded()
        self._opened_count = await self._rewrite_store(people)
        self._has_former_files = True

    async def _delete_former_files(self) -> None:
        """Replace both snapshots, and delete the segments and damaged databases from before the last rewrite."""
        if not self._has_former_files:
            return
        while self._loader.erasure.is_replacing_snapshots:
            await self._publish()
        await self._in_loader(self._loader.erasure.delete_damaged_databases)
        self._has_former_files = False

    async def wait_until_loaded(self) -> None:
        """Wait until everything is loaded that was submitted to the journal before.

        Raises:
            Unavailable: the loader reports an error.
        """
        await self._journal.append(b"")  # durable after everything before it
        number = self._journal.last_number
        await self._until_loader(lambda: self._loader.last_number >= number)

    async def _delete_from_directory(self, erasure_id: str, person: Person) -> None:
        """Delete the users of the directory who are the person. They belong to no deployment and no tenant."""
        if person.is_limited:
            return
        erasure = self._register[erasure_id]
        read_users = partial(
            directory_users, self._store, person, self._privacy, deleted_user_id=erasure.deleted_user_id
        )
        users = await run_in_daemon_thread(read_users, name="erasures")
        count = len(users) if erasure.deleted_user_id is None else 1
        texts = [text for user in users for text in identifying_texts(user["resource"])]
        await self._register.save(erasure.with_removed({"directoryUsers": count}, texts))
        for user in users:
            await self._directory.delete_user(user["user_id"])

    async def _rewrite_store(self, people: Mapping[str, Person]) -> int:
        """Rewrite the store without the rows of people. Return how often it had been opened then."""
        variables = [person.variables(self._privacy) for person in people.values()]
        on_deleted = partial(self._record_deleted, list(people))

        def erase() -> int:
            # In the loader's thread, which alone opens the store again.
            self._loader.erasure.erase(variables, on_deleted=on_deleted)
            return self._store.opened_count

        return await self._in_loader(erase)

    def _record_deleted(self, ids: Sequence[str], deleted: Sequence[ErasedRows]) -> None:
        """Store what is being removed. The loader calls this in its thread, before the deletion is committed."""
        for erasure_id, rows in zip(ids, deleted, strict=True):
            counts = {
                "events": rows.event_count,
                "actions": rows.action_count,
                "rejections": rows.rejection_count,
                "losses": rows.loss_count,
            }
            self._register.save_removed(erasure_id, counts, rows.texts)

    async def _publish(self) -> None:
        """Make the next snapshot due now, and wait until one is published.

        Raises:
            Unavailable: the loader reports an error.
        """
        status = self._loader.status
        count = status.snapshot_count
        await self._in_loader(self._loader.erasure.request_snapshot)
        await self._until_loader(lambda: status.snapshot_count > count)

    async def _delete_damaged_lines(self, erasure_id: str, person: Person) -> None:
        """Delete the lines of the person in `damaged/`. Store their number first, as a kill would lose it."""
        lines = self._damaged, PersonLines.of(person, self._privacy)
        count = await run_in_daemon_thread(partial(count_lines, *lines), name="erasures")
        if count:
            await self._register.save(self._register[erasure_id].with_removed({"damagedLines": count}, ()))
        await run_in_daemon_thread(partial(remove_lines, *lines), name="erasures")

    async def _check_erased(self, erasure_id: str, person: Person) -> None:
        """Check that a rebuild from a former snapshot has not brought rows of a person back since the rewrite.

        Without a rebuild, rows arrived later. If they counted, a sender could keep an erasure from being finished.

        Raises:
            Unavailable: it has rows of the person.
        """
        if self._store.opened_count == self._opened_count:
            return
        if await self._count_rows(erasure_id, person):
            self._without_rows.clear()
            raise Unavailable(Reason.NOT_READY, "erasures: the store has rows of the person again")

    async def _count_rows(self, erasure_id: str, person: Person) -> int:
        """Return how many rows of a person the store has."""
        user_id = self._register[erasure_id].deleted_user_id
        count = partial(count_all_rows, self._store, person, self._privacy, deleted_user_id=user_id)
        return await run_in_daemon_thread(count, name="erasures")

    async def _finish(self, people: Mapping[str, Person]) -> None:
        """Search all files for the people, and write the certificates.

        Raises:
            Unavailable: the store can't be read now, or the audit trail can't record an erasure.
            OSError: the search has failed, or a certificate can't be written.
        """
        texts = {erasure_id: self._texts_of(erasure_id, person) for erasure_id, person in people.items()}
        all_texts = list(dict.fromkeys(text for own_texts in texts.values() for text in own_texts))
        ids = [form for person in people.values() for form in self._privacy.stored_forms("viewer", person.viewer)]
        files = _hide_in_paths(await self._search.run(all_texts), [*all_texts, *ids])
        for erasure_id, own_texts in texts.items():
            count = partial(count_unnamed_rejections, self._store, people[erasure_id], self._privacy)
            result = replace(
                _result_of(files, own_texts),
                remaining_row_count=await self._count_rows(erasure_id, people[erasure_id]),
                unnamed_rejection_count=await run_in_daemon_thread(count, name="erasures"),
            )
            finished = self._register[erasure_id].finished(result)
            await self._on_finished(finished)  # Before the certificate: an erasure with a certificate is never resumed.
            await self._register.save(finished)
            log.info(
                "person_erased", extra={"detail": f"erasure {erasure_id}", "count": sum(finished.removed.values())}
            )

    def hide_people(self, message: str) -> str:
        """Return a message with an ellipsis instead of the ids of the people to erase. A path in it may have one."""
        people = [erasure.person for erasure in self._register.pending() if erasure.person is not None]
        ids = [form for person in people for form in self._privacy.stored_forms("viewer", person.viewer)]
        return _hide(sorted(ids, key=len, reverse=True), message)

    def _texts_of(self, erasure_id: str, person: Person) -> list[str]:
        """Return the texts of a person for the search of the files."""
        texts = self._register[erasure_id].texts
        # A person who is erased in some deployments only may remain in others.
        if person.is_limited:
            return texts
        return list(dict.fromkeys([*self._privacy.stored_forms("viewer", person.viewer), *texts]))

    async def _in_loader(self, call: Callable[[], T]) -> T:
        """Run a call in the loader's thread, and return its result."""
        return await asyncio.wrap_future(self._loader.tasks.submit(call))

    async def _until_loader(self, is_done: Callable[[], bool]) -> None:
        """Wait until a function returns true. Raise Unavailable if the loader reports an error before that."""
        status = self._loader.status
        await until(lambda: is_done() or status.error is not None)
        if not is_done():
            raise Unavailable(Reason.NOT_READY, status.error or "loader: has failed.")


def _result_of(files: Sequence[tuple[SearchedFile, set[str]]], texts: Iterable[str]) -> Result:
    """Return the result of a search for the texts of one person: `files` has the found texts of several people."""
    own_texts = set(texts)
    if not own_texts:
        files = []  # None of them was searched for this person.
    found: Counter[str] = Counter()
    for file, remaining in files:
        found[file.path] += len(remaining & own_texts)
    return Result(
        finished_at=time.time_ns() // 1_000_000,
        text_count=len(own_texts),
        searched={file.path: file.byte_count for file, _ in files},
        found={path: count for path, count in found.items() if count},
        searched_count=len(files),
        found_count=sum(bool(remaining & own_texts) for _, remaining in files),
    )


def _hide_in_paths(
    files: Sequence[tuple[SearchedFile, set[str]]], texts: Iterable[str]
) -> list[tuple[SearchedFile, set[str]]]:
    """Return files with an ellipsis instead of each of these texts in their paths: certificates name no person."""
    longest_first = sorted(texts, key=len, reverse=True)
    return [(file._replace(path=_hide(longest_first, file.path)), found) for file, found in files]


def _hide(texts: Iterable[str], message: str) -> str:
    """Return a path or a message with an ellipsis instead of each of these texts."""
    for text in texts:
        for form in (text, repr(text)[1:-1]):  # The message of an OSError has the path with escapes.
            message = message.replace(form, _HIDDEN) if is_in_path(form, message) else message
    return message


async def until(is_reached: Callable[[], bool]) -> None:
    """Wait until a function returns true."""
    while True:
        if is_reached():
            return
        await asyncio.sleep(_POLL_S)
