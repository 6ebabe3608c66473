"""A rebuilt store: it has every readable row exactly once, and losses are reported."""

import contextlib
import errno
import os
import random
import shutil
import time
from pathlib import Path

import duckdb
import pytest

from embedsink.data_folder import DataFolder
from embedsink.doctor import examine
from embedsink.loader.damage import DamagedFiles
from embedsink.loader.loader import Loader
from embedsink.loader.rebuild import rebuild
from embedsink.settings import Settings
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreDamaged, StoreRefused
from embedsink.store.limits import StoreLimits
from embedsink.store.purge import PurgeFilter
from embedsink.store.salvage import Salvaged
from embedsink.store.sql_files import read_sql
from embedsink.store.verify import read_every_row
from tests.loader.test_loader import add_many, add_segment, damaged, events_in, expected, flipped, load_all, opened
from tests.support.given import write_segment
from tests.support.stores import make_folder, make_older

HEADERS = 3 * 4_096
BLOCK = 65_536


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return make_folder(tmp_path / "data")


def publish_each(folder: DataFolder, *numbers: int, count: int = 3) -> None:
    """Load segments with a snapshot after each, so that the journal keeps only the last ones."""
    with opened(folder) as loader:
        for number in numbers:
            add_segment(folder, number, count=count)
            load_all(loader)
            loader.publish()


def settle(folder: DataFolder) -> Loader:
    """Open, load and publish until no work is left. Return the closed loader."""
    with opened(folder) as loader:
        for _ in range(3):
            loader.run_once(is_last=True)
        assert loader.status.error is None
    return loader


def test_a_damaged_store_and_snapshot_lose_nothing_with_the_previous_snapshot_and_the_journal(
    folder: DataFolder,
) -> None:
    publish_each(folder, 1, 2, 3, 4)
    for path in (folder.store, folder.snapshot):
        path.write_bytes(damaged(path.read_bytes(), "noise"))
    loader = settle(folder)
    assert loader.status.damaged == []
    assert events_in(folder.store) == events_in(folder.snapshot) == expected(1, 2, 3, 4)
    assert sorted(path.name for path in folder.damaged.iterdir()) == ["analytics.duckdb", "store.duckdb"]


def test_an_unreadable_snapshot_is_replaced_by_the_previous_one(folder: DataFolder) -> None:
    publish_each(folder, 1, 2, 3)
    folder.store.write_bytes(damaged(folder.store.read_bytes(), "noise"))
    folder.snapshot.unlink()
    folder.snapshot.symlink_to("/proc/self/mem")  # read(2) of the first page fails with EIO
    assert settle(folder).status.damaged == []
    assert events_in(folder.store) == events_in(folder.snapshot) == expected(1, 2, 3)


def test_the_previous_snapshot_replaces_a_missing_store_and_snapshot(folder: DataFolder) -> None:
    publish_each(folder, 1, 2, 3)
    folder.store.unlink()
    folder.snapshot.unlink()
    assert settle(folder).status.damaged == []
    assert events_in(folder.store) == expected(1, 2, 3)


def test_a_loss_is_reported_at_each_start(folder: DataFolder) -> None:
    publish_each(folder, 1, 2, 3, 4)
    for path in (folder.store, folder.snapshot, folder.previous):
        path.write_bytes(b"\0" * 20_000)
    loader = settle(folder)
    [message] = loader.status.damaged
    loader._damaged_files.report_gaps(folder.journal, after=0, before=4)
    assert loader.status.damaged == [message], "each event was loaded once"
    assert "journal: segments 1 to 3 are in neither the store nor the journal" in message
    with opened(folder) as loader:
        assert loader.status.damaged == [message]
    next(folder.damaged.glob("lost-*")).unlink()
    with opened(folder) as loader:
        assert loader.status.damaged == []
    assert events_in(folder.store) == expected(4)


def readable_events(file: Path) -> set[int]:
    """Return the ids of events whose complete row can be read, by bisecting the file's rows."""
    with contextlib.closing(duckdb.connect(str(file), read_only=True)) as database:

        def find(start: int, end: int) -> set[int]:
            query = "select event_id, hash(event) from event where rowid >= $1 and rowid < $2"
            try:
                return {name.int for name, _ in database.execute(query, [start, end]).fetchall()}
            except duckdb.Error:
                middle = (start + end) // 2
                return set() if end - start <= 512 else find(start, middle) | find(middle, end)

        [(last,)] = database.execute("select max(rowid) from event").fetchall()
        return find(0, last + 1)


def flip_a_column(path: Path, rng: random.Random) -> None:
    """Flip a bit in a block with a part of a column of `event`."""
    with contextlib.closing(duckdb.connect(str(path), read_only=True)) as database:
        query = "select distinct block_id from pragma_storage_info('event') where block_id >= 0 order by 1"
        blocks = [block for (block,) in database.execute(query).fetchall()]
    path.write_bytes(flipped(path.read_bytes(), HEADERS + rng.choice(blocks) * BLOCK + rng.randrange(BLOCK)))


@pytest.mark.slow
def test_every_readable_event_is_salvaged_exactly_once(folder: DataFolder) -> None:
    counts = {1: 23_000, 2: 40_000, 3: 9_000}
    with opened(folder) as loader:
        for number, count in counts.items():
            add_many(folder, number, count)
            load_all(loader)
        for _ in range(2):
            loader.publish()
    files = (folder.store, folder.snapshot, folder.previous)
    intact = folder.store.read_bytes()
    for seed in range(2):
        rng = random.Random(seed)
        for path in (*folder.journal.iterdir(), *folder.damaged.iterdir()):
            path.unlink()
        for path in files:
            path.unlink(missing_ok=True)
            path.write_bytes(intact)
            flip_a_column(path, rng)
        by_file = [readable_events(path) for path in files]
        readable = set.union(*by_file)
        assert len(readable) > max(map(len, by_file)), "each file has rows that another lacks"

        loader = settle(folder)
        snapshot_events = stored(folder.snapshot)
        assert len(snapshot_events) == len(set(snapshot_events))
        assert set(snapshot_events) >= readable
        lost_count = sum(counts.values()) - len(snapshot_events)
        assert not lost_count or f"{lost_count:,} events are lost" in str(loader.status.damaged)


def stored(path: Path) -> list[int]:
    """Return the ids of the events in a database, after running all checks of `sql/checks`."""
    with contextlib.closing(duckdb.connect(str(path), read_only=True)) as database:
        offending = {name for name, sql in read_sql("checks").items() if database.execute(sql).fetchall()}
        assert not offending
        return sorted(row[0].int for row in database.execute("select event_id from event").fetchall())


EVERY_KIND: list[dict[str, object]] = [
    {"type": "view", "id": 1},
    {"type": "view", "id": 1},
    {"type": "navigate", "direction": "action"},
    {"lost": {"queue_overflow": 3}},
    {"sync": "job1"},
    {"type": "scroll", "rejected": "unknown_type", "title": "x" * 40_000, "replayed": "11:00"},
]
TABLES = (
    "event",
    "action",
    "quarantine",
    "quarantine_rest",
    "loss",
    "sync",
    "sync_file",
    "journal_hour",
    "loaded_segment",
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Create a database file with every kind of row."""
    folder = make_folder(tmp_path / "old")
    write_segment(folder.journal, EVERY_KIND, number=1)
    add_segment(folder, 2)
    with opened(folder) as loader:
        load_all(loader)
    return folder.store


def rows_of(store: Store) -> dict[str, list[tuple[object, ...]]]:
    column_lists = {"loaded_segment": "* exclude (loaded_at) replace (coalesce(lost_count, 0) as lost_count)"}
    queries = {table: f"select {column_lists.get(table, '*')} from {table} order by all" for table in TABLES}
    return {table: store._load_connection().execute(sql).fetchall() for table, sql in queries.items()}


def opened_store(path: Path) -> contextlib.closing[Store]:
    store = Store(path)
    store.open()
    return contextlib.closing(store)


def test_all_kinds_of_rows_are_salvaged_once(folder: DataFolder, old: Path) -> None:
    with opened_store(old) as store:
        before = rows_of(store)
    second_copy = shutil.copy(old, old.with_name("again.duckdb"))
    with opened_store(folder.store) as store:
        store.salvage([old, Path(second_copy)], journal_numbers=[])
        assert rows_of(store) == before
        store.checkpoint()
    assert all(before.values())
    stored(folder.store)


def test_segments_in_the_store_or_the_journal_are_not_salvaged(folder: DataFolder, old: Path) -> None:
    add_segment(folder, 2)
    with opened(folder) as loader:
        load_all(loader)
        salvaged = loader._store.salvage([old], journal_numbers=[1])
        assert (salvaged.row_count, salvaged.lost_count) == (0, 0)
    assert events_in(folder.store) == expected(2)


def test_a_rejection_with_a_missing_part_counts_as_lost(folder: DataFolder, old: Path) -> None:
    with opened_store(old) as store:
        store._load_connection().execute("delete from quarantine_rest where piece = 2")
    with opened_store(folder.store) as store:
        assert store.salvage([old], journal_numbers=[]).lost_count == 1
        assert rows_of(store)["quarantine"] == rows_of(store)["quarantine_rest"] == []
    stored(folder.store)


def test_a_purged_rejection_does_not_count_as_lost(folder: DataFolder, old: Path) -> None:
    with opened_store(old) as store:
        assert store.purge(PurgeFilter()) == 1
        store.checkpoint()
    with opened_store(folder.store) as store:
        assert store.salvage([old], journal_numbers=[]).lost_count == 0
        assert store._load_connection().execute("select sum(counted_only_count) from loaded_segment").fetchall() == [
            (1,)
        ]
        store.checkpoint()
    stored(folder.store)


def test_a_purged_rejection_in_another_file_counts_once(folder: DataFolder, old: Path) -> None:
    earlier = shutil.copy(old, old.with_name("earlier.duckdb"))
    with opened_store(old) as store:
        assert store.purge(PurgeFilter()) == 1
        store.checkpoint()
    with opened_store(folder.store) as store:
        assert store.salvage([old, Path(earlier)], journal_numbers=[]).lost_count == 0
        assert len(rows_of(store)["quarantine"]) == 1
        store.checkpoint()
    stored(folder.store)


def test_rows_without_their_ledger_are_salvaged(folder: DataFolder, old: Path) -> None:
    with opened_store(old) as store:
        store._load_connection().execute("delete from loaded_segment")
    with opened_store(folder.store) as store:
        assert store.salvage([old], journal_numbers=[]).lost_count == 0
        assert len(rows_of(store)["event"]) == 4
    stored(folder.store)


def test_replayed_rejections_stay_replayed(folder: DataFolder, old: Path) -> None:
    shutil.copy(old, folder.store)
    with opened_store(folder.store) as store:
        store._load_connection().execute("update quarantine set replayed_at = null")
        store.salvage([old], journal_numbers=[])
        assert store._load_connection().execute("select replayed_at is null from quarantine").fetchall() == [(False,)]


def test_a_failed_loss_note_is_written_by_the_next_check(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    damaged = DamagedFiles(folder.damaged, messages=messages)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", unwritable)
        with pytest.raises(OSError, match="No space left"):
            damaged.record_loss("journal: segment 3 is lost.")
    assert messages == []
    damaged.record_loss("journal: segment 3 is lost.")
    after_a_start: list[str] = []
    DamagedFiles(folder.damaged, messages=after_a_start).report_existing()
    assert after_a_start == messages != []


def unwritable(path: Path, *_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_an_interrupted_rebuild_restarts_and_loses_nothing(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(folder, 1, 2, count=2_000)
    add_segment(folder, 3, count=900)
    with opened(folder) as loader:
        load_all(loader)
    ids = events_in(folder.store)
    flip_a_column(folder.store, random.Random(1))
    with opened(folder) as loader, monkeypatch.context() as patch:
        patch.setattr(Store, "salvage", interrupted)
        loader.run_once(is_last=True)
        assert "as a kill would" in str(loader.status.error)
    assert (folder.path / "rebuilt.duckdb").exists()
    assert list(folder.damaged.iterdir()) == []
    assert settle(folder).status.damaged == []
    assert not (folder.path / "rebuilt.duckdb").exists()
    assert stored(folder.snapshot) == ids


def test_a_rebuild_with_damaged_snapshots_publishes_an_intact_one(folder: DataFolder) -> None:
    publish_each(folder, 1, 2, 3, count=1_000)
    intact = folder.store.read_bytes()
    for path in (folder.snapshot, folder.previous, folder.store):
        path.write_bytes(b"\0" * 20_000)
    folder.previous.write_bytes(intact)
    damaged = DamagedFiles(folder.damaged, messages=[])
    rebuilt = rebuild(folder, StoreLimits(), damaged_files=damaged, why="is damaged")
    assert (rebuilt.snapshot_number, rebuilt.salvaged.row_count) == (3, 0)
    assert events_in(folder.store) == events_in(folder.snapshot) == events_in(folder.previous)

    # All three files are damaged. The readable rows are in two new files before any old one is replaced.
    for path in (folder.snapshot, folder.previous):
        path.write_bytes(b"\0" * 20_000)
    for path in folder.journal.iterdir():
        path.unlink()
    rebuilt = rebuild(folder, StoreLimits(), damaged_files=damaged, why="is damaged")
    assert rebuilt.salvaged == Salvaged(3_000, 0)
    assert events_in(folder.store) == events_in(folder.snapshot) == expected(1, 2, 3, count=1_000)
    assert not folder.previous.exists()


def interrupted(*_: object, **__: object) -> None:
    raise StoreRefused("as a kill would")


def test_a_closing_server_stops_a_rebuild(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(folder, 1, 2)
    with opened(folder) as loader:
        loader._load_until = 0.0
        with pytest.raises(StoreRefused, match="the next start rebuilds the store"):
            loader._check_deadline()


def test_old_ledgers_are_compacted_and_still_add_up(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 3)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 6)
    publish_each(folder, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12)
    with contextlib.closing(duckdb.connect(str(folder.snapshot), read_only=True)) as database:
        rows = database.execute("select segment[:12]::int, first_number from loaded_segment order by 1").fetchall()
        [total] = database.execute("select sum(received_count), sum(accepted_count) from loaded_segment").fetchall()
    assert len(rows) < 8
    assert rows[0] == (3, 1)
    assert rows[1][1] == 5, "the gap between 3 and 5 is still a gap"
    assert total == (33, 33)
    assert events_in(folder.snapshot, lacks_segments=True) == expected(1, 2, 3, *range(5, 13))
    settle(folder)


def test_a_restored_segment_in_a_compacted_ledger_is_not_loaded_twice(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 4)
    publish_each(folder, *range(1, 9))
    restored = add_segment(folder, 1)
    with opened(folder) as loader:
        load_all(loader)
        [message] = loader.status.damaged
        assert "loaded long ago" in message
    assert (folder.damaged / restored.name).exists()
    assert events_in(folder.store) == expected(*range(1, 9))


def test_a_segment_restored_under_a_running_server_is_not_loaded_twice(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 4)
    with opened(folder) as loader:
        for number in range(1, 9):
            add_segment(folder, number)
            load_all(loader)
            loader.publish()
        compacted_up_to = loader._store.ledger.last_compacted_number()
        restored = [add_segment(folder, number) for number in (1, compacted_up_to)]
        [journal_finding] = [finding for finding in examine(folder, Settings()) if finding.check == "journal"]
        assert journal_finding.details.count("has the number of a segment that was loaded long ago") == 2
        load_all(loader)
        assert all("loaded long ago" in message for message in loader.status.damaged)
    assert all((folder.damaged / path.name).exists() for path in restored)
    assert events_in(folder.store) == expected(*range(1, 9))


def test_a_store_without_the_new_columns_of_the_ledger_is_migrated(folder: DataFolder) -> None:
    publish_each(folder, 1, 2)
    with opened_store(folder.store) as store:
        make_older(store, before="0007")
    settle(folder)
    assert events_in(folder.snapshot) == expected(1, 2)


@pytest.mark.parametrize("before", ["0002", "0007", "0010", "0016"])
def test_a_damaged_file_of_an_older_schema_is_salvaged_too(folder: DataFolder, before: str) -> None:
    publish_each(folder, 1, 2)
    with opened_store(folder.store) as store:
        make_older(store, before=before)
    old = folder.path / "old.duckdb"
    folder.store.rename(old)
    with opened_store(folder.store) as new:
        assert new.salvage([old], journal_numbers=[]).row_count == 6
    assert stored(folder.store) == expected(1, 2)


def test_a_truncated_file_is_damaged(folder: DataFolder) -> None:
    publish_each(folder, 1, count=300)
    folder.snapshot.write_bytes(folder.snapshot.read_bytes()[: HEADERS + BLOCK])
    with pytest.raises(StoreDamaged):
        read_every_row(folder.snapshot)


@pytest.mark.parametrize("age_days", [0, 31])
def test_databases_in_damaged_have_a_retention_but_segments_and_notes_have_none(
    folder: DataFolder, age_days: int
) -> None:
    retained = ("000000000001-00000000.ndjson", "lost-1.txt")
    for name in retained:
        (folder.damaged / name).write_text("kept")
    keeper = DamagedFiles(folder.damaged, messages=[])
    for number in range(5):
        for path in (folder.snapshot, folder.store):
            path.unlink(missing_ok=True)
            path.write_text(str(number))
        time.sleep(0.01)  # Unlinking changes the ctime of the copies, and the file system's clock advances every 4 ms.
        for path in (folder.snapshot, folder.store):
            keeper.link_database(path, "is damaged")
    assert [path.read_text() for path in keeper.databases()] == ["4", "4"]
    if age_days:
        keeper.delete_old_databases(now=time.time() + age_days * 86_400)
        assert keeper.databases() == []
    assert {path.name for path in folder.damaged.iterdir()} >= set(retained)
