"""Sums of quarters of an hour: whatever is summed up, and when, the reports that read sums have the rows of events."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import embedsink.store.database
import embedsink.store.sums
from embedsink.loader import Loader
from embedsink.segment import inspect
from embedsink.sqlfiles import read_sql
from embedsink.store import EVERYTHING, Store, StoreLimits
from embedsink.store.sums import sum_up
from tests.given import segment
from tests.histories import INSTANTS, Event, Scope, found_rows, histories, rows_in_scope, scopes
from tests.rows import replace_events, replace_rows
from tests.stores import make_folder, open_store

OF_SUMS = ("views", "error_rates", "totals", "tenants", "activity", "completeness")
SEGMENT = 1 << 32


def test_the_reports_that_read_sums_are_known() -> None:
    views = read_sql("views/base") | read_sql("views/reports")
    reads = {name for name, sql in views.items() if "session_quarter" in sql or "from viewer_stretch" in sql}
    assert reads == {*OF_SUMS, "session_quarter_in_scope", "viewer_stretch"}


def summed_up(connection: duckdb.DuckDBPyConnection, history: list[Event], sizes: list[int]) -> dict[str, int]:
    """Sum up the history in steps of so many events, but for the rest. What a reader's variables are then."""
    replace_rows(connection, "session_quarter", [])
    replace_rows(connection, "summed", [])
    rows, place = [asdict(event) for event in history], 0
    for size in sizes:
        place += size
        replace_events(connection, reversed(rows[:place]))
        sum_up(connection, unsummed_max=0)
    replace_events(connection, reversed(rows))
    found = connection.execute("select max(number), max(up_to) from summed").fetchone()
    return dict(zip(("summed", "summed_up_to"), found or (), strict=True))


# Beside those that are drawn: bounds that cut a quarter, and clocks that are far off.
_cut_bounds = st.sampled_from([instant + timedelta(minutes=step) for instant in INSTANTS for step in (-7, 3, 20)])
cut_scopes = st.builds(
    lambda scope, cut: scope | cut, scopes, st.fixed_dictionaries({}, optional={"since": _cut_bounds})
)
cut_scopes = st.builds(
    lambda scope, cut: scope | cut, cut_scopes, st.fixed_dictionaries({}, optional={"until": _cut_bounds})
)


@pytest.mark.parametrize("report", OF_SUMS)
@settings(max_examples=100, deadline=None)
@given(history=histories, scope=cut_scopes, sizes=st.lists(st.integers(1, 15), max_size=4))
def test_whatever_is_summed_up_the_rows_are_those_of_the_events(
    connection: duckdb.DuckDBPyConnection, report: str, history: list[Event], scope: Scope, sizes: list[int]
) -> None:
    by_events = found_rows(connection, report, history, scope)
    sums = summed_up(connection, history, sizes)
    assert rows_in_scope(connection, report, scope | sums) == by_events
    # A reader that began before the last summing, and what is summed up behind its back.
    for number, up_to in connection.execute("select number, up_to from summed").fetchall():
        earlier = {"summed": number, "summed_up_to": up_to}
        assert rows_in_scope(connection, report, scope | earlier) == by_events


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One that sums up when more than one event waits, and in a load when more than ten do."""
    return open_store(tmp_path / "store.duckdb", StoreLimits(unsummed_max=1))


def load(store: Store, folder: Path, number: int, count: int) -> None:
    store.load(inspect(segment(folder, [{"type": "view", "viewer": f"u{number}"}] * count, number=number)))


def sums(store: Store) -> list[tuple[int, int]]:
    with store.reader(EVERYTHING) as reader:
        rows, _ = reader.run("select number, up_to from summed order by number")
        return list(rows.itertuples(index=False, name=None))


def view_count(store: Store) -> int:
    with store.reader(EVERYTHING) as reader:
        return sum(row[3] for rows in reader.rows("views") for row in rows)


def test_sums_are_made_when_many_events_wait(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1, 1)
    assert not store.sum_up()
    load(store, tmp_path, 2, 1)
    assert sums(store) == []
    assert store.sum_up()
    assert sums(store) == [(1, 2 * SEGMENT + 1)]
    assert not store.sum_up()
    load(store, tmp_path, 3, 1)
    assert (len(sums(store)), view_count(store)) == (1, 3)
    store.close()


def test_a_load_makes_sums_where_it_waits_for_them_too_long(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1, 10)
    assert sums(store) == []
    load(store, tmp_path, 2, 1)
    assert (sums(store), view_count(store)) == ([(1, 2 * SEGMENT + 1)], 11)
    store.close()


def test_what_arrives_behind_the_last_summing_is_summed_up_at_once(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 5, 2)
    store.sum_up()
    with store.reader(EVERYTHING) as early:
        load(store, tmp_path, 3, 1)
        assert sums(store) == [(1, 5 * SEGMENT + 2), (2, 5 * SEGMENT + 2)]
        assert view_count(store) == 3
        # It is of a moment at which the other was not there.
        assert sum(row[3] for rows in early.rows("views") for row in rows) == 2
    store.close()


def test_of_an_older_store_a_part_is_summed_up_at_a_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, tmp_path, 1, 9)
    monkeypatch.setattr(embedsink.store.sums, "SUMMED_AT_ONCE", 4)
    assert [store.sum_up() for _ in range(3)] == [True, True, False]
    assert ([up_to for _, up_to in sums(store)], view_count(store)) == ([SEGMENT + 4, SEGMENT + 8], 9)
    store.close()


def test_sums_that_do_not_fit_are_made_with_more_memory(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def too_small_at_first(connection: duckdb.DuckDBPyConnection, **asked: Any) -> bool:
        tries.append(connection.execute("select current_setting('memory_limit')").fetchone())
        if len(tries) == 1:
            raise duckdb.OutOfMemoryException("Out of Memory Error: could not allocate")
        return sum_up(connection, **asked)

    load(store, tmp_path, 1, 5)
    monkeypatch.setattr(embedsink.store.database, "sum_up", too_small_at_first)
    assert store.sum_up()
    assert tries[0] != tries[1]
    assert (len(sums(store)), view_count(store)) == (1, 5)
    store.close()


def test_the_loader_sums_up_what_it_loaded(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    store = Store(folder.store, StoreLimits(unsummed_max=1))
    loader = Loader(folder, store)
    segment(folder.journal, [{"type": "view"}] * 3, number=1)
    loader.open_store()
    loader.wake()
    loader.work_once(is_last=False)
    assert (len(sums(store)), view_count(store)) == (1, 3)
    loader.close()


def test_a_load_that_fails_leaves_no_sums(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Store, "_ledger", fail)
    with pytest.raises(OSError, match="no"):
        load(store, tmp_path, 1, 15)
    monkeypatch.undo()
    assert (sums(store), view_count(store)) == ([], 0)
    load(store, tmp_path, 1, 15)
    assert (len(sums(store)), view_count(store)) == (1, 15)
    store.close()
