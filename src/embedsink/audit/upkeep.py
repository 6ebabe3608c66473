"""The background work of a server for its audit trail: record changes of keys and settings, and delete old days."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from embedsink.audit.changes import has_recorded_keys, record_keys
from embedsink.audit.trail import AuditTrail
from embedsink.auth.key_store import FileStamp, KeyStore
from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.data_folder import DataFolder
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.retention_schedule import RetentionSchedule

log = logging.getLogger(__name__)


class AuditUpkeep:
    """The background work for the audit trail of a server.

    Args:
        folder: the data folder.
        record_settings: records the settings that have changed since the last start.
        days: the retention in days; 0 for no limit.
        interval_s: how often `keys.json` is checked.
    """

    def __init__(
        self, folder: DataFolder, record_settings: Callable[[], None], *, days: int, interval_s: float
    ) -> None:
        self._folder = folder
        self._keys = KeyStore(folder.keys)
        self._trail = AuditTrail(folder)
        self._record_settings: Callable[[], None] | None = record_settings
        self._days = days
        self._interval_s = interval_s
        self._recorded_stamp: FileStamp | str | None = "never"
        self._problem = ""
        self._schedule = RetentionSchedule()

    async def run(self) -> None:
        """Work until this task is cancelled. After an error, log it once and try again."""
        while True:
            try:
                await self._work()
                self._problem = ""
            except (EmbedsinkError, OSError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("audit_failed", extra={"detail": self._problem})
            except Exception as error:
                log.error("bug", exc_info=error)
            await asyncio.sleep(self._interval_s)

    async def _work(self) -> None:
        """Do what is due. Raise EmbedsinkError or OSError if something can't be recorded or deleted."""
        if self._record_settings is not None:
            await run_in_daemon_thread(self._record_settings, name="audit-upkeep")
            self._record_settings = None
        if self._keys.stamp() != self._recorded_stamp:
            await run_in_daemon_thread(self._record_keys, name="audit-upkeep")
        if self._days and self._schedule.is_due():
            self._schedule.postpone()
            await run_in_daemon_thread(self._expire, name="audit-upkeep")

    def _expire(self) -> None:
        """Delete old days."""
        self._trail.expire(self._days, today=datetime.now(UTC).date())

    def _record_keys(self) -> None:
        """Record the changes of `keys.json` that no command has recorded."""
        stamp = self._keys.stamp()
        if stamp is not None or has_recorded_keys(self._folder):
            try:
                self._keys.keys()
            except Misconfigured:
                return  # `keys_unreadable` reports it. Try again.
            with self._keys.locked() as keys:
                record_keys(self._folder, keys)
        self._recorded_stamp = stamp
