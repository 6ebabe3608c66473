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


def free_ports(first: int, count: int) -> Iterator[int]:
    """Yield ports of a range, without end. Each port and the one after it are free.

    Each caller starts at a random port, so that concurrent callers rarely try the same port. Choose a range below the
    ephemeral ports (on Linux 32,768 and up): the system may give one of those to a connection before the server binds
    it.

    Args:
        first: the lowest port of the range.
        count: the number of ports in the range, which is even.
    """
    start = random.randrange(0, count, 2)  # noqa: S311 (not secret)
    for offset in itertools.count(start, 2):
        port = first + offset % count
        if _is_free(port) and _is_free(port + 1):
            yield port


def choose_port(requested: int | None) -> int:
    """Return the requested port. If none is requested, return the preferred port, or a free one if that is in use.

    Raises:
        Misconfigured: the requested port is in use.
    """
    if requested is not None:
        if not _is_free(requested):
            raise Misconfigured(f"--port {requested}: is in use. Choose another, or omit --port to use a free one.")
        return requested
    if _is_free(PREFERRED_PORT):
        return PREFERRED_PORT
    return next(free_ports(_FALLBACK_PORT_MIN, _FALLBACK_PORT_COUNT))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
