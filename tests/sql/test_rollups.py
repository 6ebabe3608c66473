"""15-minute rollups: a report has the same rows, regardless of which events are rolled up."""

from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.dashboards.query import PAIR_REPORTS
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.loader.loader import Loader
from embedsink.store import database
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import Reader
from embedsink.store.rollups import roll_up, roll_up_late
from tests.support.examples import examples
from tests.support.given import write_segment
from tests.support.histories import INSTANTS, Event, Scope, histories, rows_in_scope, scopes
from tests.support.rows import replace_events, replace_rows, reports_reading
from tests.support.stores import make_folder, open_store

SEGMENT = 1 << 32
_BEGINNING = [datetime(2012, 1, 1), datetime(2011, 12, 31, 23, 59, 59), datetime(2012, 1, 1, 0, 14, 59)]
READING_ROLLUPS = (
    "views",
    "error_rates",
    "totals",
    "tenants",
    "activity",
    "completeness",
    "export_volumes",
    *PAIR_REPORTS,
)


def test_the_reports_that_read_rollups_are_listed() -> None:
    assert reports_reading("session_15min") | reports_reading("question_stage") == set(READING_ROLLUPS)


def test_the_reports_that_pair_ai_queries_are_listed() -> None:
    assert reports_reading("ai_pair") == set(PAIR_REPORTS)


def roll_up_in_steps(
    connection: duckdb.DuckDBPyConnection, history: list[Event], sizes: list[int], late: set[int]
) -> None:
    """Load and roll up a history in steps of these sizes. The last events are loaded without a rollup.

    Each event is a segment. The events in `late` arrive after later events have been rolled up.
    """
    replace_rows(connection, "session_15min", [])
    replace_rows(connection, "question_stage", [])
    replace_rows(connection, "rollup_batch", [])
    replace_events(connection, [])
    waiting, stored = list(range(len(history))), set[int]()
    for size in sizes:
        arriving = [index for index in waiting[:size] if index not in late] or waiting[:1]
        stored |= set(arriving)
        waiting = [index for index in waiting if index not in stored]
        replace_events(connection, [asdict(history[index]) for index in sorted(stored, reverse=True)])
        roll_up_late(connection, arriving)
        roll_up(connection, event_count_min=1, event_count_max=1_000)
    last = connection.execute("select coalesce(max(watermark), -1) >> 32 from rollup_batch").fetchone() or (-1,)
    replace_events(connection, map(asdict, reversed(history)))
    roll_up_late(connection, [index for index in waiting if index <= last[0]])


# Additional instants: bounds inside a 15-minute interval, days apart, and around the first rolled-up instant.
_unaligned_bounds = st.sampled_from([instant + timedelta(minutes=step) for instant in INSTANTS for step in (-7, 3, 20)])
unaligned_scopes = st.builds(
    lambda scope, cut: scope | cut,
    scopes,
    st.fixed_dictionaries({}, optional={"since": _unaligned_bounds, "until": _unaligned_bounds}),
)
_moves = st.sampled_from([None] * 12 + [timedelta(days=days) for days in (-31, -30, -7, -1, 13)] + _BEGINNING)
distant_histories = st.builds(
    lambda history, moves: [
        Event(
            **asdict(event)
            | {
                "ingest_seq": index * SEGMENT + 1,
                "occurred_at": move if isinstance(move, datetime) else event.occurred_at + (move or timedelta()),
            }
        )
        for index, (event, move) in enumerate(zip(history, moves, strict=False))
    ],
    histories,
    st.lists(_moves, min_size=40, max_size=40),
)


@examples(0.8)
@given(
    history=distant_histories,
    scope=unaligned_scopes,
    sizes=st.lists(st.integers(1, 15), max_size=4),
    late=st.sets(st.integers(0, 20), max_size=3),
)
def test_reports_on_rollups_have_the_rows_of_the_events(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope, sizes: list[int], late: set[int]
) -> None:
    replace_events(connection, map(asdict, reversed(history)))
    from_events = {report: rows_in_scope(connection, report, scope) for report in READING_ROLLUPS}
    roll_up_in_steps(connection, history, sizes, late)
    batches = connection.execute("select batch_id, watermark from rollup_batch order by batch_id").fetchall()
    batch_id, watermark = batches[-1] if batches else (None, None)
    rolled_up = scope | {"rollup_batch_id": batch_id, "rollup_watermark": watermark}
    assert {report: rows_in_scope(connection, report, rolled_up) for report in READING_ROLLUPS} == from_events


def test_events_rolled_up_during_a_query_count_once(connection: duckdb.DuckDBPyConnection) -> None:
    history = [Event("view", ingest_seq=index * SEGMENT + 1, session=f"s{index}") for index in range(8)]
    roll_up_in_steps(connection, history, [3, 3], set())
    for number, watermark in [
        (None, None),
        *connection.execute("select batch_id, watermark from rollup_batch").fetchall(),
    ]:
        [row] = rows_in_scope(connection, "views", {"rollup_batch_id": number, "rollup_watermark": watermark})
        assert row[3:5] == (8, 8)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Open a store that rolls up as soon as two events wait."""
    return open_store(tmp_path / "store.duckdb", StoreLimits(rollup_from_count=2))


def load(store: Store, folder: Path, number: int, count: int) -> None:
    store.load(inspect(write_segment(folder, [{"type": "view", "viewer": f"u{number}"}] * count, number=number)))


def rollup_batches(store: Store) -> list[tuple[int, int]]:
    with store.reader(EVERYTHING.variables()) as reader:
        return reader._fetch_all("select batch_id, watermark from rollup_batch order by batch_id")


def view_count(store: Store) -> int:
    with store.reader(EVERYTHING.variables()) as reader:
        return sum(row[3] for rows in reader.rows("views") for row in rows)


def test_a_rebuild_deletes_the_stages_of_questions_too(store: Store, tmp_path: Path) -> None:
    questions = [{"type": "ai-query", "status": "submitted", "query": f"q{number}"} for number in range(5)]
    store.load(inspect(write_segment(tmp_path, questions, number=1)))
    assert store.roll_up()
    store.reset_derived_tables()
    store.roll_up()
    with store.reader(EVERYTHING.variables()) as reader:
        [count] = [row["submitted_count"] for row in reader.dicts("ai_queries")]
    assert count == 5


def test_events_are_rolled_up_when_many_wait(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1, 1)
    assert not store.roll_up()
    load(store, tmp_path, 2, 1)
    assert rollup_batches(store) == []
    assert store.roll_up()
    assert rollup_batches(store) == [(1, 2 * SEGMENT + 1)]
    assert not store.roll_up()
    load(store, tmp_path, 3, 1)
    assert (len(rollup_batches(store)), view_count(store)) == (1, 3)
    store.close()


def test_late_events_are_rolled_up_immediately(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 5, 2)
    store.roll_up()
    with store.reader(EVERYTHING.variables()) as early:
        load(store, tmp_path, 3, 1)
        assert rollup_batches(store) == [(1, 5 * SEGMENT + 2), (2, 5 * SEGMENT + 2)]
        assert view_count(store) == 3
        # This event has an earlier ingest_seq than the rolled-up one.
        assert sum(row[3] for rows in early.rows("views") for row in rows) == 2
    store.close()


def test_an_older_store_is_rolled_up_in_parts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(store, tmp_path, 1, 10)
    monkeypatch.setattr(database, "_ROLLUP_BATCH_ROWS", (4, 4))
    assert [store.roll_up() for _ in range(4)] == [True, True, True, False]
    assert [watermark for _, watermark in rollup_batches(store)] == [SEGMENT + 4, SEGMENT + 8, SEGMENT + 10]
    assert view_count(store) == 10
    store.close()


def test_a_rollup_without_memory_is_retried_with_fewer_events(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def too_small_at_first(connection: duckdb.DuckDBPyConnection, *, event_count_max: int, **options: Any) -> int:
        tries.append(event_count_max)
        if len(tries) < len(database._ROLLUP_BATCH_ROWS):
            raise duckdb.OutOfMemoryException("Out of Memory Error: could not allocate")
        return roll_up(connection, event_count_max=event_count_max, **options)

    load(store, tmp_path, 1, 5)
    monkeypatch.setattr(database, "roll_up", too_small_at_first)
    assert store.roll_up()
    assert tuple(tries) == database._ROLLUP_BATCH_ROWS
    assert (len(rollup_batches(store)), view_count(store)) == (1, 5)
    store.close()


@pytest.mark.slow
def test_events_with_the_longest_texts_are_rolled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def counted(connection: duckdb.DuckDBPyConnection, *, event_count_max: int, **options: Any) -> int:
        tries.append(event_count_max)
        return roll_up(connection, event_count_max=event_count_max, **options)

    monkeypatch.setattr(database, "roll_up", counted)
    store = open_store(tmp_path / "store.duckdb", StoreLimits(memory_bytes=1_048_576, rollup_from_count=1_000))
    long = "select repeat(i::varchar || '-', 1600) as session, i as ingest_seq, timestamp '2026-11-01' as occurred_at"
    with store.reader(EVERYTHING.variables()) as writer:
        writer._execute(f"insert into event by name {long}, 'view' as type from range(5_000) as t(i)")
    while store.roll_up():
        pass
    with store.reader(EVERYTHING.variables()) as reader:
        [row] = reader._fetch_all(
            "select sum(event_count)::bigint, (select max(watermark) from rollup_batch) from session_15min"
        )
    assert row == (5_000, 4_999)
    assert len(set(tries)) > 1, "the texts fit into memory; choose longer ones"
    store.close()


def test_without_space_for_rollups_loading_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **options: object) -> int:
        raise duckdb.IOException("No space left on device")

    folder = make_folder(tmp_path / "data")
    loader = Loader(folder, Store(folder.store, StoreLimits(rollup_from_count=2)))
    write_segment(folder.journal, [{"type": "view"}] * 3, number=1)
    loader.open_store()
    loader.on_sealed(1)
    with monkeypatch.context() as patch:
        patch.setattr(database, "roll_up", refuse)
        loader.run_once(is_last=True)
    assert (loader.status.error, loader.status.snapshot_count, loader.status.accepted_count) == (None, 1, 3)
    loader.close()


def test_a_store_rebuilt_from_a_snapshot_has_rollups_of_its_events(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    for damage in ("", "update session_15min set view_count = 7"):
        store = Store(folder.store, StoreLimits(rollup_from_count=2))
        loader = Loader(folder, store)
        write_segment(folder.journal, [{"type": "view"}] * 3, number=1)
        loader.open_store()
        loader.on_sealed(1)
        loader.run_once(is_last=False)
        assert (len(rollup_batches(store)), view_count(store)) == (1, 3)
        if damage:
            store._load_connection().execute(damage)
        loader.publish()
        loader.close()
        folder.store.unlink()
    store = Store(folder.store, StoreLimits(rollup_from_count=2))
    loader = Loader(folder, store)
    loader.open_store()
    loader.run_once(is_last=False)
    assert (len(rollup_batches(store)), view_count(store)) == (1, 3)
    loader.close()


def test_the_loader_rolls_up_loaded_events(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    store = Store(folder.store, StoreLimits(rollup_from_count=2))
    loader = Loader(folder, store)
    write_segment(folder.journal, [{"type": "view"}] * 3, number=1)
    loader.open_store()
    loader.on_sealed(1)
    loader.run_once(is_last=False)
    assert (len(rollup_batches(store)), view_count(store)) == (1, 3)
    loader.close()


def test_a_failed_load_leaves_no_rollup_rows(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    load(store, tmp_path, 5, 2)
    store.roll_up()
    monkeypatch.setattr(database, "count_load", fail)
    with pytest.raises(OSError, match="no"):
        load(store, tmp_path, 3, 1)
    monkeypatch.undo()
    assert (len(rollup_batches(store)), view_count(store)) == (1, 2)
    load(store, tmp_path, 3, 1)
    assert (len(rollup_batches(store)), view_count(store)) == (2, 3)
    store.close()


def rows_of_reports(reader: Reader) -> dict[str, list[tuple[Any, ...]]]:
    return {report: [row for rows in reader.rows(report) for row in rows] for report in READING_ROLLUPS}


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_events_of_one_key_do_not_change_sessions_of_another(is_rolled_up: bool, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb", StoreLimits(rollup_from_count=1))
    ready = {"type": "ready", "key": "k2", "session": "s1", "deployment": None, "deploymentId": 7, "viewer": None}
    homeless = {"key": "k1", "session": "s1", "deployment": None, "viewer": "canary"}
    further = [homeless | {"type": "ai-query", "query": "canary"}, homeless | {"type": "view"}]
    store.load(inspect(write_segment(tmp_path, [ready, *further])))
    assert store.roll_up() or not is_rolled_up
    if not is_rolled_up:
        store.reset_derived_tables()
    with store.reader({**EVERYTHING.variables(), "deployments": [7]}) as reader:
        rows_read = rows_of_reports(reader)
    store.close()

    alone = open_store(tmp_path / "alone.duckdb", StoreLimits(rollup_from_count=1))
    alone.load(inspect(write_segment(tmp_path, [ready], number=3)))
    with alone.reader({**EVERYTHING.variables(), "deployments": [7]}) as reader:
        assert rows_read == rows_of_reports(reader)
    alone.close()


def test_a_query_across_a_rollup_counts_nothing_twice(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb", StoreLimits(rollup_from_count=1))
    question = {"type": "ai-query", "query": "why"}
    store.load(inspect(write_segment(tmp_path, [{"type": "view"}, {"type": "download"}, question])))
    store.roll_up()
    store.load(
        inspect(
            write_segment(tmp_path, [{"type": "view"}, question | {"status": "completed", "at": "10:01"}], number=2)
        )
    )
    with store.reader({**EVERYTHING.variables(), "now": datetime(2026, 11, 3)}) as reader:
        before = rows_of_reports(reader)
        assert all(before.values())
        assert store.roll_up()
        assert rows_of_reports(reader) == before
    store.close()
