"""Thread priority: on a busy CPU, ingest runs before everything else."""

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
        thread_id = threading.get_native_id()
        # If the system forbids setting priorities, this thread shares the CPU with ingest.
        with contextlib.suppress(OSError):
            # Keep a niceness that is already higher: only root may lower it.
            niceness = os.getpriority(os.PRIO_PROCESS, thread_id)
            os.setpriority(os.PRIO_PROCESS, thread_id, max(_NICENESS, niceness))
