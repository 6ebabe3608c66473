"""A complete response. It can be sent as ASGI messages, or as the bytes of an HTTP/1.1 response."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Send

Header = tuple[bytes, bytes]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}


class RawResponse(NamedTuple):
    """A complete response. Header names are in lower case, as ASGI requires, and include `content-length`."""

    status: int
    headers: list[Header]
    body: bytes

    @classmethod
    def of(cls, response: Response) -> "RawResponse":
        """Convert a Starlette response."""
        return cls(response.status_code, response.raw_headers, bytes(response.body))

    async def send(self, send: Send) -> None:
        """Send the response as ASGI messages."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})

    def encode(self, default_headers: Iterable[Header], *, keep_alive: bool) -> bytes:
        """Return the bytes of an HTTP/1.1 response (RFC 9112), with the default headers first."""
        header_lines = map(b": ".join, (*default_headers, *self.headers))
        lines = [_STATUS_LINES[self.status], *header_lines]
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join((*lines, b"", self.body))  # An empty line ends the headers.


Reply = Callable[[RawResponse], None]
"""Sends the response to a request."""
