"""A request body within its limits: size, time, compression, and what all bodies together may hold."""

import asyncio
import time
import zlib
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from embedsink.errors import Refused, Unavailable, quote
from embedsink.reasons import Reason
from embedsink.settings import Settings

GZIP_MEMBERS_MAX = 16
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # RFC 1952 framing
_Task = asyncio.Task[Any]


class BodyReader:
    """Reads bodies for all requests of one server, and counts what they hold meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self._bytes_max = settings.body_bytes_max
        self._timeout_s = settings.body_timeout_s
        self._inflight = _Budget(settings.inflight_bytes_max)
        # Whoever has shown no key yet must not take the room of those who have.
        self._inflight_of_strangers = _Budget(settings.inflight_bytes_max // 8)
        self._deadlines = _Deadlines(settings.body_timeout_s)

    def check_head(self, *, length: int, encoding: str) -> None:
        """Whether a body is worth reading.

        Args:
            length: what the sender declared, in bytes; 0 when it did not.
            encoding: its `Content-Encoding`, in lower case; empty when it has none.

        Raises:
            Refused: `body_too_large` or `encoding`.
        """
        if encoding not in ("", "identity", "gzip"):
            raise Refused(Reason.ENCODING, f"content-encoding: {quote(encoding)} is not one of gzip, identity.")
        if length > self._bytes_max:
            raise self._too_large(length)

    async def read(self, receive: Receive, *, known: bool) -> bytes:
        """The body as it was sent.

        Args:
            receive: ASGI's.
            known: whether the sender has shown a good key.

        Raises:
            Refused: `body_too_large` or `body_too_slow`.
            Unavailable: `overloaded`, when all bodies together are too large.
            ClientDisconnect: the client left; there is nobody to answer.
        """
        task = self._deadlines.begin()
        try:
            return await self._read_all(receive, self._inflight if known else self._inflight_of_strangers)
        except asyncio.CancelledError:
            task.uncancel()
            if not self._deadlines.has_passed(task):
                raise Unavailable(Reason.OVERLOADED, "server: is stopping. Wait, then send it again.") from None
            detail = f"body: took more than {self._timeout_s:g} s (EMBEDSINK_BODY_TIMEOUT_S). Send it again."
            raise Refused(Reason.BODY_TOO_SLOW, detail) from None
        finally:
            self._deadlines.end(task)

    def decode(self, body: bytes, *, encoding: str) -> bytes:
        """The body without its `Content-Encoding`.

        Raises:
            Refused: `body_too_large` or `encoding`.
        """
        if len(body) > self._bytes_max:
            raise self._too_large(len(body))
        return self._decompress(body) if encoding == "gzip" else body

    async def _read_all(self, receive: Receive, budget: "_Budget") -> bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        return await self._read_rest(body, receive, budget)

    async def _read_rest(self, first: bytes, receive: Receive, budget: "_Budget") -> bytes:
        parts, held, more = [first], 0, True
        try:
            while more:
                size = len(parts[-1])
                held += size
                budget.held += size
                if held > self._bytes_max:
                    raise self._too_large(held)
                if budget.held > budget.bytes_max:
                    detail = "server: holds as many bytes of unfinished bodies as it may. Wait, then resend."
                    raise Unavailable(Reason.OVERLOADED, detail)
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
        finally:
            budget.held -= held
        return b"".join(parts)

    def _decompress(self, body: bytes) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while body:  # RFC 1952, section 2.2: a file may have several members
                if len(parts) == GZIP_MEMBERS_MAX:
                    # Each costs a copy of all that follows: a body of nothing but members would take seconds.
                    raise Refused(Reason.ENCODING, f"body: has more than {GZIP_MEMBERS_MAX} gzip members. Send one.")
                member = zlib.decompressobj(_GZIP_WINDOW)
                parts.append(member.decompress(body, self._bytes_max - size + 1))
                size += len(parts[-1])
                if size > self._bytes_max:
                    raise self._too_large(size)
                if not member.eof:
                    raise Refused(Reason.ENCODING, "body: its gzip stream is cut off. Send it whole.")
                body = member.unused_data
        except zlib.error:
            raise Refused(Reason.ENCODING, "body: is not gzip. Send what content-encoding says.") from None
        return b"".join(parts)

    def _too_large(self, size: int) -> Refused:
        limit = f"{self._bytes_max:,} (EMBEDSINK_BODY_BYTES_MAX)"
        return Refused(Reason.BODY_TOO_LARGE, f"body: {size:,} bytes; the limit is {limit}. Send fewer events at once.")


@dataclass(slots=True)
class _Budget:
    """What all unfinished bodies of one sort hold, and may hold, in bytes."""

    bytes_max: int
    held: int = 0


class _Deadlines:
    """Cancels reads that take too long. One timer serves all: with a timer each, a request costs 5 µs more."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._begun_at: dict[_Task, float] = {}  # oldest first
        self._passed: set[_Task] = set()
        self._is_armed = False

    def begin(self) -> _Task:
        """Watch the running task until `end`; it is cancelled when that takes too long."""
        task = cast(_Task, asyncio.current_task())
        self._begun_at[task] = time.monotonic()
        if not self._is_armed:
            self._arm(self._timeout_s)
        return task

    def has_passed(self, task: _Task) -> bool:
        """Whether it was this deadline that cancelled the task."""
        return task in self._passed

    def end(self, task: _Task) -> None:
        """Watch the task no more."""
        self._begun_at.pop(task, None)
        self._passed.discard(task)

    def _arm(self, delay_s: float) -> None:
        self._is_armed = True
        asyncio.get_running_loop().call_later(delay_s, self._cancel_late_ones)

    def _cancel_late_ones(self) -> None:
        self._is_armed = False
        now = time.monotonic()
        for task, begun_at in list(self._begun_at.items()):
            left_s = begun_at + self._timeout_s - now
            if left_s > 0:
                self._arm(left_s)
                return
            del self._begun_at[task]
            self._passed.add(task)
            task.cancel()
