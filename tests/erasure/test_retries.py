"""Erasures that can't continue for some time."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.erasure import erasures
from embedsink.erasure.run import until
from embedsink.loader.publisher import Publisher
from embedsink.privacy.person import Person
from embedsink.settings import Settings
from embedsink.store import database
from embedsink.store.rewrite import write_copy
from tests.support.stores import make_folder

ATTEMPTS = 4


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
