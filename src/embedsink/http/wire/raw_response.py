"""What goes back to a sender, before it is ASGI messages or bytes on a connection."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Send

Header = tuple[bytes, bytes]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}


class RawResponse(NamedTuple):
    """A whole response. Header names are in lower case, as ASGI wants them; `content-length` is among them."""

    status: int
    headers: list[Header]
    body: bytes

    @classmethod
    def of(cls, response: Response) -> "RawResponse":
        """The same as one of Starlette's responses."""
        return cls(response.status_code, response.raw_headers, bytes(response.body))

    async def send(self, send: Send) -> None:
        """Send it as ASGI messages."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})

    def encode(self, further: Iterable[Header], *, keep_alive: bool) -> bytes:
        """The bytes of an HTTP/1.1 response (RFC 9112), with further headers before its own."""
        lines = [_STATUS_LINES[self.status], *map(b": ".join, further), *map(b": ".join, self.headers)]
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join((*lines, b"", self.body))
