"""`embedsink snapshot`, `rebuild` and `doctor`: what an operator does to a data folder."""

import asyncio
from typing import TYPE_CHECKING

from embedsink.cli.options import DATA, Data, examples, existing
from embedsink.cli.output import fail, say, show_table
from embedsink.data_folder import DataFolder, FolderLock, FolderTaken

if TYPE_CHECKING:
    from embedsink.loader.status import LoaderStatus

SNAPSHOT_EXAMPLES = examples("embedsink snapshot --data data")
REBUILD_EXAMPLES = examples("embedsink rebuild --data data")
DOCTOR_EXAMPLES = examples("embedsink doctor --data data")


def snapshot(data: Data = DATA) -> None:
    """Publish a fresh snapshot (analytics.duckdb) while no server runs; a running server does it by itself."""
    from embedsink.settings import read_settings

    folder = DataFolder(existing(data))
    try:
        with FolderLock(folder):
            pass
    except FolderTaken as error:
        interval_s = read_settings().snapshot_interval_s
        say(f"{error.holder}. That server publishes snapshots by itself, every {interval_s:g} s.")
        return
    status = asyncio.run(_open_and_close(folder))
    say(f"{folder.snapshot}: is published ({folder.snapshot.stat().st_size:,} bytes).")
    _tell_loaded(status)


def rebuild(data: Data = DATA) -> None:
    """Set the store aside and rebuild it from the snapshots and the journal, while no server runs.

    A server rebuilds a damaged or missing store by itself. The old store is kept in damaged/ for 30 days.
    """
    from embedsink.durable_files import move_to_damaged
    from embedsink.store.database import Store
    from embedsink.store.reader import EVERYTHING, open_snapshot

    folder = DataFolder(existing(data))
    with FolderLock(folder):
        if folder.store.exists():
            Store(folder.store).refuse_newer()
            # The journal holds only what no snapshot covers: without one, a rebuild could come out shorter.
            open_snapshot(folder.snapshot, EVERYTHING).close()
            say(f"{folder.store.name}: is kept as {move_to_damaged(folder.store, damaged=folder.damaged)}.")
    say("Rebuilding from the snapshot and the journal …")
    _tell_loaded(asyncio.run(_open_and_close(folder)))
    say(f"{folder.store}: is rebuilt ({folder.store.stat().st_size:,} bytes).")


def doctor(data: Data = DATA) -> None:
    """Check a data folder: versions, room, sizes, snapshots, rows, dashboards, journal, keys. Exit code 1 for a fault.

    It only reads, so it may run beside a server.
    """
    from embedsink.doctor import examine
    from embedsink.settings import read_settings

    findings = examine(DataFolder(existing(data)), read_settings())
    show_table(("check", "state", "found"), [(one.check, one.state, one.found) for one in findings])
    wrong = [one for one in findings if one.state == "wrong"]
    if wrong:
        fail(f"{data}: {len(wrong)} of {len(findings)} checks found something wrong.")
    say(f"{data}: is healthy.")


async def _open_and_close(folder: DataFolder) -> "LoaderStatus":
    """Opening repairs and closing loads the journal and publishes."""
    from embedsink.engine import Engine
    from embedsink.settings import read_settings

    async with Engine(folder, read_settings()) as engine:
        pass
    return engine.loader.status


def _tell_loaded(status: "LoaderStatus") -> None:
    say(
        f"segments loaded: {status.segment_count:,}, received {status.received_count:,}, "
        f"accepted {status.accepted_count:,}, duplicate {status.duplicate_count:,}, "
        f"quarantined {status.quarantined_count:,}."
    )
    if status.trouble or status.damaged:
        fail("\n".join([*status.damaged, *([status.trouble] if status.trouble else [])]))
