"""Free loopback ports for servers that are about to start."""

import itertools
import random
import socket
from collections.abc import Iterator

from embedsink.errors import Misconfigured

HOST = "127.0.0.1"
# Not the default port of `embedsink serve`, so that both can run at once.
PREFERRED_PORT = 8322
_FALLBACK_PORTS = (8_330, 1_000)


def free_ports(first: int, count: int) -> Iterator[int]:
    """Yield free ports endlessly; the port after each is free, too.

    Each caller starts at a random port, so that concurrent callers rarely try the same port. Choose a range below the
    ephemeral ports (on Linux 32,768 and up): the system may give one of those to a connection before the server binds
    it.

    Args:
        first: the lowest port.
        count: the size of the range, an even number.
    """
    for step in itertools.count(random.randrange(0, count, 2), 2):  # noqa: S311 (not secret)
        port = first + step % count
        if _is_free(port) and _is_free(port + 1):
            yield port


def choose_port(requested: int | None) -> int:
    """Return the requested port; without a request the preferred one, or a free one when that is in use.

    Raises:
        Misconfigured: the requested port is in use.
    """
    if _is_free(requested or PREFERRED_PORT):
        return requested or PREFERRED_PORT
    if requested:
        raise Misconfigured(f"--port {requested}: is in use. Choose another, or omit --port to use a free one.")
    return next(free_ports(*_FALLBACK_PORTS))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
