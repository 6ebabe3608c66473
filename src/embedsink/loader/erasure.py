"""The loader's steps of an erasure: rewrite the store without the people, and delete other files with their rows."""

from collections.abc import Callable, Mapping, Sequence

from embedsink.data_folder import DataFolder
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.store.database import Store
from embedsink.store.erasure import ErasedRows


class StoreErasure:
    """The steps of an erasure. They belong to the loader's thread, and each can be repeated after a kill.

    Args:
        folder: the data folder.
        store: the store.
        publisher: the publisher of snapshots.
        damaged: the folder of damaged files.
        disk_space: the check of the free disk space.
    """

    def __init__(
        self,
        folder: DataFolder,
        store: Store,
        publisher: Publisher,
        *,
        damaged: DamagedFiles,
        disk_space: StoreDiskSpace,
    ) -> None:
        self._draft = folder.rebuilt
        self._store = store
        self._publisher = publisher
        self._damaged = damaged
        self._disk_space = disk_space

    def erase(
        self, people: Sequence[Mapping[str, object]], *, on_deleted: Callable[[Sequence[ErasedRows]], None]
    ) -> None:
        """Rewrite the store without the rows of people (`Store.erase`), and make the publisher replace the snapshots.

        Raises:
            StoreRefused, StoreBroken, OSError: no row was erased, or all were. Another call is safe.
        """
        self._disk_space.require()
        self._publisher.abandon()  # It copies the rows.
        try:
            self._store.erase(people, self._draft, on_deleted=on_deleted)
        finally:
            self._publisher.is_dirty = True
        self._publisher.replace_snapshots()

    @property
    def is_replacing_snapshots(self) -> bool:
        """Whether a snapshot or a segment may have rows of erased people."""
        return self._publisher.is_replacing

    def request_snapshot(self) -> None:
        """Make the next snapshot due now."""
        self._publisher.is_dirty = True
        self._publisher.postpone(0)

    def delete_damaged_databases(self) -> None:
        """Delete the damaged databases.

        Raises:
            OSError: a file can't be deleted.
        """
        while self._damaged.delete_oldest_database("it may have rows of an erased person"):
            pass
