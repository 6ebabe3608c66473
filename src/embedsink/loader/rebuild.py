"""The rebuild of the store from a snapshot and the readable rows of damaged files. The journal has the other rows."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedsink.data_folder import DataFolder
from embedsink.durable_files import sync_folder
from embedsink.journal.segment import number_of
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.snapshot import replace_by_copy
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreBroken
from embedsink.store.limits import StoreLimits
from embedsink.store.salvage import Salvaged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    Args:
        snapshot_number: the highest segment number of the snapshot from which the rebuild started; 0 without one.
        salvaged: the counts of salvaged and lost rows.
    """

    snapshot_number: int
    salvaged: Salvaged


def rebuild(
    folder: DataFolder,
    limits: StoreLimits,
    *,
    damaged_files: DamagedFiles,
    why: str,
    on_step: Callable[[], None] = lambda: None,
) -> Rebuilt:
    """Rebuild `store.duckdb`, and `analytics.duckdb` if it is damaged. Damaged files are linked into `damaged/`.

    New files replace old ones when they are complete. After a kill at any moment, the rebuild can be repeated.

    Args:
        folder: the data folder; its store is not open.
        limits: the store's limits.
        damaged_files: the folder of damaged files.
        why: the damage in the old store.
        on_step: called between bounded steps. An exception from it ends the rebuild.

    Raises:
        OSError, StoreRefused, StoreBroken: the rebuild is not possible now.
        Misconfigured: a rebuild would not help.
    """
    store, damaged_paths = _open_new_store(folder, limits, on_step)
    if folder.store.exists():
        damaged_paths.insert(0, folder.store)  # The salvage reads the most recent file first.
    try:
        rebuilt = _fill_store(store, damaged_paths, folder, on_step)
    finally:
        store.close()
    # Link the store last, because `damaged/` keeps only the newest databases.
    for path in reversed(damaged_paths):
        damaged_files.link_database(path, why if path == folder.store else "is damaged")
    if folder.snapshot in damaged_paths:
        # A second file must have the salvaged rows, because the journal may lack them. And a damaged snapshot must not
        # become the previous one.
        replace_by_copy(folder.snapshot, folder.rebuilt, on_step=on_step)
    folder.rebuilt.rename(folder.store)
    if folder.previous in damaged_paths:
        folder.previous.unlink()
    sync_folder(folder.path)
    return rebuilt


def _open_new_store(folder: DataFolder, limits: StoreLimits, on_step: Callable[[], None]) -> tuple[Store, list[Path]]:
    """Open a copy of the newest intact snapshot, or an empty store. Return the store and the damaged snapshots.

    If no snapshot is intact, the snapshots are repaired first.
    """
    store = Store(folder.rebuilt, limits)
    damaged_snapshots = _open_snapshot_copy(store, folder, on_step)
    if damaged_snapshots and not store.is_open:
        repaired_count = _repair_blocks(folder, on_step)
        if repaired_count > 0:
            damaged_snapshots = _open_snapshot_copy(store, folder, on_step)
    if not store.is_open:
        # The copy of a damaged snapshot, or a file of a killed rebuild, may be here.
        folder.rebuilt.unlink(missing_ok=True)
        store.open()
    return store, damaged_snapshots


def _fill_store(
    store: Store, damaged_paths: Sequence[Path], folder: DataFolder, on_step: Callable[[], None]
) -> Rebuilt:
    """Salvage the rows that neither the new store nor the journal has. Return the result of the rebuild."""
    # Don't keep the snapshot's derived tables: wrong rollups may be why the operator runs `embedsink rebuild`.
    store.reset_derived_tables()
    snapshot_number = store.ledger.last_segment_number()  # before the salvage, which adds segments
    # `number_of` returns 0 for files that are not segments.
    journal_numbers = sorted({number_of(path) for path in folder.journal.iterdir()} - {0})
    salvaged = store.salvage(damaged_paths, journal_numbers=journal_numbers, on_step=on_step)
    store.checkpoint()
    return Rebuilt(snapshot_number, salvaged)


def _open_snapshot_copy(store: Store, folder: DataFolder, on_step: Callable[[], None]) -> list[Path]:
    """Copy the newest intact snapshot to the store's path, and open the store. Return the damaged snapshots.

    If no snapshot is intact, the store is not opened.
    """
    damaged: list[Path] = []
    for snapshot in filter(Path.exists, (folder.snapshot, folder.previous)):
        try:
            replace_by_copy(store.path, snapshot, on_step=on_step)
            store.open()
            break
        except StoreBroken as error:
            log.error("snapshot_damaged", extra={"detail": f"{snapshot.name}: {error}"})
            damaged.append(snapshot)
    return damaged


def _repair_blocks(folder: DataFolder, on_step: Callable[[], None]) -> int:
    """Repair the blocks of the store and of each snapshot from the others. Return the number of repaired blocks."""
    from embedsink.loader.repair import repair_blocks  # This import loads numpy, which takes 12 MiB of memory.

    files = [path for path in (folder.snapshot, folder.previous, folder.store) if path.exists()]
    total_count = 0
    for path in files:
        copies = [copy for copy in files if copy != path]
        try:
            repaired_count = repair_blocks(path, copies, on_step=on_step)
        except OSError as error:
            # The disk can't read a file. The rows that it can read are salvaged later.
            log.error("block_repair_failed", extra={"detail": f"{path.name}: {error}"})
            continue
        if repaired_count:
            log.warning(
                "blocks_repaired", extra={"detail": f"{path.name}: blocks repaired from copies: {repaired_count:,}."}
            )
            total_count += repaired_count
    return total_count
