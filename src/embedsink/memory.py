"""How the system's allocator keeps memory."""

import contextlib
import ctypes
import sys

# mallopt(3)
_M_ARENA_MAX = -8


def share_memory_among_threads() -> None:
    """Let all threads take memory from one place. Call it before there are any.

    glibc gives each thread a place of its own, and what one gives back there is of no use to others: with a loader,
    readers and DuckDB's threads that came to 9 MiB at the deliveries' load (docs/decisions/0007). Other systems'
    allocators are left as they are.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # musl has no mallopt
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
