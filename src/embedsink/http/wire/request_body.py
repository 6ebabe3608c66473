"""Request bodies within limits of size, of time, and of the memory of all bodies together."""

import asyncio
from collections import Counter
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from embedsink.errors import Refused, Unavailable, preview
from embedsink.http.rate_limiter import Sender
from embedsink.ingest.pipeline import body_too_large_error, inflate
from embedsink.reasons import Reason
from embedsink.settings import Settings

# The server reads this much of a body before it finds the key, which must be within these bytes.
ANONYMOUS_BYTES_MAX = 65_536
# Bodies whose key is not found yet may use an eighth of the memory limit, in addition to it.
ANONYMOUS_DIVISOR = 8

Authenticate = Callable[[bytes], Sender]
"""Finds the key in the first bytes of a body, and returns the sender. Raises Refused if no key is valid."""


class BodyReader:
    """Reads the bodies of all requests of a server, and counts their bytes in memory while they are read."""

    def __init__(self, settings: Settings) -> None:
        self._bytes_max = settings.body_bytes_max
        self._timeout_s = settings.body_timeout_s
        self.inflight = InflightBytes(settings.inflight_bytes_max, body_bytes_max=self._bytes_max)
        # Senders without a key have a separate limit, so that they can't use up the memory for senders with a key.
        self._anonymous_inflight = InflightBytes(
            settings.inflight_bytes_max // ANONYMOUS_DIVISOR, body_bytes_max=ANONYMOUS_BYTES_MAX
        )

    def check_headers(self, *, length: int, encoding: str) -> None:
        """Check the headers of a request before its body is read.

        Args:
            length: the declared length in bytes; 0 if unknown.
            encoding: the `Content-Encoding` in lower case; empty without the header.

        Raises:
            Refused: the encoding is neither gzip nor identity (`encoding`), or the length exceeds the limit
                (`body_too_large`).
        """
        if encoding not in ("", "identity", "gzip"):
            raise Refused(Reason.ENCODING, f"content-encoding: {preview(encoding)} is not one of gzip, identity.")
        self.check_size(length)

    def check_size(self, size: int) -> None:
        """Raise Refused (`body_too_large`) if a body of this size exceeds the limit."""
        if size > self._bytes_max:
            raise body_too_large_error(size, bytes_max=self._bytes_max)

    async def read(self, receive: Receive, sender: Sender, *, authenticate: Authenticate | None = None) -> bytes:
        """Read a body without decoding it.

        Args:
            receive: the ASGI callable.
            sender: the sender, with its key if the key is known.
            authenticate: finds the sender's key. It is called only for a body of several parts, once the body exceeds
                `ANONYMOUS_BYTES_MAX`. None if the key is known, or not needed.

        Raises:
            Refused: the body is too large (`body_too_large`) or too slow (`body_too_slow`), or `authenticate` raises.
            Unavailable: the bodies in memory are too large together, or the server stops (`overloaded`).
            ClientDisconnect: the client has disconnected.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._read_all(receive, sender, authenticate)
        except TimeoutError:
            detail = f"body: took more than {self._timeout_s:g} s (EMBEDSINK_BODY_TIMEOUT_S). Send it again."
            raise Refused(Reason.BODY_TOO_SLOW, detail) from None
        except asyncio.CancelledError:
            # uvicorn cancels requests when it stops. Undo the cancellation, so that the client still gets a response.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            raise Unavailable(Reason.OVERLOADED, "server: is stopping. Wait, then resend.") from None
        self.check_size(len(body))
        return body

    def decode(self, body: bytes, *, encoding: str) -> bytes:
        """Return the body, decompressed if the encoding is gzip.

        Raises:
            Refused: the decompressed body exceeds the limit (`body_too_large`), or the body is not one complete gzip
                file (`encoding`).
        """
        return inflate(body, bytes_max=self._bytes_max) if encoding == "gzip" else body

    async def _read_all(self, receive: Receive, sender: Sender, authenticate: Authenticate | None) -> bytes:
        """Read a body. A body of one part is not counted in `InflightBytes`: the server does not wait for more."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        return await self._read_rest(body, receive, sender, authenticate)

    async def _read_rest(
        self, first_part: bytes, receive: Receive, sender: Sender, authenticate: Authenticate | None
    ) -> bytes:
        """Read a body of several parts, and count the bytes in memory until the body is complete.

        Bytes of a sender whose key is not known yet have a separate limit.
        """
        parts = [first_part]
        size = 0
        has_more = True
        inflight = self.inflight if sender.key_id else self._anonymous_inflight
        acquired_bytes = 0
        try:
            while has_more:
                size += len(parts[-1])
                self.check_size(size)
                if authenticate is not None and size > ANONYMOUS_BYTES_MAX:
                    sender_with_key = authenticate(b"".join(parts))
                    authenticate = None
                    # From now on, count the bytes for the key.
                    inflight.release(sender, acquired_bytes)
                    inflight, sender, acquired_bytes = self.inflight, sender_with_key, 0
                inflight.acquire(sender, size - acquired_bytes)
                acquired_bytes = size
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                has_more = message.get("more_body", False)
        finally:
            inflight.release(sender, acquired_bytes)
        return b"".join(parts)


class InflightBytes:
    """The bytes of all bodies in memory, limited in total, by key and by sender.

    A key may use three quarters of the total. A sender, which is one address of a key, may use as many bytes as the key
    has free, or one body. So the first address uses at most half of the key's bytes, two addresses use a third each,
    and the next address always finds free memory.

    Args:
        bytes_max: the limit of all bodies.
        body_bytes_max: the limit of one body.
    """

    def __init__(self, bytes_max: int, *, body_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._body_bytes_max = body_bytes_max
        # One key leaves a quarter to the others, but may always send one body.
        self._key_bytes_max = max(bytes_max * 3 // 4, body_bytes_max)
        self._by_sender: Counter[Sender] = Counter()
        self._by_key: Counter[str | None] = Counter()
        self._total = 0

    def acquire(self, sender: Sender, byte_count: int) -> None:
        """Count more bytes of a sender.

        Raises:
            Unavailable: the bytes would exceed a limit, so they are not counted (`overloaded`).
        """
        # Senders without a key have their own `InflightBytes`, and may use all of it.
        key_bytes_max = self._key_bytes_max if sender.key_id else self._bytes_max
        key_bytes_free = key_bytes_max - self._by_key[sender.key_id]
        # An address may hold one body, or as many bytes as its key still has free, whichever is more. So bytes remain
        # for the key's next address.
        sender_bytes_max = max(key_bytes_free, self._body_bytes_max)
        if (
            self._total + byte_count > self._bytes_max
            or byte_count > key_bytes_free
            or self._by_sender[sender] + byte_count > sender_bytes_max
        ):
            detail = "server: too many request bodies are in memory (EMBEDSINK_INFLIGHT_BYTES_MAX). Wait, then resend."
            raise Unavailable(Reason.OVERLOADED, detail)
        self._total += byte_count
        self._by_sender[sender] += byte_count
        self._by_key[sender.key_id] += byte_count

    def release(self, sender: Sender, byte_count: int) -> None:
        """Subtract bytes that `acquire` counted."""
        self._total -= byte_count
        self._by_sender[sender] -= byte_count
        self._by_key[sender.key_id] -= byte_count
        # Remove zeros: a counter keeps them, and there may be any number of addresses.
        if not self._by_sender[sender]:
            del self._by_sender[sender]
        if not self._by_key[sender.key_id]:
            del self._by_key[sender.key_id]
