"""The report `completeness` agrees with an oracle that walks through the numbers of each session."""

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import replace_events, replace_rows, variables

START = datetime(2026, 11, 2)
NUMBERS_BELOW = 1_000_000
LOST_MAX = 1_000_000_000

Cell = tuple[datetime, int | None]


@dataclass(frozen=True)
class Numbered:
    """An event, or an action; `hour` counts from START."""

    seq: int | None
    hour: int = 0
    session: str | None = "s1"
    key_id: str = "k1"
    deployment: int | None = 1
    surface: str = "dashboard"
    tenant: str | None = None
    is_action: bool = False

    @property
    def occurred_at(self) -> datetime:
        return START + timedelta(hours=self.hour)


@dataclass(frozen=True)
class Loss:
    """Events that a forwarder reported as lost."""

    reason: str
    lost_count: int
    hour: int = 0
    deployment: int | None = 1

    @property
    def received_at(self) -> datetime:
        return START + timedelta(hours=self.hour)


def expected_rows(history: list[Numbered], losses: list[Loss], scope: dict[str, Any]) -> dict[Cell, tuple[Any, ...]]:
    """Return the rows of the oracle, by period and deployment."""
    received: Counter[Cell] = Counter()
    missing: Counter[Cell] = Counter()
    lost: dict[Cell, Counter[str]] = defaultdict(Counter)
    for event in history:
        if not event.is_action and _is_in_scope(event, scope):
            received[_cell(event.occurred_at, event, scope)] += 1
    for event, count in _gaps(history):
        if _is_in_scope(event, scope):
            missing[_cell(event.occurred_at, event, scope)] += count
    for loss in losses:
        if loss.lost_count and _is_within(loss.received_at, loss, scope):
            lost[_cell(loss.received_at, loss, scope)][loss.reason] += min(loss.lost_count, LOST_MAX)
    return {
        cell: (
            received[cell],
            missing[cell],
            sum(lost[cell].values()),
            dict(lost[cell]),
            received[cell] / (received[cell] + missing[cell]) if received[cell] else None,
        )
        for cell in received.keys() | missing.keys() | set(lost)
    }


def _gaps(history: list[Numbered]) -> Iterator[tuple[Numbered, int]]:
    """Yield each event with the number of missing numbers before it."""
    sessions: dict[tuple[str, str], list[Numbered]] = defaultdict(list)
    for record in history:
        if record.session is not None and record.seq is not None and 0 <= record.seq < NUMBERS_BELOW:
            sessions[record.key_id, record.session].append(record)
    for session in sessions.values():
        of_actions = sorted({record.seq for record in session if record.is_action and record.seq is not None})
        last = -1
        # Python's sort is stable, so events with equal keys stay in the order of ingest_seq.
        for event in sorted((record for record in session if not record.is_action), key=lambda e: (e.seq or 0, e.hour)):
            seq = event.seq or 0
            if seq > last:
                filled = bisect_left(of_actions, seq) - bisect_left(of_actions, last + 1)
                yield event, seq - last - 1 - filled
                last = seq


def _is_in_scope(event: Numbered, scope: dict[str, Any]) -> bool:
    return (
        _is_within(event.occurred_at, event, scope)
        and scope.get("surface") in (None, event.surface)
        and scope.get("tenant") in (None, event.tenant)
    )


def _is_within(at: datetime, record: Numbered | Loss, scope: dict[str, Any]) -> bool:
    deployments = scope.get("deployments")
    return (deployments is None or record.deployment in deployments) and (
        scope.get("since", datetime.min) <= at < scope.get("until", datetime.max)
    )


def _cell(at: datetime, record: Numbered | Loss, scope: dict[str, Any]) -> Cell:
    start = at if scope.get("interval") == "hour" else at.replace(hour=0)
    return start, record.deployment


def check(
    connection: duckdb.DuckDBPyConnection, history: list[Numbered], losses: list[Loss], scope: dict[str, Any]
) -> None:
    """Assert that the view has the rows of the oracle."""
    rows = [
        {name: getattr(record, name) for name in ("seq", "occurred_at", "session", "key_id", "deployment", "tenant")}
        | {"ingest_seq": ingest_seq, "type": "navigate"}
        for ingest_seq, record in enumerate(history)
    ]
    # Insert in reverse order, so that the report can't rely on the table's order instead of ingest_seq.
    both = list(zip(rows, history, strict=True))[::-1]
    replace_events(connection, [row | {"surface": record.surface} for row, record in both if not record.is_action])
    replace_rows(connection, "action", [row for row, record in both if record.is_action])
    names = ("reason", "lost_count", "received_at", "deployment")
    replace_rows(connection, "loss", [{name: getattr(loss, name) for name in names} for loss in losses])
    with variables(connection, scope):
        found = connection.execute("select * from completeness").fetchall()
    read = {row[:2]: (*row[2:5], json.loads(row[5]), row[6]) for row in found}
    assert read == expected_rows(history, losses, scope)
    assert len(read) == len(found)


numbers = st.one_of(
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from([None, 61, 62, 63, 64, 70, NUMBERS_BELOW - 1, NUMBERS_BELOW, 2**53 - 1]),
)
HOURS = [0, 1, 23, 24, 25, 48]
histories = st.lists(
    st.builds(
        Numbered,
        seq=numbers,
        hour=st.sampled_from(HOURS),
        session=st.sampled_from(["s1", "s1", "s1", "s2", "", None]),
        key_id=st.sampled_from(["k1", "k1", "k1", "k2"]),
        deployment=st.sampled_from([1, 1, 1, 2]),
        surface=st.sampled_from(["dashboard", "dashboard", "chat"]),
        tenant=st.sampled_from([None, "acme"]),
        is_action=st.sampled_from([False, False, False, True]),
    ),
    max_size=25,
)
losses = st.lists(
    st.builds(
        Loss,
        reason=st.sampled_from(["queue_overflow", "too_old", "", 'a"b\\\n', "é"]),
        lost_count=st.sampled_from([0, 1, 5, LOST_MAX, 2**53 - 1]),
        hour=st.sampled_from(HOURS),
        deployment=st.sampled_from([1, 2, None]),
    ),
    max_size=6,
)
instants = st.sampled_from(HOURS).map(lambda hour: START + timedelta(hours=hour))
scopes = st.fixed_dictionaries(
    {},
    optional={
        "since": instants,
        "until": instants,
        "surface": st.sampled_from(["dashboard", "chat"]),
        "deployments": st.sampled_from([[1], [1], [2], [1, 2], []]),
        "tenant": st.just("acme"),
        "interval": st.sampled_from(["hour", "day"]),
    },
)


@given(history=histories, losses=losses, scope=scopes)
def test_the_gaps_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Numbered], losses: list[Loss], scope: dict[str, Any]
) -> None:
    check(connection, history, losses, scope)


@pytest.mark.parametrize("seed", range(4))
def test_the_gaps_of_thousands_of_sessions_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, seed: int
) -> None:
    """Check one session per deployment: with shuffled, repeated, missing and late events."""
    rng = Random(seed)
    history = []
    for deployment in range(800):
        length = rng.choice([1, 3, 8, 66])
        received_numbers = [seq for seq in range(length) if rng.random() < rng.choice([0.5, 0.9, 1.0])]
        history += [
            Numbered(
                seq,
                hour=rng.choice([0, 0, 0, 1, 24]),
                session=f"s{deployment % 700}",
                key_id=f"k{deployment // 700}",
                deployment=deployment,
                is_action=rng.random() < 0.1,
            )
            for seq in received_numbers + rng.choices(received_numbers or [0], k=rng.choice([0, 0, 2]))
        ]
    rng.shuffle(history)
    check(connection, history, [], {"interval": rng.choice(["hour", "day"])})
