"""The deletion of the texts of AI questions and of unknown fields: reports still count the events."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.privacy.hashing import hash_text
from embedsink.store import field_expiry
from embedsink.store.database import Store
from tests.store.test_expiry import LOADED, clear, load, offending, rows_of
from tests.support.examples import examples

REPORTS = ("ai_queries", "sessions", "views", "totals", "tenants", "reach", "error_rates", "viewer_group")
STATUSES = ("submitted", "completed", "error")
TEXTS = ("How many orders?", "Why?", "", hash_text("query", "Which?", bytes(32)))


def hash_question(text: str) -> str:
    return hash_text("query", text, bytes(32))


def expire(store: Store, *, question_day: int | None = None, extra_day: int | None = None) -> int:
    """Delete the fields of the events of the days before a day. Return the number of steps."""
    days = {"question_before": question_day, "extra_before": extra_day}
    limits: dict[str, Any] = {name: None if day is None else LOADED + timedelta(days=day) for name, day in days.items()}
    count = 0
    while store.expire_fields(**limits, hash_question=hash_question):
        count += 1
    return count


def column(store: Store, sql: str) -> list[Any]:
    return [value for (value,) in store._load_connection().execute(sql).fetchall()]


_stages = st.tuples(
    st.integers(1, 4),  # the day, and the number of the segment
    st.sampled_from(STATUSES),
    st.sampled_from(TEXTS),
    st.sampled_from(["c1", None]),
    st.sampled_from(["s1", "s2", None]),
)


@examples(5 / 3)
@given(stages=st.lists(_stages, min_size=1, max_size=20), day=st.integers(1, 5), rolls_up=st.booleans())
def test_reports_count_the_same_questions(
    store: Store, folder: Path, stages: list[Any], day: int, rolls_up: bool
) -> None:
    clear(store)
    segments: dict[int, list[dict[str, Any]]] = {day: [{"type": "view", "id": day}] for day in range(1, 5)}
    for number, (segment, status, text, chat, session) in enumerate(sorted(stages, key=lambda stage: stage[0])):
        # A session ends on the day after its beginning.
        session = session and f"{session} {segment // 2}"
        event = {"type": "ai-query", "status": status, "query": text, "chatId": chat, "session": session}
        event |= {"id": 100 + number, "seq": None, "at": f"2026-11-{segment:02d}T10:{number:02d}"}
        segments.setdefault(segment, []).append(event)
    load(store, folder, segments)
    if rolls_up:
        store.roll_up()
    before = rows_of(store, *REPORTS)
    expire(store, question_day=day)
    assert rows_of(store, *REPORTS) == before
    assert offending(store) == {}
    # A text of a question that began before may be on the next day too.
    old = column(store, f"select query from event where ingest_seq >> 32 < {day}")
    assert {text for text in old if text} <= {hash_question(text) for text in TEXTS}
    new = column(store, f"select query from event where ingest_seq >> 32 > {day}")
    assert {text for text in new if text} <= set(TEXTS)
    store.reset_derived_tables()
    assert rows_of(store, *REPORTS) == before
    assert expire(store, question_day=day) == 0


def test_a_question_that_ends_after_the_limit_stays_one_question(store: Store, folder: Path) -> None:
    clear(store)
    stage: dict[str, Any] = {"type": "ai-query", "query": "How many orders?", "session": "s1"}
    load(
        store,
        folder,
        {
            1: [{**stage, "id": 1, "status": "submitted", "at": "2026-11-01T23:59"}],
            2: [{**stage, "id": 2, "status": "completed", "at": "2026-11-02T00:01"}],
            3: [{**stage, "id": 3, "status": "submitted", "at": "2026-11-03T10:00"}],
        },
    )
    before = rows_of(store, *REPORTS)
    expire(store, question_day=2)
    hashed = hash_question("How many orders?")
    assert column(store, "select query from event order by ingest_seq") == [hashed, hashed, "How many orders?"]
    assert rows_of(store, *REPORTS) == before


def test_the_texts_of_feedback_are_hashed_with_the_questions(store: Store, folder: Path) -> None:
    clear(store)
    question = {"type": "ai-query", "query": "Why?", "chatId": "c1"}
    feedback = {"type": "x-feedback", "chatId": "c1", "rating": "down"}
    load(
        store,
        folder,
        {
            1: [
                {**question, "id": 1, "at": "2026-11-01T10:00"},
                {**feedback, "id": 2, "at": "2026-11-01T10:01", "text": "It is wrong."},
                {**feedback, "id": 3, "at": "2026-11-01T10:02"},
            ],
            3: [{**feedback, "id": 4, "at": "2026-11-03T10:00", "text": "It is wrong."}],
        },
    )
    before = rows_of(store, *REPORTS)
    expire(store, question_day=2)
    assert column(store, "select query from event order by ingest_seq") == [hash_question("Why?"), None, None, None]
    texts = column(store, "select feedback_text from event order by ingest_seq")
    assert texts == [None, hash_question("It is wrong."), None, "It is wrong."]
    assert rows_of(store, *REPORTS) == before
    assert expire(store, question_day=2) == 0


def test_unknown_fields_of_old_events_and_actions_are_deleted_in_steps(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_expiry, "CHANGED_AT_ONCE", 2)
    clear(store)
    kinds: list[dict[str, Any]] = [{"type": "view"}, {"type": "refresh", "direction": "action"}] * 2
    segments = {
        number: [{**kind, "id": 10 * number + index, "seq": None} for index, kind in enumerate(kinds)]
        for number in (1, 2)
    }
    load(store, folder, segments)
    connection = store._load_connection()
    for table in ("event", "action"):
        connection.execute(f"""update {table} set extra = '{{"a":1}}', envelope_extra = '{{"b":2}}'""")
    assert expire(store, extra_day=2) == 2
    for table in ("event", "action"):
        for name in ("extra", "envelope_extra"):
            kept = f"select ingest_seq >> 32 from {table} where {name} is not null"
            assert column(store, kept) == [2, 2]
    assert offending(store) == {}
