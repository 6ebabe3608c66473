"""The erasure of people: the store is then as if they had never sent anything."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.privacy.erased_people import viewers_in
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.store.database import Store
from embedsink.store.erasure import ErasedRows
from embedsink.store.expiry import RetentionLimit
from embedsink.store.limits import StoreLimits
from tests.store.test_expiry import REPORTS, clear, offending, rows_of
from tests.support.given import write_segment
from tests.support.stores import open_store

KINDS: list[dict[str, Any]] = [
    {"type": "view"},
    {"type": "view", "surface": "app"},
    {"type": "ready", "surface": "app", "deploymentId": 2, "embedTenant": "acme", "deployment": None},
    {"type": "view", "deployment": None},
    {"type": "view", "tenant": "globex"},
    {"type": "ai-query"},
    {"type": "ai-query", "status": "completed"},
    {"type": "drilldown", "member": "orders.plan", "value": "Free of charge, until May"},
    {"type": "refresh", "direction": "action"},
    {"lost": {"queue_overflow": 2}},
    {"type": "scroll", "rejected": "unknown_type"},
]
PRIVACY = Privacy(secrets=[bytes(32)])
VIEWERS = ("ann", hash_text("viewer", "ann", bytes(32)), "bob", None)
PEOPLE = (
    Person("ann"),
    Person("bob"),
    Person("ann", tenants=frozenset({"globex"})),
    Person("bob", deployments=frozenset({2})),
    Person("joe"),
)


def load(store: Store, folder: Path, given_: list[dict[str, Any]]) -> None:
    """Load events, and roll them up."""
    for number in (1, 2):
        half = [one for index, one in enumerate(given_) if index % 2 == number - 1]
        if half:
            store.load(inspect(write_segment(folder, half, number=number)))
            store.roll_up()


def erase(store: Store, *people: Person) -> list[ErasedRows]:
    selected: list[ErasedRows] = []
    variables = [person.variables(PRIVACY) for person in people]
    store.erase(variables, store.path.with_name("draft.duckdb"), on_deleted=selected.extend)
    return selected


def test_the_numbers_of_erased_messages_go_with_their_session(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb")
    store.open()
    events = [
        {"type": "view", "viewer": viewer, "session": "shared", "id": seq + 1, "seq": seq}
        for seq, viewer in enumerate(("ann", "bob"))
    ]
    store.load(inspect(write_segment(tmp_path, events, number=1)))
    erase(store, Person("ann"))
    numbers = "select count(*) from erased_seq"
    assert store._load_connection().execute(numbers).fetchall() == [(1,)]
    while store.expire(RetentionLimit(1 << 60, {})).next_seq is not None:
        pass
    store.finish_expiry()
    assert store._load_connection().execute(numbers).fetchall() == [(0,)]
    store.close()


def test_an_access_request_lacks_what_an_erased_person_may_have_sent(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb")
    store.open()
    viewers = ("ann", "bob", None)
    events = [
        {"type": "view", "viewer": viewer, "session": "shared", "id": id_} for id_, viewer in enumerate(viewers, 1)
    ]
    store.load(inspect(write_segment(tmp_path, events, number=1)))
    erase(store, Person("ann"))
    counts = []
    for excludes in (True, False):
        variables = {**Person("bob").variables(PRIVACY), "excludes_formerly_shared": excludes}
        with store.reader(variables) as reader:
            [row] = reader.dicts("person_count")
        counts.append(row["event_count"])
    assert counts == [1, 2]
    assert [rows.event_count for rows in erase(store, Person("bob"))] == [2]
    store.close()


_histories = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.sampled_from(VIEWERS), st.integers(0, 3)), min_size=1, max_size=25
)


@given(history=_histories, person=st.sampled_from(PEOPLE))
def test_the_store_is_as_if_the_person_had_never_sent_anything(
    store: Store, folder: Path, history: list[tuple[int, str | None, int]], person: Person
) -> None:
    given_ = [
        {"viewer": viewer, "session": f"s{session}", "id": 100 + index, "seq": None, "at": f"2026-11-01T10:{index:02d}"}
        | KINDS[kind]
        for index, (kind, viewer, session) in enumerate(history)
    ]
    clear(store)
    load(store, folder, given_)
    variables = person.variables(PRIVACY)
    with store.reader(variables) as reader:
        erased = {row["ingest_seq"] for row in reader.dicts("person_envelope")}
        rejected = len(reader.dicts("person_rejection"))
        losses = len(reader.dicts("person_loss"))
    connection = store._load_connection()
    expected_rows = connection.execute(
        "select ingest_seq from event union all select ingest_seq from action order by all"
    ).fetchall()
    [counts] = erase(store, person)
    assert counts.event_count + counts.action_count == len(erased)
    assert (counts.rejection_count, counts.loss_count) == (rejected, losses)
    assert offending(store) == {}
    remaining = (
        store._load_connection()
        .execute("select ingest_seq from event union all select ingest_seq from action order by all")
        .fetchall()
    )
    assert remaining == [row for row in expected_rows if row[0] not in erased]
    with store.reader(variables) as reader:
        for view in ("person_envelope", "person_session", "person_rejection", "person_loss"):
            assert reader.dicts(view) == []
    # The reports are those of the rows that remain, and so are rollups that are computed again.
    reports = rows_of(store, *REPORTS)
    store.reset_derived_tables()
    assert rows_of(store, *REPORTS) == reports
    store.roll_up()
    assert rows_of(store, *REPORTS) == reports


def insert_rejections(store: Store, raw: str, count: int) -> None:
    store._load_connection().execute(
        "insert into quarantine by name select uuid() as quarantine_id, range as ingest_seq, 'not_json' as reason, "
        "'' as detail, $1 as raw from range($2)",
        [raw, count],
    )


def test_many_rejections_with_many_viewers_fit_into_memory(store: Store) -> None:
    clear(store)
    insert_rejections(store, "[" + ",".join(['{"viewer":"u_1"}'] * 580) + "]", 1_500)
    with store.reader(Person("u_42").variables(PRIVACY)) as reader:
        assert reader.dicts("person_rejection") == []


@pytest.mark.parametrize("number", ["4711", "4711.0", "4.711e3"])
def test_numbers_that_equal_the_viewer_are_found(store: Store, number: str) -> None:
    clear(store)
    insert_rejections(store, f'{{"context": {{"viewer": {number}}}}}', 1)
    for viewer, count in (("4711", 1), ("471", 0)):
        with store.reader(Person(viewer).variables(PRIVACY)) as reader:
            assert len(reader.dicts("person_rejection")) == count


@pytest.mark.parametrize(
    "raw", ['{"viewer": {"id": 42}, ', '{"viewer": ["jos\\u00e9"], ', '{"viewer": "CORP\\\\ann", ']
)
def test_viewers_in_damaged_json_are_found(store: Store, raw: str) -> None:
    clear(store)
    insert_rejections(store, raw, 1)
    for viewer in ("42", "josé", "CORP\\ann"):
        with store.reader(Person(viewer).variables(PRIVACY)) as reader:
            assert len(reader.dicts("person_rejection")) == (viewer in set(viewers_in(raw.encode())))
    assert len(set(viewers_in(raw.encode())) & {"42", "josé", "CORP\\ann"}) == 1


@pytest.mark.parametrize(
    "unit", ['"viewer":{"a":"', '{"viewer":', '"viewer":"', '"viewer":[', "viewer", '{"viewer":{"a":"b"}},']
)
def test_hostile_rejections_are_searched_in_linear_time(store: Store, unit: str) -> None:
    clear(store)
    insert_rejections(store, unit * (8_192 // len(unit)), 20)
    began_s = time.process_time()
    with store.reader(PEOPLE[0].variables(PRIVACY)) as reader:
        assert reader.dicts("person_rejection") == []
    assert time.process_time() - began_s < 2


def test_erased_numbers_of_a_shared_session_are_not_missing(store: Store, folder: Path) -> None:
    clear(store)
    given_ = [
        {"type": "view", "viewer": viewer, "session": "shared", "seq": seq, "id": 100 + seq}
        for seq, viewer in enumerate(["bob", "ann", "ann", "bob", "ann", None, "bob"])
    ]
    load(store, folder, given_)
    [selected] = erase(store, Person("ann"))
    assert selected.event_count == 3
    for period in ({}, {"since": datetime(2026, 10, 1), "until": datetime(2026, 12, 1)}):
        with store.reader({**EVERYTHING.variables(), **period}) as reader:
            assert [row["missing_count"] for row in reader.dicts("completeness")] == [0]
    # The event without a viewer is bob's now.
    assert [selected.event_count for selected in erase(store, Person("bob"), Person("ann"))] == [3 + 1, 0]
    for table in ("event", "erased_seq"):
        assert store._load_connection().execute(f"select count(*) from {table}").fetchall() == [(0,)]


def test_rows_stay_in_their_order(tmp_path: Path) -> None:
    """Many reports read the rows of a range of ingest_seq without a sort."""
    store = open_store(tmp_path / "store.duckdb", StoreLimits(threads=4, threads_max=4))
    store.load(inspect(write_segment(tmp_path, [{"type": "view", "viewer": "ann", "session": "s"}])))
    store._load_connection().execute("""
        insert into event by name
        select event.* replace (
            ingest_seq + i as ingest_seq,
            uuid() as event_id,
            if(i % 1000 = 0, 'ann', 'bob') as viewer,
            's' || i as session
        )
        from event, range(1, 400000) as r(i)
        order by i
    """)
    erase(store, Person("ann"))
    query = (
        "select count(*) from (select ingest_seq < lag(ingest_seq) over () as is_inverted from event) where is_inverted"
    )
    assert store._load_connection().execute(query).fetchall() == [(0,)]
    assert store._load_connection().execute("select count(*) from event where viewer = 'ann'").fetchall() == [(0,)]
    store.close()


def test_nothing_of_a_person_is_in_the_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb", StoreLimits(rollup_from_count=1))
    secret = "only-ann-writes-this"
    given_ = [
        {
            "type": "view",
            "viewer": viewer,
            "session": f"session of {viewer}",
            "title": f"{title} {number}",
            "id": 9 * number,
        }
        for viewer, title in (("ann@example.com", secret), ("bob@example.com", "Sales"))
        for number in range(200)
    ]
    load(store, tmp_path, given_)
    store.checkpoint()
    [selected] = erase(store, Person("ann@example.com"))
    assert selected.texts == (*(f"{secret} {number}" for number in range(100, 103)), "session of ann@example.com")
    content = store.path.read_bytes()
    assert b"bob@example.com" in content
    for text in ("ann@example.com", secret):
        assert text.encode() not in content
    store.close()


def test_people_of_one_session_are_erased_one_after_the_other(store: Store, folder: Path) -> None:
    clear(store)
    kinds: list[dict[str, Any]] = [
        {"type": "view", "viewer": "ann"},
        {"type": "view", "viewer": "bob"},
        {"type": "view", "viewer": None},
        {"lost": {"queue_overflow": 2}, "viewer": None},
    ]
    load(store, folder, [{**kind, "session": "shared", "seq": None, "id": 100 + n} for n, kind in enumerate(kinds)])
    first, second = erase(store, Person("ann"), Person("bob"))
    assert (first.event_count, second.event_count, second.loss_count) == (1, 2, 1)
    for table in ("event", "loss", "erased_seq", "session_ready"):
        assert store._load_connection().execute(f"select count(*) from {table}").fetchall() == [(0,)]
