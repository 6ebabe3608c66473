"""The engine: opening, closing and watching a data folder."""

import asyncio
import errno
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from embedsink import clock_watch
from embedsink.auth.key_cache import KeyCache
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.clock_watch import ClockWatch, Jump
from embedsink.data_folder import DataFolder, FolderLock
from embedsink.durable_files import write_durably
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Unavailable
from embedsink.journal import recovery
from embedsink.journal.capacity import Capacity
from embedsink.journal.limits import JournalLimits
from embedsink.journal.segment import trailer
from embedsink.journal.writer import Journal
from embedsink.loader import publisher
from embedsink.loader.loader import Loader
from embedsink.protocol.delivery import Rules
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from tests.support.servers import wait_until
from tests.support.stores import make_folder

LINE = b'{"kind":"lost","received_at":1,"reason":"x","lost_count":1}\n'


def test_a_missing_key_file_is_logged_once_with_advice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = DataFolder(tmp_path)
    _, token = KeyStore(folder.keys).create(KeyKind.READ, now=time.time())

    async def run() -> None:
        async with Engine(folder, Settings(keys_reload_s=0.01)) as engine:
            assert engine.keys.find(token)
            moved = folder.keys.rename(tmp_path / "kept")
            await asyncio.to_thread(wait_until, lambda: not engine.keys.find(token), description="the key is refused")
            await asyncio.sleep(0.1)
            moved.rename(folder.keys)
            await asyncio.to_thread(
                wait_until, lambda: bool(engine.keys.find(token)), description="the key is valid again"
            )

    asyncio.run(run())
    [line] = [record for record in caplog.records if record.getMessage() == "keys_gone"]
    detail = line.__dict__["detail"]
    assert detail.startswith(f"{folder.keys}: does not exist. The server refuses every key with 401")
    assert "Acknowledged events are kept" in detail
    assert "Put the file back" in detail
    assert "`embedsink keys create`" in detail


@pytest.mark.parametrize("broken", [Journal, Loader])
def test_a_failed_start_leaves_nothing_open_and_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: type
) -> None:
    folder = DataFolder(tmp_path)

    def fail(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def run() -> None:
        engine = Engine(folder, Settings())
        with monkeypatch.context() as patch:
            patch.setattr(broken, "start", fail)
            with pytest.raises(Misconfigured, match="Too many open files"):
                await engine.__aenter__()
        with FolderLock(folder):
            assert not engine.store.is_open
            assert {thread.name for thread in threading.enumerate()}.isdisjoint({"loader", "journal"})
        async with Engine(folder, Settings()) as again:
            assert again.store.is_open

    asyncio.run(run())


def test_the_key_file_is_reloaded_after_an_unexpected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path)
    refresh = KeyCache.refresh
    failures = [RuntimeError("a bug")]

    def fail_once(keys: KeyCache) -> bool:
        if failures:
            raise failures.pop()
        return refresh(keys)

    async def run() -> None:
        async with Engine(folder, Settings(keys_reload_s=0.01)) as engine:
            monkeypatch.setattr(KeyCache, "refresh", fail_once)
            await asyncio.to_thread(wait_until, lambda: not failures, description="a reload has failed")
            _, token = KeyStore(folder.keys).create(KeyKind.READ, now=time.time())
            await asyncio.to_thread(wait_until, lambda: bool(engine.keys.find(token)), description="the key is valid")

    asyncio.run(run())


def test_damage_found_after_the_disk_was_full_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path)
    acknowledged = LINE + trailer(LINE).replace(b'"bytes":', b'"bytes":9')  # a complete group with a wrong length
    (folder.journal / "000000000001-00000000.open").write_bytes(LINE + trailer(LINE) + acknowledged)
    is_full = True

    def write(path: Path, content: bytes) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_durably(path, content)

    monkeypatch.setattr(recovery, "write_durably", write)

    async def run() -> list[str]:
        nonlocal is_full
        async with Engine(folder, Settings(free_bytes_min=0)) as engine:
            assert engine.loader.status.damaged == []
            is_full = False
            messages = engine.loader.status.damaged
            await asyncio.to_thread(wait_until, lambda: bool(messages), description="the damage is reported")
            return messages

    [message] = asyncio.run(run())
    assert message.startswith("journal 000000000001-00000000: the group at offset 102 is damaged")
    assert "It may have been acknowledged. It was cut off and moved to damaged/." in message


def test_a_start_does_not_wait_for_an_unreadable_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise Unavailable(Reason.NOT_READY, "store: Corrupt database file. Retry.")

    async def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "reader", damaged)
            async with Engine(DataFolder(tmp_path), Settings()) as engine:
                assert engine.journal.last_number is not None

    asyncio.run(run())
    [line] = [record for record in caplog.records if record.getMessage() == "quarantine_count_failed"]
    assert line.__dict__["detail"] == "store: Corrupt database file. Retry."


def has_published(engine: Engine, count: int) -> bool:
    return engine.loader.status.snapshot_count > count and not engine.loader._publisher.has_work


async def load_four_segments(engine: Engine) -> None:
    for _ in range(4):
        await engine.journal.append(LINE)
        await asyncio.sleep(0.05)
    await asyncio.to_thread(
        wait_until,
        lambda: engine.loader.last_number == engine.journal.last_number,
        description="all segments are loaded",
    )


async def publish_three_snapshots(engine: Engine) -> None:
    """Publish snapshots with new rows. A segment is deleted when two snapshots cover it."""
    for _ in range(3):
        count = engine.loader.status.snapshot_count
        await engine.journal.append(LINE)
        await asyncio.to_thread(
            wait_until, partial(has_published, engine, count), description="a snapshot is published", timeout_s=60
        )


def assert_counted(folder: DataFolder, capacity: Capacity) -> None:
    sizes = [path.stat().st_size for path in folder.journal.glob("*.ndjson")]
    assert (capacity.segment_count, capacity.byte_count) == (len(sizes), sum(sizes))


def test_the_journal_counts_sealed_deleted_and_rejected_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path)

    async def run(*, is_published: bool) -> int:
        async with Engine(folder, Settings(segment_seal_s=0.01, snapshot_interval_s=0.01)) as engine:
            await load_four_segments(engine)
            if is_published:
                await publish_three_snapshots(engine)
                assert engine.journal.capacity.segment_count <= 3
            else:
                assert engine.journal.capacity.segment_count >= 4
            assert_counted(folder, engine.journal.capacity)
            return engine.journal.last_number

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publisher, "DISK_SHARE_MAX", 1e9)
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "CopyProcess", no_room)
        last = asyncio.run(run(is_published=False))
    # a segment that the loader rejects
    (folder.journal / f"{last + 1:012d}-00000000.ndjson").write_bytes(b"damaged")
    asyncio.run(run(is_published=True))
    assert len(list(folder.damaged.iterdir())) == 1


def test_clock_jumps_and_nested_data_folders_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "backup" / "journal").mkdir(parents=True)
    jumps = [None, Jump(datetime(2027, 11, 2, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))]
    monkeypatch.setattr(clock_watch, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(ClockWatch, "poll", lambda watch: jumps.pop(0) if jumps else None)

    async def run() -> None:
        async with Engine(folder, Settings()):
            await asyncio.to_thread(wait_until, lambda: not jumps, description="the clock was polled")

    asyncio.run(run())
    logged = {record.getMessage(): record.__dict__ for record in caplog.records}
    assert logged["clock_jumped"]["shown"] == "2027-11-02T00:00:00Z"
    assert logged["clock_jumped"]["expected"] == "2026-11-02T00:00:00Z"
    assert f"{tmp_path / 'backup'}: is a data folder inside this one" in logged["nested_folder"]["detail"]


def test_files_in_the_former_folder_aside_move_to_damaged(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.create()
    name = "000000000001-00000000.ndjson"
    former = tmp_path / "aside"
    former.mkdir()
    (former / name).write_bytes(b"former")
    (former / "lost-1.txt").write_text("journal: segment 2 is lost.")
    (folder.damaged / name).write_bytes(b"current")

    async def run() -> list[str]:
        async with Engine(folder, Settings()) as engine:
            return engine.loader.status.damaged

    messages = asyncio.run(run())
    assert not former.exists()
    assert {path.name: path.read_bytes() for path in folder.damaged.iterdir()} == {
        name: b"current",
        f"{name}.1": b"former",
        "lost-1.txt": b"journal: segment 2 is lost.",
    }
    assert "damaged/lost-1.txt: journal: segment 2 is lost." in messages
    assert [name in message for message in messages].count(True) == 2


def test_the_defaults_of_limits_and_rules_are_those_of_the_settings(tmp_path: Path) -> None:
    async def used() -> tuple[StoreLimits, JournalLimits, Rules]:
        async with Engine(DataFolder(tmp_path), Settings()) as engine:
            return engine.store.limits, engine.journal.limits, engine.rules

    assert asyncio.run(used()) == (StoreLimits(), JournalLimits(), Rules())
