"""The connections of one server. The oldest is closed if there are too many connections or unsent bytes."""

from typing import Protocol

# Not counted: the kernel's buffers, and the bytes that each connection buffers below its high-water mark.
UNSENT_BYTES_MAX = 64 * 1_048_576


class Evictable(Protocol):
    """A connection that can be closed to make room for others."""

    def evict(self) -> None:
        """Close at once."""


class ConnectionRegistry:
    """The waiting connections, and the bytes that their clients have not read.

    Args:
        connections_max: how many connections may be open at once.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        # Connections with an incomplete request, a delayed response or a client that does not read; oldest first.
        self._waiting: dict[Evictable, None] = {}
        # Unsent bytes of connections whose client does not read; oldest first.
        self._unsent: dict[Evictable, int] = {}
        self._unsent_bytes = 0

    def evict_beyond_limit(self, open_count: int) -> None:
        """Close the connection that has waited longest if more than the maximum are open."""
        if open_count > self._connections_max and self._waiting:
            self._evict(next(iter(self._waiting)))

    def add_waiting(self, connection: Evictable) -> None:
        """Add a connection to the end of the waiting ones."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def remove_waiting(self, connection: Evictable) -> None:
        """Remove a connection from the waiting ones."""
        self._waiting.pop(connection, None)

    def add_stalled(self, connection: Evictable, unsent_bytes: int) -> None:
        """Record that a client does not read. Close the oldest stalled connections while too many bytes are unsent."""
        self.add_waiting(connection)
        self._unsent[connection] = unsent_bytes
        self._unsent_bytes += unsent_bytes
        while self._unsent_bytes > UNSENT_BYTES_MAX:
            self._evict(next(iter(self._unsent)))

    def remove_stalled(self, connection: Evictable) -> None:
        """Record that a client reads again."""
        self._unsent_bytes -= self._unsent.pop(connection, 0)

    def remove(self, connection: Evictable) -> None:
        """Remove a closed connection."""
        self.remove_waiting(connection)
        self.remove_stalled(connection)

    def _evict(self, connection: Evictable) -> None:
        self.remove(connection)
        connection.evict()
