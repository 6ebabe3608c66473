"""Free ports of this machine, for servers that are about to start; the tests take theirs from here, too."""

import itertools
import random
import socket
from collections.abc import Iterator


def free_ports(first: int, count: int) -> Iterator[int]:
    """Endless ports that are free when they are told, and so is the one after each, in turn from a random one on.

    None should be one that the system hands out by itself (on Linux 32,768 and up): between the look and the bind such
    a one may become the near end of anybody's connection. And whoever looks at the same time has others.

    Args:
        first: the lowest; count: how many there are from it on, an even number.
    """
    for step in itertools.count(random.randrange(0, count, 2), 2):
        port = first + step % count
        if _is_free(port) and _is_free(port + 1):
            yield port


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
