"""The files of a quiet server after a deletion: they have no deleted rows, although no event arrives any more."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

import embedsink.loader.event_retention as event_retention
from embedsink.data_folder import DataFolder
from embedsink.loader.event_retention import Retention
from embedsink.loader.loader import Loader
from embedsink.store.database import Store
from embedsink.store.purge import PurgeFilter
from tests.loader.test_loader import add_segment, expected, load_all
from tests.support.given import write_segment
from tests.support.stores import make_folder

LATER = timedelta(days=3)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return make_folder(tmp_path / "data")


@pytest.fixture
def loader(folder: DataFolder) -> Iterator[Loader]:
    """Return a loader that has published a snapshot of a segment."""
    loader = loader_of(folder)
    add_segment(folder, 1)
    load_all(loader)
    loader.publish()
    yield loader
    loader.close()


def loader_of(folder: DataFolder, retention: Retention | None = None) -> Loader:
    """Return a loader with an open store and without a thread. By default, it deletes events after a day."""
    retention = retention or Retention(event_days=1)
    loader = Loader(folder, Store(folder.store), snapshot_interval_s=0.0, retention=retention)
    loader.open_store()
    return loader


def expire(loader: Loader, monkeypatch: pytest.MonkeyPatch, *, later: timedelta = LATER) -> None:
    """Run the retention at a later time, without publishing."""
    present = (datetime.now(UTC) + later).replace(tzinfo=None)
    monkeypatch.setattr(event_retention, "_now", lambda: present)
    loader.retention._schedule._due_at = 0.0
    while loader.retention.expire_when_due():
        pass


def publish_until_idle(loader: Loader) -> int:
    """Run the loader until nothing is due. Return the number of published snapshots."""
    before = loader.status.snapshot_count
    while loader._publisher.has_work:
        loader.run_once(is_last=False)
        assert loader.status.error is None
        time.sleep(0.01)
    return loader.status.snapshot_count - before


def files_of(folder: DataFolder) -> tuple[list[int], list[int], list[str]]:
    """Return the ids of the events in both snapshots, and the numbers of the segments in the journal."""
    return ids_in(folder.snapshot), ids_in(folder.previous), numbers_of(folder)


def numbers_of(folder: DataFolder) -> list[str]:
    return sorted(path.name[:12].lstrip("0") for path in folder.journal.iterdir())


def ids_in(path: Path) -> list[int]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return sorted(row[0].int for row in connection.execute("select event_id from event").fetchall())


def test_no_file_has_expired_events(folder: DataFolder, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    loader._publisher._start_copy()
    expire(loader, monkeypatch)
    assert publish_until_idle(loader) == 3, "the copy that was running has the events"
    assert files_of(folder) == ([], [], [])
    expire(loader, monkeypatch)
    assert not loader._publisher.has_work, "nothing was deleted"
    loader.close()
    folder.store.unlink()
    rebuilt = loader_of(folder)
    assert rebuilt.last_number == 1, "the next segment must not get a number again"
    rebuilt.close()


def test_an_abandoned_copy_is_not_counted(folder: DataFolder, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    loader._publisher._start_copy()
    expire(loader, monkeypatch)
    loader._publisher.abandon()
    assert publish_until_idle(loader) == 2
    assert files_of(folder) == ([], [], [])


def test_no_segment_has_a_question_of_which_a_later_segment_has_the_answer(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "What did we sell in March?"
    loader = loader_of(folder, Retention(question_days=1, hash_question=lambda text: f"h_{hash(text):032x}"))
    for number, status in ((1, "submitted"), (2, "completed")):
        stage = {"type": "ai-query", "status": status, "query": question, "chatId": "c", "session": "s", "id": number}
        write_segment(folder.journal, [stage], number=number)
        load_all(loader)
    # The question is beyond the retention, and its answer, of 12 hours later, is not.
    age = "update loaded_segment set loaded_at = loaded_at + to_hours(12 * split_part(segment, '-', 1)::integer)"
    loader._store._load_connection().execute(age)
    loader.retention._must_finish = False
    expire(loader, monkeypatch, later=timedelta(hours=42))
    publish_until_idle(loader)
    assert not [path for path in folder.journal.iterdir() if question.encode() in path.read_bytes()]
    loader.close()


def test_no_file_has_purged_rejections(folder: DataFolder) -> None:
    loader = loader_of(folder)
    write_segment(folder.journal, [{"type": "scroll", "rejected": "unknown_type"}], number=1)
    load_all(loader)
    loader.publish()
    assert loader.quarantine.purge_batch(PurgeFilter()) == 1
    loader._publisher.replace_snapshots()
    assert publish_until_idle(loader) == 2
    for path in (folder.snapshot, folder.previous):
        with duckdb.connect(str(path), read_only=True) as connection:
            assert connection.execute("select count(*) from quarantine").fetchall() == [(0,)]
    assert numbers_of(folder) == []
    loader.close()


def test_segments_stay_that_are_newer_or_in_one_snapshot_only(
    folder: DataFolder, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_segment(folder, 2)
    load_all(loader)
    expire(loader, monkeypatch)
    loader.publish()
    assert numbers_of(folder) == ["2"], "one snapshot has the segment"
    loader.publish()
    assert files_of(folder) == ([], [], [])
    add_segment(folder, 3)
    load_all(loader)
    for _ in range(2):
        loader.publish()
    assert files_of(folder) == (expected(3), expected(3), ["3"])


def test_a_restart_finishes_the_run(folder: DataFolder, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    expire(loader, monkeypatch)
    loader.close()
    restarted = loader_of(folder)
    expire(restarted, monkeypatch)
    publish_until_idle(restarted)
    assert files_of(folder) == ([], [], [])
    restarted.close()
