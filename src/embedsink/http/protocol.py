"""uvicorn's HTTP protocol, with the head and the body of a 202 in one write.

ASGI sends an answer in two messages, and uvicorn writes each at once: two system calls, and two packets on
loopback. Only ingest answers 202, always with a short body, so there the head waits for it. It costs nothing
and takes a tenth off a request (docs/decisions/0006).
"""

import asyncio
from typing import Any

from embedsink.http.connections import BoundedConnection

_ACCEPTED = b"HTTP/1.1 202 "


class IngestProtocol(BoundedConnection):
    """What `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the joining transport between uvicorn and the socket."""
        super().connection_made(transport)
        self.transport = _JoiningTransport(transport)  # type: ignore[assignment]


class _JoiningTransport:
    """A transport that holds the head of a 202 back until the next write. Everything else goes straight through."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, part: bytes) -> None:
        if part.startswith(_ACCEPTED):
            self._head = part
        elif self._head:
            self._transport.write(self._head + part)
            self._head = b""
        else:
            self._transport.write(part)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
