"""Notifications of loads, for live streams and for inspections that wait for accepted events.

The loader's thread sets an event, and each listener then queries the store at its own pace. So no rows are queued for
a slow reader, and without listeners a load costs one comparison.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator

from embedsink.concurrency.limiter import is_reserved
from embedsink.concurrency.single_flight import SingleFlight
from embedsink.errors import Unavailable
from embedsink.journal.writer import Journal
from embedsink.loader.loader import Loader
from embedsink.reasons import Reason

# With more deployments than this, earlier acknowledgements count for all deployments.
DEPLOYMENTS_MAX = 10_000
# A slot becomes free only when a listener disconnects.
_RETRY_AFTER_S = 15


class LoadNotifier:
    """A notifier of listeners after each load. All but `notify` belongs to the event loop that created it.

    Args:
        loader: the loader, whose progress is the current position.
        journal: the journal, whose last segment is the position to reach.
        listeners_max: the number of concurrent listeners. The last quarter is for keys with less than a quarter, so
            that no key can exclude the others, and a key that all readers share has three quarters.
    """

    def __init__(self, loader: Loader, journal: Journal, *, listeners_max: int) -> None:
        self.closed = asyncio.Event()
        self.queries = SingleFlight()
        self._loader = loader
        self._journal = journal
        self._listeners_max = listeners_max
        self._loop = asyncio.get_running_loop()
        self.first_position = self.position
        # The newest segment with events of each deployment. Events that an earlier process acknowledged count for all.
        self._acknowledged: dict[int | None, int] = {}
        self._acknowledged_min = journal.last_number
        self._listeners: dict[asyncio.Event, str] = {}  # with the id of the key

    @property
    def listener_count(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    @property
    def position(self) -> int:
        """The number of the newest segment whose rows are in the store."""
        return self._loader.last_number

    def notify(self) -> None:
        """Wake the listeners. The loader's thread calls this after `last_number` has changed."""
        if self._listeners:
            with contextlib.suppress(RuntimeError):  # A closed loop has no listeners left.
                self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all listeners, because a live stream has no end of its own."""
        self.closed.set()
        self._wake()

    @contextlib.contextmanager
    def listener(self, key_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set after each load. The listener clears it.

        Args:
            key_id: the id of the listener's key.

        Raises:
            Unavailable: all slots are in use, or this key has its share of them, or the server is stopping.
        """
        self._check_slots(key_id)
        loaded = asyncio.Event()
        self._listeners[loaded] = key_id
        try:
            yield loaded
        finally:
            del self._listeners[loaded]

    def note_acknowledged(self, deployment: int | None) -> None:
        """Note that events of a deployment are durable; None if they name no deployment."""
        if len(self._acknowledged) >= DEPLOYMENTS_MAX:
            self._acknowledged.clear()
            self._acknowledged_min = self._journal.last_number
        self._acknowledged[deployment] = self._journal.last_number

    async def wait_until_loaded(
        self, timeout_s: float, *, key_id: str, deployments: Collection[int] | None = None
    ) -> bool:
        """Wait until all events that were acknowledged before this call are in the store. Return whether they are.

        Args:
            timeout_s: the longest wait in seconds.
            key_id: the id of the waiting key.
            deployments: the deployments to wait for; None for all. Events that name no deployment count for each one,
                because their deployment is known only after loading.

        Raises:
            Unavailable: all slots are in use, or this key has its share of them.
        """
        acknowledged = self._last_acknowledged(deployments)
        if self.position >= acknowledged or timeout_s <= 0:
            return self.position >= acknowledged
        with self.listener(key_id) as loaded, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.position < acknowledged and not self.closed.is_set():
                    await loaded.wait()
                    loaded.clear()
        return self.position >= acknowledged

    def _last_acknowledged(self, deployments: Collection[int] | None) -> int:
        if deployments is None:
            return self._journal.last_number
        return max(self._acknowledged.get(number, self._acknowledged_min) for number in (None, *deployments))

    def _check_slots(self, key_id: str) -> None:
        if self.closed.is_set():
            raise Unavailable(Reason.NOT_READY, "server: is stopping. Retry in a few seconds.", retry_after_s=5)
        used = len(self._listeners)
        if used >= self._listeners_max:
            message = "live: all slots are in use (EMBEDSINK_LIVE_MAX). Close a stream, or retry later."
            raise Unavailable(Reason.OVERLOADED, message, retry_after_s=_RETRY_AFTER_S)
        own, quarter = list(self._listeners.values()).count(key_id), self._listeners_max // 4
        if is_reserved(used_by_key=own, used=used, total=self._listeners_max):
            message = (
                f"live: this key uses {own} of the {self._listeners_max} slots (EMBEDSINK_LIVE_MAX), and the free ones "
                f"are reserved for keys with less than {quarter}. Close a page or a stream of this key, or retry later."
            )
            raise Unavailable(Reason.RATE_LIMITED, message, retry_after_s=_RETRY_AFTER_S)

    def _wake(self) -> None:
        for loaded in self._listeners:
            loaded.set()
