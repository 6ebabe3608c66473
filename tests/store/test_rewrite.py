"""The copy of the store without free space."""

from pathlib import Path
from typing import Any

import pytest

from embedsink.durable_files import free_bytes
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.store import database, rewrite
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreRefused
from embedsink.store.sql_files import read_sql
from tests.support.disks import mounted
from tests.support.given import write_segment
from tests.support.stores import open_store

ROWS = "select * exclude (received_at) from {} order by all"


def fill(store: Store, folder: Path) -> None:
    events = [{"type": "view", "session": f"s{number}", "title": f"{number}" * 60} for number in range(2_000)]
    others: list[dict[str, Any]] = [
        {"type": "refresh", "direction": "action"},
        {"type": "scroll", "rejected": "unknown_type"},
        {"sync": "job"},
    ]
    people: list[dict[str, Any]] = [
        {"user": "ann", "name": "Ann"},
        {"group": "Analysts", "members": ["ann"]},
        {"lost": {"x": 1}},
    ]
    store.load(inspect(write_segment(folder, [*events, *others, *people])))
    # Much larger than one block, and deleted again.
    connection = store._load_connection()
    connection.execute("create table filler as select random() as x from range(4_000_000)")
    store.checkpoint()
    connection.execute("drop table filler")
    store.checkpoint()


def content(store: Store) -> dict[str, list[Any]]:
    connection = store._load_connection()
    tables = connection.execute(
        "select table_name from duckdb_tables() where database_name = 'store' order by all"
    ).fetchall()
    return {table: connection.execute(f"from {table}").fetchall() for (table,) in tables}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "store.duckdb")
    fill(store, tmp_path)
    return store


def test_deleted_events_among_others_count_as_free_space(store: Store, tmp_path: Path) -> None:
    store.rewrite(tmp_path / "rebuilt.duckdb")
    connection = store._load_connection()
    connection.execute("create table filler as select random() as x from range(4_000_000)")
    for share, has_much_free_space in ((0.1, False), (0.4, True)):
        connection.execute("delete from event where ingest_seq % 10 < $1", [10 * share])
        store.checkpoint()
        assert store.has_much_free_space() == has_much_free_space


def test_a_rewritten_store_has_the_same_rows_in_their_order_and_no_free_space(store: Store, tmp_path: Path) -> None:
    before, size = content(store), store.path.stat().st_size
    assert store.has_much_free_space()
    (tmp_path / "draft.duckdb").write_bytes(b"of a killed process")
    store.rewrite(tmp_path / "draft.duckdb")
    assert content(store) == before
    assert not store.has_much_free_space()
    assert store.path.stat().st_size < size / 4
    assert not (tmp_path / "draft.duckdb").exists()
    for name, sql in read_sql("checks").items():
        assert store._load_connection().execute(sql).fetchall() == [], name
    with store.reader(EVERYTHING.variables()) as reader:
        assert reader.dicts("views")[0]["view_count"] == 2_000
    store.close()
    store.open()
    assert content(store) == before
    store.close()


def test_a_disk_without_space_keeps_the_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(store)
    monkeypatch.setattr(database, "free_bytes", lambda _: 0)
    with pytest.raises(StoreRefused, match="bytes on the disk"):
        store.rewrite(tmp_path / "draft.duckdb")
    assert content(store) == before
    store.close()


def test_a_copy_that_fails_leaves_no_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(store)
    invalid = {"0001_initial": read_sql("migrations")["0001_initial"], "0002": "create table event (x integer)"}
    monkeypatch.setattr(rewrite, "read_sql", lambda _: invalid)
    with pytest.raises(SqlFailed, match="already exists"):
        store.rewrite(tmp_path / "draft.duckdb")
    assert sorted(path.name for path in tmp_path.glob("draft*")) == []
    assert content(store) == before
    monkeypatch.undo()
    store.rewrite(tmp_path / "draft.duckdb")
    assert content(store) == before
    store.close()


def test_a_full_disk_ends_a_rewrite_and_keeps_its_space(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", mebibytes=80) as disk:
        store = open_store(disk / "store.duckdb")
        fill(store, disk)
        before = content(store)
        (disk / "filler").write_bytes(bytes(free_bytes(disk) - 400_000))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "free_bytes", lambda _: 1 << 40)
            with pytest.raises((StoreRefused, StoreBroken)):
                store.rewrite(disk / "draft.duckdb")
        assert list(disk.glob("draft*")) == []
        (disk / "filler").unlink()
        store.close()
        store.open()
        assert content(store) == before
        store.close()


def test_a_small_store_is_worth_a_copy_when_its_events_are_deleted(store: Store, tmp_path: Path) -> None:
    store.rewrite(tmp_path / "rebuilt.duckdb")
    store._load_connection().execute("delete from event")
    store.checkpoint()
    title = b"1999" * 60
    assert title in store.path.read_bytes()
    assert store.has_much_free_space()
    store.rewrite(tmp_path / "rebuilt.duckdb")
    assert title not in store.path.read_bytes()
