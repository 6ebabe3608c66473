"""A store made again: from a snapshot, and from what can be read of damaged files. The journal has the rest."""

import logging
from collections.abc import Callable
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
    """A store in its place. Numbers of segments up to `complete_to` are those of the snapshot that it began from."""

    complete_to: int
    salvaged: Salvaged


def rebuild(
    folder: DataFolder,
    limits: StoreLimits,
    *,
    damaged_files: DamagedFiles,
    why: str,
    on_step: Callable[[], None] = lambda: None,
) -> Rebuilt:
    """Make `store.duckdb` again, and `analytics.duckdb` if it is damaged. Keep damaged files in `damaged/`.

    New files take the places of old ones when they are complete. A kill at any moment leaves what a rebuild needs.

    Args:
        folder: the data folder; nobody has its store open.
        limits: those of the store.
        damaged_files: its folder of damaged files.
        why: what is wrong with the old store.
        on_step: called between bounded steps; what it raises ends the rebuild.

    Raises:
        OSError, StoreRefused, StoreBroken: it could not be made now.
        Misconfigured: no rebuild would help.
    """
    store, damaged_snapshots = _begin(folder, limits, on_step)
    damaged = [folder.store] * folder.store.exists() + damaged_snapshots
    try:
        # The operator may have asked for it because of wrong sums.
        store.reset_derived_tables()
        complete_to = store.last_segment_number()
        numbers = sorted({number_of(path) for path in folder.journal.iterdir()} - {0})
        salvaged = store.salvage(damaged, journal_numbers=numbers, on_step=on_step)
        store.checkpoint()
    finally:
        store.close()
    for path in reversed(damaged):
        damaged_files.keep_copy(path, why if path == folder.store else "is damaged")
    if folder.snapshot in damaged:
        # The salvaged rows must not be in one file alone, and a damaged snapshot must not become the previous one.
        replace_by_copy(folder.snapshot, folder.rebuilt, on_step=on_step)
    folder.rebuilt.rename(folder.store)
    if folder.previous in damaged:
        folder.previous.unlink()
    sync_folder(folder.path)
    return Rebuilt(complete_to, salvaged)


def _begin(folder: DataFolder, limits: StoreLimits, on_step: Callable[[], None]) -> tuple[Store, list[Path]]:
    """Open a new store, a copy of the newest good snapshot or an empty one. Return the damaged snapshots, too."""
    store = Store(folder.rebuilt, limits)
    damaged = _open_copy(store, folder, on_step)
    if damaged and not store.is_open and _repair(folder, on_step):
        damaged = _open_copy(store, folder, on_step)
    if not store.is_open:
        folder.rebuilt.unlink(missing_ok=True)
        store.open()
    return store, damaged


def _open_copy(store: Store, folder: DataFolder, on_step: Callable[[], None]) -> list[Path]:
    """Open a copy of the newest good snapshot, if there is one. Return the damaged snapshots."""
    damaged: list[Path] = []
    for snapshot in (folder.snapshot, folder.previous):
        if snapshot.exists():
            try:
                replace_by_copy(store.path, snapshot, on_step=on_step)
                store.open()
                break
            except StoreBroken as error:
                log.error("snapshot_damaged", extra={"detail": f"{snapshot.name}: {error}"})
                damaged.append(snapshot)
    return damaged


def _repair(folder: DataFolder, on_step: Callable[[], None]) -> int:
    """Repair the blocks of store and snapshots from each other. Return how many were repaired."""
    from embedsink.loader.repair import repair_blocks  # It imports numpy, which takes 12 MiB of every server.

    files = [path for path in (folder.snapshot, folder.previous, folder.store) if path.exists()]
    count = 0
    for path in files:
        others = [other for other in files if other != path]
        try:
            repaired = repair_blocks(path, others, on_step=on_step)
        except OSError as error:
            # The disk can't read one of them. What can be read is salvaged.
            log.error("blocks_not_repaired", extra={"detail": f"{path.name}: {error}"})
            continue
        if repaired:
            log.warning("blocks_repaired", extra={"detail": f"{path.name}: {repaired:,}, from copies of the file"})
            count += repaired
    return count
