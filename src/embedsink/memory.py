"""How the system's allocator keeps memory."""

import contextlib
import ctypes
import sys

# mallopt(3)
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 4 * 1_048_576


def share_memory_among_threads() -> None:
    """Let all threads take memory from one place, and give large pieces back. Call it before there are any.

    glibc gives each thread a place of its own, and what one gives back there is of no use to others: with a loader,
    readers and DuckDB's threads that came to 9 MiB at the deliveries' load (docs/decisions/0007). It also
    learns from each large piece that is given back to keep such pieces: of segments of 8 MiB, some 10 MiB more. Other
    systems' allocators are left as they are.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # musl has no mallopt
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_ARENA_MAX, 1)
            mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
            mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
