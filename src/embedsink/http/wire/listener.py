"""A listening socket that accepts all pending connections in one batch."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

# Accepting a connection takes the event loop 0.1 ms.
ACCEPTED_AT_ONCE_MAX = 64
# The maximum number of concurrent TLS handshakes. Beyond it the oldest is cancelled. Without TLS, connecting takes one
# or two iterations of the event loop.
HANDSHAKES_MAX = 256
# The pause in accepting after the system had no descriptor or no memory for a connection.
PAUSE_S = 0.1
# The client disconnected or the network failed before the connection was accepted (accept(2)).
_CLIENT_ERRORS = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Listener:
    """Accepts connections in batches. It replaces the server that `loop.create_server` returns.

    uvloop accepts one connection in each iteration of the event loop, and an iteration serves all busy connections. So
    a new client of a flooded server would wait for an iteration for each client before it (docs/decisions/0015).

    Args:
        bound_socket: a socket that is bound to an address.
        backlog: the number of connections that the system queues until they are accepted.
        connect: creates a connection from an accepted socket.
    """

    def __init__(
        self, bound_socket: socket.socket, *, backlog: int, connect: Callable[[socket.socket], Coroutine[Any, Any, Any]]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = bound_socket
        self._connect = connect
        self._handshakes: dict[asyncio.Task[Any], None] = {}  # an ordered set, oldest first
        self._resume_timer: asyncio.TimerHandle | None = None
        self._socket.setblocking(False)
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket, self._accept_all)

    def close(self) -> None:
        """Stop accepting, and cancel handshakes."""
        self._loop.remove_reader(self._socket)
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until the cancelled handshakes have ended."""
        if self._handshakes:
            await asyncio.wait(list(self._handshakes))

    def _accept_all(self) -> None:
        """Accept pending connections, at most `ACCEPTED_AT_ONCE_MAX` in one iteration of the event loop."""
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _CLIENT_ERRORS:
                    continue
                self._pause(error)
                return
            self._start_handshake(accepted)

    def _start_handshake(self, accepted: socket.socket) -> None:
        """Create a connection, with a handshake if TLS is used. Beyond the limit, cancel the oldest handshake."""
        accepted.setblocking(False)
        if len(self._handshakes) >= HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]  # It ends later, and the next connection must cancel another handshake.
            oldest.cancel()
        handshake = self._loop.create_task(self._connect(accepted))
        self._handshakes[handshake] = None  # A dict keeps the order, oldest first.

        def on_end(ended: asyncio.Task[Any]) -> None:
            self._handshakes.pop(ended, None)
            # A failed handshake is the client's mistake, so it is not logged.
            if ended.cancelled() or ended.exception() is not None:
                accepted.close()

        handshake.add_done_callback(on_end)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for `PAUSE_S`, because each attempt would fail at once."""
        log.warning("accept_failed", extra={"detail": error.strerror})
        self._loop.remove_reader(self._socket)
        self._resume_timer = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._socket, self._accept_all)
