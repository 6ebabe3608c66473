"""Notifications of loads, for live streams and for requests that wait until accepted events are loaded.

A load sets the `asyncio.Event` of each listener, which then queries the store. So no rows are queued for slow readers.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from embedsink.concurrency.limiter import is_reserved
from embedsink.errors import Unavailable
from embedsink.journal.writer import Journal
from embedsink.key_scope import KeyScope
from embedsink.loader.loader import Loader
from embedsink.reasons import Reason

# Beyond this number of pairs of deployment and tenant, all entries are discarded: see `LoadNotifier.note_acknowledged`.
ENTRIES_MAX = 10_000
# A slot becomes free only when a listener disconnects.
_RETRY_AFTER_S = 15


class LoadNotifier:
    """A notifier that wakes listeners after each load. Only `notify` may be called outside its event loop.

    Args:
        loader: the loader, whose `last_number` is the current position.
        journal: the journal, whose `last_number` is the position when all accepted events are loaded.
        listeners_max: the maximum number of listeners. The last quarter is reserved for keys that have less than a
            quarter of them, so that no key can exclude the others.
    """

    def __init__(self, loader: Loader, journal: Journal, *, listeners_max: int) -> None:
        self.closed = asyncio.Event()
        self._loader = loader
        self._journal = journal
        self._listeners_max = listeners_max
        self._loop = asyncio.get_running_loop()
        self.position_at_start = self.position
        # The newest segment with acknowledged events of each deployment and tenant; None for events without one.
        self._acknowledged_numbers: dict[tuple[int | None, str | None], int] = {}
        # The number for all others: segments of an earlier process may have their events.
        self._default_number = journal.last_number
        self._listeners: dict[asyncio.Event, str] = {}  # the id of each listener's key

    @property
    def listener_count(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    @property
    def position(self) -> int:
        """The number up to which every segment is loaded, in `damaged/` or lost."""
        return self._loader.last_number

    def notify(self) -> None:
        """Wake the listeners. The loader's thread calls this after `last_number` has changed."""
        if self._listeners:
            with contextlib.suppress(RuntimeError):  # A closed loop has no listeners left.
                self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Set `closed` and wake all listeners, so that live streams end."""
        self.closed.set()
        self._wake()

    @contextlib.contextmanager
    def listener(self, key_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set after each load. The listener clears it.

        Args:
            key_id: the id of the listener's key.

        Raises:
            Unavailable: all slots are in use, the free slots are reserved for other keys, or the server is stopping.
        """
        self._check_slots(key_id)
        loaded = asyncio.Event()
        self._listeners[loaded] = key_id
        try:
            yield loaded
        finally:
            del self._listeners[loaded]

    def note_acknowledged(self, deployment: int | None, tenant: str | None) -> None:
        """Record that the newest segment has durable events of a deployment and a tenant; None for neither."""
        if len(self._acknowledged_numbers) >= ENTRIES_MAX:
            # Limit the memory: replace all entries with the newest number, which no entry exceeds.
            self._acknowledged_numbers.clear()
            self._default_number = self._journal.last_number
        self._acknowledged_numbers[deployment, tenant] = self._journal.last_number

    async def wait_until_loaded(self, timeout_s: float, *, key_id: str, scope: KeyScope) -> bool:
        """Wait until all events that were acknowledged before this call are in the store, or the timeout expires.

        Args:
            timeout_s: the longest wait in seconds.
            key_id: the id of the waiting client's key.
            scope: the events to wait for. Events that name no deployment or tenant are waited for too, because it is
                known only after loading.

        Returns:
            Whether all these events are in the store.

        Raises:
            Unavailable: all slots are in use, the free slots are reserved for other keys, or the server is stopping.
        """
        target_position = self._last_acknowledged_number(scope)
        if self.position < target_position and timeout_s > 0:
            with self.listener(key_id) as loaded, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self.position < target_position and not self.closed.is_set():
                        await loaded.wait()
                        loaded.clear()
        return self.position >= target_position

    def _last_acknowledged_number(self, scope: KeyScope) -> int:
        """Return the number of the newest segment with acknowledged events that may be in a scope."""
        if not scope.is_limited:
            return self._journal.last_number
        # Events without an entry may be in any segment up to `_default_number`.
        numbers = [number for names, number in self._acknowledged_numbers.items() if _may_include(scope, *names)]
        return max(numbers, default=self._default_number)

    def _check_slots(self, key_id: str) -> None:
        """Raise Unavailable if this key may have no further listener, or if the server is stopping."""
        if self.closed.is_set():
            raise Unavailable(Reason.NOT_READY, "server: is stopping. Retry in a few seconds.", retry_after_s=5)
        used = len(self._listeners)
        if used >= self._listeners_max:
            message = "live: all slots are in use (EMBEDSINK_LIVE_MAX). Close a stream, or retry later."
            raise Unavailable(Reason.OVERLOADED, message, retry_after_s=_RETRY_AFTER_S)
        used_by_key = list(self._listeners.values()).count(key_id)
        if is_reserved(used_by_key=used_by_key, used=used, total=self._listeners_max):
            quarter = self._listeners_max // 4  # as in `is_reserved`
            message = (
                f"live: this key uses {used_by_key} of the {self._listeners_max} slots (EMBEDSINK_LIVE_MAX), and the "
                f"free slots are reserved for keys that use fewer than {quarter}. Close a page or a stream of this "
                "key, or retry later."
            )
            raise Unavailable(Reason.RATE_LIMITED, message, retry_after_s=_RETRY_AFTER_S)

    def _wake(self) -> None:
        """Wake all listeners."""
        for loaded in self._listeners:
            loaded.set()


def _may_include(scope: KeyScope, deployment: int | None, tenant: str | None) -> bool:
    """Return whether a scope may include events that name this deployment and this tenant; None means none."""
    return (deployment is None or scope.allows_deployment(deployment)) and (
        tenant is None or scope.allows_tenant(tenant)
    )
