"""The erasure of people on a live server.

request ─▶ erasures/<id>.json ─▶ deliveries of the person are rejected
        ─▶ directory ─▶ store ─▶ two snapshots ─▶ journal, damaged/ ─▶ search of all files ─▶ certificate
"""

import asyncio
import logging
from typing import Any

from embedsink.erasure.register import ErasureRegister
from embedsink.erasure.request import Erasure
from embedsink.erasure.run import ErasureRun, until
from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.privacy.person import Person
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# The maximum number of people that one rewrite of the store erases.
PEOPLE_AT_ONCE = 20
# The pause after the first failure, which doubles with each further one, and its maximum.
RETRY_AFTER_S = 60.0
RETRY_AFTER_S_MAX = 3_600.0
# The public message about a delay. The cause may contain the names of files, so only the log has it.
DELAY_IN_LOG = (
    "erasures: an error prevents them. The server's log has the cause. The server tries again within an hour."
)
# The interval of the deletion of expired digests and certificates.
_EXPIRY_INTERVAL_S = 3_600.0


class Erasures:
    """The erasures of an open data folder. Its methods belong to the event loop.

    Args:
        register: the requests.
        run: the execution of requests.
    """

    def __init__(self, register: ErasureRegister, run: ErasureRun) -> None:
        self.register = register
        self._run = run
        self._failure: str | None = None  # why the last attempt failed
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def delay(self) -> str | None:
        """Why the pending requests can't continue now, in full sentences; None if no attempt has failed."""
        return None if self._failure is None else f"{self._failure}. The server tries again within an hour."

    def start(self) -> None:
        """Block the people of earlier requests, and continue with the pending ones."""
        self.register.block_people()
        self._task = asyncio.create_task(self._run_until_closed())

    async def close(self) -> None:
        """Stop waiting. A step in another thread may still end; the next start repeats it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def request(
        self, person: Person, *, key_id: str | None, deleted_user: dict[str, Any] | None = None
    ) -> Erasure:
        """Store a request durably, and begin to reject the person's deliveries.

        Args:
            person: the person.
            key_id: the id of the key that requests it; None for a command and for the directory.
            deleted_user: the user whose deletion from the directory is the request. If that fails, the erasure deletes
                the user.

        Raises:
            Unavailable: too many requests are pending (`overloaded`), or the request can't be written (`storage_low`,
                `storage_failed`).
        """
        # Cancelling the caller must not cancel the write: a request on the disk must be in the register.
        return await asyncio.shield(self._add(person, key_id=key_id, deleted_user=deleted_user))

    async def _add(self, person: Person, *, key_id: str | None, deleted_user: dict[str, Any] | None) -> Erasure:
        erasure = await self.register.add(person, key_id=key_id, deleted_user=deleted_user)
        self._wake.set()
        return erasure

    async def wait_until_finished(self, erasure_id: str) -> Erasure:
        """Return a request when it is finished.

        Raises:
            Unavailable: the erasure can't continue now. The request remains.
        """
        await until(lambda: self.register[erasure_id].result is not None or self._failure is not None)
        if self.register[erasure_id].result is None:
            detail = f"{self._failure}. The request is stored. The next start of the server continues with it."
            raise Unavailable(Reason.NOT_READY, detail)
        return self.register[erasure_id]

    async def wait_until_loaded(self) -> None:
        """Wait until everything is loaded that was submitted to the journal before.

        Raises:
            Unavailable: the loader reports an error.
        """
        await self._run.wait_until_loaded()

    async def _run_until_closed(self) -> None:
        """Run pending requests, and delete expired digests and certificates. After an error, wait and try again."""
        pause_s = RETRY_AFTER_S
        while True:
            self._wake.clear()
            try:
                await self._run_pending()
            except Exception as error:  # noqa: BLE001  If this task ended, no later request would be finished.
                self._report(error, pause_s)
                await self._wait_for_request(pause_s)
                pause_s = min(2 * pause_s, RETRY_AFTER_S_MAX)
                continue
            pause_s = RETRY_AFTER_S
            await self._wait_for_request(_EXPIRY_INTERVAL_S)

    async def _run_pending(self) -> None:
        """Delete expired digests and certificates, and run all pending requests."""
        while True:
            await self.register.expire()
            pending = self.register.pending()[:PEOPLE_AT_ONCE]
            if pending:
                await self._run.erase(pending)
            self._failure = None
            if not pending:
                return

    def _report(self, error: Exception, pause_s: float) -> None:
        """Log why an attempt failed."""
        if not isinstance(error, EmbedsinkError | OSError):
            self._failure = "erasures: an error in embedsink prevents them. Report it with the traceback in the log"
            log.error("bug", exc_info=error)
            return
        self._failure = self._run.hide_people(str(error).removesuffix("."))
        log.warning("erasure_delayed", extra={"detail": f"{self._failure}. The erasure is retried in {pause_s:g} s"})

    async def _wait_for_request(self, seconds_max: float) -> None:
        """Wait for a request, but no longer than this number of seconds."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._wake.wait()
        except TimeoutError:
            return
