"""The directory of viewers that an identity provider provisions over SCIM (RFC 7644).

    answer ─▶ memory ─▶ journal ─▶ response          the loader moves the changes to the store

The first request after a start reads the directory from the store and the journal. A request waits until the one before
it is answered, so no response shows a change that is not durable.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.directory.entra import normalize_bulk, normalize_patch
from embedsink.errors import Unavailable, redact_keys
from embedsink.ingest.records import DirectoryChange, directory_line, read_directory_changes
from embedsink.journal.segment import damage_of, number_of
from embedsink.journal.writer import Journal
from embedsink.key_scope import EVERYTHING
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.insert import first_ingest_seq

# The libraries take half a second to import, so they are imported at the first request.
if TYPE_CHECKING:
    from scim2_server.handler import ScimHandler
    from scim2_server.requests import ScimRequest
    from scim2_server.responses import ScimResponse

    from embedsink.directory.storage import DirectoryStorage

_RESOURCE_VIEW = "directory_resource"


class _OpenDirectory(NamedTuple):
    """The handler of requests, and the storage that it reads and changes."""

    handler: "ScimHandler"
    storage: "DirectoryStorage"


class Directory:
    """The users and groups of an open data folder. Its methods belong to the event loop.

    Args:
        journal: the journal for changes.
        store: the store into which the loader loads them.
        bytes_max: the maximum size of the directory, in bytes.
        body_bytes_max: the maximum size of a request body, in bytes.
        on_deleted: called with the resources of users that an identity provider deletes, before the deletion is
            durable.
    """

    def __init__(
        self,
        journal: Journal,
        store: Store,
        *,
        bytes_max: int,
        body_bytes_max: int,
        on_deleted: Callable[[list[dict[str, Any]]], Awaitable[None]] | None = None,
    ) -> None:
        self._journal = journal
        self._store = store
        self._bytes_max = bytes_max
        self._body_bytes_max = body_bytes_max
        self._on_deleted = on_deleted
        self._opened: _OpenDirectory | None = None  # created by the first request
        self._lock = asyncio.Lock()

    async def answer(self, request: "ScimRequest") -> "ScimResponse":
        """Return the response to a request. Its changes are durable.

        The response may be an error of the protocol. If the request is cancelled, its changes become durable anyway.

        Raises:
            Unavailable: the store or the journal is not available. Nothing is changed, except that after
                `storage_failed` the change may be durable.
        """
        return await asyncio.shield(asyncio.create_task(self._answer_in_turn(request, self._on_deleted)))

    async def delete_user(self, user_id: str) -> None:
        """Delete a user durably, without a call of `on_deleted`. A user who does not exist is ignored.

        Raises:
            Unavailable: see `answer`; or the user can't be deleted, because it is in too many large groups.
        """
        from scim2_server.requests import ScimRequest

        path = f"/Users/{user_id}"
        request = ScimRequest(method="DELETE", base_url="", path=path, query={}, headers=[], body=b"")
        response = await asyncio.shield(asyncio.create_task(self._answer_in_turn(request, None)))
        if response.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
            raise _retry_later(f"user {user_id} can't be deleted (status {response.status})")

    async def _answer_in_turn(
        self, request: "ScimRequest", on_deleted: Callable[[list[dict[str, Any]]], Awaitable[None]] | None
    ) -> "ScimResponse":
        """Wait for the requests before this one, and answer it."""
        async with self._lock:
            if self._opened is None:
                self._opened = await run_in_daemon_thread(self._open, name="directory")
            handler, storage = self._opened
            try:
                response, lines = await run_in_daemon_thread(
                    partial(self._handle, handler, storage, request), name="directory"
                )
                if on_deleted is not None and (deleted := storage.deleted_users()):
                    await on_deleted(deleted)
                if lines:
                    await self._journal.append(lines)
            except BaseException:
                storage.roll_back()
                raise
            storage.commit()
            return response

    def _handle(
        self, handler: "ScimHandler", storage: "DirectoryStorage", request: "ScimRequest"
    ) -> "tuple[ScimResponse, bytes]":
        """Return the response to a request, and the journal lines of its changes.

        The response to an invalid request is an error (RFC 7644, section 3.12).
        """
        from scim2_models import PayloadTooLargeException, SCIMException

        from embedsink.directory.limits import check_request

        request = replace(request, body=_redacted(request.body))
        try:
            check_request(request)
            storage.begin()
            response = handler.handle(_normalize(request))
            received_at = time.time_ns() // 1_000_000
            lines = b"".join(directory_line(change, received_at=received_at) for change in storage.changes)
            if len(lines) > self._journal.limits.pending_bytes_max:
                raise PayloadTooLargeException(detail="The request changes too many resources. Send it in parts.")
        except SCIMException as error:
            storage.roll_back()
            return handler.service.error_response(error), b""
        return response, lines

    def _open(self) -> _OpenDirectory:
        """Read the directory from the store and the journal. This takes seconds if it is large.

        Raises:
            Unavailable: the store or the journal can't be read now.
        """
        from embedsink.directory.handler import DirectoryHandler, DirectoryService
        from embedsink.directory.provider import create_provider
        from embedsink.directory.storage import DirectoryStorage

        provider = create_provider(body_bytes_max=self._body_bytes_max)
        storage = DirectoryStorage(provider, bytes_max=self._bytes_max)
        if not self._journal.is_recovered:
            raise _retry_later("the journal is not recovered, because the disk is full")
        segments = self._journal.segments()
        # The store is read after the journal is listed, so it has the changes of segments that are deleted meanwhile.
        stored_seqs: dict[str, int] = {}  # the newest stored version of each resource
        with self._store.reader(EVERYTHING.variables()) as reader:
            for batch in reader.rows(_RESOURCE_VIEW):
                for row in batch:
                    ingest_seq, change = _stored_change(*row)
                    stored_seqs[change.resource_id] = ingest_seq
                    storage.apply(change)
        for segment in segments:
            for ingest_seq, change in _read_segment(segment):
                if ingest_seq > stored_seqs.get(change.resource_id, -1):
                    storage.apply(change)
        return _OpenDirectory(DirectoryHandler(DirectoryService(provider), storage), storage)


def _normalize(request: "ScimRequest") -> "ScimRequest":
    """Return a request in the form of RFC 7644."""
    if request.method == "PATCH":
        return replace(request, body=normalize_patch(request.body))
    if request.path.rpartition("/")[2].lower() == "bulk":
        return replace(request, body=normalize_bulk(request.body))
    return request


def _redacted(body: bytes) -> bytes:
    """Return a body without keys and JWTs. A body that is not UTF-8 is unchanged: `check_request` refuses it."""
    try:
        return redact_keys(body.decode()).encode()
    except UnicodeDecodeError:
        return body


def _stored_change(
    resource_type: str,
    resource_id: str,
    ingest_seq: int,
    deactivated_at: datetime | None,
    resource: str | None,
    members: list[str] | None,
) -> tuple[int, DirectoryChange]:
    """Convert a row of the view `directory_resource` to its ingest_seq and a change that creates the resource."""
    change = DirectoryChange(
        resource_type,
        resource_id,
        None if resource is None else orjson.loads(resource),
        None if deactivated_at is None else round(deactivated_at.replace(tzinfo=UTC).timestamp() * 1_000),
        members_added=tuple(members or ()),
    )
    return ingest_seq, change


def _read_segment(segment: Path) -> list[tuple[int, DirectoryChange]]:
    """Return the changes in a segment with their ingest_seq; none if it is damaged, because the loader rejects it.

    Raises:
        Unavailable: the segment can't be read.
    """
    try:
        content = segment.read_bytes()
    except FileNotFoundError:
        # The segment was loaded and deleted, maybe after the store was read.
        raise _retry_later("a segment was deleted meanwhile") from None
    except OSError as error:
        raise _retry_later(f"a segment can't be read ({error.strerror})") from None
    changes = list(read_directory_changes(content))
    # Most segments have no changes, and the check for damage reads every byte.
    if not changes or damage_of(segment.name, content) is not None:
        return []
    first_seq = first_ingest_seq(number_of(segment))
    return [(first_seq + line, change) for line, change in changes]


def _retry_later(problem: str) -> Unavailable:
    """Return the error of a directory that can't be read now."""
    return Unavailable(Reason.NOT_READY, f"directory: {problem}. Wait, then retry.", retry_after_s=2)
