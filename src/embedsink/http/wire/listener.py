"""The listening socket of a server: all connections that wait are accepted at once."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

# Each takes some 0.1 ms of the event loop.
ACCEPTED_AT_ONCE_MAX = 64
# TLS handshakes at once; beyond it the oldest is given up. Without TLS a connection is made within an iteration or two.
HANDSHAKES_MAX = 256
# While the system has no descriptors or no memory for a connection.
PAUSE_S = 0.1
# The client has left, or the network has failed, before the connection was accepted (accept(2)).
_OF_THE_CLIENT = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Listener:
    """Accepts connections in batches, in the place of the server that `loop.create_server` returns.

    uvloop accepts one connection in each iteration of the event loop. An iteration serves all connections that are
    busy, so new clients of a flooded server would wait for one long iteration each (docs/decisions/0015).

    Args:
        listener: bound; it begins to listen.
        backlog: how many connections the system keeps until they are accepted.
        connect: makes a connection of an accepted socket.
    """

    def __init__(
        self, listener: socket.socket, *, backlog: int, connect: Callable[[socket.socket], Coroutine[Any, Any, Any]]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connect = connect
        self._connecting: dict[asyncio.Task[Any], None] = {}  # the oldest first
        self._resuming: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept_all)

    def close(self) -> None:
        """Accept no more, and give up the connections that are not made yet."""
        self._loop.remove_reader(self._listener)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in list(self._connecting):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the connections that `close` gave up have ended."""
        if self._connecting:
            await asyncio.wait(list(self._connecting))

    def _accept_all(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_THE_CLIENT:
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
            # The exception is that of a handshake: the client's mistake, and nothing that an operator can mend.
            if task.cancelled() or task.exception() is not None:
                accepted.close()

        task.add_done_callback(end)

    def _pause(self, error: OSError) -> None:
        log.warning("not_accepting", extra={"detail": error.strerror})
        self._loop.remove_reader(self._listener)
        self._resuming = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept_all)
