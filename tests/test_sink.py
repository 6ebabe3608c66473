"""What a server says while it has a data folder open."""

import asyncio
import errno
import threading
import time
from pathlib import Path

import pytest

from embedsink.folder import DataFolder, FolderLock
from embedsink.journal import Journal
from embedsink.keys import KeyFile, KeyKind
from embedsink.loader import Loader
from embedsink.settings import Settings
from embedsink.sink import Sink
from tests.servers import wait_until


def test_a_key_file_that_is_gone_is_told_once_with_what_holds_and_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = DataFolder(tmp_path)
    _, token = KeyFile(folder.keys).create(KeyKind.READ, now=time.time())

    async def run() -> None:
        async with Sink(folder, Settings(keys_reload_s=0.01)) as sink:
            assert sink.keys.find(token)
            kept = folder.keys.rename(tmp_path / "kept")
            await asyncio.to_thread(wait_until, lambda: not sink.keys.find(token), what="the key is refused")
            await asyncio.sleep(0.1)
            kept.rename(folder.keys)
            await asyncio.to_thread(wait_until, lambda: bool(sink.keys.find(token)), what="the key holds again")

    asyncio.run(run())
    [line] = [record for record in caplog.records if record.getMessage() == "keys_gone"]
    told = line.__dict__["detail"]
    assert told.startswith(f"{folder.keys}: does not exist. Until it is back every key is refused with 401")
    assert "what was acknowledged is kept" in told
    assert "Put the file back" in told
    assert "`embedsink keys create`" in told


@pytest.mark.parametrize("broken", [Journal, Loader])
def test_a_start_that_fails_leaves_nothing_open_and_nobody_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: type
) -> None:
    folder = DataFolder(tmp_path)

    def fail(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def run() -> None:
        sink = Sink(folder, Settings())
        with monkeypatch.context() as patch:
            patch.setattr(broken, "start", fail)
            with pytest.raises(OSError, match="Too many open files"):
                await sink.__aenter__()
        with FolderLock(folder):
            assert not sink.store.is_open
            assert {thread.name for thread in threading.enumerate()}.isdisjoint({"loader", "journal"})
        async with Sink(folder, Settings()) as again:
            assert again.store.is_open

    asyncio.run(run())
