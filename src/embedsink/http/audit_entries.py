"""The entries that requests leave in the audit trail."""

import os
from collections.abc import Mapping
from typing import IO, Any

from starlette.requests import Request

from embedsink.audit.entry import Action, Entry, Outcome, Via
from embedsink.auth.keys import Key
from embedsink.auth.sessions import SessionKey
from embedsink.engine import Engine
from embedsink.http.client_address import client_address


def entry_of(
    request: Request,
    key: Key,
    action: Action,
    *,
    target: str | None = None,
    detail: Mapping[str, Any] | None = None,
    outcome: Outcome = Outcome.DONE,
) -> Entry:
    """Return the entry of a request with this key."""
    return Entry(
        action=action,
        actor=key.key_id,
        actor_label=key.label,
        via=Via.PAGE if isinstance(key, SessionKey) else Via.API,
        client_address=client_address(request.scope),
        target=target,
        outcome=outcome,
        detail=detail or {},
    )


async def record_file_export(request: Request, key: Key, target: str, file: IO[bytes]) -> None:
    """Record the download of a file that is complete. If the entry can't be written, close the file.

    Raises the exceptions of `record_export`.
    """
    try:
        await record_export(request, key, target, byte_count=file.seek(0, os.SEEK_END))
    except BaseException:
        file.close()
        raise


async def record_export(request: Request, key: Key, target: str, *, byte_count: int | None = None) -> None:
    """Record that data is given away as a file. Call this before the first byte is sent. A HEAD sends no data.

    Raises:
        Unavailable: the entry can't be written (`storage_low`, `storage_failed`).
    """
    if request.method == "HEAD":
        return
    engine: Engine = request.state.engine
    query = request.query_params
    detail: dict[str, Any] = {"parameters": {name: ", ".join(query.getlist(name)) for name in query}}
    if key.scope.is_limited:
        detail["scope"] = key.scope.variables()
    if byte_count is not None:
        detail["bytes"] = byte_count
    await engine.audit.record(entry_of(request, key, Action.EXPORT, target=target, detail=detail))
