"""The report `ai_query_groups` agrees with an oracle that finds the next actions of each question's session."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.test_ai_pair import NOW, START, Row, Stage, expected_rows
from tests.support.rows import replace_events, variables

# The expected shape of each text, written by hand.
SHAPES = {
    "why": "why",
    "Why": "why",
    " why  ": "why",
    "top 5": "top #",
    "TOP  10": "top #",
    'top "5"': 'top "…"',
    "top 'five'": 'top "…"',
}
SOON = timedelta(minutes=10)
COUNTS = ("asked", "answered", "failed", "abandoned", "followed", "acted", "again")


@dataclass(frozen=True)
class Act:
    """An event other than a stage of an AI query."""

    type: str
    minute: int = 0
    deployment: int | None = 1
    session: str | None = "s1"
    surface: str = "dashboard"
    tenant: str | None = None

    @property
    def occurred_at(self) -> datetime:
        return START + timedelta(minutes=self.minute)


@dataclass
class Answer:
    """A row of the report without its example, because any of several latest questions is a valid example."""

    counts: dict[str, int]
    sessions: set[str]
    viewers: set[str]
    surfaces: set[str]
    latest_at: datetime = datetime.min
    examples: frozenset[str] = frozenset()

    def cells(self) -> tuple[object, ...]:
        counts = (self.counts[name] for name in COUNTS)
        return (*counts, len(self.sessions), len(self.viewers), ", ".join(sorted(self.surfaces)))


Answers = dict[tuple[int | None, str], Answer]


def expected_answers(stages: list[Stage], acts: list[Act], scope: dict[str, Any]) -> Answers:
    """Return the rows of the oracle."""
    answers: Answers = defaultdict(lambda: Answer(dict.fromkeys(COUNTS, 0), set(), set(), set()))
    questions = [s for s in stages if s.status == "submitted" and _is_in_scope(s, scope)]
    done = [a for a in acts if a.type in ("drilldown", "download") and _is_in_scope(a, scope)]
    for row in expected_rows(stages, scope).elements():
        _count(answers[row.deployment, SHAPES[row.query]], row, questions, done)
    return dict(answers)


def _count(answer: Answer, row: Row, questions: list[Stage], done: list[Act]) -> None:
    began_at = row.submitted_at or row.finished_at
    assert began_at
    same_shape = [stage for stage in questions if SHAPES[stage.query] == SHAPES[row.query]]
    answer.counts["asked"] += row.submitted_at is not None
    for name, status in (("answered", "completed"), ("failed", "error"), ("abandoned", "abandoned")):
        answer.counts[name] += row.status == status
    answer.counts["again"] += row.submitted_at is not None and _follows(same_shape, row, row.submitted_at)
    answer.counts["followed"] += _follows(done, row, row.finished_at or began_at)
    answer.counts["acted"] += row.status == "completed" and _follows(done, row, row.finished_at or began_at)
    answer.sessions |= {row.session} - {None}  # type: ignore[arg-type]
    answer.viewers |= {row.viewer} - {None}  # type: ignore[arg-type]
    answer.surfaces |= {row.surface}
    if began_at > answer.latest_at:
        answer.latest_at, answer.examples = began_at, frozenset()
    if began_at == answer.latest_at:
        answer.examples |= {row.query}


def _follows(events: Sequence[Stage | Act], row: Row, after: datetime) -> bool:
    return row.session is not None and any(
        (event.deployment, event.session) == (row.deployment, row.session) and after < event.occurred_at <= after + SOON
        for event in events
    )


def _is_in_scope(event: Stage | Act, scope: dict[str, Any]) -> bool:
    """Return whether the deployment of an event is in scope. An action may have any surface and tenant."""
    deployments = scope.get("deployments")
    return deployments is None or event.deployment in deployments


def check(connection: duckdb.DuckDBPyConnection, stages: list[Stage], acts: list[Act], scope: dict[str, Any]) -> None:
    """Assert that the view has the rows of the oracle."""
    of_acts = dict.fromkeys(("status", "seq", "chat_id", "query", "viewer", "agent_id"))
    events: list[Stage | Act] = [*stages, *acts]
    rows = [
        {name: value for name, value in (of_acts | vars(event)).items() if name != "minute"}
        | {"type": getattr(event, "type", "ai-query"), "occurred_at": event.occurred_at, "ingest_seq": ingest_seq}
        for ingest_seq, event in enumerate(events)
    ]
    replace_events(connection, sorted(rows, key=lambda row: str(row["type"])))
    with variables(connection, scope | {"now": NOW}):
        found = connection.execute("select * from ai_query_groups").fetchall()
    expected = expected_answers(stages, acts, scope)
    assert {row[:2]: row[2:-1] for row in found} == {key: answer.cells() for key, answer in expected.items()}
    assert len(found) == len(expected)
    assert all(row[-1] in expected[row[:2]].examples for row in found)
    assert [row[2] for row in found] == sorted((row[2] for row in found), reverse=True)


# Gaps of ten minutes, a little less and a little more; some events have the same instant.
MINUTES = [1, 2, 11, 12, 13, 21, 22]
stages = st.builds(
    Stage,
    status=st.sampled_from(["submitted", "submitted", "completed", "error"]),
    minute=st.sampled_from(MINUTES),
    seq=st.sampled_from([None, 0, 1]),
    deployment=st.sampled_from([1, 1, 1, 2, None]),
    session=st.sampled_from(["s1", "s1", "s1", "s2", "", None]),
    chat_id=st.sampled_from([None, None, "c1"]),
    query=st.sampled_from(sorted(SHAPES)),
    surface=st.sampled_from(["chat", "chat", "app"]),
    tenant=st.sampled_from([None, "acme"]),
    viewer=st.sampled_from([None, "u1", "u2"]),
)
acts = st.builds(
    Act,
    type=st.sampled_from(["drilldown", "download", "view"]),
    minute=st.sampled_from(MINUTES),
    deployment=st.sampled_from([1, 1, 1, 2, None]),
    session=st.sampled_from(["s1", "s1", "s1", "s2", "", None]),
    tenant=st.sampled_from([None, "acme"]),
)
instants = st.sampled_from(MINUTES).map(lambda minute: START + timedelta(minutes=minute))
scopes = st.fixed_dictionaries(
    {},
    optional={
        "since": instants,
        "until": instants,
        "surface": st.sampled_from(["chat", "app"]),
        "deployments": st.sampled_from([[1], [1], [2], [1, 2], []]),
        "tenant": st.just("acme"),
    },
)


@given(stages=st.lists(stages, max_size=20), acts=st.lists(acts, max_size=8), scope=scopes)
def test_the_groups_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, stages: list[Stage], acts: list[Act], scope: dict[str, Any]
) -> None:
    check(connection, stages, acts, scope)


MASS_SCOPES: list[dict[str, Any]] = [
    {},
    {"surface": "chat"},
    {"until": START + timedelta(minutes=12)},
    {"since": START + timedelta(minutes=11)},
]


@pytest.mark.parametrize(("seed", "scope"), list(enumerate(MASS_SCOPES)))
def test_the_groups_of_thousands_of_sessions_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, seed: int, scope: dict[str, Any]
) -> None:
    """Check one history per deployment, all in one query."""
    rng = Random(seed)
    stages: list[Stage] = []
    acts: list[Act] = []
    for deployment in range(600):
        sessions = [f"s{deployment}", f"s{deployment}", None]
        stages += [
            Stage(
                rng.choice(["submitted", "submitted", "completed", "error"]),
                rng.choice(MINUTES),
                deployment=deployment,
                session=rng.choice(sessions),
                query=rng.choice(sorted(SHAPES)),
                surface=rng.choice(["chat", "app"]),
            )
            for _ in range(rng.randint(1, 5))
        ]
        acts += [
            Act(rng.choice(["drilldown", "download", "view"]), rng.choice(MINUTES), deployment, sessions[0])
            for _ in range(rng.randint(0, 2))
        ]
    rng.shuffle(stages)
    check(connection, stages, acts, scope)
