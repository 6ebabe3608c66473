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
# The pause after the system had no descriptor or no memory for a connection.
PAUSE_S = 0.1
# The client disconnected or the network failed before the connection was accepted (accept(2)).
_CLIENT_ERRORS = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Listener:
    """Accepts connections in batches. It replaces the server that `loop.create_server` returns.

    uvloop accepts one connection in each iteration of the event loop, and an iteration serves all busy connections. So
    the clients of a flooded server would wait for one long iteration each (docs/decisions/0015).

    Args:
        listener: a bound socket.
        backlog: the number of connections that the system queues until they are accepted.
        connect: creates a connection from an accepted socket.
    """

    def __init__(
        self, listener: socket.socket, *, backlog: int, connect: Callable[[socket.socket], Coroutine[Any, Any, Any]]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connect = connect
        self._connecting: dict[asyncio.Task[Any], None] = {}  # oldest first
        self._resuming: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept_all)

    def close(self) -> None:
        """Stop accepting, and cancel pending connections."""
        self._loop.remove_reader(self._listener)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in list(self._connecting):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the cancelled connections have ended."""
        if self._connecting:
            await asyncio.wait(list(self._connecting))

    def _accept_all(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _CLIENT_ERRORS:
                    continue
                self._pause(error)
                return
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        if len(self._connecting) >= HANDSHAKES_MAX:
            next(iter(self._connecting)).cancel()
        task = self._loop.create_task(self._connect(accepted))
        self._connecting[task] = None

        def end(task: asyncio.Task[Any]) -> None:
            self._connecting.pop(task, None)
            # A failed handshake is the client's mistake, so it is not logged.
            if task.cancelled() or task.exception() is not None:
                accepted.close()

        task.add_done_callback(end)

    def _pause(self, error: OSError) -> None:
        log.warning("accept_failed", extra={"detail": error.strerror})
        self._loop.remove_reader(self._listener)
        self._resuming = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept_all)
