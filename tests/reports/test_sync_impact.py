"""The report `sync_impact` agrees with an oracle in Python, for generated histories."""

import re
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import replace_events, variables

NOON = datetime(2026, 11, 2, 12)
DAY = timedelta(hours=24)
# Instants at the edges of windows and days, and between them.
MOMENTS = st.builds(
    lambda hours, off: NOON + timedelta(hours=hours, microseconds=off),
    st.integers(-60, 60).map(lambda n: n - n % 6) | st.integers(-60, 60),
    st.sampled_from([-1, 0, 1]),
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "occurred_at": MOMENTS,
            "deployment": st.sampled_from([1, 2, None]),
            "type": st.sampled_from(["view", "error", "dashboard-loaded", "navigate"]),
            "surface": st.sampled_from(["dashboard", "app"]),
            "load_duration_ms": st.sampled_from([None, -1.0, 0.0, 10.0, 250.0, 86_400_001.0]),
        }
    ),
    max_size=20,
)
SYNCS = st.lists(st.tuples(st.sampled_from([1, 2]), MOMENTS), max_size=6)
SCOPES = st.fixed_dictionaries(
    {},
    optional={
        "since": MOMENTS,
        "until": MOMENTS,
        "deployments": st.sampled_from([[], [1], [1, 2]]),
        "surface": st.sampled_from(["dashboard", "app"]),
    },
)

Row = dict[str, Any]


def replace_syncs(connection: duckdb.DuckDBPyConnection, syncs: list[tuple[int, datetime]]) -> None:
    connection.execute("truncate sync")
    for number, (deployment, completed_at) in enumerate(syncs):
        connection.execute(
            "insert into sync (ingest_seq, deployment, sync_job_id, completed_at) values ($1, $2, $3, $4)",
            [number, deployment, f"job{number}", completed_at],
        )


def percentile(numbers: list[float]) -> float | None:
    """Return the interpolated 95th percentile."""
    if not numbers:
        return None
    numbers = sorted(numbers)
    position = 0.95 * (len(numbers) - 1)
    below = int(position)
    above = min(below + 1, len(numbers) - 1)
    return numbers[below] + (numbers[above] - numbers[below]) * (position - below)


def measured(events: list[Row], since: datetime) -> tuple[Any, ...]:
    """Return errors per view, the 95th percentile, views and errors of the 24 hours after `since`."""
    within = [event for event in events if since <= event["occurred_at"] < since + DAY]
    views = sum(event["type"] == "view" for event in within)
    errors = sum(event["type"] == "error" for event in within)
    loads = [event["load_duration_ms"] for event in within if event["type"] == "dashboard-loaded"]
    p95 = percentile([load for load in loads if load is not None and 0 <= load <= 86_400_000])
    return (errors / views if views else None), p95, views, errors


def oracle(events: list[Row], syncs: list[tuple[int, datetime]], scope: Row) -> list[tuple[Any, ...]]:
    rows = []
    for number, (deployment, completed_at) in enumerate(syncs):
        if deployment not in scope.get("deployments", [1, 2]):
            continue
        if not scope.get("since", datetime.min) <= completed_at < scope.get("until", datetime.max):
            continue
        seen = [
            event
            for event in events
            if event["deployment"] == deployment and event["surface"] == scope.get("surface", event["surface"])
        ]
        before, after = measured(seen, completed_at - DAY), measured(seen, completed_at)
        sides = [pair for both in zip(before, after, strict=True) for pair in both]
        rows.append((deployment, f"job{number}", completed_at, *sides))
    return sorted(rows, key=lambda row: (row[2], row[0], row[1]))


@given(events=EVENTS, syncs=SYNCS, scope=SCOPES)
def test_sync_impact_agrees_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, events: list[Row], syncs: list[tuple[int, datetime]], scope: Row
) -> None:
    for event in events:
        if event["type"] != "dashboard-loaded":
            event["load_duration_ms"] = None
    replace_events(connection, events)
    replace_syncs(connection, syncs)
    columns = "* exclude (duration_ms, cube_count, model_count, source_count, macro_count)"
    with variables(connection, scope):
        rows = connection.execute(f"select {columns} from sync_impact").fetchall()
    expected = oracle(events, syncs, scope)
    assert [row[:3] for row in rows] == [row[:3] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert row[3:] == pytest.approx(other[3:])


def test_the_scan_is_bounded_by_the_period_and_a_day_on_either_side(connection: duckdb.DuckDBPyConnection) -> None:
    far = [{"occurred_at": NOON + days * DAY, "deployment": 1, "type": "view"} for days in (-9, 9)]
    replace_events(connection, far)
    replace_syncs(connection, [(1, NOON)])
    with variables(connection, {"since": NOON, "until": NOON + DAY}):
        [(_, plan)] = connection.execute("explain (format json) select * from sync_window_metrics").fetchall()
    assert re.search(r"occurred_at\s*>=\s*'2026-11-01 12:00:00'", plan)
    assert re.search(r"occurred_at\s*<\s*'2026-11-04 12:00:00'", plan)
