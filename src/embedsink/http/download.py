"""What readers take away: written whole before the first byte goes out, and cut where it may not go on."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
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


class Download(StreamingResponse):
    """A stream that is cut when its key is revoked, or its reader pauses for too long."""

    def __init__(
        self, content: AsyncGenerator[bytes], may_go_on: Callable[[], bool], timeout_s: float, **options: Any
    ) -> None:
        super().__init__(content, **options)
        self._content = content
        self._may_go_on = may_go_on
        self._timeout_s = timeout_s

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(_guarded(send, self._may_go_on, self._timeout_s))
        except TimeoutError:
            return  # uvicorn closes the connection of an answer that is not whole
        finally:
            await self._content.aclose()


class FileDownload(FileResponse):
    """The same of a file that may be replaced meanwhile: it goes on as it was. It closes `descriptor`."""

    def __init__(self, descriptor: int, may_go_on: Callable[[], bool], timeout_s: float, **options: Any) -> None:
        # The name of an open file leads to it for as long as it is open, whatever becomes of its other names.
        super().__init__(f"/dev/fd/{descriptor}", stat_result=os.fstat(descriptor), **options)
        self._descriptor = descriptor
        self._may_go_on = may_go_on
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A server may ignore what it can't satisfy (RFC 9110, section 14.2), and every error here has one form.
        size = os.fstat(self._descriptor).st_size
        headers = [header for header in scope["headers"] if header[0] != b"range" or _is_one_part(header[1], size)]
        scope = {**scope, "headers": headers}
        try:
            await super().__call__(scope, receive, _guarded(send, self._may_go_on, self._timeout_s))
        except TimeoutError:
            return
        finally:
            os.close(self._descriptor)


def _is_one_part(value: bytes, size: int) -> bool:
    """Whether a `Range` is one part of a file of this size."""
    found = _RANGE.fullmatch(value)
    if not found or not any(found.groups()):
        return False
    first, last = (int(number) if number else None for number in found.groups())
    return bool(last) if first is None else first < size and (last is None or first <= last)


def _guarded(send: Send, may_go_on: Callable[[], bool], timeout_s: float) -> Send:
    async def send_in_time(message: Message) -> None:
        if not may_go_on():
            raise TimeoutError
        await asyncio.wait_for(send(message), timeout_s)

    return send_in_time


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
    return Download(_chunks(file), may_go_on, sink.settings.read_timeout_s, media_type=media_type, headers=told)


async def _chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        while chunk := await run_in_threadpool(file.read, CHUNK_BYTES):
            yield chunk
