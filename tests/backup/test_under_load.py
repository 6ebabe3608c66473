"""Backups under load: each contains every event that was acknowledged before its start, once."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from embedsink.backup import source
from embedsink.backup.create import create_backup
from embedsink.backup.generation import Generation
from embedsink.backup.repository import Repository
from embedsink.backup.restore import restore_backup
from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.journal.segment import OPEN, identity_of
from embedsink.key_scope import EVERYTHING
from embedsink.settings import Settings
from embedsink.store.query import SelectQuery
from embedsink.store.snapshot_reader import open_snapshot
from tests.support.crash_harness import CrashHarness, Server, senders
from tests.support.servers import wait_until

BACKUPS = 50
STARTED_EVERY = 10
SENDERS = 2

pytestmark = [pytest.mark.slow, pytest.mark.server]

Backups = list[tuple[Path, set[str]]]


@contextlib.contextmanager
def busy_server(harness: CrashHarness, *, seal_s: str = "0.03", snapshot_interval_s: str = "0.01") -> Iterator[Server]:
    """Run a server under load with frequently changing files, and kill it at the end of the block."""
    server = Server(harness.data, EMBEDSINK_SEGMENT_SEAL_S=seal_s, EMBEDSINK_SNAPSHOT_INTERVAL_S=snapshot_interval_s)
    try:
        server.wait_until_ready()
        with senders(server.port, harness.token, harness.log, count=SENDERS):
            wait_until(lambda: len(harness.log.answered) > 100, description="events are acknowledged")
            yield server
            server.kill()
    finally:
        server.kill()


def back_up(harness: CrashHarness, target: Path, count: int) -> Backups:
    """Create backups one after the other. Return each with the events that were acknowledged before it."""
    backups = []
    for _ in range(count):
        answered = harness.log.answered.copy()
        backups.append((create_backup(DataFolder(harness.data), target).manifest, answered))
    return backups


def event_ids(target: Path, generation: Generation, folder: Path) -> list[str]:
    """Return the ids of all events in a generation's snapshot, and in the segments that it lacks."""
    chunks = Repository(target).chunks
    files = {file.name: b"".join(map(chunks.load, file.chunks)) for file in generation.files}
    ids, names = [], []
    if "analytics.duckdb" in files:  # A new server may not have published a snapshot.
        snapshot = folder / "snapshot.duckdb"
        snapshot.write_bytes(files["analytics.duckdb"])
        with contextlib.closing(duckdb.connect(str(snapshot), read_only=True, config={"threads": 1})) as connection:
            ids = [event_id for (event_id,) in connection.execute("select event_id::varchar from event").fetchall()]
            names = connection.execute("select segment from loaded_segment").fetchall()
    loaded = {identity_of(name) for (name,) in names}
    for name, content in files.items():
        if name.startswith("journal/") and identity_of(Path(name).name) not in loaded:
            lines = [json.loads(line) for line in content.splitlines() if line.startswith(b'{"kind":"event"')]
            ids += [line["envelope"]["id"] for line in lines]
    return ids


def broken_promises(target: Path, backups: Backups, sent: set[str], folder: Path) -> list[str]:
    broken = []
    for manifest, answered in backups:
        ids = event_ids(target, Repository(target).read(manifest.name), folder)
        for promise, count in {
            "acknowledged, but not in the backup": len(answered - set(ids)),
            "in the backup twice": len(ids) - len(set(ids)),
            "in the backup, but never sent": len(set(ids) - sent),
        }.items():
            broken += [f"{manifest.name}: {promise}: {count}"] * (count > 0)
    return broken


def started(folder: DataFolder) -> list[str]:
    """Start and stop a server on a folder. Return the ids of all its events."""

    async def run() -> list[str]:
        async with Engine(folder, Settings()) as engine:
            return engine.loader.status.damaged

    assert asyncio.run(run()) == []
    with open_snapshot(folder.snapshot, EVERYTHING.variables()) as reader:
        [totals] = reader.dicts("totals")
        ids = [str(row[0]) for rows in reader.rows(SelectQuery("event", ("event_id",))) for row in rows]
    assert totals["view_count"] == len(ids)
    return ids


def test_backups_under_load_have_each_earlier_event_once(tmp_path: Path) -> None:
    harness, target = CrashHarness(tmp_path / "data"), tmp_path / "backup"
    with busy_server(harness):
        backups = back_up(harness, target, BACKUPS)

    assert len(backups[-1][1]) > len(backups[0][1]) + BACKUPS
    assert len(Repository(target).generation_names()) == BACKUPS
    sent = set(harness.log.sent)
    assert broken_promises(target, backups, sent, tmp_path) == []
    for manifest, answered in backups[::STARTED_EVERY]:
        folder = DataFolder(tmp_path / manifest.stem)
        restore_backup(manifest, folder)
        ids = started(folder)
        assert answered <= set(ids) <= sent
        assert len(ids) == len(set(ids))


def test_the_harness_detects_the_losses_of_a_copy_by_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied_by_names(folder: DataFolder) -> Iterator[tuple[str, bytes]]:
        names: list[str] = []

        def a_segment_is_open() -> bool:
            names[:] = source.segment_names(folder.journal)
            return any(name.endswith(OPEN) for name in names)

        def it_is_sealed() -> bool:
            return not all((folder.journal / name).exists() for name in names)

        wait_until(a_segment_is_open, description="a segment is open")
        # A sealed segment has another name.
        wait_until(it_is_sealed, description="the open segment is sealed")
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield f"journal/{name}", (folder.journal / name).read_bytes()

    monkeypatch.setattr("embedsink.backup.create.read_journal", copied_by_names)
    harness, target = CrashHarness(tmp_path / "data"), tmp_path / "backup"
    # A segment stays open for longer than the start of a backup takes, so it has events that were acknowledged before.
    # A later snapshot would contain the events that the copy lacks.
    with busy_server(harness, seal_s="0.5", snapshot_interval_s="60"):
        backups = back_up(harness, target, 10)

    broken = broken_promises(target, backups, set(harness.log.sent), tmp_path)
    assert broken
    assert all("acknowledged, but not in the backup" in promise for promise in broken)


def test_the_folder_of_a_killed_server_is_backed_up_without_a_server(tmp_path: Path) -> None:
    harness, target = CrashHarness(tmp_path / "data"), tmp_path / "backup"
    with busy_server(harness):
        pass
    answered, sent = harness.log.answered, set(harness.log.sent)

    create_backup(DataFolder(harness.data), target)

    folder = DataFolder(tmp_path / "new")
    restore_backup(target, folder)
    ids = started(folder)
    assert answered <= set(ids) <= sent
    assert len(ids) == len(set(ids))
