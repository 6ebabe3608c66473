"""A request body within its limits: size, time, and what all bodies together may hold."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from embedsink.errors import Refused, Unavailable, quote
from embedsink.http.rate_limiter import Sender
from embedsink.ingest.pipeline import inflate, too_large
from embedsink.reasons import Reason
from embedsink.settings import Settings

# Of a body whose key is not found yet, so much is read; the key has to stand in it.
ANONYMOUS_BYTES_MAX = 65_536
_Task = asyncio.Task[Any]

Authenticate = Callable[[bytes], Sender]
"""Finds the sender's key in the first bytes of a body; raises Refused when there is no good one."""


class BodyReader:
    """Reads bodies for all requests of one server, and counts what they hold meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self._bytes_max = settings.body_bytes_max
        self._timeout_s = settings.body_timeout_s
        self.inflight = InflightBytes(settings.inflight_bytes_max, one_max=self._bytes_max)
        # Whoever has shown no key yet must not take the room of those who have.
        self._anonymous_inflight = InflightBytes(settings.inflight_bytes_max // 8, one_max=ANONYMOUS_BYTES_MAX)
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
        self.check_size(length)

    def check_size(self, size: int) -> None:
        """Raises Refused (`body_too_large`) for a body of so many bytes, if that is too many."""
        if size > self._bytes_max:
            raise too_large(size, bytes_max=self._bytes_max)

    async def read(self, receive: Receive, sender: Sender, *, authenticate: Authenticate | None = None) -> bytes:
        """The body as it was sent.

        Args:
            receive: ASGI's.
            sender: who sends it, as far as that is known.
            authenticate: finds out who that is, when more has come than may come from a stranger.

        Raises:
            Refused: `body_too_large` or `body_too_slow`, or whatever `authenticate` raises.
            Unavailable: `overloaded`, when all bodies together are too large.
            ClientDisconnect: the client left; there is nobody to answer.
        """
        task = self._deadlines.begin()
        try:
            return await self._read_all(receive, sender, authenticate)
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
        self.check_size(len(body))
        return inflate(body, bytes_max=self._bytes_max) if encoding == "gzip" else body

    async def _read_all(self, receive: Receive, sender: Sender, authenticate: Authenticate | None) -> bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        return await self._read_rest(body, receive, sender, authenticate)

    async def _read_rest(
        self, first: bytes, receive: Receive, sender: Sender, authenticate: Authenticate | None
    ) -> bytes:
        parts, size, more = [first], 0, True
        inflight = self.inflight if sender.key_id else self._anonymous_inflight
        held = 0
        try:
            while more:
                size += len(parts[-1])
                self.check_size(size)
                if authenticate is not None and size > ANONYMOUS_BYTES_MAX:
                    known, authenticate = authenticate(b"".join(parts)), None
                    inflight.release(sender, held)
                    inflight, sender, held = self.inflight, known, 0
                inflight.acquire(sender, size - held)
                held = size
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
        finally:
            inflight.release(sender, held)
        return b"".join(parts)


class InflightBytes:
    """What all bodies of one sort hold together, in bytes, and what each sender may hold of it.

    A key may hold three quarters. Each of its addresses may hold as much as they leave free together, or one body: one
    address holds half of the key's share, two hold a third each, and the next one finds room.

    Args:
        bytes_max: what all of them may hold.
        one_max: the largest body.
    """

    def __init__(self, bytes_max: int, *, one_max: int) -> None:
        self._bytes_max = bytes_max
        self._one_max = one_max
        self._key_max = max(bytes_max * 3 // 4, one_max)
        self._held: Counter[Sender] = Counter()
        self._held_by_key: Counter[str | None] = Counter()
        self._held_count = 0

    def acquire(self, sender: Sender, byte_count: int) -> None:
        """Count so many more bytes of a sender.

        Raises:
            Unavailable: `overloaded`; nothing is counted.
        """
        free = (self._key_max if sender.key_id else self._bytes_max) - self._held_by_key[sender.key_id]
        if (
            self._held_count + byte_count > self._bytes_max
            or byte_count > free
            or self._held[sender] + byte_count > max(free, self._one_max)
        ):
            detail = "server: holds as many bytes of unfinished bodies as it may. Wait, then resend."
            raise Unavailable(Reason.OVERLOADED, detail)
        self._held_count += byte_count
        self._held[sender] += byte_count
        self._held_by_key[sender.key_id] += byte_count

    def release(self, sender: Sender, byte_count: int) -> None:
        """Give back what `hold` has counted."""
        self._held_count -= byte_count
        self._held[sender] -= byte_count
        self._held_by_key[sender.key_id] -= byte_count
        if not self._held[sender]:
            del self._held[sender]
        if not self._held_by_key[sender.key_id]:
            del self._held_by_key[sender.key_id]


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
