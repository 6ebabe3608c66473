"""Thread priorities: on a busy CPU, answering senders comes first."""

import contextlib
import os
import sys
import threading

_NICENESS = 10


def lower_priority() -> None:
    """Lower the priority of this thread, and of the threads that it starts, below that of ingest.

    This has an effect on Linux only, where priorities belong to threads.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Only root may undo a niceness that `nice` or systemd has set. Where the system forbids setting priorities,
        # this thread shares the CPU with ingest.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
