"""A reader sees only the deployments and tenants of its scope, regardless of the contents of `ready` events."""

from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import replace_events, variables

START = datetime(2026, 11, 2, 10)
Event = dict[str, Any]


def resolved(events: list[Event]) -> list[Event]:
    """Return the events with their own values, or else with the values common to all `ready` events of the session."""
    names = ("deployment", "tenant")
    return [event | {name: _resolve(event, name, events) for name in names} for event in events]


def _resolve(event: Event, name: str, events: list[Event]) -> object:
    if event[name] is not None or event["session"] is None:
        return event[name]
    ready_values = {
        ready[name]
        for ready in events
        if ready["type"] == "ready"
        and (ready["key_id"], ready["session"]) == (event["key_id"], event["session"])
        and ready[name] is not None
    }
    return ready_values.pop() if len(ready_values) == 1 else None


def is_in_scope(event: Event, scope: dict[str, Any]) -> bool:
    return (
        ("deployments" not in scope or event["deployment"] in scope["deployments"])
        and ("tenants" not in scope or event["tenant"] in scope["tenants"])
        and scope.get("surface", event["surface"]) == event["surface"]
        and scope.get("tenant", event["tenant"]) == event["tenant"]
        and scope.get("since", datetime.min) <= event["occurred_at"] < scope.get("until", datetime.max)
    )


def visible_events(connection: duckdb.DuckDBPyConnection, events: list[Event], scope: dict[str, Any]) -> list[Any]:
    replace_events(connection, events)
    return rows_in_scope(connection, scope)


def rows_in_scope(connection: duckdb.DuckDBPyConnection, scope: dict[str, Any]) -> list[Any]:
    with variables(connection, scope):
        return connection.sql(
            "select ingest_seq, deployment, tenant from event_in_scope order by ingest_seq"
        ).fetchall()


instants = st.integers(0, 3).map(lambda minute: START + timedelta(minutes=minute))
senders = st.sampled_from([("k1", "s1")] * 4 + [("k1", "s2"), ("k2", "s1"), ("k1", None)])


def events(kind: str, deployments: list[int | None], tenants: list[str | None]) -> st.SearchStrategy[Event]:
    return st.builds(
        lambda sender, **fields: {"type": kind, "key_id": sender[0], "session": sender[1], **fields},
        sender=senders,
        deployment=st.sampled_from(deployments),
        tenant=st.sampled_from(tenants),
        surface=st.sampled_from(["app", "chat"]),
        occurred_at=instants,
    )


# Most events name no deployment or tenant, so that `ready` supplies them.
readies = events("ready", [1, 2, None], ["a", "b", None])
views = events("view", [None, None, None, 1], [None, None, None, "a"])
histories = st.lists(readies | views, min_size=3, max_size=12).map(
    lambda rows: [row | {"ingest_seq": ingest_seq} for ingest_seq, row in enumerate(rows)]
)
scopes = st.fixed_dictionaries(
    {},
    optional={
        "deployments": st.lists(st.sampled_from([1, 2, 3]), max_size=2),
        "tenants": st.lists(st.sampled_from(["a", "b", "c"]), max_size=2),
        "tenant": st.sampled_from(["a", "b"]),
        "surface": st.sampled_from(["app", "chat"]),
        "since": instants,
        "until": instants,
    },
)


@given(history=histories, scope=scopes)
def test_the_rows_of_any_scope_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: dict[str, Any]
) -> None:
    expected = [event for event in resolved(history) if is_in_scope(event, scope)]
    assert visible_events(connection, history, scope) == [
        (e["ingest_seq"], e["deployment"], e["tenant"]) for e in expected
    ]


@pytest.mark.parametrize("deployments", [[], [3], [1, None], [None]])
def test_an_event_without_a_deployment_is_visible_only_without_a_deployment_filter(
    connection: duckdb.DuckDBPyConnection, deployments: list[int | None]
) -> None:
    without_deployment = {"type": "view", "key_id": "k1", "session": "s1", "deployment": None, "ingest_seq": 1}
    assert visible_events(connection, [without_deployment], {}) == [(1, None, None)]
    assert visible_events(connection, [without_deployment], {"deployments": deployments}) == []


def test_a_second_ready_hides_events_without_a_deployment_only_from_deployment_filters(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sent: Event = {"key_id": "k1", "session": "s1"}
    kinds = [("ready", 12), ("download", None), ("download", 12), ("ready", 13)]
    rows = [
        sent | {"type": kind, "deployment": deployment, "ingest_seq": place}
        for place, (kind, deployment) in enumerate(kinds)
    ]
    only = {"deployments": [12]}
    assert [ingest_seq for ingest_seq, *_ in visible_events(connection, rows[:3], only)] == [0, 1, 2]
    assert [ingest_seq for ingest_seq, *_ in visible_events(connection, rows, only)] == [
        0,
        2,
    ]  # docs/reports.md warns of this
    assert [row[:2] for row in visible_events(connection, rows, {})] == [(0, 12), (1, None), (2, 12), (3, 13)]
