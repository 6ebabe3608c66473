"""The loader: it loads each segment once under any failure, and its snapshot can be opened at any time."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import duckdb
import pytest

from embedsink.data_folder import DataFolder, FolderLock
from embedsink.doctor import examine
from embedsink.engine import Engine
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.ingest.records import body_rejection_line, delivery_lines
from embedsink.journal.segment import Segment, identity_of, sealed_name, trailer
from embedsink.key_scope import EVERYTHING
from embedsink.loader import copy_file, pending, publisher, snapshot
from embedsink.loader.loader import Loader
from embedsink.loader.status import error_message
from embedsink.protocol.delivery import Rejection
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.store import database
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreDamaged, StoreRefused, StoreTooSmall
from embedsink.store.ledger import LoadCounts
from embedsink.store.reader import Reader
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql
from embedsink.store.verify import read_every_row
from tests.support.crash_harness import CrashHarness, Server, senders
from tests.support.disks import mounted
from tests.support.envelopes import event_or_action, view
from tests.support.given import write_segment
from tests.support.redaction import storable, storable_rejection
from tests.support.servers import fetch, wait_until
from tests.support.stores import make_folder

VIEW = {"type": "view"}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return make_folder(tmp_path / "data")


@contextlib.contextmanager
def opened(folder: DataFolder) -> Iterator[Loader]:
    """Yield a loader with an open store and without a thread."""
    loader = Loader(folder, Store(folder.store))
    loader.open_store()
    try:
        yield loader
    finally:
        loader.close()


def load_all(loader: Loader) -> None:
    """Load all sealed segments without publishing."""
    for _ in loader.load_pending():
        pass


def add_segment(folder: DataFolder, number: int, count: int = 3) -> Path:
    """Add a sealed segment of events with distinct ids."""
    return write_segment(
        folder.journal, [VIEW | {"id": number * 1_000 + index} for index in range(count)], number=number
    )


def events_in(path: Path, *, lacks_segments: bool = False) -> list[int]:
    """Return the ids of the events in a database, after all checks of `sql/checks`."""
    with contextlib.closing(duckdb.connect(str(path), read_only=True)) as database:
        failed_checks = {name for name, sql in read_sql("checks").items() if database.execute(sql).fetchall()}
        assert failed_checks == ({"segment_is_not_missing"} if lacks_segments else set())
        return sorted(row[0].int for row in database.execute("select event_id from event").fetchall())


def add_many(folder: DataFolder, number: int, count: int) -> None:
    """Add a segment of many events, copied from one, because validating them takes too long."""
    path = add_segment(folder, number, count=1)
    line = path.read_bytes().splitlines(keepends=True)[0]
    first_id = str(UUID(int=number * 1_000)).encode()
    assert first_id in line
    lines = b"".join(
        line.replace(first_id, str(UUID(int=number * 1_000_000 + index)).encode()) for index in range(count)
    )
    path.write_bytes(lines + trailer(lines))


def expected(*numbers: int, count: int = 3) -> list[int]:
    return [number * 1_000 + index for number in numbers for index in range(count)]


def damaged(content: bytes, how: str) -> bytes:
    """Return the damaged content of a file."""
    return {
        "truncated": content[: min(5_000, len(content) // 2)],
        "empty": b"",
        "header": content[:9] + bytes([content[9] ^ 1]) + content[10:],
        "zeros": bytes(len(content)),
        "noise": content[: len(content) // 3] + os.urandom(len(content) - len(content) // 3),
    }[how]


def flipped(content: bytes, *offsets: int) -> bytes:
    """Return the content with one bit flipped in each of these bytes."""
    damaged = bytearray(content)
    for offset in offsets:
        damaged[offset] ^= 4
    return bytes(damaged)


DAMAGES = ("truncated", "empty", "header", "zeros", "noise")


def test_a_segment_is_loaded_once_over_several_starts(folder: DataFolder) -> None:
    add_segment(folder, 1)
    for _ in range(3):
        with opened(folder) as loader:
            load_all(loader)
            load_all(loader)
    assert events_in(folder.store) == expected(1)


@pytest.mark.parametrize("failure", [StoreRefused, StoreTooSmall, StoreBroken])
def test_a_segment_whose_commit_failed_after_taking_effect_is_not_loaded_again(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, failure: type[EmbedsinkError]
) -> None:
    add_segment(folder, 1)

    @contextlib.contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
        raise failure("the answer to the commit was lost")

    with opened(folder) as loader, monkeypatch.context() as patch:
        patch.setattr(database, "transaction", losing_the_answer)
        for _ in range(3):
            loader.run_once(is_last=False)
    with opened(folder) as loader:
        load_all(loader)
    assert events_in(folder.store) == expected(1)


@pytest.mark.parametrize("failure", [StoreRefused, StoreBroken])
def test_a_load_that_failed_after_its_commit_is_reported_and_published(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, failure: type[EmbedsinkError]
) -> None:
    @contextlib.contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
        raise failure("the answer to the commit was lost")

    loads: list[str] = []
    positions: list[int] = []

    def record() -> None:
        loads.append("loaded")
        positions.append(loader.last_number)

    loader = Loader(folder, Store(folder.store), on_loaded=record)
    loader.open_store()
    loader.run_once(is_last=True)
    add_segment(folder, 1)
    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", losing_the_answer)
        loader.run_once(is_last=False)
    assert loads == []
    loader.run_once(is_last=True)
    assert (loads, loader.status.error) == (["loaded"], None)
    assert positions == [1]
    loader.close()
    assert events_in(folder.snapshot) == expected(1)


@pytest.mark.parametrize(
    ("closing_s_max", "last_disk_busy_s", "is_published"),
    [(3.0, 0.1, True), (3.0, 4.0, False), (None, 4.0, True)],
)
def test_a_closing_server_publishes_no_snapshot_that_would_take_too_long(
    folder: DataFolder, closing_s_max: float | None, last_disk_busy_s: float, is_published: bool
) -> None:
    loader = Loader(folder, Store(folder.store), closing_s_max=closing_s_max)
    loader.open_store()
    loader.run_once(is_last=True)
    loader._publisher._last_disk_busy_s = last_disk_busy_s
    assert_last_snapshot(loader, folder, is_published=is_published)


def test_a_server_that_is_closed_before_its_first_snapshot_expects_a_duration_by_the_size_of_the_store(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    monkeypatch.setattr(publisher, "_COPIED_BYTES_PER_S", folder.store.stat().st_size / 100)
    loader = Loader(folder, Store(folder.store), closing_s_max=3.0)
    loader.open_store()
    assert_last_snapshot(loader, folder, is_published=False)


def assert_last_snapshot(loader: Loader, folder: DataFolder, *, is_published: bool) -> None:
    """Close a loader, and check whether it publishes its last segment. The next start publishes it in any case."""
    add_segment(folder, 1)
    loader.run_once(is_last=True)
    loader.close()
    assert events_in(folder.snapshot) == (expected(1) if is_published else [])
    with opened(folder) as next_loader:
        next_loader.run_once(is_last=True)
    assert events_in(folder.snapshot) == expected(1)


def test_a_segment_that_was_not_committed_is_loaded_by_the_next_attempt(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_segment(folder, 1)
    with opened(folder) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "load", refusing("the disk is full"))
            loader.run_once(is_last=False)
            assert "the disk is full" in str(loader.status.error)
        loader.run_once(is_last=False)
        assert loader.status.error is None
    assert events_in(folder.store) == expected(1)


def refusing(reason: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise StoreRefused(reason)

    return refuse


def test_segments_are_deleted_only_when_two_snapshots_cover_them_and_never_the_newest(folder: DataFolder) -> None:
    paths = [add_segment(folder, number) for number in (1, 2, 3)]
    with opened(folder) as loader:
        load_all(loader)
        loader.publish()
        assert [path.exists() for path in paths] == [True, True, True]

        paths.append(add_segment(folder, 4))
        load_all(loader)
        paths.append(add_segment(folder, 5))
        loader.publish()

        assert [path.exists() for path in paths] == [False, False, False, True, True]
        assert events_in(folder.previous) == expected(1, 2, 3)
        assert events_in(folder.snapshot) == expected(1, 2, 3, 4)

        loader.publish()
        assert [path.exists() for path in paths] == [False, False, False, False, True]


def test_the_age_of_the_oldest_pending_segment_is_reported(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, written_at in ((1, 1_000), (2, 2_000)):
        os.utime(add_segment(folder, number), (written_at, written_at))
    monkeypatch.setattr(pending, "BATCH_SEGMENTS_MAX", 1)
    with opened(folder) as loader:
        assert loader.waiting_since() is None
        loader.on_sealed(2)
        assert loader.waiting_since() == pytest.approx(time.time(), abs=5)
        observed = [loader.waiting_since() for _ in loader.load_pending()]
        assert (observed, loader.waiting_since()) == ([1_000, 2_000], None)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "load", refusing("the disk is full"))
            os.utime(add_segment(folder, 3), (3_000, 3_000))
            loader.run_once(is_last=False)
        assert loader.waiting_since() == 3_000


def test_a_failed_copy_deletes_no_segment(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [add_segment(folder, number) for number in (1, 2)]

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    with opened(folder) as loader, monkeypatch.context() as patch:
        patch.setattr(publisher, "CopyProcess", fail)
        loader.run_once(is_last=True)
        assert "no space left" in str(loader.status.error)
        assert all(path.exists() for path in paths)


def test_a_snapshot_is_complete_while_a_reader_has_a_transaction_open(folder: DataFolder) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1, count=3_000)
        load_all(loader)
        reader = loader._store.reader(EVERYTHING.variables())
        rows = reader.rows("event")
        next(rows)
        add_segment(folder, 20)
        load_all(loader)
        loader.publish()
        reader.close()
    assert events_in(folder.snapshot, lacks_segments=True) == expected(1, count=3_000) + expected(20)


@pytest.mark.parametrize("how", [*DAMAGES, "missing"])
def test_a_lost_or_damaged_store_is_rebuilt_and_nothing_is_lost(folder: DataFolder, how: str) -> None:
    with opened(folder) as loader:
        for number in (1, 2):
            add_segment(folder, number)
        load_all(loader)
        loader.publish()
        add_segment(folder, 3)
        load_all(loader)
    add_segment(folder, 4)
    if how == "missing":
        folder.store.unlink()
    else:
        folder.store.write_bytes(damaged(folder.store.read_bytes(), how))

    with opened(folder) as loader:
        load_all(loader)
        assert loader.status.damaged == []

    assert events_in(folder.store) == expected(1, 2, 3, 4)
    assert len(list(folder.damaged.iterdir())) == (how != "missing")


def test_a_flipped_bit_anywhere_in_the_store_loses_no_event_and_damages_no_snapshot(folder: DataFolder) -> None:
    add_segment(folder, 1, count=900)
    add_segment(folder, 2, count=900)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    intact = folder.store.read_bytes()
    ids = sorted([*expected(1, count=900), *expected(2, count=900)])

    rebuilt_count = 0
    for offset in range(12_288 + 100, len(intact), len(intact) // 10):
        for path in folder.damaged.iterdir():
            path.unlink()
        folder.snapshot.write_bytes(intact)
        folder.store.write_bytes(flipped(intact, offset))
        with opened(folder) as loader:
            for _ in range(2):
                loader.run_once(is_last=True)
            assert (loader.status.error, loader.status.damaged) == (None, [])
        assert events_in(folder.store) == events_in(folder.snapshot) == ids, f"flipped at {offset:,}"
        rebuilt_count += bool(list(folder.damaged.iterdir()))
    assert rebuilt_count > 1, "most blocks are free, or of columns without values"


def test_a_failed_rebuild_is_retried(folder: DataFolder) -> None:
    for number in (1, 2):
        add_segment(folder, number, count=900)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    damage_deep_inside(folder)
    # as on a full disk
    in_the_way = folder.path / "rebuilt.duckdb.new"
    in_the_way.mkdir()

    loader = Loader(folder, Store(folder.store), snapshot_interval_s=0)
    loader.open_store()
    loader.start()
    wait_until(lambda: "Is a directory" in str(loader.status.error), description="the error is reported", timeout_s=60)
    add_segment(folder, 3)
    in_the_way.rmdir()
    loader.on_sealed(3)
    wait_until(
        lambda: loader.status.error is None and loader.last_number == 3, description="loading continues", timeout_s=60
    )
    loader.close()
    assert events_in(folder.snapshot) == sorted([*expected(1, 2, count=900), *expected(3)])
    assert [path.name for path in folder.damaged.iterdir()] == ["store.duckdb"]


def test_rollups_are_recomputed_after_a_failed_rebuild(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    add_segment(folder, 1)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    folder.store.unlink()
    reset_derived_tables, tries = Store.reset_derived_tables, list[str]()

    def refuse_once(store: Store) -> None:
        tries.append("tried")
        if len(tries) == 1:
            raise StoreRefused("no memory just now")
        reset_derived_tables(store)

    monkeypatch.setattr(Store, "reset_derived_tables", refuse_once)
    loader = Loader(folder, Store(folder.store), snapshot_interval_s=0)
    with pytest.raises(StoreRefused):
        loader.open_store()
    loader.run_once(is_last=False)
    assert len(tries) == 2
    assert loader.status.error is None
    loader.close()


def damage_deep_inside(folder: DataFolder) -> None:
    """Flip a bit in the store that only a full read detects."""
    intact = folder.store.read_bytes()
    for offset in range(12_288 + 100, len(intact), 65_536):  # once in each block, because a block has one checksum
        folder.store.write_bytes(flipped(intact, offset))
        store = Store(folder.store)
        try:
            store.open()
        except StoreBroken:
            continue
        store.close()
        try:
            read_every_row(folder.store)
        except StoreDamaged:
            return
    pytest.fail("no flipped bit is detected only by a full read")


def test_the_write_ahead_log_of_a_broken_store_is_not_replayed(folder: DataFolder) -> None:
    add_segment(folder, 1, count=900)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    add_segment(folder, 2)
    intact = folder.store.read_bytes()
    log = folder.path / "store.duckdb.wal"

    # A log as DuckDB leaves it for a store that it can't write, and noise, on which DuckDB would abort the process.
    with duckdb.connect(str(folder.path / "other.duckdb")) as other:
        other.execute("pragma disable_checkpoint_on_shutdown; create table other as select 1 as one")
        left = (folder.path / "other.duckdb.wal").read_bytes()
    for content in (left, os.urandom(5_000)):
        for damage in (lambda: None, lambda: folder.store.write_bytes(b"\0" * 20_000), folder.store.unlink):
            folder.store.write_bytes(intact)
            folder.snapshot.write_bytes(intact)
            log.write_bytes(content)
            damage()
            with opened(folder) as loader:
                load_all(loader)
                loader.run_once(is_last=True)
                assert (loader.status.error, loader.status.damaged) == (None, [])
            assert events_in(folder.store) == sorted([*expected(1, count=900), *expected(2)])
            assert not log.exists()


def test_a_flipped_bit_before_a_pending_segment_is_repaired(folder: DataFolder) -> None:
    add_segment(folder, 1, count=900)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    add_segment(folder, 2)
    intact = folder.store.read_bytes()
    for offset in range(12_288 + 100, len(intact), len(intact) // 5):
        folder.snapshot.write_bytes(intact)
        folder.store.write_bytes(flipped(intact, offset))
        with opened(folder) as loader:
            for _ in range(2):
                loader.run_once(is_last=True)
            assert (loader.status.error, loader.status.damaged) == (None, []), f"flipped at {offset:,}"
        assert events_in(folder.store) == sorted([*expected(1, count=900), *expected(2)]), f"flipped at {offset:,}"


def test_rows_since_the_last_checkpoint_are_loaded_again_after_a_kill(folder: DataFolder) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1)
        load_all(loader)
        loader.publish()
        for number in (2, 3):
            add_segment(folder, number)
        load_all(loader)
        as_killed = folder.store.read_bytes()
    folder.store.write_bytes(as_killed)
    assert events_in(folder.store) == expected(1)

    with opened(folder) as loader:
        load_all(loader)
        assert loader.status.error is None

    assert events_in(folder.store) == expected(1, 2, 3)
    assert list(folder.damaged.iterdir()) == []


@pytest.mark.parametrize("how", [*DAMAGES, "missing"])
def test_a_lost_or_damaged_snapshot_is_replaced(folder: DataFolder, how: str) -> None:
    add_segment(folder, 1)
    with opened(folder) as loader:
        loader.run_once(is_last=True)
    if how == "missing":
        folder.snapshot.unlink()
    else:
        folder.snapshot.write_bytes(damaged(folder.snapshot.read_bytes(), how))

    with opened(folder) as loader:
        loader.run_once(is_last=True)

    assert events_in(folder.snapshot) == expected(1)


def test_a_segment_missing_from_store_and_journal_is_reported_lost(folder: DataFolder) -> None:
    paths = [add_segment(folder, number) for number in range(1, 6)]
    for path in paths[1:4]:
        path.unlink()
    with opened(folder) as loader:
        load_all(loader)
        assert "journal: segments 2 to 4 are in neither" in str(loader.status.damaged)
    assert events_in(folder.store, lacks_segments=True) == expected(1, 5)


def sealed(path: Path) -> Path:
    """Rename a segment to its name with its size."""
    return path.rename(path.with_name(sealed_name(path.stem, path.stat().st_size)))


@pytest.mark.parametrize("left", [0, 1 / 2, 0.99], ids=["emptied", "cut where a group ends", "cut within a group"])
def test_a_shortened_sealed_segment_is_reported_and_the_rest_is_loaded(
    folder: DataFolder, caplog: pytest.LogCaptureFixture, left: float
) -> None:
    paths = [sealed(add_segment(folder, number)) for number in (1, 2, 3)]
    content = paths[1].read_bytes()
    paths[1] = paths[1].rename(paths[1].with_name(sealed_name(identity_of(paths[1].name), 2 * len(content))))
    paths[1].write_bytes((content * 2)[: int(2 * len(content) * left)])

    with opened(folder) as loader:
        load_all(loader)
        [message] = loader.status.damaged
    assert f"journal {paths[1].name}: bytes are missing" in message
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["segment_damaged"]
    assert events_in(folder.store, lacks_segments=True) == expected(1, 3)
    [damage] = [finding for finding in examine(folder, Settings()) if finding.check == "damaged"]
    assert (damage.state, paths[1].name in damage.details) == ("problem", True)


def test_a_segment_deleted_before_loading_is_reported_lost(folder: DataFolder) -> None:
    async def test() -> None:
        async with Engine(folder, Settings(segment_seal_s=0.02)) as engine:
            engine.loader.close()  # the store can't load now
            for _ in range(2):
                await engine.journal.append(b'{"kind":"lost","received_at":1,"reason":"x","lost_count":1}\n')
                await asyncio.to_thread(wait_until, lambda: bool(engine.journal.segments()), description="it is sealed")
                [path] = engine.journal.segments()
                await asyncio.to_thread(path.unlink)
        engine.loader.open_store()
        engine.loader.run_once(is_last=True)
        [message] = engine.loader.status.damaged
        assert "journal: segments 1 to 2 are in neither the store nor the journal" in message
        assert engine.loader.last_number == engine.journal.last_number, "no reader waits for the next load"
        engine.loader.close()

    asyncio.run(test())
    assert len(list(folder.damaged.glob("lost-*.txt"))) == 1


def test_a_loss_is_reported_once_over_several_openings(folder: DataFolder) -> None:
    for number in (1, 3):
        add_segment(folder, number)
    for _ in range(3):
        with opened(folder) as loader:
            load_all(loader)
            loader._read_loaded_segments()
            load_all(loader)
            assert len(loader.status.damaged) == 1
    assert len(list(folder.damaged.iterdir())) == 1


def test_a_segment_that_returns_under_another_name_is_loaded_once(folder: DataFolder) -> None:
    path = add_segment(folder, 1)
    content = path.read_bytes()
    with opened(folder) as loader:
        load_all(loader)
        path.unlink()
        for name in (f"{path.stem}.ndjson", sealed_name(path.stem, len(content))):
            renamed = folder.journal / name
            renamed.write_bytes(content)
            add_segment(folder, 2)
            load_all(loader)
            loader.publish()
        assert loader.status.damaged == []
    with opened(folder) as loader:
        load_all(loader)
    assert events_in(folder.store) == expected(1, 2)


def test_a_segment_longer_than_its_loaded_copy_is_kept_and_reported(folder: DataFolder) -> None:
    path = add_segment(folder, 1)
    content = path.read_bytes()
    with opened(folder) as loader:
        load_all(loader)
        path.unlink()
        longer = folder.journal / sealed_name(path.stem, 2 * len(content))
        longer.write_bytes(2 * content)
        add_segment(folder, 2)
        load_all(loader)
        for _ in range(2):
            loader.publish()
        assert "is longer than the copy that the store loaded" in str(loader.status.damaged)
    assert (folder.damaged / longer.name).read_bytes() == 2 * content


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_segment_of_another_data_folder_is_reported_and_not_loaded(folder: DataFolder, is_loaded: bool) -> None:
    own_segment = add_segment(folder, 1)
    with opened(folder) as loader:
        if is_loaded:
            load_all(loader)
        other = folder.journal / "000000000001-ffffffff.ndjson"
        other.write_bytes(add_segment(folder, 5).read_bytes())
        (folder.journal / "000000000005-00000000.ndjson").unlink()
        load_all(loader)
        [message] = loader.status.damaged
        assert f"{other.name}: has the number of the segment {own_segment.stem}" in message
        assert "Restore a backup into a new folder" in message
    assert (folder.damaged / other.name).exists()
    assert events_in(folder.store) == expected(1)


@pytest.mark.parametrize("make", ["folder", "link"])
def test_a_foreign_file_in_the_journal_does_not_block_loading(folder: DataFolder, make: str) -> None:
    for name in ("000000000002-00000000.ndjson", "zzz.ndjson"):
        odd = folder.journal / name
        odd.mkdir() if make == "folder" else odd.symlink_to("nowhere")
    add_segment(folder, 1)
    add_segment(folder, 3)
    with opened(folder) as loader:
        for _ in range(2):
            loader.run_once(is_last=True)
        loader.publish()
        assert loader.status.error is None
        assert "segment 2 is in neither" in str(loader.status.damaged)
    assert events_in(folder.snapshot, lacks_segments=True) == expected(1, 3)
    assert [path.name for path in folder.journal.iterdir() if path.is_file()] == ["000000000003-00000000.ndjson"]


def test_an_unreadable_segment_is_moved_to_damaged_and_the_rest_is_loaded(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [add_segment(folder, number) for number in (1, 2, 3)]
    read_bytes = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path == paths[1]:
            raise OSError(errno.EIO, "Input/output error")
        return read_bytes(path)

    with opened(folder) as loader, monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        load_all(loader)
        assert "can't be read (Input/output error)" in str(loader.status.damaged)
    assert (folder.damaged / paths[1].name).exists()
    assert events_in(folder.store, lacks_segments=True) == expected(1, 3)


def test_an_older_snapshot_with_a_newer_journal_catches_up(folder: DataFolder, tmp_path: Path) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1)
        loader.run_once(is_last=True)
        backup = shutil.copy(folder.snapshot, tmp_path / "backup.duckdb")
        for number in (2, 3):
            add_segment(folder, number)
        load_all(loader)
    folder.store.unlink()
    shutil.copy(backup, folder.snapshot)

    with opened(folder) as loader:
        load_all(loader)

    assert events_in(folder.store) == expected(1, 2, 3)


def test_a_damaged_segment_is_moved_to_damaged_and_the_rest_is_loaded(folder: DataFolder) -> None:
    paths = [add_segment(folder, number) for number in (1, 2, 3)]
    content = bytearray(paths[1].read_bytes())
    content[100] ^= 1
    paths[1].write_bytes(content)

    with opened(folder) as loader:
        load_all(loader)
        assert loader.status.damaged == [
            f"journal {paths[1].name}: its checksum does not match (offset 0). "
            "The segment was moved to damaged/; everything else is loaded."
        ]
    assert events_in(folder.store, lacks_segments=True) == expected(1, 3)
    assert (folder.damaged / paths[1].name).read_bytes() == content

    with opened(folder) as loader:
        assert len(loader.status.damaged) == 1, "no operator has moved the file yet"


def test_pending_segments_share_a_load_and_keep_their_own_ledgers(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, duplicate, conflict = (VIEW | {"id": 1}, VIEW | {"id": 1}, VIEW | {"id": 1, "path": "/other"})
    write_segment(folder.journal, [first, VIEW | {"id": 2}], number=1)
    write_segment(folder.journal, [duplicate, VIEW | {"id": 3}, conflict], number=2)
    write_segment(folder.journal, [VIEW | {"id": 4}, duplicate], number=3)
    loads = recorded_loads(monkeypatch)

    with opened(folder) as loader:
        load_all(loader)
        assert (loader.status.segment_count, loader.status.received_count) == (3, 7)

    assert loads == [[1, 2, 3]]
    assert events_in(folder.store) == [1, 2, 3, 4]
    with contextlib.closing(duckdb.connect(str(folder.store), read_only=True)) as store:
        rows = store.execute("select event_id, ingest_seq >> 32, ingest_seq % 4294967296 from event").fetchall()
        ledgers = store.execute("select columns('_count$') from loaded_segment order by segment").fetchall()
    # One line per delivery; the trailer is the last line.
    assert sorted((name.int, *index) for name, *index in rows) == [(1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 3, 1)]
    assert [ledger[1:5] for ledger in ledgers] == [(2, 2, 0, 0), (3, 1, 1, 1), (2, 1, 1, 0)]


def recorded_loads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record the segment numbers of each later load."""
    loads: list[list[int]] = []
    load = Store.load

    def record_and_load(store: Store, *segments: Segment) -> LoadCounts:
        loads.append([segment.number for segment in segments])
        return load(store, *segments)

    monkeypatch.setattr(Store, "load", record_and_load)
    return loads


def test_a_load_has_a_limit_in_segments_and_in_bytes(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [add_segment(folder, number) for number in (1, 2, 3, 4, 5)]
    big = add_segment(folder, 6, count=12)
    monkeypatch.setattr(pending, "BATCH_SEGMENTS_MAX", 2)
    monkeypatch.setattr(pending, "BATCH_BYTES_MAX", big.stat().st_size - 1)
    assert 2 * paths[0].stat().st_size < big.stat().st_size
    loads = recorded_loads(monkeypatch)

    with opened(folder) as loader:
        load_all(loader)

    assert loads == [[1, 2], [3, 4], [5], [6]]
    assert events_in(folder.store) == [*expected(1, 2, 3, 4, 5), *expected(6, count=12)]


def test_closing_leaves_many_pending_segments_for_the_next_start(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 9):
        add_segment(folder, number)
    monkeypatch.setattr(pending, "BATCH_SEGMENTS_MAX", 1)
    loads: list[int] = []
    load = Store.load

    def load_slowly(store: Store, *segments: Segment) -> LoadCounts:
        time.sleep(0.2)
        loads.extend(segment.number for segment in segments)
        return load(store, *segments)

    monkeypatch.setattr(Store, "load", load_slowly)
    loader = Loader(folder, Store(folder.store), closing_s_max=0.3)
    loader.open_store()
    loader.start()
    loader.on_sealed(8)
    wait_until(lambda: bool(loads), description="loading has begun")
    loader.close()
    assert loads == list(range(1, len(loads) + 1))
    assert len(loads) < 8

    with opened(folder) as loader:
        load_all(loader)
    assert events_in(folder.store) == expected(*range(1, 9))


def test_a_snapshot_does_not_wait_for_all_pending_segments(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [add_segment(folder, number) for number in range(1, 5)]
    monkeypatch.setattr(pending, "BATCH_SEGMENTS_MAX", 1)
    monkeypatch.setattr(publisher, "DISK_SHARE_MAX", 1e9)
    loader = Loader(folder, Store(folder.store), snapshot_interval_s=0)
    loader.open_store()
    loads = recorded_loads(monkeypatch)
    observed: list[bool] = []
    load = Store.load

    def check_and_load(store: Store, *segments: Segment) -> LoadCounts:
        wait_until(lambda: not is_copying(loader), description="the copy is complete")
        observed.append(paths[0].exists())
        return load(store, *segments)

    monkeypatch.setattr(Store, "load", check_and_load)
    loader.run_once(is_last=False)
    loader.close()
    assert len(loads) == 4
    assert observed[0]
    assert not observed[-1], "two snapshots covered the first before the last was loaded"


def is_copying(loader: Loader) -> bool:
    copy = loader._publisher._copy
    return copy is not None and copy.is_running


@pytest.mark.parametrize(("copying_s", "count"), [(0.001, 2), (100.0, 1)])
def test_the_snapshot_interval_depends_on_disk_time_and_not_on_cpu_time(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, copying_s: float, count: int
) -> None:
    finish = snapshot.CopyProcess.finish

    def starved(copy: snapshot.CopyProcess) -> float:
        assert 0 < finish(copy) < 60
        return copying_s

    monkeypatch.setattr(snapshot.CopyProcess, "finish", starved)
    loader = Loader(folder, Store(folder.store), snapshot_interval_s=0.01)
    loader.open_store()
    for number in (1, 2):
        add_segment(folder, number)
        loader.run_once(is_last=False)
        wait_until(lambda: not is_copying(loader), description="the copy is complete")
        loader.run_once(is_last=False)
        time.sleep(0.02)
    assert loader.status.snapshot_count == count
    loader.close()


def test_an_unloadable_segment_does_not_block_the_others_in_its_batch(folder: DataFolder) -> None:
    for number in (1, 2, 3, 5, 6, 7):
        add_segment(folder, number)
    # Its checksums match, but the store can't read the line.
    lines = b'{"kind": "event", "received_at": "yesterday"}\n'
    unfit = folder.journal / "000000000004-00000000.ndjson"
    unfit.write_bytes(lines + trailer(lines))

    with opened(folder) as loader:
        load_all(loader)
        [damage] = loader.status.damaged
        assert unfit.name in damage

    assert events_in(folder.store, lacks_segments=True) == expected(1, 2, 3, 5, 6, 7)
    assert [path.name for path in folder.damaged.iterdir()] == [unfit.name]


def test_a_fatal_error_reopens_the_store_and_loading_continues(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1)
        load_all(loader)
        reader = loader._store.reader(EVERYTHING.variables())
        add_segment(folder, 2)
        with monkeypatch.context() as patch:

            def break_down(store: Store, *segments: Segment) -> None:
                raise StoreBroken("FATAL Error: database has been invalidated")

            patch.setattr(Store, "load", break_down)
            loader.run_once(is_last=False)
        assert not loader._store.is_open
        assert loader.status.reopened_count == 1
        reader.close()
        loader.run_once(is_last=False)
        assert loader.status.error is None
    assert events_in(folder.store) == expected(1, 2)
    assert list(folder.damaged.iterdir()) == []


def test_a_bug_in_loading_is_reported_and_retried(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as loader:
        add_segment(folder, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "load", lambda store, segment, **_: 1 // 0)
            loader.run_once(is_last=False)
        assert "ZeroDivisionError" in str(loader.status.error)
        loader.run_once(is_last=False)
    assert events_in(folder.store) == expected(1)


def add_wide_segment(folder: DataFolder, number: int, *, quarantined: bool) -> Path:
    """Add a segment of 8 MB in few lines: 128 errors with messages of 62 kB, or 8 invalid bodies of 1 MB."""
    if quarantined:
        bodies = [b'{"x":"' + os.urandom(500_000).hex().encode() for _ in range(8)]
        rejections = [Rejection(None, Reason.NOT_JSON, "body: is not JSON.", body) for body in bodies]
        lines = [
            body_rejection_line(storable_rejection(one), received_at=1, key_id="k_1", new_id=uuid4)
            for one in rejections
        ]
    else:
        texts = [os.urandom(31_000).hex() for _ in range(128)]
        errors = [event_or_action("event:error", {"message": text}) for text in texts]
        lines = [
            delivery_lines(storable(parse(json.dumps(one).encode(), 1)), key_id="k_1", new_id=uuid4) for one in errors
        ]
    path = folder.journal / f"{number:012d}-00000000.ndjson"
    path.write_bytes(b"".join(line + trailer(line) for line in lines))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("quarantined", [False, True], ids=["events", "quarantine"])
def test_rows_with_huge_strings_do_not_block_loading(folder: DataFolder, quarantined: bool) -> None:
    # This exceeds the store's memory, and any ingest key can send it.
    for number in range(1, 21):
        add_wide_segment(folder, number, quarantined=quarantined)
    with opened(folder) as loader:
        loader.run_once(is_last=False)
        assert (loader.status.error, loader.status.reopened_count) == (None, 0)
        assert loader.status.segment_count == 20

    # A checkpoint fails on the unknown entries, and the reopened store continues.
    for number in range(21, 26):
        add_segment(folder, number)
    with opened(folder) as loader:
        for _ in range(3):
            loader.run_once(is_last=True)
        assert loader.status.error is None
    with contextlib.closing(duckdb.connect(str(folder.snapshot), read_only=True)) as database:
        assert {name for name, sql in read_sql("checks").items() if database.execute(sql).fetchall()} == set()
        count = database.execute("select sum(received_count) from loaded_segment").fetchone()
    assert count == (20 * (8 if quarantined else 128) + 5 * 3,)


def test_successful_loads_do_not_hide_failing_snapshots(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with opened(folder) as loader:
        add_segment(folder, 1)
        with monkeypatch.context() as patch:
            patch.setattr(publisher, "CopyProcess", no_room)
            loader.run_once(is_last=False)
            add_segment(folder, 2)
            loader.run_once(is_last=False)
            assert loader.status.segment_count == 2
            assert "No space left" in str(loader.status.error)
        loader.run_once(is_last=True)
        assert loader.status.error is None


def test_closing_the_store_does_not_wait_for_a_long_query(folder: DataFolder) -> None:
    with opened(folder) as loader:
        reader = loader._store.reader(EVERYTHING.variables())
        asking = threading.Thread(target=lambda: ask_for_long(reader))
        asking.start()
        time.sleep(0.3)
        started_at = time.monotonic()
        loader.close()
        asking.join()
        assert time.monotonic() - started_at < 5


def ask_for_long(reader: Reader) -> None:
    with reader, pytest.raises(EmbedsinkError):
        reader._fetch_all("select count(*) from range(100_000_000_000) a where hash(a.range) = 1")


def test_a_store_that_another_program_has_open_is_not_moved(folder: DataFolder) -> None:
    add_segment(folder, 1)
    with opened(folder) as loader:
        load_all(loader)
    looking = "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", looking, str(folder.store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as notebook:
        assert notebook.stdout
        notebook.stdout.readline()
        loader = Loader(folder, Store(folder.store))
        with pytest.raises(StoreRefused, match=f"PID {notebook.pid}"):
            loader.open_store()
        notebook.communicate(b"\n")
    assert list(folder.damaged.iterdir()) == []
    assert events_in(folder.store) == expected(1)


def test_a_full_disk_does_not_move_an_intact_store(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", mebibytes=16) as disk:
        folder = DataFolder(disk / "data")
        folder.create()
        add_segment(folder, 1)
        with opened(folder) as loader:
            loader.run_once(is_last=True)
        add_segment(folder, 2)
        filling = disk / "filling"
        with contextlib.suppress(OSError), filling.open("wb") as file:
            file.write(bytes(16 * 1_048_576))

        loader = Loader(folder, Store(folder.store))
        loader.run_once(is_last=True)
        assert "less than 4,194,304 bytes are free" in str(loader.status.error)
        filling.unlink()
        loader.run_once(is_last=True)
        assert loader.status.error is None
        loader.close()

        assert list(folder.damaged.iterdir()) == []
        assert events_in(folder.snapshot) == expected(1, 2)


def test_a_second_process_on_the_same_folder_is_refused_with_the_id_of_the_first(folder: DataFolder) -> None:
    with FolderLock(folder), pytest.raises(Misconfigured, match=f"in use by process {os.getpid()}. Stop that server"):
        FolderLock(folder).__enter__()
    with FolderLock(folder):
        pass


def test_the_partial_copy_of_a_killed_server_is_replaced(folder: DataFolder) -> None:
    source, new = folder.path / "source", folder.path / "target.new"
    shutil.copy(folder.store, source)
    new.write_bytes(b"half a copy")
    with new.open("r+b") as orphan:
        snapshot.replace_by_copy(folder.path / "target", source)
        orphan.write(b"a child of the killed server writes on")
    assert (folder.path / "target").read_bytes() == source.read_bytes()
    assert not new.exists()


def test_a_copy_is_never_written_to_a_file_that_another_process_has_open(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_bytes(name.encode())
    with pytest.raises(FileExistsError):
        copy_file.copy_durably(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"target"


def test_numbers_continue_in_an_emptied_journal(folder: DataFolder) -> None:
    settings = Settings(segment_seal_s=0.02)

    async def write_one() -> None:
        async with Engine(folder, settings) as engine:
            await engine.journal.append(b'{"kind":"lost","received_at":1,"reason":"x","lost_count":1}\n')

    for _ in range(3):
        asyncio.run(write_one())
        for path in folder.journal.iterdir():
            path.unlink()
    with contextlib.closing(duckdb.connect(str(folder.store), read_only=True)) as store:
        numbers = store.execute("select segment[:12]::int from loaded_segment order by 1").fetchall()
        assert numbers == [(1,), (2,), (3,)]


def test_a_server_starts_without_its_store_and_accepts_events(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "open", refusing("no room"))
            async with Engine(folder, Settings(segment_seal_s=0.02)) as engine:
                await engine.journal.append(b'{"kind":"lost","received_at":1,"reason":"x","lost_count":1}\n')
                assert "no room" in str(engine.loader.status.error)
        async with Engine(folder, Settings()):
            pass

    asyncio.run(test())
    with contextlib.closing(duckdb.connect(str(folder.snapshot), read_only=True)) as database:
        assert database.execute("select count(*) from loss").fetchall() == [(1,)]


READING = """
import sys, time, duckdb
counts, end = [], time.monotonic() + 30
while len(set(counts)) < 3 and time.monotonic() < end:
    with duckdb.connect(sys.argv[1], read_only=True) as snapshot:
        time.sleep(0.02)
        counts.append(snapshot.execute("select count(*) from event_in_scope").fetchone()[0])
print(*counts)
"""


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.server
def test_a_notebook_reads_the_snapshot_at_any_moment_of_a_busy_server(tmp_path: Path) -> None:
    harness = CrashHarness(tmp_path / "data")
    server = Server(harness.data)
    try:
        server.wait_until_ready()
        wait_until((harness.data / "analytics.duckdb").exists, description="a snapshot exists")
        with senders(server.port, harness.token, harness.log, count=1):
            notebook = subprocess.run(
                [sys.executable, "-c", READING, str(harness.data / "analytics.duckdb")],
                capture_output=True,
                text=True,
            )
        assert notebook.returncode == 0, notebook.stderr
        counts = [int(line) for line in notebook.stdout.split()]
        assert len(counts) > 10
        assert counts == sorted(counts)
        assert len(set(counts)) == 3
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.server
def test_a_damaged_segment_makes_readyz_answer_503(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    path = add_segment(folder, 1)
    path.write_bytes(path.read_bytes().replace(b"svc:event:view", b"svc:event:vie!", 1))
    add_segment(folder, 2)
    server = Server(folder.path)
    try:
        server.wait_until_ready()
        address = f"http://127.0.0.1:{server.port}/readyz"
        wait_until(
            lambda: path.name in json.dumps(fetch(address).json()), description="the damaged segment is reported"
        )
        assert fetch(address).status == 503
        assert server.stop() == 0
    finally:
        server.kill()
    assert events_in(folder.snapshot) == expected(2)


@pytest.mark.slow
@pytest.mark.server
def test_a_second_server_on_the_same_folder_ends_and_the_first_continues(tmp_path: Path) -> None:
    first = Server(tmp_path / "data")
    try:
        first.wait_until_ready()
        second = Server(tmp_path / "data")
        assert second.process.wait(20) == 1
        assert f"is in use by process {first.process.pid}. Stop that server" in second.log.read_text()
        assert first.stop() == 0
    finally:
        first.kill()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.server
def test_an_event_is_visible_within_two_seconds_of_its_202(tmp_path: Path) -> None:
    """Measure the p95 of 30 probes with the default settings, from the 202 until the event is in the store."""
    harness = CrashHarness(tmp_path / "data")
    server = Server(harness.data, EMBEDSINK_SEGMENT_SEAL_S="1.0", EMBEDSINK_SNAPSHOT_INTERVAL_S="10")
    answered_at: list[float] = []
    visible_at: list[float] = []
    try:
        server.wait_until_ready()
        sending = threading.Thread(target=send_thirty, args=(server.port, harness.token, answered_at))
        sending.start()
        while len(visible_at) < 30:
            loaded = loaded_count(server.port)
            visible_at += [time.monotonic()] * (loaded - len(visible_at))
            time.sleep(0.02)
        sending.join()
    finally:
        server.kill()
    seconds = sorted(visible - answered for visible, answered in zip(visible_at, answered_at, strict=True))
    assert seconds[int(len(seconds) * 0.95)] <= 2.0, seconds


def send_thirty(port: int, token: str, answered_at: list[float]) -> None:
    for _ in range(30):
        body = json.dumps(view()).encode()
        headers = {"Content-Type": "application/json"}
        response = fetch(f"http://127.0.0.1:{port}/api/v1/events", key=token, headers=headers, body=body)
        assert response.status == 202
        answered_at.append(time.monotonic())
        time.sleep(0.13)


def loaded_count(port: int) -> int:
    metrics = fetch(f"http://127.0.0.1:{port}/metrics").body.decode()
    return int(float(re.findall(r'embedsink_loaded_envelopes_total{outcome="accepted"} (\S+)', metrics)[0]))


@pytest.mark.parametrize(
    "failure",
    [
        StoreDamaged("block 7: its checksum does not match"),
        StoreBroken("store.duckdb: is closed"),
        StoreRefused("the disk is full"),
        SqlFailed("Conversion Error: no number"),
        OSError(errno.EIO, "Input/output error"),
        Misconfigured("duckdb 1.4.0: is not supported. Install duckdb==1.5.5."),
        ValueError("a bug"),
    ],
)
def test_messages_of_the_loader_are_sentences(failure: Exception) -> None:
    message = error_message(failure)
    assert message.endswith(".")
    assert ".." not in message
