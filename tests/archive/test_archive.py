"""The archive: each row once, in sorted monthly files with manifests, also after interruptions."""

import errno
import fcntl
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.archive import archive as archive_module
from embedsink.archive.archive import Added, Archive
from embedsink.archive.target import ArchiveFailed, FolderTarget, open_target
from embedsink.errors import Misconfigured
from embedsink.journal.segment import inspect
from embedsink.store import archive_rows
from embedsink.store.database import Store
from tests.support.archives import archived_rows, check_archive
from tests.support.disks import mounted
from tests.support.given import write_segment
from tests.support.stores import open_store

TABLES = ("event", "action", "loss")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    yield store
    store.close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "archive").mkdir()
    return tmp_path / "archive"


def load(store: Store, *events: dict[str, Any], number: int = 1) -> None:
    given = [{"id": number * 1_000 + index, "type": "view"} | event for index, event in enumerate(events)]
    store.load(inspect(write_segment(store.path.parent, given, number=number)))


def add_all(store: Store, target: FolderTarget, first: int = 0) -> Added:
    added = Added()
    with store.archive_rows() as rows:
        while selected := rows.next_range(first):
            added += Archive(target).add(rows, selected)
            first = selected.below
    return added


def stored_rows(store: Store, table: str) -> list[tuple[Any, ...]]:
    return store._load_connection().execute(f"from {table} order by ingest_seq").fetchall()


def rows_by_ingest_seq(archive: Path, table: str) -> list[tuple[Any, ...]]:
    rows = sorted(archived_rows(archive, table), key=lambda row: row["ingest_seq"])
    return [tuple(row.values()) for row in rows]


def test_rows_are_in_the_month_of_their_time_sorted(store: Store, target: Path) -> None:
    times = ["2026-11-02T10:00", "2026-10-31T23:59:59", "2026-11-01T00:00", "2026-10-30T08:00"]
    load(
        store, *[{"at": at, "received": "2026-11-02T10:00"} for at in times], {"type": "refresh", "direction": "action"}
    )
    load(store, {"lost": {"queue_overflow": 2}, "type": None, "at": "2026-11-03T00:00"}, number=2)
    assert add_all(store, FolderTarget(target)) == Added(row_count=6, file_count=4)
    assert check_archive(target) == 6
    found = {(path.parent.name, path.name.partition("-")[0]): path for path in target.glob("*/*.parquet")}
    assert sorted(found) == [("2026-10", "event"), ("2026-11", "action"), ("2026-11", "event"), ("2026-11", "loss")]
    october = [row["occurred_at"] for row in archived_rows(target) if row["occurred_at"] < datetime(2026, 11, 1)]
    assert october == sorted(october)
    assert len(october) == 2
    for table in TABLES:
        assert rows_by_ingest_seq(target, table) == stored_rows(store, table)


def test_a_sender_can_not_cause_a_file_for_each_month_of_2000_years(store: Store, target: Path) -> None:
    load(
        store,
        *[
            {"at": f"{year:04d}-01-01T00:00", "received": "2026-11-02T10:00", "sent": None}
            for year in range(1, 2_000, 90)
        ],
    )
    assert add_all(store, FolderTarget(target)).file_count == 1
    assert [path.name for path in target.iterdir() if path.is_dir()] == ["2026-11"]


def test_rows_are_archived_once(store: Store, target: Path) -> None:
    load(store, {}, {}, {"lost": {"queue_overflow": 2}, "type": None})
    assert add_all(store, FolderTarget(target)).row_count == 3
    assert add_all(store, FolderTarget(target)) == Added()
    load(store, {}, number=2)
    assert add_all(store, FolderTarget(target)) == Added(row_count=1, file_count=1)
    assert check_archive(target) == 4


def test_a_segment_that_is_loaded_late_is_archived_too(store: Store, target: Path) -> None:
    load(store, {}, number=1)
    load(store, {}, number=3)
    add_all(store, FolderTarget(target))
    load(store, {}, number=2)
    assert add_all(store, FolderTarget(target)) == Added(row_count=1, file_count=1)
    assert check_archive(target) == 3


def test_the_rows_of_another_store_do_not_count_as_archived(store: Store, target: Path, tmp_path: Path) -> None:
    load(store, {}, {"lost": {"queue_overflow": 2}, "type": None})
    (tmp_path / "other").mkdir()
    other = open_store(tmp_path / "other" / "store.duckdb")
    load(other, {"id": 77}, {"lost": {"queue_overflow": 2}, "type": None, "key": "k2"})
    add_all(store, FolderTarget(target))
    assert add_all(other, FolderTarget(target)) == Added(row_count=2, file_count=2)
    other.close()
    assert check_archive(target) == 4


def test_a_file_that_is_too_large_is_written_as_several(
    store: Store, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, *[{"title": f"{number} {number**40}"} for number in range(100)])
    monkeypatch.setattr(archive_module, "FILE_BYTES_MAX", 7_000)
    assert add_all(store, FolderTarget(target)).file_count > 2
    assert check_archive(target) == 100
    assert all(path.stat().st_size <= 7_000 for path in target.glob("*/*.parquet"))
    assert rows_by_ingest_seq(target, "event") == stored_rows(store, "event")


class Interrupted(Exception):
    """The process was killed, for this test."""


class InterruptedTarget(FolderTarget):
    """A target that is interrupted at a step, before or after it takes effect."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(folder)
        self._step = step

    def _count(self) -> None:
        self._step -= 1
        if self._step == 0:
            raise Interrupted

    def write(self, name: str, content: bytes) -> None:
        self._count()
        super().write(name, content)
        self._count()

    def add(self, draft: Path, name: str) -> None:
        self._count()
        super().add(draft, name)
        self._count()


_segments = st.lists(
    st.lists(st.sampled_from(["2026-10-31T10:00", "2026-11-01T10:00", "action", "lost"]), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)
KINDS: dict[str, dict[str, Any]] = {
    "action": {"type": "refresh", "direction": "action"},
    "lost": {"type": None, "lost": {"queue_overflow": 1}},
}


@given(history=_segments, interrupts=st.lists(st.integers(1, 12), max_size=5), at_once=st.integers(1, 5))
def test_interrupted_archives_have_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[str]], interrupts: list[int], at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "archive").mkdir()
    store = open_store(folder / "store.duckdb")
    try:
        archive_rows.ARCHIVED_AT_ONCE = at_once
        for number, kinds in enumerate(history, 1):
            load(store, *[KINDS.get(kind, {"at": kind}) for kind in kinds], number=number)
            for step in interrupts:
                try:
                    add_all(store, InterruptedTarget(folder / "archive", step))
                except Interrupted:
                    continue
        add_all(store, FolderTarget(folder / "archive"))
        assert check_archive(folder / "archive") == sum(map(len, history))
        for table in TABLES:
            assert rows_by_ingest_seq(folder / "archive", table) == stored_rows(store, table)
    finally:
        archive_rows.ARCHIVED_AT_ONCE = 250_000
        store.close()


def test_only_rows_that_were_loaded_before_a_time_are_selected(store: Store) -> None:
    load(store, {}, number=1)
    load(store, {}, number=2)
    store._load_connection().execute(
        "update loaded_segment set loaded_at = $1 + to_days(split_part(segment, '-', 1)::integer)",
        [datetime(2026, 11, 1)],
    )
    limit = store.retention_limit(datetime(2026, 11, 2) + timedelta(hours=1), {})
    with store.archive_rows(limit) as rows:
        selected = rows.next_range(0)
        assert selected is not None
        assert (selected.first >> 32, selected.below >> 32) == (1, 2)
    with store.archive_rows(store.retention_limit(datetime(2026, 11, 2), {})) as rows:
        assert rows.next_range(0) is None


def test_a_missing_folder_is_not_created(store: Store, tmp_path: Path) -> None:
    load(store, {})
    with pytest.raises(ArchiveFailed, match=r"/missing: does not exist\. Create the folder, or mount its disk\."):
        add_all(store, FolderTarget(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


def test_a_read_only_folder_is_refused_with_advice(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(fcntl, "flock", fail)
    with (
        pytest.raises(ArchiveFailed, match=r"its file system is read-only\. Mount it writable\."),
        FolderTarget(target).locked(),
    ):
        pass


def test_an_archive_that_another_process_writes_is_not_touched(store: Store, target: Path) -> None:
    load(store, {})
    with FolderTarget(target).locked(), pytest.raises(ArchiveFailed, match="another process is writing to it"):
        add_all(store, FolderTarget(target))
    assert list(target.glob("*/*")) == []


def test_a_full_disk_leaves_nothing_half_done(store: Store, tmp_path: Path) -> None:
    load(store, *[{"title": f"{number} {number**40}" * 100} for number in range(3_000)])
    with mounted(tmp_path / "small", mebibytes=1) as small:
        (small / "filler").write_bytes(b"x" * 1_000_000)
        with pytest.raises(ArchiveFailed, match=r"disk .*is full\. Free space on it\."):
            add_all(store, FolderTarget(small))
        assert [path for path in small.rglob("*") if path.name != "filler" and path.stat().st_size] == []
        (small / "filler").unlink()
        assert add_all(store, FolderTarget(small)).row_count == 3_000
        assert check_archive(small) == 3_000


def test_files_are_compressed_with_zstd(store: Store, target: Path) -> None:
    load(store, {})
    add_all(store, FolderTarget(target))
    with duckdb.connect() as connection:
        query = "select distinct compression from parquet_metadata($1)"
        assert connection.execute(query, [str(next(target.glob("*/*.parquet")))]).fetchall() == [("ZSTD",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the path is empty"),
        ("data", "is in the data folder"),
        ("data/archive", "is in the data folder"),
        ("s3://bucket/a*", "are wildcards"),
        ("s3://", "has no bucket"),
    ],
)
def test_a_wrong_target_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured, match=message):
        open_target(text, data=tmp_path / "data")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArchiveFailed, match=r"is not a folder\. Name a folder\."),
        FolderTarget(tmp_path / "file").locked(),
    ):
        pass


def test_a_file_that_lacks_rows_is_not_added(store: Store, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(store, {}, {})
    write = archive_rows.ArchiveRows.write

    def write_less(rows: archive_rows.ArchiveRows, part: archive_rows.Part, path: Path) -> None:
        write(rows, replace(part, last=part.first), path)

    monkeypatch.setattr(archive_rows.ArchiveRows, "write", write_less)
    with pytest.raises(ArchiveFailed, match="a file lacks rows"):
        add_all(store, FolderTarget(target))
    assert list(target.glob("*/*")) == []
