"""Who waits for loads: live streams, and inspections that want to see what was just accepted.

The loader's thread tells that it has loaded; whoever listens then asks the store what is new, at a pace of its own. So
nothing is kept for anybody: a slow reader finds more at once, and while nobody listens a load costs one comparison.
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

# Beyond so many, those before are taken for deployments of everybody.
DEPLOYMENTS_MAX = 10_000
# A place becomes free when somebody leaves, and not at once.
_RETRY_AFTER_S = 15


class LoadNotifier:
    """Wakes those who listen after each load. All but `tell` belongs to the event loop it was made in.

    Args:
        loader: how far the store is.
        journal: how far it has to come.
        listeners_max: how many may listen at once. The last quarter is for keys that have less than a quarter: so
            nobody shuts all others out, and a key that all share has three quarters.
    """

    def __init__(self, loader: Loader, journal: Journal, *, listeners_max: int) -> None:
        self.ended = asyncio.Event()
        self.answers = SingleFlight()
        self._loader = loader
        self._journal = journal
        self._listeners_max = listeners_max
        self._loop = asyncio.get_running_loop()
        self.first_position = self.position
        # The newest segment with something of a deployment; of what was acknowledged by an earlier process, of any.
        self._acknowledged: dict[int | None, int] = {}
        self._acknowledged_min = journal.last_number
        self._listening: dict[asyncio.Event, str] = {}  # each with the id of its key

    @property
    def listener_count(self) -> int:
        """How many listen now."""
        return len(self._listening)

    @property
    def position(self) -> int:
        """The number of the newest segment whose rows are in the store."""
        return self._loader.last_number

    def tell(self) -> None:
        """Something was loaded. Called in the loader's thread, after its `last_number` has changed."""
        if self._listening:
            with contextlib.suppress(RuntimeError):  # A closed loop has no listeners left.
                self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Let all who listen end: a stream has no end of its own."""
        self.ended.set()
        self._wake()

    @contextlib.contextmanager
    def listener(self, key_id: str) -> Iterator[asyncio.Event]:
        """An event that is set after each load; whoever waits for it clears it.

        Args:
            key_id: whose it is.

        Raises:
            Unavailable: as many listen as may, or with this key; or the server ends.
        """
        self._check_places(key_id)
        woken = asyncio.Event()
        self._listening[woken] = key_id
        try:
            yield woken
        finally:
            del self._listening[woken]

    def note(self, deployment: int | None) -> None:
        """Something of this deployment was acknowledged; None for what names none."""
        if len(self._acknowledged) >= DEPLOYMENTS_MAX:
            self._acknowledged.clear()
            self._acknowledged_min = self._journal.last_number
        self._acknowledged[deployment] = self._journal.last_number

    async def catch_up(self, timeout_s: float, *, key_id: str, deployments: Collection[int] | None = None) -> bool:
        """Wait until everything is in the store that was acknowledged before this call; whether it is.

        Args:
            timeout_s: the longest wait.
            key_id: who waits.
            deployments: whose events; None for all. What names no deployment counts for every one: only once it is
                loaded it is known whose it is.

        Raises:
            Unavailable: as many listen as may, or with this key.
        """
        acknowledged = self._acknowledged_of(deployments)
        if self.position >= acknowledged or timeout_s <= 0:
            return self.position >= acknowledged
        with self.listener(key_id) as woken, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.position < acknowledged and not self.ended.is_set():
                    await woken.wait()
                    woken.clear()
        return self.position >= acknowledged

    def _acknowledged_of(self, deployments: Collection[int] | None) -> int:
        if deployments is None:
            return self._journal.last_number
        return max(self._acknowledged.get(number, self._acknowledged_min) for number in (None, *deployments))

    def _check_places(self, key_id: str) -> None:
        if self.ended.is_set():
            raise Unavailable(Reason.NOT_READY, "server: ends. Ask again in some seconds.", retry_after_s=5)
        used = len(self._listening)
        if used >= self._listeners_max:
            busy = "live: as many are listening as may (EMBEDSINK_LIVE_MAX). Close one, or ask again later."
            raise Unavailable(Reason.OVERLOADED, busy, retry_after_s=_RETRY_AFTER_S)
        own, quarter = list(self._listening.values()).count(key_id), self._listeners_max // 4
        if is_reserved(own=own, used=used, total=self._listeners_max):
            told = (
                f"live: this key has {own} of the {self._listeners_max} places (EMBEDSINK_LIVE_MAX), and those left "
                f"are for keys with less than {quarter}. Close a page or a stream of this key, or ask again later."
            )
            raise Unavailable(Reason.RATE_LIMITED, told, retry_after_s=_RETRY_AFTER_S)

    def _wake(self) -> None:
        for woken in self._listening:
            woken.set()
