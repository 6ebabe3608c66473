"""All connections of one server: which of them makes room when there are too many, or too much is unsent."""

from typing import Protocol

# Beside what the kernel keeps for each connection, and what connections have below their high-water mark.
UNSENT_BYTES_MAX = 64 * 1_048_576


class Closable(Protocol):
    """A connection, as its registry sees it."""

    def give_way(self) -> None:
        """Close at once."""


class ConnectionRegistry:
    """The connections that wait, and the bytes that clients do not read.

    Args:
        connections_max: how many may be open at once.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        # Those whose request is not whole, whose answer is held back, or whose client does not read. The longest first.
        self._waiting: dict[Closable, None] = {}
        self._unsent: dict[Closable, int] = {}  # bytes of those whose client does not read, the longest first
        self._unsent_bytes = 0

    def limit(self, open_count: int) -> None:
        """Close the connection that has waited longest when there are too many."""
        if open_count > self._connections_max and self._waiting:
            self._close(next(iter(self._waiting)))

    def wait(self, connection: Closable) -> None:
        """The connection begins to wait, behind all others."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def work(self, connection: Closable) -> None:
        """The connection waits no more."""
        self._waiting.pop(connection, None)

    def stall(self, connection: Closable, unsent_bytes: int) -> None:
        """The connection's client does not read. Close those that have stalled longest when too much is unsent."""
        self.wait(connection)
        self._unsent[connection] = unsent_bytes
        self._unsent_bytes += unsent_bytes
        while self._unsent_bytes > UNSENT_BYTES_MAX:
            self._close(next(iter(self._unsent)))

    def flow(self, connection: Closable) -> None:
        """The connection's client reads again."""
        self._unsent_bytes -= self._unsent.pop(connection, 0)

    def leave(self, connection: Closable) -> None:
        """The connection is closed."""
        self.work(connection)
        self.flow(connection)

    def _close(self, connection: Closable) -> None:
        self.leave(connection)
        connection.give_way()
