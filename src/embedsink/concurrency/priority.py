"""Whose work comes first where the processor is busy: answering senders."""

import contextlib
import os
import sys
import threading

_NICENESS = 10


def give_way_to_ingest() -> None:
    """Let this thread, and those that it begins, work in the time that answering senders leaves over.

    Only on Linux, where priorities belong to threads.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Nobody but root may take back what `nice` or systemd gave away already. And where priorities may not be
        # touched at all, this thread only shares the time with ingest.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
