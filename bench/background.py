"""Threads that run during a measurement."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def background(tasks: Sequence[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Run each task in a thread during the block. At its end, set the stop event, and raise their first error."""
    ended = threading.Event()
    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(task, ended) for task in tasks]
        try:
            yield
        finally:
            ended.set()
    for future in futures:
        future.result()
