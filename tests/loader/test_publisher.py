"""Snapshots: each is verified before it replaces its predecessor, and none blocks loading."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.loader import copy_file, disk_space, publisher, snapshot
from embedsink.loader.copy_file import verify
from embedsink.loader.loader import Loader
from embedsink.settings import Settings
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreDamaged, StoreRefused
from embedsink.store.purge import PurgeFilter
from tests.loader.test_loader import add_many, add_segment, events_in, expected, flipped, load_all, opened
from tests.support.crash_harness import Server
from tests.support.given import write_segment
from tests.support.servers import fetch, wait_until
from tests.support.stores import make_folder

HEADERS = 3 * 4_096
# enough time for a busy machine
PATIENCE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return make_folder(tmp_path / "data")


def damage_on_disk(path: Path, *, every: int = 4_096) -> None:
    """Flip bits across a whole file in place, even while DuckDB has it open."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(flipped(content, *range(HEADERS + 100, len(content), every)))


def test_damage_in_the_open_store_never_replaces_a_snapshot_and_loses_nothing(folder: DataFolder) -> None:
    with opened(folder) as loader:
        for number in (1, 2, 3):
            add_segment(folder, number, count=300)
            load_all(loader)
            loader.publish()
        before = folder.snapshot.read_bytes(), folder.previous.read_bytes()
        damage_on_disk(folder.store, every=1_024)
        add_segment(folder, 4)
        loader.run_once(is_last=True)
        assert "It is being rebuilt" in str(loader.status.snapshot_error)
        assert (folder.snapshot.read_bytes(), folder.previous.read_bytes()) == before
        loader.run_once(is_last=True)
        assert (loader.status.error, loader.status.damaged) == (None, [])
    ids = sorted([*expected(1, 2, 3, count=300), *expected(4)])
    assert events_in(folder.store) == events_in(folder.snapshot) == ids


def test_the_snapshot_exists_at_each_moment_and_its_predecessor_is_kept(folder: DataFolder) -> None:
    with opened(folder) as loader:
        for number in (1, 2, 3):
            add_segment(folder, number)
            load_all(loader)
            loader.publish()
    assert events_in(folder.snapshot) == expected(1, 2, 3)
    assert events_in(folder.previous) == expected(1, 2)
    assert sorted(path.name for path in folder.path.glob("*.duckdb*")) == [
        "analytics.duckdb",
        "analytics.previous.duckdb",
        "store.duckdb",
    ]


def publish_each(loader: Loader, *numbers: int) -> list[Path]:
    """Load segments, and publish a snapshot after each. Return their paths."""
    paths = []
    for number in numbers:
        paths.append(add_segment(loader._folder, number, count=300))
        load_all(loader)
        loader.publish()
    return paths


def test_a_snapshot_damaged_after_its_verification_does_not_become_the_previous_one(folder: DataFolder) -> None:
    with opened(folder) as loader:
        publish_each(loader, 1, 2)
        before = folder.previous.read_bytes()
        damage_on_disk(folder.snapshot)
        rotten = folder.snapshot.read_bytes()
        [path] = publish_each(loader, 3)
        assert folder.previous.read_bytes() == before
        assert path.exists(), "the previous snapshot lacks the segment"
        assert (folder.damaged / folder.snapshot.name).read_bytes() == rotten
        assert loader.status.error is None
        assert verify(folder.snapshot) is None
        publish_each(loader, 4)
        assert events_in(folder.previous) == expected(1, 2, 3, count=300)


def test_segments_covered_by_a_damaged_snapshot_are_kept(folder: DataFolder) -> None:
    with opened(folder) as loader:
        publish_each(loader, 1, 2, 3)
        damage_on_disk(folder.snapshot)
        publish_each(loader, 4)
    for path in (folder.snapshot, folder.store):
        damage_on_disk(path, every=1_024)
    with opened(folder) as loader:
        for _ in range(2):
            loader.run_once(is_last=True)
        assert (loader.status.error, loader.status.damaged) == (None, [])
    assert events_in(folder.store) == events_in(folder.snapshot) == expected(1, 2, 3, 4, count=300)


@contextlib.contextmanager
def hanging(loader: Loader, *, copied: bool = False) -> Iterator[snapshot.CopyProcess]:
    """Start a copy and stop its process, so that it makes no progress."""
    loader._publisher.is_dirty = True
    loader.run_once(is_last=False)
    copy = loader._publisher._copy
    assert copy is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(copy._child.pid, signal.SIGSTOP)
    copy._is_copied = copied
    try:
        yield copy
    finally:
        copy._child.kill()
        copy._child.wait()


def test_loading_continues_while_a_copy_hangs_and_the_stall_is_reported(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as loader, hanging(loader):
        for number in (1, 2, 3):
            add_segment(folder, number)
            loader.run_once(is_last=False)
            assert loader.status.segment_count == number
        monkeypatch.setattr(publisher, "STALLED_S", 0.0)
        loader.run_once(is_last=False)
        assert "copying store.duckdb: made no progress for 20 s" in str(loader.status.error)
        monkeypatch.undo()
        add_segment(folder, 4)
        loader.run_once(is_last=False)
        assert (loader.status.segment_count, loader.status.snapshot_count) == (4, 0)
        assert "made no progress" in str(loader.status.error), "until a snapshot is published"
        loader.publish()
        loader.run_once(is_last=False)
        assert events_in(folder.snapshot) == expected(1, 2, 3, 4)


def test_no_copy_starts_while_a_hung_process_exists(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as loader, hanging(loader) as copy, monkeypatch.context() as patch:
        patch.setattr(copy._child, "kill", lambda: None)  # as a process that waits for a dead disk
        patch.setattr(publisher, "STALLED_S", 0.0)
        patch.setattr(publisher, "CopyProcess", lambda *_, **__: pytest.fail("a second copy"))
        loader.run_once(is_last=False)
        for number in (1, 2):
            loader._publisher.postpone(0)
            add_segment(folder, number)
            loader.run_once(is_last=False)
        assert loader.status.segment_count == 2


def test_no_checkpoint_changes_the_store_while_it_is_copied(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as loader, hanging(loader):
        before = folder.store.read_bytes()
        loader._store._checkpoints.unwritten_bytes = 50 * 1_048_576  # so that a checkpoint is due
        add_segment(folder, 1)
        loader.run_once(is_last=False)
        assert folder.store.read_bytes() == before
        # Beyond the limit, loading waits for the copy until it counts as hung.
        loader._store._checkpoints.unwritten_bytes = publisher.UNWRITTEN_BYTES_MAX
        monkeypatch.setattr(snapshot, "STALLED_S", 0.0)
        add_segment(folder, 2)
        loader.run_once(is_last=False)
        assert loader.status.segment_count == 2
        assert loader._store.unwritten_bytes == 0
        assert "made no progress" in str(loader.status.error)


def test_a_purge_waits_for_a_copy_that_reads_the_store(folder: DataFolder) -> None:
    with opened(folder) as loader:
        write_segment(folder.journal, [{"type": "scroll", "rejected": "unknown_type"}], number=1)
        load_all(loader)
        with hanging(loader) as copy:
            before = folder.store.read_bytes()
            loader.start()
            purged = loader.tasks.submit(lambda: loader.quarantine.purge_batch(PurgeFilter()))
            with pytest.raises(TimeoutError):
                purged.result(timeout=0.5)
            assert folder.store.read_bytes() == before
            os.kill(copy._child.pid, signal.SIGCONT)
            assert purged.result(timeout=PATIENCE_S) == 1


def test_an_unreadable_store_is_damaged(folder: DataFolder) -> None:
    folder.store.unlink(missing_ok=True)
    folder.store.symlink_to("/proc/self/mem")  # read(2) of the first page fails with EIO
    with pytest.raises(StoreDamaged, match="Input/output error"):
        snapshot.replace_by_copy(folder.snapshot, folder.store)
    assert not folder.snapshot.exists()


def test_a_purge_needs_free_space(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as loader:
        write_segment(folder.journal, [{"type": "scroll", "rejected": "unknown_type"}], number=1)
        load_all(loader)
        monkeypatch.setattr(disk_space, "free_bytes", lambda _: 0)
        with pytest.raises(StoreRefused, match="are free on its disk"):
            loader.quarantine.purge_batch(PurgeFilter())


def test_loading_during_a_copy_does_not_change_it(folder: DataFolder) -> None:
    with opened(folder) as loader:
        add_many(folder, 1, 1_000)
        load_all(loader)
        with hanging(loader) as copy:
            # DuckDB writes full row groups to the file before the next checkpoint.
            size = folder.store.stat().st_size
            for number in (2, 3):
                add_many(folder, number, 40_000)
                load_all(loader)
            assert folder.store.stat().st_size > size
            os.kill(copy._child.pid, signal.SIGCONT)
            wait_until(lambda: not copy.is_running, description="the copy is complete", timeout_s=PATIENCE_S)
            loader.run_once(is_last=False)
        assert (loader.status.error, loader.status.snapshot_count) == (None, 1)
    assert len(events_in(folder.snapshot)) == 1_000
    assert len(events_in(folder.store)) == 81_000


def test_a_checkpoint_does_not_wait_for_the_verification_of_a_copy(folder: DataFolder) -> None:
    with opened(folder) as loader, hanging(loader, copied=True):
        loader._store._checkpoints.unwritten_bytes = 50 * 1_048_576
        add_segment(folder, 1)
        loader.run_once(is_last=False)
        assert loader._store.unwritten_bytes == 0


def test_a_tight_journal_deletes_segments_that_the_newest_snapshot_covers(folder: DataFolder) -> None:
    is_low_on_space = [False]
    loader = Loader(folder, Store(folder.store), is_low_on_space=lambda: is_low_on_space[0])
    loader.open_store()
    paths = [add_segment(folder, number) for number in (1, 2, 3)]
    load_all(loader)
    loader.publish()
    assert all(path.exists() for path in paths)
    is_low_on_space[0] = True
    loader.run_once(is_last=False)
    assert [path.exists() for path in paths] == [False, False, True]
    loader.close()


def test_old_copies_are_deleted_when_a_new_one_has_no_space(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as loader:
        for number in (1, 2):
            add_segment(folder, number)
            load_all(loader)
            loader.publish()
        evidence = folder.damaged / "store.duckdb"
        shutil.copy(folder.store, evidence)
        # enough space only after both are deleted
        monkeypatch.setattr(publisher, "free_bytes", lambda _: 0 if folder.previous.exists() else 1 << 40)
        add_segment(folder, 3)
        load_all(loader)
        loader.publish()
    assert not evidence.exists()
    assert events_in(folder.snapshot) == expected(1, 2, 3)
    assert events_in(folder.previous) == expected(1, 2)


def test_a_copy_that_would_fill_the_disk_is_refused(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder.path / "source"
    source.write_bytes(bytes(100_000))
    free = copy_file.FREE_BYTES_MIN + 99_999
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    monkeypatch.setattr(copy_file, "_FICLONE", 0)  # as on a file system without reflinks
    with pytest.raises(OSError, match="No space left on device for a copy of 100,000 bytes"):
        copy_file.copy_durably(source, folder.path / "target")
    free += 1
    copy_file.copy_durably(source, folder.path / "another")


def test_without_space_for_a_checkpoint_no_copy_starts(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1)
        load_all(loader)
        with monkeypatch.context() as patch:
            patch.setattr(disk_space, "free_bytes", lambda _: 0)
            patch.setattr(Store, "checkpoint", lambda _: pytest.fail("it may meet the end of the disk"))
            with pytest.raises(StoreRefused, match="bytes are free on its disk"):
                loader.publish()
        loader.publish()
    assert events_in(folder.snapshot) == expected(1)


def test_the_last_snapshot_of_a_closing_server_has_a_time_limit(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedsink.loader.loader.LAST_SNAPSHOT_S_MAX", 0.1)
    loader = Loader(folder, Store(folder.store), closing_s_max=0.1)
    loader.open_store()
    loader.start()
    wait_until(lambda: loader.status.snapshot_count == 1, description="a snapshot exists", timeout_s=PATIENCE_S)
    add_segment(folder, 1)
    monkeypatch.setattr(snapshot, "COMMAND", ("sh", "-c", "exec sleep 100"))
    started_at = time.monotonic()
    loader.close()
    assert time.monotonic() - started_at < PATIENCE_S / 2
    # On a busy machine, the thread may outlast `close`, which then leaves the store open.
    loader._thread.join(PATIENCE_S)
    loader._store.close()
    monkeypatch.undo()
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    assert events_in(folder.snapshot) == expected(1)


def test_a_server_whose_store_is_large_loads_before_it_verifies(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_segment(folder, 1)
    verified_at: list[int] = []
    copy = snapshot.CopyProcess

    def record(source: Path, target: Path, **options: object) -> snapshot.CopyProcess:
        verified_at.append(loader.status.segment_count)
        return copy(source, target)

    monkeypatch.setattr(publisher, "CopyProcess", record)
    with opened(folder) as loader:
        loader.run_once(is_last=False)
        assert verified_at == [1]


HANGING = """
import subprocess
begin = subprocess.Popen

class Hanging(begin):
    def __init__(self, command, *rest, **options):
        is_copy = "embedsink.loader.copy_file" in command
        super().__init__(["sleep", "20"] if is_copy else command, *rest, **options)

    def kill(self):  # As a process in an uninterruptible system call.
        pass

subprocess.Popen = Hanging
from embedsink.loader import publisher, snapshot
publisher.STALLED_S = snapshot.STALLED_S = 0.5
"""


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.server
def test_a_server_with_a_hung_copy_loads_reports_it_and_ends_in_time(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", injected=HANGING)
    address = f"http://127.0.0.1:{server.port}"
    try:
        server.wait_until_ready()
        wait_until(lambda: b"made no progress" in fetch(f"{address}/readyz").body, description="/readyz reports it")
        assert fetch(f"{address}/readyz").status == 503
        write_segment(tmp_path / "data" / "journal", [{"type": "view"}], number=900)
        loaded = b'embedsink_loaded_envelopes_total{outcome="accepted"} 1'
        wait_until(
            lambda: loaded in fetch(f"{address}/metrics").body, description="loading continues", timeout_s=PATIENCE_S
        )
        started_at = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert time.monotonic() - started_at < 30
    finally:
        server.kill()


def test_a_command_also_ends_a_hung_copy(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "STALLED_S", 0.0)
    monkeypatch.setattr(snapshot, "STALLED_S", 0.0)

    async def run() -> str | None:
        async with Engine(folder, Settings()) as engine:
            pass
        return engine.loader.status.error

    assert "made no progress" in str(asyncio.run(run()))
