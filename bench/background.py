"""Tasks that run in threads during a measurement."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def background(tasks: Sequence[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Run each task in a thread during the block.

    A task gets an event, which is set at the end of the block. Then the first error of a task is raised.
    """
    block_ended = threading.Event()
    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(task, block_ended) for task in tasks]
        try:
            yield
        finally:
            block_ended.set()
    for future in futures:
        future.result()
