"""The order of totals and deletions in the retention run, at midnight, after errors and during erasures."""

import errno
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import embedsink.loader.event_retention as event_retention
from embedsink.archive.archive import Archive
from embedsink.archive.target import FolderTarget
from embedsink.data_folder import DataFolder
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.loader.event_retention import Retention
from embedsink.loader.loader import Loader
from embedsink.store import database, expiry
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from tests.support.given import write_segment
from tests.support.stores import make_folder

MONDAY = datetime(2026, 11, 2)
DAYS = 4


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return make_folder(tmp_path / "data")


@pytest.fixture
def store(folder: DataFolder, tmp_path: Path) -> Iterator[Store]:
    """Return a store with a view event of each of four days, which was loaded on that day."""
    store = Store(folder.store)
    store.open()
    for day in range(DAYS):
        at = (MONDAY + timedelta(days=day, hours=10)).isoformat()
        events = [{"type": "view", "at": at, "session": f"s{day}", "viewer": f"u{day}", "id": day + 1}]
        store.load(inspect(write_segment(tmp_path, events, number=day + 1)))
    store._load_connection().execute(
        "update loaded_segment set loaded_at = $1 + to_days(split_part(segment, '-', 1)::integer)",
        [MONDAY - timedelta(hours=13)],
    )
    yield store
    store.close()


class Clock:
    """The time before which events are too old, a day before the present. It moves by `step` with each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: datetime, step: timedelta = timedelta()) -> None:
        self.now, self._step = start, step
        monkeypatch.setattr(event_retention, "_now", self.present)

    def present(self) -> datetime:
        self.now += self._step
        return self.now - self._step + timedelta(days=1)


def fail_with(error: Exception) -> None:
    raise error


def loader_of(folder: DataFolder, store: Store, **options: Any) -> Loader:
    options.setdefault("retention", Retention(event_days=1))
    loader = Loader(folder, store, **options)
    loader.retention._publisher.publish = lambda **_: None  # type: ignore[method-assign]
    return loader


def run(loader: Loader, *, steps: int = 20) -> None:
    """Run the retention until nothing is left, or for a number of steps."""
    loader.retention._schedule._due_at = 0.0
    for _ in range(steps):
        if not loader.retention.expire_when_due():
            return


def make_overdue(loader: Loader) -> None:
    """Move the last complete run three hours back."""
    loader.retention._complete_at -= 3 * 3_600


def views(store: Store) -> list[Any]:
    with store.reader(EVERYTHING.variables()) as reader:
        return [row for rows in reader.rows("views") for row in rows]


def event_days(store: Store) -> list[int]:
    rows = store._load_connection().execute("select occurred_at from event order by all").fetchall()
    return [(at - MONDAY).days for (at,) in rows]


def totaled_days(store: Store) -> list[int]:
    rows = store._load_connection().execute("select day - $1::date from totaled_day order by all", [MONDAY]).fetchall()
    return [day for (day,) in rows]


def test_a_day_is_deleted_from_an_hour_after_midnight(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = views(store)
    clock = Clock(monkeypatch, MONDAY + timedelta(days=2, minutes=59))
    run(loader_of(folder, store))
    assert (totaled_days(store), event_days(store)) == ([0, 1], [1, 2, 3])
    clock.now += timedelta(minutes=1)
    run(loader_of(folder, store))
    assert (totaled_days(store), event_days(store)) == ([0, 1, 2], [2, 3])
    assert views(store) == before


def test_a_run_searches_once_for_days_to_total_and_again_after_the_store_was_opened(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_daily_totals = Store.add_daily_totals
    counts: list[int] = []

    def counted(store: Store, *, loaded_before: datetime) -> int:
        counts.append(add_daily_totals(store, loaded_before=loaded_before))
        return counts[-1]

    monkeypatch.setattr(Store, "add_daily_totals", counted)
    monkeypatch.setattr(expiry, "EXPIRED_AT_ONCE", 1)  # A deletion for each event.
    Clock(monkeypatch, MONDAY + timedelta(days=3, hours=1))
    loader = loader_of(folder, store)
    run(loader, steps=3)
    assert (counts, event_days(store)) == ([4, 0], [2, 3])
    store.opened_count += 1
    run(loader)
    assert (counts, event_days(store)) == ([4, 0, 0], [3])


def test_a_midnight_during_a_run_deletes_nothing_without_totals(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = views(store)
    Clock(monkeypatch, MONDAY + timedelta(hours=1), timedelta(days=1))
    loader = loader_of(folder, store)
    for _ in range(8):
        run(loader, steps=1)
        assert set(range(DAYS)) - set(event_days(store)) <= set(totaled_days(store))
        assert views(store) == before


@pytest.mark.parametrize("method", ["add_daily_totals", "expire"])
@pytest.mark.parametrize("is_done", [False, True])
def test_an_error_in_any_step_changes_no_report(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch, method: str, is_done: bool
) -> None:
    before = views(store)
    Clock(monkeypatch, MONDAY + timedelta(days=2, hours=2))
    original = getattr(Store, method)

    def fail(*arguments: Any, **options: Any) -> int:
        if is_done:
            original(*arguments, **options)
        raise StoreRefused("test")

    with monkeypatch.context() as patch:
        patch.setattr(Store, method, fail)
        run(loader_of(folder, store))
        assert views(store) == before
    store.close()
    store.open()
    run(loader_of(folder, store))
    assert (totaled_days(store), event_days(store)) == ([0, 1, 2], [2, 3])
    assert views(store) == before


def test_a_day_of_a_segment_that_is_loaded_late_is_totaled_too(
    folder: DataFolder, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, MONDAY + timedelta(days=2, hours=2))
    loader = loader_of(folder, store)
    run(loader)
    at = (MONDAY - timedelta(days=9)).isoformat()
    store.load(inspect(write_segment(tmp_path, [{"type": "view", "at": at, "session": "s", "id": 9}], number=0)))
    run(loader)
    assert (totaled_days(store), event_days(store)) == ([-9, 0, 1, 2], [2, 3])


def test_an_error_of_the_disk_delays_a_rewrite_for_an_hour(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = views(store)
    Clock(monkeypatch, MONDAY + timedelta(days=2, hours=2))

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "test", str(path))

    monkeypatch.setattr(database, "sync_file", fail)
    monkeypatch.setattr(Store, "has_much_free_space", lambda _: True)
    loader = loader_of(folder, store)
    loader._publisher.postpone(3_600)
    make_overdue(loader)
    loader.retention._schedule._due_at = 0.0
    for _ in range(8):
        loader.run_once(is_last=False)
        assert loader.status.load_error is None
    assert (loader.retention.seconds_to_next() or 0) > 60
    assert loader.retention.overdue_s == 0, "all events are deleted"
    # The next run only tries to rewrite the file again.
    loader._publisher._replacing_count = 0
    loader.retention._schedule._due_at = 0.0
    for _ in range(2):  # The second round opens the store again.
        loader.run_once(is_last=False)
    assert loader._publisher._replacing_count == 0
    assert loader.retention._must_give_space_back
    assert not folder.rebuilt.exists()
    assert (store.is_open, event_days(store), views(store)) == (True, [2, 3], before)


def test_while_people_are_erased_nothing_is_totaled_or_deleted(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, MONDAY + timedelta(days=2, hours=2))
    pending = [True, False]
    loader = loader_of(folder, store, has_pending_erasures=lambda: pending[0])
    make_overdue(loader)
    run(loader)
    assert (totaled_days(store), event_days(store)) == ([], [0, 1, 2, 3])
    assert not loader.retention._publisher.is_dirty, "a snapshot of nothing new would be published"
    assert loader.retention.overdue_s > 0
    assert [record.message for record in caplog.records] == ["retention_delayed"]
    # The erasure ends between two steps.
    loader = loader_of(folder, store, has_pending_erasures=lambda: pending.pop(0) if pending else False)
    make_overdue(loader)
    run(loader)
    assert (totaled_days(store), event_days(store)) == ([], [0, 1, 2, 3])
    assert loader.retention.overdue_s > 0
    run(loader)
    assert (totaled_days(store), event_days(store)) == ([0, 1, 2], [2, 3])
    assert loader.retention.overdue_s == 0


def test_a_run_that_cannot_begin_is_overdue(folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, MONDAY)
    loader = loader_of(folder, store)
    assert loader.retention.overdue_s == 0
    run(loader)
    make_overdue(loader)
    loader.retention._schedule._due_at = 0.0
    with monkeypatch.context() as patch:
        patch.setattr(loader._disk_space, "require", lambda: fail_with(StoreRefused("test")))
        loader.run_once(is_last=False)
        assert loader.status.load_error
        assert 3_500 < loader.retention.overdue_s < 7_200
        assert not loader.retention.expire_when_due()
        assert loader.retention.overdue_s > 0
    run(loader)
    assert loader.retention.overdue_s == 0
    without_limits = loader_of(folder, store, retention=Retention())
    make_overdue(without_limits)
    assert without_limits.retention.overdue_s == 0


def test_an_archive_that_no_retention_uses_is_not_checked(folder: DataFolder, store: Store) -> None:
    for retention, is_checked in ((Retention(question_days=1), False), (Retention(event_days=1), True)):
        loader = loader_of(folder, store, retention=retention, archive=Archive(FolderTarget(folder.path)))
        loader.retention.expire_when_due()
        assert loader.retention._has_checked_archive == is_checked


def test_off_deletes_totals_without_a_retention_too(
    folder: DataFolder, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, MONDAY + timedelta(days=2, hours=2))
    caplog.set_level(logging.INFO)
    run(loader_of(folder, store))
    run(loader_of(folder, store, retention=Retention(keeps_totals=False)))
    assert (totaled_days(store), event_days(store), len(views(store))) == ([], [2, 3], 2)
    run(loader_of(folder, store, retention=Retention(event_days=1, keeps_totals=False)))
    assert (totaled_days(store), event_days(store)) == ([], [2, 3])
    assert [record.message for record in caplog.records if record.message.startswith("daily_totals")] == [
        "daily_totals_added",
        "daily_totals_deleted",
    ]
