"""What readers take away: written whole before the first byte goes out, and cut where it may not go on."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from embedsink.errors import Unavailable
from embedsink.http.freshness import Freshness
from embedsink.keys import Key
from embedsink.reasons import Reason
from embedsink.sink import Sink
from embedsink.store import Reader

CHUNK_BYTES = 65_536
SPOOLED_BYTES_MAX = 1_048_576
LOOK_EVERY_S = 0.25
_RANGE = re.compile(rb"bytes=([0-9]{0,18})-([0-9]{0,18})")
HEADERS = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}

T = TypeVar("T")


async def spooled(
    sink: Sink, variables: Mapping[str, object], write: Callable[[Reader, IO[bytes]], T]
) -> tuple[IO[bytes], T]:
    """What is written of one moment, in memory or in a file without a name.

    A slow reader must not hold a transaction of the store, nor one of the few places for reports.

    Raises:
        Unavailable: too many wait already, the store is away, or the disk is full.
    """
    async with sink.report_slots:
        return await run_in_threadpool(_spool, sink, variables, write)


def _spool(sink: Sink, variables: Mapping[str, object], write: Callable[[Reader, IO[bytes]], T]) -> tuple[IO[bytes], T]:
    file: IO[bytes] = SpooledTemporaryFile(SPOOLED_BYTES_MAX, dir=str(sink.folder.path))  # noqa: SIM115  the answer closes it
    try:
        with sink.store.reader(variables) as reader, reader.consistent():
            written = write(reader, file)
    except OSError as error:
        file.close()
        detail = f"disk: {error.strerror}. The answer has to be written there first. Ask for less, or later."
        raise Unavailable(Reason.STORAGE_LOW, detail, retry_after_s=5) from error
    except BaseException:
        file.close()
        raise
    return file, written


class _Revoked(Exception):
    """The key that a download began with holds no more."""


class Download(StreamingResponse):
    """A stream that is cut when its key is revoked. Whoever stops reading is cut by the system (serving.py)."""

    def __init__(self, content: AsyncGenerator[bytes], may_go_on: Callable[[], bool], **options: Any) -> None:
        super().__init__(content, **options)
        self._content = content
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _cut_when_revoked(scope, self._may_go_on):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        with contextlib.suppress(_Revoked):
            try:
                await super().stream_response(_guarded(send, self._may_go_on))
            finally:
                await self._content.aclose()


class FileDownload(FileResponse):
    """The same of a file that may be replaced meanwhile: it goes on as it was. It closes `descriptor`."""

    def __init__(self, descriptor: int, may_go_on: Callable[[], bool], **options: Any) -> None:
        # The name of an open file leads to it for as long as it is open, whatever becomes of its other names.
        super().__init__(f"/dev/fd/{descriptor}", stat_result=os.fstat(descriptor), **options)
        self._descriptor = descriptor
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A server may ignore what it can't satisfy (RFC 9110, section 14.2), and every error here has one form.
        size = os.fstat(self._descriptor).st_size
        headers = [header for header in scope["headers"] if header[0] != b"range" or _is_one_part(header[1], size)]
        try:
            async with _cut_when_revoked(scope, self._may_go_on):
                with contextlib.suppress(_Revoked):
                    await super().__call__({**scope, "headers": headers}, receive, _guarded(send, self._may_go_on))
        finally:
            os.close(self._descriptor)


def _is_one_part(value: bytes, size: int) -> bool:
    """Whether a `Range` is one part of a file of this size."""
    found = _RANGE.fullmatch(value)
    if not found or not any(found.groups()):
        return False
    first, last = (int(number) if number else None for number in found.groups())
    return bool(last) if first is None else first < size and (last is None or first <= last)


def _guarded(send: Send, may_go_on: Callable[[], bool]) -> Send:
    async def send_while_allowed(message: Message) -> None:
        if not may_go_on():
            raise _Revoked
        await send(message)

    return send_while_allowed


@contextlib.asynccontextmanager
async def _cut_when_revoked(scope: Scope, may_go_on: Callable[[], bool]) -> AsyncIterator[None]:
    """For an answer that may take long: also what waits in buffers for a slow reader is not sent any more."""
    abort: Callable[[], None] = scope.get("state", {}).get("abort", lambda: None)

    loop = asyncio.get_running_loop()
    next_look: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal next_look
        if may_go_on():
            next_look = loop.call_later(LOOK_EVERY_S, look)
        else:
            abort()

    look()
    try:
        yield
    finally:
        if next_look is not None:
            next_look.cancel()
        if not may_go_on():
            abort()
            await asyncio.sleep(0)  # until uvicorn knows that there is nobody to complete the answer for


def download(
    request: Request,
    key: Key,
    file: IO[bytes],
    freshness: Freshness,
    *,
    media_type: str,
    file_name: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An answer of what was spooled. With a name it is one to save, and not to look at."""
    sink: Sink = request.state.sink
    told = {**HEADERS, **freshness.headers(), "Content-Length": str(file.seek(0, os.SEEK_END)), **(headers or {})}
    file.seek(0)
    if file_name is not None:
        told["Content-Disposition"] = f'attachment; filename="{file_name}"'
    may_go_on = partial(sink.keys.is_live, key)
    return Download(_chunks(file), may_go_on, media_type=media_type, headers=told)


async def _chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        while chunk := await run_in_threadpool(file.read, CHUNK_BYTES):
            yield chunk
