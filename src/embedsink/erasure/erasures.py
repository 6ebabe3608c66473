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
RETRY_AFTER_S = 60.0
# How often what is no longer needed is deleted.
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

    def start(self) -> None:
        """Block the people of earlier requests, and continue with the pending ones."""
        self.register.block_people()
        self._task = asyncio.create_task(self._run_until_closed())

    async def close(self) -> None:
        """Stop between two steps. The next start continues."""
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
            Unavailable: too many requests are pending (`overloaded`), or the request can't be written (`storage_low`).
        """
        erasure = await self.register.add(person, key_id=key_id, deleted_user=deleted_user)
        self._wake.set()
        return erasure

    async def wait_until_finished(self, erasure_id: str) -> Erasure:
        """Return a request when it is finished.

        Raises:
            Unavailable: the erasure can't continue now. The request remains.
        """
        await until(lambda: self.register[erasure_id].result is not None or self._failure is not None)
        if self._failure is not None:
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
        """Run pending requests, and delete what is no longer needed. After an error, wait and try again."""
        while True:
            self._wake.clear()
            try:
                await self.register.expire()
                pending = self.register.pending()[:PEOPLE_AT_ONCE]
                if pending:
                    await self._run.erase(pending)
                    self._failure = None
                    continue
            except (EmbedsinkError, OSError) as error:
                self._failure = str(error).removesuffix(".")
                detail = f"{self._failure}. The erasure is retried in {RETRY_AFTER_S:g} s"
                log.warning("erasure_delayed", extra={"detail": detail})
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            except Exception as error:
                # Continue: if this task ended, no later request would be finished.
                self._failure = "erasures: an error in embedsink prevents them. Report it with the traceback in the log"
                log.error("bug", exc_info=error)
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            await self._wait_for_request()

    async def _wait_for_request(self) -> None:
        """Wait for a request, or until what is no longer needed has to be deleted."""
        try:
            async with asyncio.timeout(_EXPIRY_INTERVAL_S):
                await self._wake.wait()
        except TimeoutError:
            return
