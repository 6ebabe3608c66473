"""Erasures that can't continue for some time."""

import asyncio
import errno
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine, now_ms
from embedsink.erasure import erasures
from embedsink.erasure.request import Erasure, ErasureFolder
from embedsink.erasure.run import ErasureRun, until
from embedsink.ingest.pipeline import ParseJob, parse_and_encode
from embedsink.key_scope import EVERYTHING
from embedsink.loader.publisher import Publisher
from embedsink.privacy.person import Person
from embedsink.settings import Settings
from embedsink.store import database
from embedsink.store.rewrite import write_copy
from tests.loader.test_publisher import damage_on_disk
from tests.support.envelopes import view
from tests.support.stores import make_folder

ATTEMPTS = 4


async def load_viewers(engine: Engine, *viewers: str, count: int = 1) -> None:
    """Load this number of events of each viewer, and wait for two snapshots of them."""
    for viewer in viewers:
        delivery = {"context": {"viewer": viewer, "session": f"s-{viewer}"}, "events": [view()] * count}
        job = ParseJob(json.dumps(delivery).encode(), "", False, now_ms(), "k", EVERYTHING, engine.privacy)
        await engine.journal.append(parse_and_encode(job, engine.rules, body_bytes_max=1 << 20).accepted_lines)
    await engine.erasures.wait_until_loaded()
    await asyncio.wait_for(until(lambda: engine.loader.status.snapshot_count > 1), 60)


def refuse_to_read_damaged(folder: DataFolder, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    obstacle = folder.damaged / "000000000001-1a2b3c4d-9.ndjson.new"
    obstacle.mkdir()  # The file that a killed process has left can't be deleted.
    return obstacle.rmdir


def refuse_to_copy_the_store(folder: DataFolder, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    start_copy = Publisher._start_copy
    patch.setattr(Publisher, "_start_copy", fail)
    return lambda: patch.setattr(Publisher, "_start_copy", start_copy)


@pytest.mark.parametrize("refuse", [refuse_to_read_damaged, refuse_to_copy_the_store])
def test_the_store_is_rewritten_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refuse: Callable[[DataFolder, pytest.MonkeyPatch], Callable[[], None]],
) -> None:
    rewrites: list[Path] = []

    def counted(connection: Any, path: Path) -> None:
        rewrites.append(path)
        write_copy(connection, path)

    monkeypatch.setattr(database, "write_copy", counted)
    monkeypatch.setattr(erasures, "RETRY_AFTER_S", 0.1)
    monkeypatch.setattr(erasures, "RETRY_AFTER_S_MAX", 0.3)
    folder = make_folder(tmp_path)

    def delays() -> list[str]:
        return [record.detail for record in caplog.records if record.message == "erasure_delayed"]  # type: ignore[attr-defined]

    async def erase() -> None:
        async with Engine(folder, Settings(snapshot_interval_s=0.1)) as engine:
            allow = refuse(folder, monkeypatch)
            erasure = await engine.erasures.request(Person("ann"), key_id=None)
            await asyncio.wait_for(until(lambda: len(delays()) >= ATTEMPTS), 60)
            allow()
            await asyncio.wait_for(until(lambda: engine.erasures.register[erasure.id].result is not None), 60)

    asyncio.run(erase())
    assert len(rewrites) == 1
    assert [delay.rsplit("retried in ")[1] for delay in delays()][:ATTEMPTS] == ["0.1 s", "0.2 s", "0.3 s", "0.3 s"]


def test_rows_that_a_rebuild_restores_are_deleted_with_the_next_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(erasures, "RETRY_AFTER_S", 600.0)
    folder = make_folder(tmp_path)

    async def erase() -> list[str]:
        async with Engine(folder, Settings(snapshot_interval_s=0.1)) as engine:
            await load_viewers(engine, "ann", "bob", "cyd")
            allow = refuse_to_copy_the_store(folder, monkeypatch)
            first = await engine.erasures.request(Person("ann"), key_id=None)
            delayed = lambda: any(record.message == "erasure_delayed" for record in caplog.records)  # noqa: E731
            await asyncio.wait_for(until(delayed), 60)

            def rebuild() -> None:
                engine.store.close()
                engine.loader._rebuild("the file of the test is damaged")

            await asyncio.wrap_future(engine.loader.tasks.submit(rebuild))
            allow()
            await asyncio.wait_for(until(lambda: engine.loader.status.error is None), 60)
            await engine.erasures.request(Person("bob"), key_id=None)
            await asyncio.wait_for(until(lambda: engine.erasures.register[first.id].result is not None), 60)
            with engine.store.reader(EVERYTHING.variables()) as reader:
                return [row["viewer"] for row in reader.dicts("event_in_scope")]

    assert asyncio.run(erase()) == ["cyd"]


def test_a_former_snapshot_that_remains_because_the_next_one_is_damaged_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path)
    publish = ErasureRun._publish
    damaged: list[Path] = []

    async def publish_and_damage(run: ErasureRun) -> None:
        await publish(run)
        if not damaged:
            damage_on_disk(folder.snapshot)
            damaged.append(folder.snapshot)

    monkeypatch.setattr(ErasureRun, "_publish", publish_and_damage)

    async def erase() -> None:
        async with Engine(folder, Settings(snapshot_interval_s=0.1)) as engine:
            await load_viewers(engine, "ann", "bob", count=100)
            erasure = await engine.erasures.request(Person("ann"), key_id=None)
            await asyncio.wait_for(until(lambda: engine.erasures.register[erasure.id].result is not None), 60)

    asyncio.run(erase())
    assert damaged
    with duckdb.connect(str(folder.previous), read_only=True) as connection:
        assert connection.execute("select distinct viewer from event").fetchall() == [("bob",)]


def test_a_stop_while_the_certificate_is_written_leaves_the_erasure_in_the_audit_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path)
    write = ErasureFolder.write
    writing: list[str] = []

    def slow(self: ErasureFolder, erasure: Erasure) -> None:
        if erasure.result is not None:
            writing.append(erasure.id)
            time.sleep(0.5)
        write(self, erasure)

    monkeypatch.setattr(ErasureFolder, "write", slow)

    async def erase() -> None:
        async with Engine(folder, Settings(snapshot_interval_s=0.1)) as engine:
            await engine.erasures.request(Person("ann"), key_id=None)
            await asyncio.wait_for(until(lambda: bool(writing)), 60)

    asyncio.run(erase())
    entries = "".join(path.read_text(encoding="utf-8") for path in folder.audit.rglob("*.ndjson"))
    assert f'"target":"erasures/{writing[0]}"' in entries.replace(": ", ":")
