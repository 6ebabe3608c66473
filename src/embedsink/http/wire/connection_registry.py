"""The registry of a server's connections. It closes the oldest ones if there are too many, or too many unsent bytes."""

from typing import Protocol

# The maximum unsent bytes of all stalled connections. Not counted: the kernel's buffers, and the bytes that
# each connection buffers below its high-water mark.
UNSENT_BYTES_MAX = 64 * 1_048_576


class Evictable(Protocol):
    """A connection that can be closed to make room for others."""

    def evict(self) -> None:
        """Close the connection at once."""


class ConnectionRegistry:
    """The connections that may be closed to make room for others.

    Waiting connections have no complete request, a delayed response, or a client that does not read. Stalled
    connections are waiting ones whose client does not read.

    Args:
        connections_max: the maximum number of open connections.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._waiting: dict[Evictable, None] = {}  # an ordered set, oldest first
        self._stalled: dict[Evictable, int] = {}  # the unsent bytes of each; oldest first
        self._unsent_bytes = 0

    def evict_beyond_limit(self, open_count: int) -> None:
        """If more than `connections_max` connections are open, close the connection that has waited longest, if any."""
        if open_count > self._connections_max and self._waiting:
            self._evict(next(iter(self._waiting)))

    def add_waiting(self, connection: Evictable) -> None:
        """Record that a connection waits from now on."""
        self._waiting.pop(connection, None)  # Otherwise the connection would keep its earlier position.
        self._waiting[connection] = None

    def remove_waiting(self, connection: Evictable) -> None:
        """Record that a connection no longer waits."""
        self._waiting.pop(connection, None)

    def add_stalled(self, connection: Evictable, unsent_bytes: int) -> None:
        """Record that a client does not read. Close the oldest stalled connections while too many bytes are unsent."""
        self.add_waiting(connection)
        self._stalled[connection] = unsent_bytes
        self._unsent_bytes += unsent_bytes
        while self._unsent_bytes > UNSENT_BYTES_MAX:
            self._evict(next(iter(self._stalled)))

    def remove_stalled(self, connection: Evictable) -> None:
        """Record that a client reads again, or that the connection is closed."""
        self._unsent_bytes -= self._stalled.pop(connection, 0)

    def remove(self, connection: Evictable) -> None:
        """Remove a closed connection."""
        self.remove_waiting(connection)
        self.remove_stalled(connection)

    def _evict(self, connection: Evictable) -> None:
        self.remove(connection)
        connection.evict()
