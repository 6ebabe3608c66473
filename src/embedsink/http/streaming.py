"""What readers take away: written whole before the first byte goes out, and cut where it may not go on."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from io import FileIO
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from embedsink.auth.key import Key
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.etag import EtagCheck
from embedsink.http.execute import query_timeout, stop_and_wait
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.store.reader import Reader

CHUNK_BYTES = 65_536
SPOOLED_BYTES_MAX = 1_048_576
# While the disk has no room, an answer of this size is made in memory.
IN_MEMORY_BYTES_MAX = 8 * 1_048_576
LOOK_EVERY_S = 0.25
_ALMOST_FULL = "is almost full"
# What may be written between two looks, beside what the journal needs.
ROOM_BYTES = 128 * 1_048_576

T = TypeVar("T")


async def spool_query(
    engine: Engine, variables: Mapping[str, object], write: Callable[[Reader, "SpoolFile"], T], *, key_id: str
) -> tuple[IO[bytes], T]:
    """What is written of one moment, in memory or in a file without a name.

    A slow reader must not hold a transaction of the store, nor one of the few places for reports; and no reader may
    take the room that the journal needs. On a full disk answers of up to `IN_MEMORY_BYTES_MAX` are given all the same.

    Raises:
        Unavailable: too many wait already, the store is away, the disk is as good as full, or it takes too long.
    """
    async with engine.report_slots.place(key_id), query_timeout(engine):
        spool = _Spool(engine, variables)
        writing = asyncio.get_running_loop().run_in_executor(engine.read_pool, spool.fill, write)
        try:
            while not (await asyncio.wait({writing}, timeout=LOOK_EVERY_S))[0]:
                if spool.takes_too_much() or spool.spills_without_room():
                    spool.stop()
        except asyncio.CancelledError:
            await stop_and_wait(writing, spool.stop)
            spool.file.close()
            raise
        written = await writing
        if spool.takes_too_much():
            spool.file.close()
            raise _no_room(_ALMOST_FULL)
        return spool.file, written


class _Spool:
    """A file without a name that one report is written to."""

    def __init__(self, engine: Engine, variables: Mapping[str, object]) -> None:
        self._engine = engine
        self._variables = variables
        self._reader: Reader | None = None
        in_memory = _InMemory.open() if self._is_short_of_room() else None
        self.file: SpoolFile = in_memory or _OnDisk(engine.folder.path)

    def fill(self, write: Callable[[Reader, "SpoolFile"], T]) -> T:
        """Write it, in a thread. When that fails there is no file."""
        try:
            with self._engine.store.reader(self._variables) as reader, reader.consistent():
                self._reader = reader
                return write(reader, self.file)
        except OSError as error:
            self.file.close()
            raise _no_room(str(error.strerror)) from error
        except BaseException as error:
            self.file.close()
            if self.file.is_stopped:
                raise _no_room(_ALMOST_FULL) from error
            raise

    def takes_too_much(self) -> bool:
        """Whether the answer is too large for what is free, on the disk or else in memory."""
        if isinstance(self.file, _InMemory):
            return self.file.byte_count > IN_MEMORY_BYTES_MAX
        return self.file.byte_count > SPOOLED_BYTES_MAX and self._is_short_of_room()

    def spills_without_room(self) -> bool:
        """Whether reports write what does not fit into memory to a disk on which soon events would be refused."""
        return self._engine.store.is_spilling and self._is_short_of_room()

    def stop(self) -> None:
        """Write no more: neither what the engine answers, nor what it writes itself."""
        self.file.is_stopped = True
        if self._reader:
            self._reader.interrupt()

    def _is_short_of_room(self) -> bool:
        disk = os.statvfs(self._engine.folder.path)
        return disk.f_bavail * disk.f_frsize < self._engine.settings.free_bytes_min + ROOM_BYTES


class _OnDisk(SpooledTemporaryFile[bytes]):
    """In memory at first, and on the disk once it has grown or the engine writes to it."""

    is_stopped = False
    _is_on_disk = False

    def __init__(self, folder: Path) -> None:
        super().__init__(SPOOLED_BYTES_MAX, dir=str(folder))
        self._folder = folder

    def scratch(self) -> IO[bytes]:
        """A second one, on the disk."""
        return TemporaryFile(dir=self._folder)

    @property
    def byte_count(self) -> int:
        """What it takes on the disk."""
        return os.fstat(self.fileno()).st_size if self._is_on_disk and not self.closed else 0

    def rollover(self) -> None:
        super().rollover()
        self._is_on_disk = True

    def write(self, chunk: Any) -> int:
        if self.is_stopped:
            raise OSError(errno.ENOSPC, _ALMOST_FULL)
        return super().write(chunk)

    def writelines(self, chunks: Iterable[Any]) -> None:
        for chunk in chunks:
            self.write(chunk)


class _InMemory(FileIO):
    """Memory to which the engine can write as to a file."""

    is_stopped = False
    _second: "_InMemory | None" = None

    @classmethod
    def open(cls) -> "_InMemory | None":
        """An empty one; None where the system has none, as macOS."""
        create = getattr(os, "memfd_create", None)
        return None if create is None else cls(create("answer"), "w+")

    def scratch(self) -> "_InMemory":
        """A second one, counted with the first."""
        self._second = _InMemory(os.memfd_create("scratch"), "w+")
        return self._second

    @property
    def byte_count(self) -> int:
        """What it takes in memory."""
        own = 0 if self.closed else os.fstat(self.fileno()).st_size
        return own + (self._second.byte_count if self._second else 0)

    def write(self, chunk: Any) -> int:
        if self.is_stopped or self.tell() + len(chunk) > IN_MEMORY_BYTES_MAX:
            raise OSError(errno.ENOSPC, _ALMOST_FULL)
        return super().write(chunk)


SpoolFile = _InMemory | _OnDisk


def _no_room(why: str) -> Unavailable:
    detail = f"disk: {why}. The answer has to be written there first. Ask for less, or later."
    return Unavailable(Reason.STORAGE_LOW, detail, retry_after_s=5)


class _Revoked(Exception):
    """The key that a download began with holds no more."""


class Download(StreamingResponse):
    """A stream that is cut when its key is revoked. Whoever stops reading is cut by the system (serving.py).

    `held` is let go of at its end, also when it is cut before anything was read.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        may_go_on: Callable[[], bool],
        *,
        held: AbstractContextManager[Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(content, **options)
        self._content = content
        self._may_go_on = may_go_on
        self._held = held or contextlib.nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            async with _cut_when_revoked(scope, self._may_go_on):
                await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        with contextlib.suppress(_Revoked):
            try:
                await super().stream_response(_guarded(send, self._may_go_on))
            finally:
                await self._content.aclose()


class FileDownload(FileResponse):
    """The same of a file that may be replaced meanwhile: it goes on as it was. It closes `descriptor`.

    While it runs it has its `place`: the blocks of what was replaced are freed when nobody reads it any more.
    """

    def __init__(
        self,
        descriptor: int,
        may_go_on: Callable[[], bool],
        *,
        place: AbstractAsyncContextManager[None] | None = None,
        is_part: bool = True,
        **options: Any,
    ) -> None:
        # The name of an open file leads to it for as long as it is open, whatever becomes of its other names.
        super().__init__(f"/dev/fd/{descriptor}", stat_result=os.fstat(descriptor), **options)
        self._descriptor = descriptor
        self._may_go_on = may_go_on
        self._place = place or contextlib.nullcontext()
        self._is_part = is_part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [header for header in scope["headers"] if header[0] != b"range" or self._is_part]
        try:
            async with self._place, _cut_when_revoked(scope, self._may_go_on):
                with contextlib.suppress(_Revoked):
                    await super().__call__({**scope, "headers": headers}, receive, _guarded(send, self._may_go_on))
        finally:
            os.close(self._descriptor)


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
    etag: EtagCheck,
    *,
    media_type: str,
    file_name: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An answer of what was spooled. With a name it is one to save, and not to look at."""
    engine: Engine = request.state.engine
    told = {**NO_CACHE, **etag.headers(), "Content-Length": str(file.seek(0, os.SEEK_END)), **(headers or {})}
    file.seek(0)
    if file_name is not None:
        told["Content-Disposition"] = f'attachment; filename="{file_name}"'
    may_go_on = partial(engine.keys.is_live, key)
    return Download(_chunks(file), may_go_on, held=file, media_type=media_type, headers=told)


async def _chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    while chunk := await run_in_threadpool(file.read, CHUNK_BYTES):
        yield chunk
