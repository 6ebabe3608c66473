"""Sums of quarters of an hour: whatever is summed up, and when, the reports that read sums have the rows of events."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import embedsink.store.sums
from embedsink.segment import inspect
from embedsink.sqlfiles import read_sql
from embedsink.store import EVERYTHING, Store, StoreLimits
from embedsink.store.sums import sum_up
from tests.given import segment
from tests.histories import INSTANTS, Event, Scope, found_rows, histories, rows_in_scope, scopes
from tests.rows import replace_events, replace_rows
from tests.stores import open_store

OF_SUMS = ("views", "error_rates", "totals", "tenants", "activity")
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
@settings(max_examples=150, deadline=None)
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
    """One that sums up with every load that brings more than one event."""
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
    assert sums(store) == []
    load(store, tmp_path, 2, 1)
    assert sums(store) == [(1, 2 * SEGMENT + 1)]
    load(store, tmp_path, 3, 3)
    assert sums(store)[1:] == [(2, 3 * SEGMENT + 3)]
    load(store, tmp_path, 4, 1)
    assert (len(sums(store)), view_count(store)) == (2, 6)
    store.close()


def test_what_arrives_behind_the_last_summing_is_summed_up_at_once(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 5, 2)
    with store.reader(EVERYTHING) as early:
        load(store, tmp_path, 3, 1)
        assert sums(store) == [(1, 5 * SEGMENT + 2), (2, 5 * SEGMENT + 2)]
        assert view_count(store) == 3
        # It is of a moment at which the other was not there.
        assert sum(row[3] for rows in early.rows("views") for row in rows) == 2
    store.close()


def test_of_an_older_store_a_part_is_summed_up_with_each_load(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, tmp_path, 1, 9)
    store._loading().execute("truncate session_quarter; truncate summed")
    monkeypatch.setattr(embedsink.store.sums, "SUMMED_AT_ONCE", 4)
    for number in (2, 3, 4):
        load(store, tmp_path, number, 1)
        assert view_count(store) == 8 + number
    assert [up_to for _, up_to in sums(store)] == [SEGMENT + 4, SEGMENT + 8, 4 * SEGMENT + 1]
    store.close()


def test_a_load_that_fails_leaves_no_sums(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Store, "_ledger", fail)
    with pytest.raises(OSError, match="no"):
        load(store, tmp_path, 1, 5)
    monkeypatch.undo()
    assert (sums(store), view_count(store)) == ([], 0)
    load(store, tmp_path, 1, 5)
    assert (len(sums(store)), view_count(store)) == (1, 5)
    store.close()
