"""Tracks the open readers of a store, so that the loader can pause or end them."""

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator

from embedsink.store.duckdb_errors import StoreTooSmall
from embedsink.store.reader import Reader

_LOOK_EVERY_S = 0.01


class OpenReaders:
    """Counts the open readers of a store, ends them, and blocks new ones.

    Args:
        lock: held while a reader is created; released while this class waits.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._paused_count = 0
        self.count = 0

    def add(self, reader: Reader) -> None:
        """Register a reader, so that it can be interrupted."""
        self._readers.add(reader)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more reader.

        Raises:
            StoreTooSmall: readers are paused.
        """
        with self._changed:
            if self._paused_count:
                raise StoreTooSmall("the loader needs the memory of the readers")
            self.count += 1
        try:
            yield
        finally:
            with self._changed:
                self.count -= 1
                self._changed.notify_all()

    def end(self, *, patience_s: float, timeout_s: float) -> bool:
        """Wait until every reader has ended. Return whether none is left.

        Each reader is closed by its own thread: DuckDB 1.5 frees what the other thread still uses, and aborts the
        process when it can't roll back (docs/decisions/0007).

        Args:
            patience_s: how long readers may continue before they are interrupted.
            timeout_s: the longest total wait.
        """
        started_at = time.monotonic()
        with self._changed:
            while self.count and (waited_s := time.monotonic() - started_at) < timeout_s:
                if waited_s >= patience_s:
                    for reader in list(self._readers):
                        reader.interrupt()
                self._changed.wait(_LOOK_EVERY_S)
            return not self.count

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Block new readers."""
        with self._changed:
            self._paused_count += 1
        try:
            yield
        finally:
            with self._changed:
                self._paused_count -= 1
