"""The pairing of AI queries agrees with an oracle that walks through each history."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, product
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.store.database import Store
from tests.support.examples import examples
from tests.support.given import write_segment
from tests.support.rows import replace_events, variables

START = datetime(2026, 11, 2, 10)
NOW = START + timedelta(minutes=30)
PAIRED_WITHIN = timedelta(hours=24)
# Few instants, so that stages coincide. Some are 24 hours apart, or a minute less or more.
MINUTES = (1, 2, 20, 21, 1_440, 1_441, 1_442, 1_461, 2_881)


@dataclass(frozen=True)
class Stage:
    """An ai-query event. `minute` is its time since START."""

    status: str
    minute: int = 0
    seq: int | None = None
    deployment: int | None = 1
    session: str | None = "s1"
    chat_id: str | None = None
    query: str = "why"
    surface: str = "chat"
    tenant: str | None = None
    viewer: str | None = None
    agent_id: str | None = None

    @property
    def occurred_at(self) -> datetime:
        return START + timedelta(minutes=self.minute)


class Row(NamedTuple):
    """One row of the report `ai_query`."""

    deployment: int | None
    surface: str
    session: str | None
    viewer: str | None
    chat_id: str | None
    agent_id: str | None
    query: str
    submitted_at: datetime | None
    finished_at: datetime | None
    status: str
    latency_ms: int | None
    is_ambiguous: bool


def expected_rows(history: list[Stage], scope: dict[str, object], now: datetime = NOW) -> Counter[Row]:
    """Return the rows of the oracle."""
    queues: dict[object, list[Stage]] = defaultdict(list)
    # Python's sort is stable, so stages with equal keys stay in the order of ingest_seq.
    for stage in sorted(history, key=lambda s: (s.minute, s.seq is None, s.seq or 0)):
        if _is_in_scope(stage, scope):
            queues[stage.deployment, stage.session, stage.chat_id, stage.query].append(stage)
    paired_rows = [paired_row for queue in queues.values() for paired_row in _pair_queue(queue, now)]
    return Counter(row for tenant, row in paired_rows if _is_row_in_scope(tenant, row, scope))


def _is_in_scope(stage: Stage, scope: dict[str, object]) -> bool:
    deployments = scope.get("deployments")
    return deployments is None or stage.deployment in deployments  # type: ignore[operator]


def _is_row_in_scope(tenant: str | None, row: Row, scope: dict[str, object]) -> bool:
    began_at = row.submitted_at or row.finished_at
    assert began_at
    return (
        scope.get("since", datetime.min) <= began_at < scope.get("until", datetime.max)  # type: ignore[operator]
        and scope.get("surface") in (None, row.surface)
        and scope.get("tenant") in (None, tenant)
    )


def _pair_queue(queue: list[Stage], now: datetime) -> Iterator[tuple[str | None, Row]]:
    ends: dict[int, Stage] = {}
    crowded: set[int] = set()
    for number, stage in enumerate(queue):
        open_questions = _open_questions(queue[:number], stage.occurred_at - PAIRED_WITHIN)
        if stage.status == "submitted":
            crowded |= {id(one) for one in [stage, *open_questions] if open_questions}
        elif open_questions:
            assert id(open_questions[0]) not in ends, "two ends close one question"
            ends[id(open_questions[0])] = stage
        else:
            yield _row(None, stage, False, now)
    for question in queue:
        if question.status == "submitted":
            yield _row(question, ends.get(id(question)), id(question) in crowded, now)


def _open_questions(earlier: list[Stage], since: datetime) -> list[Stage]:
    """Return the open questions after these stages of a queue, regardless of the stages before `since`."""
    open_questions: list[Stage] = []
    for stage in earlier:
        if stage.occurred_at >= since:
            if stage.status == "submitted":
                open_questions.append(stage)
            elif open_questions:
                open_questions.pop(0)
    return open_questions


def _row(question: Stage | None, ended: Stage | None, is_crowded: bool, now: datetime) -> tuple[str | None, Row]:
    first, last = question or ended, ended or question
    assert first
    assert last
    is_pending = first.occurred_at + timedelta(minutes=10) > now
    status = ended.status if ended else "pending" if is_pending else "abandoned"
    row = Row(
        deployment=first.deployment,
        surface=first.surface,
        session=first.session,
        viewer=first.viewer if first.viewer is not None else last.viewer,
        chat_id=first.chat_id,
        agent_id=last.agent_id if last.agent_id is not None else first.agent_id,
        query=first.query,
        submitted_at=question.occurred_at if question else None,
        finished_at=ended.occurred_at if ended else None,
        status=status,
        latency_ms=(ended.minute - question.minute) * 60_000 if question and ended else None,
        is_ambiguous=is_crowded or first.session is None,
    )
    return (first.tenant if first.tenant is not None else last.tenant), row


def query_rows(
    connection: duckdb.DuckDBPyConnection, history: Iterable[Stage], scope: dict[str, object], now: datetime = NOW
) -> Counter[Row]:
    rows = [
        {name: value for name, value in vars(stage).items() if name != "minute"}
        | {"occurred_at": stage.occurred_at, "type": "ai-query", "ingest_seq": ingest_seq}
        for ingest_seq, stage in enumerate(history)
    ]
    # Insert in reverse order, so that the report can't rely on the table's order instead of ingest_seq.
    replace_events(connection, reversed(rows))
    with variables(connection, scope | {"now": now}):
        return Counter(
            Row(*row)
            for row in connection.execute(
                "select * exclude (ingest_seq, rating, feedback_text) from ai_query"
            ).fetchall()
        )


def test_all_histories_of_up_to_seven_stages_agree_with_the_oracle(connection: duckdb.DuckDBPyConnection) -> None:
    lengths = range(1, 8)
    queues = [queue for length in lengths for queue in product(("submitted", "completed"), repeat=length)]
    history = [
        Stage(status, minute, session=f"s{number}")
        for number, queue in enumerate(queues)
        for minute, status in enumerate(queue)
    ]
    assert query_rows(connection, history, {}) == expected_rows(history, {})


# Most stages share a queue and a few instants, so that order and concurrency matter.
OTHER_QUEUES: list[dict[str, Any]] = [
    {"deployment": 2},
    {"deployment": None},
    {"session": ""},
    {"session": None},
    {"chat_id": "c1"},
    {"query": "Why"},
]
stages = st.builds(
    lambda queue, **said: Stage(**said, **queue),
    queue=st.sampled_from([{}] * 6 + OTHER_QUEUES),
    status=st.sampled_from(["submitted", "submitted", "completed", "error"]),
    minute=st.sampled_from(MINUTES),
    seq=st.sampled_from([None, 0, 1]),
    surface=st.sampled_from(["chat", "chat", "app"]),
    tenant=st.sampled_from([None, "acme"]),
    viewer=st.sampled_from([None, "u1", "u2"]),
    agent_id=st.sampled_from([None, "a1", "a2"]),
)
histories = st.lists(stages, min_size=6, max_size=30)
instants = st.sampled_from(MINUTES).map(lambda minute: START + timedelta(minutes=minute))
scopes = st.fixed_dictionaries(
    {},
    optional={
        "since": instants,
        "until": instants,
        "surface": st.sampled_from(["chat", "app"]),
        "deployments": st.lists(st.sampled_from([1, 2]), max_size=2),
        "tenant": st.just("acme"),
    },
)


# Instants before, at and after the end of each question's ten minutes.
clocks = st.sampled_from([2, 10, 11, 12, 13, 30, 31, 45, 1_451, 1_452]).map(
    lambda minute: START + timedelta(minutes=minute)
)


@given(history=histories, scope=scopes, now=clocks)
def test_the_pairs_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Stage], scope: dict[str, object], now: datetime
) -> None:
    assert query_rows(connection, history, scope, now) == expected_rows(history, scope, now)


@pytest.mark.parametrize("seed", range(4))
def test_the_pairs_of_thousands_of_histories_agree_row_by_row(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Check one session per history: orphans, repeats, null chats, few instants, any order."""
    rng = Random(seed)
    history = [
        Stage(
            status=rng.choice(["submitted", "submitted", "completed", "error"]),
            minute=rng.choice(MINUTES),
            seq=rng.choice([None, 0, 1]),
            session=f"s{number}",
            chat_id=rng.choice([None, None, "c1"]),
            query=rng.choice(["why", "why", "Why"]),
            viewer=rng.choice([None, "u1", "u2"]),
            agent_id=rng.choice([None, "a1", "a2"]),
        )
        for number in range(1_500)
        for _ in range(rng.randint(1, 9))
    ]
    rng.shuffle(history)
    now = START + timedelta(minutes=rng.choice([11, 12, 30, 31]))
    assert query_rows(connection, history, {}, now) == expected_rows(history, {}, now)


@pytest.mark.parametrize("seed", range(3))
def test_each_period_of_long_histories_agrees_with_the_oracle(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Check queues without a quiet day: their stages depend on each other across the bounds of each period."""
    rng = Random(seed)
    history = [
        Stage(rng.choice(["submitted", "completed"]), rng.randrange(0, 8 * 1_440, 60), session=f"s{number}")
        for number in range(100)
        for _ in range(rng.randint(10, 60))
    ]
    days = [START + timedelta(days=number) for number in range(9)]
    now = days[-1]
    periods: list[dict[str, object]] = [{"since": first, "until": end} for first, end in pairwise(days)]
    scopes = [{}, *periods]
    expected = [expected_rows(history, scope, now) for scope in scopes]
    assert [query_rows(connection, history, scope, now) for scope in scopes] == expected


@pytest.fixture
def store(opened: Store) -> Store:
    """Empty the store before each test."""
    empty(opened)
    return opened


def empty(store: Store) -> None:
    for table in ("event", "loaded_segment"):
        store._load_connection().execute(f"truncate {table}")


def load(store: Store, folder: Path, stages: Iterable[tuple[int, Stage]], *, number: int) -> None:
    """Load a segment of numbered stages. The number is the id, so a repeated stage is a retry."""
    given = [
        {name: value for name, value in vars(stage).items() if name not in ("minute", "chat_id", "agent_id")}
        | {"type": "ai-query", "id": id, "at": stage.occurred_at.isoformat()}
        | {"chatId": stage.chat_id, "agentId": stage.agent_id}
        for id, stage in stages
    ]
    store.load(inspect(write_segment(folder, given, number=number)))


def rows_of(store: Store, now: datetime) -> Counter[Row]:
    with store.reader({**EVERYTHING.variables(), "now": now}) as reader:
        return Counter(Row(*row[: len(Row._fields)]) for rows in reader.rows("ai_query") for row in rows)


def test_an_answer_in_a_later_segment_closes_a_pending_or_abandoned_question(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, [(0, Stage("submitted", 1))], number=1)
    statuses = [[row.status for row in rows_of(store, START + timedelta(minutes=minute))] for minute in (10, 11)]
    load(store, tmp_path, [(1, Stage("completed", 2))], number=2)
    statuses.append([row.status for row in rows_of(store, START + timedelta(minutes=30))])
    assert statuses == [["pending"], ["abandoned"], ["completed"]]


def test_a_question_in_a_later_segment_takes_the_answer_that_was_an_orphan(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, [(0, Stage("completed", 2))], number=1)
    (orphan,) = rows_of(store, NOW)
    load(store, tmp_path, [(1, Stage("submitted", 1))], number=2)
    (pair,) = rows_of(store, NOW)
    assert (orphan.submitted_at, orphan.latency_ms) == (None, None)
    assert (pair.submitted_at, pair.latency_ms) == (START + timedelta(minutes=1), 60_000)


@examples(2)
@given(
    history=st.lists(stages, min_size=4, max_size=25),
    places=st.randoms(use_true_random=False),
    now=clocks,
)
def test_the_rows_agree_with_the_oracle_after_each_segment(
    opened: Store, tmp_path_factory: pytest.TempPathFactory, history: list[Stage], places: Random, now: datetime
) -> None:
    """Each stage may arrive in any segment, and again as a retry in a later one."""
    empty(opened)
    folder = tmp_path_factory.mktemp("journal")
    arriving = list(enumerate(history))
    places.shuffle(arriving)
    parts = [arriving[offset::3] for offset in range(3)]
    loaded_stages: dict[int, Stage] = {}
    for number, part in enumerate(parts, 1):
        retries = places.choices(list(loaded_stages.items()), k=2) if loaded_stages else []
        load(opened, folder, part + retries, number=number)
        loaded_stages |= dict(part)
        assert rows_of(opened, now) == expected_rows(list(loaded_stages.values()), {}, now)


@examples(2)
@given(history=histories)
def test_every_stage_is_in_exactly_one_row(connection: duckdb.DuckDBPyConnection, history: list[Stage]) -> None:
    rows = query_rows(connection, history, {})
    submitted = sum(count for row, count in rows.items() if row.submitted_at)
    finished = sum(count for row, count in rows.items() if row.finished_at)
    assert submitted == sum(stage.status == "submitted" for stage in history)
    assert finished == sum(stage.status != "submitted" for stage in history)


@pytest.mark.alone
def test_a_question_sent_a_hundred_thousand_times_is_paired_in_seconds(connection: duckdb.DuckDBPyConnection) -> None:
    """The former query counted from the start of the queue at each stage, and took seven seconds for this queue."""
    connection.execute("truncate event")
    connection.execute("""
        insert into event by name
        select i as ingest_seq, timestamp '2026-11-02' + to_milliseconds(i) as occurred_at, 's1' as session,
            'ai-query' as type, 'chat' as surface, 'why' as query, if(i < 50000, 'submitted', 'completed') as status
        from range(100000) as t(i)
    """)
    with variables(connection, {"now": NOW}):
        started_at = process_time()
        counts = connection.execute("select count(*), count(latency_ms), min(latency_ms) from ai_query").fetchone()
        took_s = process_time() - started_at
    connection.execute("truncate event")
    assert counts == (50_000, 50_000, 50_000)
    assert took_s < 4
