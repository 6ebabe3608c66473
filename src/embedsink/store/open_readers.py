"""The open readers of a store, which the loader can pause or end."""

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator

from embedsink.store.duckdb_errors import StoreTooSmall
from embedsink.store.reader import Reader

# When memory is needed: how long readers may continue, and how long interrupted readers may take to end.
_GRACE_S = 1.0
INTERRUPT_TIMEOUT_S = 4.0
_POLL_INTERVAL_S = 0.01


class OpenReaders:
    """The open readers of a store: their count, and ways to interrupt them and to refuse new ones.

    Args:
        lock: the lock that a thread holds while it opens a reader. Waiting releases it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()  # those to interrupt
        self._paused_count = 0  # readers are refused while it is positive
        self.count = 0  # open readers, and those that are being opened

    def add(self, reader: Reader) -> None:
        """Register a reader, so that it can be interrupted."""
        self._readers.add(reader)

    def opened(self) -> list[Reader]:
        """Return the readers that are open now. Some may be closed already."""
        with self._changed:
            return list(self._readers)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more reader during this block.

        Raises:
            StoreTooSmall: readers are paused.
        """
        with self._changed:
            if self._paused_count:
                raise StoreTooSmall("the loader has paused new readers")
            self.count += 1
        try:
            yield
        finally:
            with self._changed:
                self.count -= 1
                self._changed.notify_all()

    def end_soon(self) -> None:
        """Wait a short time for readers to end, and interrupt slow readers. The caller has paused new readers."""
        self.end(patience_s=_GRACE_S, timeout_s=_GRACE_S + INTERRUPT_TIMEOUT_S)

    def end(self, *, patience_s: float, timeout_s: float) -> bool:
        """Wait until every reader has ended, and interrupt slow readers. Return whether no reader is left.

        Readers are not closed here. If DuckDB 1.5 closes a connection that another thread uses, it frees memory in use,
        and may abort the process (docs/decisions/0007).

        Args:
            patience_s: how long readers may continue before they are interrupted.
            timeout_s: the longest total wait.
        """
        started_at = time.monotonic()
        with self._changed:
            while self.count > 0 and time.monotonic() < started_at + timeout_s:
                if time.monotonic() >= started_at + patience_s:
                    # Interrupt again after each wait, because a reader may begin another query.
                    for reader in list(self._readers):
                        reader.interrupt()
                self._changed.wait(_POLL_INTERVAL_S)
            return self.count == 0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Refuse new readers in this block. Open readers continue."""
        with self._changed:
            self._paused_count += 1
        try:
            yield
        finally:
            with self._changed:
                self._paused_count -= 1
