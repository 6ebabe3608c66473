"""Free loopback ports for new servers."""

import itertools
import random
import socket
from collections.abc import Iterator

from embedsink.errors import Misconfigured

HOST = "127.0.0.1"
# Not the default port of `embedsink serve`, so that both can run at once.
PREFERRED_PORT = 8322
_FALLBACK_PORT_MIN = 8_330
_FALLBACK_PORT_COUNT = 1_000


def free_port_pairs(first: int, count: int) -> Iterator[int]:
    """Yield, endlessly, ports that are free and followed by a free port. The demo uses both ports.

    Each caller starts at a random port, so that concurrent callers rarely try the same port. Choose a range below
    32,768: Linux uses the ports from there on for outgoing connections, so a free one may soon be in use.

    Args:
        first: the lowest port of the range.
        count: the number of ports in the range; even, so that the pairs of two callers never overlap.
    """
    start = random.randrange(0, count, 2)  # noqa: S311 (not secret)
    for offset in itertools.count(start, 2):
        port = first + offset % count
        if _is_free(port) and _is_free(port + 1):
            yield port


def choose_port(requested: int | None) -> int:
    """Return the requested port. Without a request, return the preferred port, or a free port if that port is in use.

    Raises:
        Misconfigured: the requested port is in use.
    """
    if requested is not None:
        if not _is_free(requested):
            raise Misconfigured(f"--port {requested}: is in use. Choose another, or omit --port to use a free one.")
        return requested
    if _is_free(PREFERRED_PORT):
        return PREFERRED_PORT
    return next(free_port_pairs(_FALLBACK_PORT_MIN, _FALLBACK_PORT_COUNT))


def _is_free(port: int) -> bool:
    """Return whether a server can bind the loopback port."""
    with socket.socket() as listener:
        # Servers set this option too. Without it, recently closed connections would block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
