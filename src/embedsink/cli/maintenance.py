"""`embedsink snapshot`, `rebuild` and `doctor`."""

import asyncio
from typing import TYPE_CHECKING

from embedsink.cli.options import DATA, Data, examples
from embedsink.cli.output import fail, print_message
from embedsink.cli.tables import print_table
from embedsink.data_folder import DataFolder, FolderLock, FolderTaken, require_folder

if TYPE_CHECKING:
    from embedsink.loader.status import LoaderStatus

SNAPSHOT_EXAMPLES = examples("embedsink snapshot --data data")
REBUILD_EXAMPLES = examples("embedsink rebuild --data data")
DOCTOR_EXAMPLES = examples("embedsink doctor --data data")


def snapshot(data: Data = DATA) -> None:
    """Publish a snapshot, analytics.duckdb, while no server runs. A running server publishes automatically."""
    from embedsink.settings import read_settings

    folder = DataFolder(require_folder(data))
    try:
        with FolderLock(folder):
            pass  # Only check that no server has the folder open. `_load_and_publish` locks it again.
    except FolderTaken as error:
        interval_s = read_settings().snapshot_interval_s
        print_message(f"{error.problem}. That server publishes snapshots automatically, every {interval_s:g} s.")
        return
    status = asyncio.run(_load_and_publish(folder))
    print_message(f"{folder.snapshot}: published ({folder.snapshot.stat().st_size:,} bytes).")
    _print_load_counts(status)


def rebuild(data: Data = DATA) -> None:
    """Rebuild the store from the snapshots and the journal, while no server runs.

    The old store is moved to damaged/. The two newest database files there are kept for 30 days. A server rebuilds a
    damaged or missing store automatically.
    """
    from embedsink.durable_files import move_to_damaged
    from embedsink.engine import read_privacy
    from embedsink.key_scope import EVERYTHING
    from embedsink.store.database import Store
    from embedsink.store.snapshot_reader import open_snapshot

    folder = DataFolder(require_folder(data))
    with FolderLock(folder):
        read_privacy(folder)  # Raise an error if the engine could not be opened.
        if folder.store.exists():
            Store(folder.store).refuse_newer()  # Raise an error if a newer version of embedsink wrote the store.
            # Raise an error unless the snapshot can be read: the journal lacks events that the snapshot has.
            open_snapshot(folder.snapshot, EVERYTHING.variables()).close()
            print_message(f"{folder.store.name}: moved to {move_to_damaged(folder.store, damaged=folder.damaged)}.")
    print_message("Rebuilding from the snapshot and the journal …")
    _print_load_counts(asyncio.run(_load_and_publish(folder)))
    print_message(f"{folder.store}: rebuilt ({folder.store.stat().st_size:,} bytes).")


def doctor(data: Data = DATA) -> None:
    """Check versions, disk space, sizes, snapshots, rows, dashboards, journal and keys of a data folder.

    The command only reads, even while a server runs. The exit code is 1 if a check fails.
    """
    from embedsink.doctor import examine
    from embedsink.settings import read_settings

    findings = examine(DataFolder(require_folder(data)), read_settings())
    print_table(
        ("check", "state", "details"), [(finding.check, finding.state, finding.details) for finding in findings]
    )
    failed_count = sum(finding.state == "problem" for finding in findings)
    if failed_count:
        fail(f"{data}: {failed_count} of {len(findings)} checks failed.")
    print_message(f"{data}: all checks passed.")


async def _load_and_publish(folder: DataFolder) -> "LoaderStatus":
    """Repair the store, load the journal and publish a snapshot. Return the status of the loader."""
    from embedsink.engine import Engine
    from embedsink.settings import read_settings

    async with Engine(folder, read_settings()) as engine:
        pass  # Opening the engine repairs the store. Closing it loads the journal and publishes a snapshot.
    return engine.loader.status


def _print_load_counts(status: "LoaderStatus") -> None:
    """Print the counts of the loaded envelopes. Exit with code 1 if loading failed or found a damaged file."""
    print_message(
        f"segments loaded: {status.segment_count:,}, received {status.received_count:,}, "
        f"accepted {status.accepted_count:,}, duplicate {status.duplicate_count:,}, "
        f"quarantined {status.quarantined_count:,}."
    )
    problems = list(status.damaged)
    if status.error:
        problems.append(status.error)
    if problems:
        fail("\n".join(problems))
