"""Downloads: streams that end when their key is revoked, and responses from a spool file or another open file."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import IO, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from embedsink.auth.keys import Key
from embedsink.http.etag import EtagCheck
from embedsink.http.security_headers import NO_CACHE

CHUNK_BYTES = 65_536
KEY_CHECK_INTERVAL_S = 0.25


class _Revoked(Exception):
    """The key of a download was revoked."""


class Download(StreamingResponse):
    """A stream that ends when its key is revoked. The system disconnects clients that stop reading (server.py).

    Args:
        content: yields the chunks.
        is_key_live: returns whether the key is still valid.
        resource: closed at the end, even if the client disconnects before the first chunk.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        is_key_live: Callable[[], bool],
        *,
        resource: AbstractContextManager[Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(content, **options)
        self._content = content
        self._is_key_live = is_key_live
        self._resource = contextlib.nullcontext() if resource is None else resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close the resource."""
        with self._resource:
            async with _abort_when_revoked(scope, self._is_key_live):
                await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send chunks until the content ends or the key is revoked."""
        with contextlib.suppress(_Revoked):
            try:
                await super().stream_response(_send_while_live(send, self._is_key_live))
            finally:
                await self._content.aclose()  # Starlette does not close an unfinished generator.


class FileDownload(FileResponse):
    """A download of an open file, which continues unchanged if the file is replaced meanwhile.

    The blocks of a replaced file are freed when its last download ends, so each download occupies a slot.

    Args:
        descriptor: the open file; closed at the end.
        is_key_live: returns whether the key is still valid.
        slot: the slot to occupy, from a concurrency limiter.
        honors_range: whether to send the range in the `Range` header; otherwise the whole file.
    """

    def __init__(
        self,
        descriptor: int,
        is_key_live: Callable[[], bool],
        *,
        slot: AbstractAsyncContextManager[None] | None = None,
        honors_range: bool = True,
        **options: Any,
    ) -> None:
        # This path refers to the open file, even after the file was renamed or deleted.
        super().__init__(f"/dev/fd/{descriptor}", stat_result=os.fstat(descriptor), **options)
        self._descriptor = descriptor
        self._is_key_live = is_key_live
        self._slot = contextlib.nullcontext() if slot is None else slot
        self._honors_range = honors_range

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or a range of it, in a slot of the limiter."""
        if not self._honors_range:  # Starlette honors the header, so remove it.
            headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
            scope = {**scope, "headers": headers}
        try:
            async with self._slot, _abort_when_revoked(scope, self._is_key_live):
                with contextlib.suppress(_Revoked):
                    await super().__call__(scope, receive, _send_while_live(send, self._is_key_live))
        finally:
            os.close(self._descriptor)


def download_response(
    request: Request,
    key: Key,
    file: IO[bytes],
    etag: EtagCheck | None = None,
    *,
    media_type: str,
    file_name: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a download of a spool file. If `file_name` is given, browsers save the file instead of showing it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    all_headers = {**NO_CACHE, **(etag.headers() if etag is not None else {}), "Content-Length": str(size)}
    if headers is not None:
        all_headers |= headers
    if file_name is not None:
        all_headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    is_key_live = partial(request.state.credentials.is_live, key)
    return Download(_read_chunks(file), is_key_live, resource=file, media_type=media_type, headers=all_headers)


async def _read_chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    while chunk := await run_in_threadpool(file.read, CHUNK_BYTES):
        yield chunk


def _send_while_live(send: Send, is_key_live: Callable[[], bool]) -> Send:
    """Return an ASGI `send` that raises _Revoked when the key is no longer valid."""

    async def checked_send(message: Message) -> None:
        if not is_key_live():
            raise _Revoked
        await send(message)

    return checked_send


@contextlib.asynccontextmanager
async def _abort_when_revoked(scope: Scope, is_key_live: Callable[[], bool]) -> AsyncIterator[None]:
    """Abort the connection when the key is revoked, and drop the bytes that are buffered for a slow client."""
    # This server's protocol provides the function. Other ASGI servers don't provide it.
    abort: Callable[[], None] = scope.get("state", {}).get("abort", lambda: None)
    loop = asyncio.get_running_loop()
    next_check: asyncio.TimerHandle | None = None

    def check() -> None:
        """Abort if the key is revoked. Otherwise check again later."""
        nonlocal next_check
        if is_key_live():
            next_check = loop.call_later(KEY_CHECK_INTERVAL_S, check)
        else:
            abort()

    check()
    try:
        yield
    finally:
        if next_check is not None:
            next_check.cancel()
        # The key may have been revoked since the last check.
        if not is_key_live():
            abort()
            await asyncio.sleep(0)  # Let uvicorn notice the abort, so that it drops the rest of the response.
