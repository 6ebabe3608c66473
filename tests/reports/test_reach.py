"""The report `reach` agrees with an oracle that finds the stages of each session."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import duckdb
from hypothesis import given

from tests.support.histories import Event, Scope, events_in_scope, histories, report_rows, rows_in_scope, scopes

STAGES = {
    "ready": ("ready", None),
    "view": ("view", None),
    "loaded": ("dashboard-loaded", None),
    "drilldown": ("drilldown", None),
    "download": ("download", None),
    "ai_query": ("ai-query", "submitted"),
    "ai_answered": ("ai-query", "completed"),
}
SURFACES = ("app", "chat", "dashboard")


class Row(NamedTuple):
    """One row of the report `reach`."""

    deployment: int | None
    surface: str
    stage: str
    session_count: int
    share_of_ready: float | None
    stage_number: int
    session_with_ready_count: int


def expected_rows(history: list[Event], scope: Scope) -> list[Row]:
    """Return the rows of the oracle."""
    sessions: dict[tuple[int | None, str], dict[str, set[object]]] = defaultdict(lambda: defaultdict(set))
    for event in events_in_scope(history, scope):
        if event.session is not None:
            sessions[event.deployment, event.surface][event.session].add((event.type, event.status))
    surface_keys = sorted(
        sessions, key=lambda surface_key: (surface_key[0] is None, surface_key[0] or 0, surface_key[1])
    )
    return [row for surface_key in surface_keys for row in _rows(*surface_key, list(sessions[surface_key].values()))]


def _rows(deployment: int | None, surface: str, sessions: list[set[object]]) -> Iterator[Row]:
    ready = [event_types for event_types in sessions if STAGES["ready"] in event_types]
    for number, (stage, stage_event) in enumerate(STAGES.items(), start=1):
        reached = [event_types for event_types in sessions if stage_event in event_types]
        with_ready = [event_types for event_types in ready if stage_event in event_types]
        share = len(with_ready) / len(ready) if ready else None
        yield Row(deployment, surface, stage, len(reached), share, number, len(with_ready))


def test_all_sets_of_stages_agree_with_the_oracle(connection: duckdb.DuckDBPyConnection) -> None:
    sets = [chosen for length in range(8) for chosen in combinations(STAGES.values(), length)]
    history = [
        Event(kind, session=f"s{number}", status=status)
        for number, chosen in enumerate(sets)
        for kind, status in [*chosen, ("navigate", None)]
    ]
    rows = [Row(*row) for row in report_rows(connection, "reach", history, {})]
    assert rows == expected_rows(history, {})
    assert [row.session_count for row in rows] == [64] * 7
    assert [row.share_of_ready for row in rows] == [1.0] + [0.5] * 6


@given(history=histories, scope=scopes)
def test_the_stages_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope
) -> None:
    assert report_rows(connection, "reach", history, scope) == expected_rows(history, scope)


@given(history=histories)
def test_a_filter_returns_exactly_its_rows_of_the_unfiltered_report(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    """A filter by deployment or surface returns exactly its rows, with the same numbers."""
    everything = [Row(*row) for row in report_rows(connection, "reach", history, {})]
    for deployment in (1, 2):
        scoped = rows_in_scope(connection, "reach", {"deployments": [deployment]})
        assert scoped == [row for row in everything if row.deployment == deployment]
    for surface in SURFACES:
        scoped = rows_in_scope(connection, "reach", {"surface": surface})
        assert scoped == [row for row in everything if row.surface == surface]


@given(history=histories)
def test_shares_are_at_most_1_and_the_stages_are_in_order(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    rows = [Row(*row) for row in report_rows(connection, "reach", history, {})]
    assert [row.stage for row in rows] == list(STAGES) * (len(rows) // 7)
    for row in rows:
        assert row.share_of_ready is None or 0 <= row.share_of_ready <= 1
        assert row.session_with_ready_count <= row.session_count
