"""The rollups and the runs of ids, which the loader adds between two loads. They make reports and loads faster."""

import logging
import time

from embedsink.loader.publisher import Publisher
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused

log = logging.getLogger(__name__)

# The pauses after an error. Some disks can't map files, so that no run of ids is possible.
ROLLUP_RETRY_S = 60.0
ID_RUN_RETRY_S = 600.0


class RollupsAndIdRuns:
    """Rollups (`store/rollups.py`) and runs of ids (`store/id_runs.py`). They belong to the loader's thread.

    Args:
        store: the store.
        publisher: the publisher of snapshots.
    """

    def __init__(self, store: Store, publisher: Publisher) -> None:
        self._store = store
        self._publisher = publisher
        self._rollup_due_at = 0.0  # the earliest time of the next rollup, in monotonic seconds
        self._id_run_due_at = 0.0  # the earliest time of the next run of ids, in monotonic seconds

    def add_when_due(self) -> bool:
        """Roll up a batch of events, or else add a run of ids, if there are enough. Return whether either was done.

        If the store has no space for them, loading continues: reports read single events, and loads may read all ids.
        """
        return self._roll_up() or self._add_id_run()

    def _roll_up(self) -> bool:
        """Roll up a batch of events if there are enough. Return whether there were."""
        if time.monotonic() < self._rollup_due_at:
            return False
        try:
            has_rolled_up = self._store.roll_up()
        except StoreRefused as error:
            detail = f"store: {error}. Rollups are retried in {ROLLUP_RETRY_S:g} s"
            log.warning("rollup_delayed", extra={"detail": detail})
            self._rollup_due_at = time.monotonic() + ROLLUP_RETRY_S
            return False
        if has_rolled_up:
            self._publisher.is_dirty = True
            self._publisher.checkpoint_when_due()
        return has_rolled_up

    def _add_id_run(self) -> bool:
        """Add a run of ids if there are enough. Return whether there were."""
        if time.monotonic() < self._id_run_due_at:
            return False
        try:
            return self._store.add_id_run()
        except StoreRefused as error:
            detail = f"store: {error}. Loads may read all ids until the next attempt in {ID_RUN_RETRY_S:g} s"
            log.warning("id_run_delayed", extra={"detail": detail})
            self._id_run_due_at = time.monotonic() + ID_RUN_RETRY_S
            return False
