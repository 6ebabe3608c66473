"""The loader's steps of an erasure: rewrite the store without the people, and delete other files with their rows."""

from collections.abc import Callable, Mapping, Sequence

from embedsink.data_folder import DataFolder
from embedsink.journal.segment import number_of_identity
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.pending import PendingSegments
from embedsink.loader.publisher import Publisher
from embedsink.loader.segment_checks import SegmentChecks
from embedsink.store.database import Store
from embedsink.store.erasure import ErasedRows


class StoreErasure:
    """The steps of an erasure. They belong to the loader's thread, and each can be repeated after a kill.

    Args:
        folder: the data folder.
        store: the store.
        publisher: the publisher of snapshots.
        pending: the sealed segments in the journal's folder.
        checks: the segment checks, which delete covered segments.
        damaged: the folder of damaged files.
        disk_space: the check of the free disk space.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        publisher: Publisher,
        *,
        pending: PendingSegments,
        checks: SegmentChecks,
        damaged: DamagedFiles,
        disk_space: StoreDiskSpace,
    ) -> None:
        self._draft = folder.rebuilt
        self._store = store
        self._publisher = publisher
        self._pending = pending
        self._checks = checks
        self._damaged = damaged
        self._disk_space = disk_space

    def erase(
        self, people: Sequence[Mapping[str, object]], *, on_deleted: Callable[[Sequence[ErasedRows]], None]
    ) -> int:
        """Rewrite the store without the rows of people. See `Store.erase`.

        Returns:
            The highest number of a loaded segment, for `delete_files`.

        Raises:
            StoreRefused, StoreBroken, OSError: no row was erased, or all were. Another call is safe.
        """
        self._disk_space.require()
        self._publisher.abandon()  # It copies the rows.
        try:
            self._store.erase(people, self._draft, on_deleted=on_deleted)
        finally:
            self._publisher.is_dirty = True
        return self._store.ledger.last_segment_number()

    def request_snapshot(self) -> None:
        """Make the next snapshot due now. After two of them, no snapshot has the rows."""
        self._publisher.is_dirty = True
        self._publisher.postpone(0)

    def delete_files(self, *, up_to: int) -> None:
        """Delete the loaded segments up to a number, and the damaged databases.

        Raises:
            OSError: a file can't be deleted.
        """
        covered = {
            identity: size
            for identity, size in self._pending.loaded_sizes.items()
            if number_of_identity(identity) <= up_to
        }
        self._checks.delete_covered(covered, newest_up_to=up_to)
        while self._damaged.delete_oldest_database("it may have rows of an erased person"):
            pass
