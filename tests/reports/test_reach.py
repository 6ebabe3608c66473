"""The report `reach` against an oracle that asks each session which stages it reached."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import duckdb
from hypothesis import given

from tests.support.histories import Event, Scope, found_rows, histories, rows_in_scope, scopes, seen

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
    """The oracle."""
    sessions: dict[tuple[int | None, str], dict[str, set[object]]] = defaultdict(lambda: defaultdict(set))
    for event in seen(history, scope):
        if event.session is not None:
            sessions[event.deployment, event.surface][event.session].add((event.type, event.status))
    places = sorted(sessions, key=lambda place: (place[0] is None, place[0] or 0, place[1]))
    return [row for place in places for row in _rows(*place, list(sessions[place].values()))]


def _rows(deployment: int | None, surface: str, sessions: list[set[object]]) -> Iterator[Row]:
    ready = [said for said in sessions if STAGES["ready"] in said]
    for number, (stage, stage_event) in enumerate(STAGES.items(), start=1):
        reached = [said for said in sessions if stage_event in said]
        with_ready = [said for said in ready if stage_event in said]
        share = len(with_ready) / len(ready) if ready else None
        yield Row(deployment, surface, stage, len(reached), share, number, len(with_ready))


def test_every_set_of_stages(connection: duckdb.DuckDBPyConnection) -> None:
    sets = [chosen for length in range(8) for chosen in combinations(STAGES.values(), length)]
    history = [
        Event(kind, session=f"s{number}", status=status)
        for number, chosen in enumerate(sets)
        for kind, status in [*chosen, ("navigate", None)]
    ]
    rows = [Row(*row) for row in found_rows(connection, "reach", history, {})]
    assert rows == expected_rows(history, {})
    assert [row.session_count for row in rows] == [64] * 7
    assert [row.share_of_ready for row in rows] == [1.0] + [0.5] * 6


@given(history=histories, scope=scopes)
def test_any_history_reaches_the_stages_that_the_oracle_finds(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope
) -> None:
    assert found_rows(connection, "reach", history, scope) == expected_rows(history, scope)


@given(history=histories)
def test_a_scope_shows_the_same_rows_as_everything_does(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    """A filter by deployment or surface returns exactly its rows, with the same numbers."""
    everything = [Row(*row) for row in found_rows(connection, "reach", history, {})]
    for deployment in (1, 2):
        scoped = rows_in_scope(connection, "reach", {"deployments": [deployment]})
        assert scoped == [row for row in everything if row.deployment == deployment]
    for surface in SURFACES:
        scoped = rows_in_scope(connection, "reach", {"surface": surface})
        assert scoped == [row for row in everything if row.surface == surface]


@given(history=histories)
def test_a_share_is_a_share_and_seven_stages_stand_in_order(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    rows = [Row(*row) for row in found_rows(connection, "reach", history, {})]
    assert [row.stage for row in rows] == list(STAGES) * (len(rows) // 7)
    for row in rows:
        assert row.share_of_ready is None or 0 <= row.share_of_ready <= 1
        assert row.session_with_ready_count <= row.session_count
