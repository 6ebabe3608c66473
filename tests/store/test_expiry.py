"""The deletion of events after their retention, which may depend on the deployment: oldest first, in bounded steps."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.store import expiry
from embedsink.store.database import Store
from embedsink.store.rollups import roll_up
from embedsink.store.sql_files import read_sql
from tests.support.given import write_segment
from tests.support.stores import open_store

LOADED = datetime(2026, 11, 1)
TABLES = (
    "event",
    "action",
    "loss",
    "quarantine",
    "sync",
    "sync_file",
    "quarantine_rest",
    "session_15min",
    "question_stage",
    "rollup_batch",
    "session_ready",
    "ready_fact",
    "expired_session",
    "erased_seq",
    "loaded_segment",
)
KINDS: list[dict[str, Any]] = [
    {"type": "view"},
    {"type": "view", "surface": "app"},
    {"type": "ready", "surface": "app", "deploymentId": 2, "deployment": None},
    {"type": "view", "deployment": None},
    {"type": "view", "deployment": 2},
    {"type": "ai-query"},
    {"type": "ai-query", "status": "completed"},
    {"type": "refresh", "direction": "action"},
    {"type": "refresh", "direction": "action", "deployment": None},
    {"lost": {"queue_overflow": 2}},
    {"lost": {"queue_overflow": 3}, "deployment": None},
    {"type": "scroll", "rejected": "unknown_type"},
    {"sync": "job"},
]
REPORTS = (
    "views",
    "totals",
    "error_rates",
    "sessions",
    "tenants",
    "ai_queries",
    "completeness",
    "activity",
    "rejections",
)


def clear(store: Store) -> None:
    for table in TABLES:
        store._load_connection().execute(f"truncate {table}")


def load(store: Store, folder: Path, segments: dict[int, list[dict[str, Any]]]) -> None:
    """Load segments by number. The segment with the number n is loaded at the start of day n."""
    for number, events in segments.items():
        store.load(inspect(write_segment(folder, events, number=number)))
    store._load_connection().execute(
        "update loaded_segment set loaded_at = $1 + to_days(split_part(segment, '-', 1)::integer)", [LOADED]
    )


def expire_all(store: Store, *, before_day: int, before_day_of: Mapping[Any, int] | None = None) -> int:
    """Delete the events of the days before a day, which may depend on the deployment, and return their number."""
    by_deployment = {deployment: LOADED + timedelta(days=day) for deployment, day in (before_day_of or {}).items()}
    limit = store.retention_limit(LOADED + timedelta(days=before_day), by_deployment)
    total, next_seq = 0, 0
    while (expired := store.expire(limit, first=next_seq)).next_seq is not None:
        assert expired.row_count <= 3 * expiry.EXPIRED_AT_ONCE
        total, next_seq = total + expired.row_count, expired.next_seq
    store.finish_expiry()
    return total


def offending(store: Store) -> dict[str, list[Any]]:
    checks = {name: store._load_connection().execute(sql).fetchall() for name, sql in read_sql("checks").items()}
    return {name: rows for name, rows in checks.items() if rows}


def rows_of(store: Store, *views: str) -> dict[str, list[Any]]:
    with store.reader({**EVERYTHING.variables(), "now": LOADED + timedelta(days=60)}) as reader:
        rows = {view: [row for rows in reader.rows(view) for row in rows] for view in views}
    if "event_in_scope" in rows:  # A join does not keep the order of rows.
        rows["event_in_scope"].sort(key=repr)
    return rows


def events_of(number: int, kinds: list[int]) -> list[dict[str, Any]]:
    """Return events of these kinds, in a session for each segment."""
    return [
        {
            "at": f"2026-11-{number:02d}T10:{minute:02d}",
            "session": f"s{number}",
            "id": number * 100 + minute,
            "seq": None,
        }
        | KINDS[kind]
        | ({"sync": f"job {number} {minute}"} if "sync" in KINDS[kind] else {})
        for minute, kind in enumerate(kinds)
    ]


def deployment_of(event: dict[str, Any], events: list[dict[str, Any]]) -> int | None:
    """Return the deployment of an event as reports show it: its own, or else that of a `ready` event of its session."""
    if event.get("direction") != "action":
        named = [other["deploymentId"] for other in events if other.get("type") == "ready"]
        if named and event.get("deployment", 1) is None:
            return int(named[0])
    deployment: int | None = event.get("deployment", 1)
    return deployment


def placeholder(event: dict[str, Any]) -> dict[str, Any]:
    """Return a dbt result in the place of a deleted event, so that later events have the same ingest_seq."""
    return {"sync": f"instead of {event['id']}"}


_histories = st.lists(st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=8), min_size=2, max_size=5)


@given(
    history=_histories,
    before=st.integers(1, 7),
    before_of=st.dictionaries(st.sampled_from([1, 2]), st.integers(1, 7)),
    step=st.integers(1, 4),
    rolled_up=st.lists(st.integers(1, 9), max_size=3),
)
def test_what_remains_is_as_if_the_rest_had_never_arrived(
    store: Store,
    folder: Path,
    history: list[list[int]],
    before: int,
    before_of: dict[int | None, int],
    step: int,
    rolled_up: list[int],
) -> None:
    segments = {number: events_of(number, kinds) for number, kinds in enumerate(history, 1)}
    kept = {
        number: [
            event if number >= before_of.get(deployment_of(event, events), before) else placeholder(event)
            for event in events
        ]
        for number, events in segments.items()
    }
    expiry.EXPIRED_AT_ONCE = step
    try:
        clear(store)
        load(store, folder, kept)
        expected = rows_of(store, "event_in_scope", *REPORTS[:-1])
        clear(store)
        load(store, folder, segments)
        for count in rolled_up:
            roll_up(store._load_connection(), event_count_min=1, event_count_max=count)
        rejections = rows_of(store, "rejections")
        expire_all(store, before_day=before, before_day_of=before_of)
        assert offending(store) == {}
        assert rows_of(store, "event_in_scope", *REPORTS[:-1]) == expected
        assert rows_of(store, "rejections") == rejections
        assert expire_all(store, before_day=before, before_day_of=before_of) == 0
    finally:
        expiry.EXPIRED_AT_ONCE = 100_000


def test_deleted_events_are_not_missing_events(store: Store, folder: Path) -> None:
    def numbered(day: int, *numbers: int) -> list[dict[str, Any]]:
        return [{"type": "view", "session": "long", "seq": seq, "at": f"2026-11-{day:02d}T10:00"} for seq in numbers]

    clear(store)
    load(store, folder, {1: numbered(1, 0, 1, 2), 2: numbered(2, 4, 5)})
    assert expire_all(store, before_day=2) == 3
    assert [row[3] for row in rows_of(store, "completeness")["completeness"]] == [1]  # number 3 is missing
    assert store._load_connection().execute("from expired_session").fetchall() == [("k1", "long", 2)]
    load(store, folder, {3: numbered(3, 6)})
    assert expire_all(store, before_day=3) == 2
    assert rows_of(store, "completeness")["completeness"][0][3] == 0
    assert expire_all(store, before_day=4) == 1
    assert store._load_connection().execute("from expired_session").fetchall() == []


def test_a_late_batch_of_rollups_loses_its_deleted_events_only(store: Store, folder: Path) -> None:
    clear(store)
    views = {number: [{"type": "view", "session": f"s{number}", "id": number}] for number in (2, 3)}
    load(store, folder, views)
    connection = store._load_connection()
    roll_up(connection, event_count_min=1, event_count_max=10)
    load(store, folder, {1: [{"type": "view", "session": "late", "id": 1}]})  # `load` rolls late segments up.
    assert connection.execute("select count(*) from rollup_batch").fetchall() == [(2,)]
    assert expire_all(store, before_day=2) == 1
    assert offending(store) == {}
    assert connection.execute("select sum(event_count) from session_15min").fetchall() == [(2,)]


def test_a_batch_that_is_computed_again_lacks_the_events_of_late_batches(store: Store, folder: Path) -> None:
    clear(store)
    views = {number: [{"type": "view", "session": f"s{number}", "id": number}] for number in range(1, 7)}
    load(store, folder, {number: views[number] for number in (1, 3, 5)})
    connection = store._load_connection()
    roll_up(connection, event_count_min=1, event_count_max=10)
    store.load(*[inspect(write_segment(folder, views[number], number=number)) for number in (2, 4)])
    load(store, folder, {6: views[6]})
    roll_up(connection, event_count_min=1, event_count_max=10)
    connection.execute(
        "update loaded_segment set loaded_at = $1 + to_days(split_part(segment, '-', 1)::integer)", [LOADED]
    )
    for day, count in ((2, 5), (4, 3), (5, 2), (6, 1)):
        expire_all(store, before_day=day)
        assert offending(store) == {}
        assert connection.execute("select sum(event_count) from session_15min").fetchall() == [(count,)]
    assert connection.execute("select count(*) from rollup_batch").fetchall() == [(1,)]


def test_a_segment_that_is_loaded_late_does_not_delay_others(store: Store, folder: Path) -> None:
    clear(store)
    views = {number: [{"type": "view", "session": f"s{number}", "id": number}] for number in (1, 2, 3)}
    load(store, folder, {number: views[number] for number in (1, 3)})
    store.load(inspect(write_segment(folder, views[2], number=2)))
    query = "select loaded_at from loaded_segment order by segment"
    assert [loaded_at for (loaded_at,) in store._load_connection().execute(query).fetchall()][1:] == [
        LOADED + timedelta(days=3)
    ] * 2
    assert expire_all(store, before_day=9) == 3


def test_deleted_events_are_not_missing_if_they_were_loaded_out_of_order(store: Store, folder: Path) -> None:
    clear(store)
    numbers = {1: (0, 1, 4), 2: (2, 3, 5), 3: (8,)}
    events = {
        number: [{"type": "view", "session": "s", "id": seq + 1, "seq": seq} for seq in seqs]
        for number, seqs in numbers.items()
    }
    load(store, folder, events)
    expire_all(store, before_day=2)
    assert [row[3] for row in rows_of(store, "completeness")["completeness"]] == [2]  # 6 and 7


def test_without_its_ready_event_the_rest_of_a_session_follows_the_general_limit(store: Store, folder: Path) -> None:
    clear(store)
    event = {"session": "midnight", "deployment": None}
    ready = {**event, "type": "ready", "surface": "app", "deploymentId": 2}
    load(store, folder, {1: [{**ready, "id": 1}], 2: [{**event, "type": "view", "id": 2}], 3: [KINDS[0] | {"id": 3}]})
    assert expire_all(store, before_day=0, before_day_of={2: 2}) == 1
    assert expire_all(store, before_day=0, before_day_of={2: 3}) == 0
    assert offending(store) == {}
    assert expire_all(store, before_day=3, before_day_of={2: 0}) == 1


def test_rows_of_one_deployment_are_deleted_in_the_middle_of_others(store: Store, folder: Path) -> None:
    clear(store)
    segments = {
        number: [{"type": "view", "session": f"s{number}", "id": 2 * number + deployment, "deployment": deployment}]
        for number in range(1, 7)
        for deployment in [number % 2 + 1]
    }
    load(store, folder, {number: segments[number] for number in (1, 2, 4, 5, 6)})
    connection = store._load_connection()
    roll_up(connection, event_count_min=1, event_count_max=10)
    load(store, folder, {3: segments[3]})  # late
    revisions = [store.revisions.of([deployment]) for deployment in (1, 2)]
    limit = store.retention_limit(None, {2: LOADED + timedelta(days=5)})
    expired = store.expire(limit, below=4 << 32)
    assert (expired.row_count, set(expired.deployments)) == (2, {2})
    assert [store.revisions.of([deployment]) == old for deployment, old in zip((1, 2), revisions, strict=True)] == [
        True,
        False,
    ]
    assert store.expire(limit, first=expired.next_seq or 0).next_seq == limit.highest
    assert store.expire(limit, first=limit.highest).next_seq is None
    assert connection.execute("select ingest_seq >> 32 from event order by 1").fetchall() == [(2,), (4,), (5,), (6,)]
    assert offending(store) == {}


def test_losses_are_deleted_without_events(store: Store, folder: Path) -> None:
    clear(store)
    loss = {"lost": {"queue_overflow": 2}, "session": "s"}
    load(store, folder, {1: [loss], 2: [{"type": "view", "session": "s", "id": 2}], 3: [loss]})
    revision = store.revisions.of([1])
    assert expire_all(store, before_day=2) == 1
    assert store.revisions.of([1]) != revision
    assert store._load_connection().execute("select count(*) from loss").fetchall() == [(1,)]


def test_rollups_of_an_earlier_version_are_computed_again(store: Store, folder: Path) -> None:
    clear(store)
    load(store, folder, {number: [{"type": "view", "session": f"s{number}", "id": number}] for number in (1, 2)})
    store.roll_up()
    connection = store._load_connection()
    connection.execute("update rollup_batch set first_ingest_seq = null, last_ingest_seq = null")
    assert expire_all(store, before_day=2) == 1
    assert offending(store) == {}
    assert connection.execute("select count(*) from rollup_batch").fetchall() == [(0,)]
    store.roll_up()
    assert offending(store) == {}
    assert rows_of(store, "views")["views"][0][3] == 1


def test_a_compacted_ledger_keeps_the_count_of_deleted_events(store: Store, folder: Path) -> None:
    clear(store)
    load(store, folder, {number: [{"type": "view", "session": "s", "id": number}] for number in (1, 2, 3)})
    assert expire_all(store, before_day=3) == 2
    connection = store._load_connection()
    connection.execute("update loaded_segment set loaded_at = $1", [LOADED])
    connection.execute("set variable compact_below = 3")
    connection.execute(read_sql("ledger")["compact"])
    assert connection.execute("select deleted_count, first_number from loaded_segment order by segment").fetchall() == [
        (2, 1),
        (None, None),
    ]
    assert offending(store) == {}


def test_deleted_events_are_not_lost_by_a_salvage(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    load(store, tmp_path, {number: events_of(number, [0, 0, 7, 11]) for number in (1, 2)})
    assert expire_all(store, before_day=2) == 3
    store.checkpoint()
    store.close()
    rebuilt = open_store(tmp_path / "rebuilt.duckdb")
    salvaged = rebuilt.salvage([tmp_path / "store.duckdb"], journal_numbers=[])
    assert (salvaged.row_count, salvaged.lost_count) == (3 + 2, 0)
    # What is salvaged is not younger than before.
    assert expire_all(rebuilt, before_day=3) == 3
    assert offending(rebuilt) == {}
    rebuilt.close()
