"""The report `sessions` agrees with an oracle that collects the events of each session."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.histories import (
    INSTANTS,
    MICROSECOND,
    Event,
    Scope,
    events_in_scope,
    histories,
    report_rows,
    rows_in_scope,
    scopes,
    single_value,
    time_spent_s,
)


class Row(NamedTuple):
    """One row of the report `sessions`."""

    deployment: int | None
    session: str
    started_at: datetime
    ended_at: datetime
    duration_s: float
    surface: str | None
    mode: str | None
    tenant: str | None
    viewer: str | None
    view_count: int
    navigate_count: int
    dashboard_loaded_count: int
    download_count: int
    drilldown_count: int
    filter_count: int
    ai_query_count: int
    error_count: int
    has_fatal_error: bool
    has_ready: bool
    ingest_seq: int


def expected_rows(history: list[Event], scope: Scope) -> list[Row]:
    """Return the rows of the oracle."""
    sessions: dict[tuple[int | None, str], list[Event]] = defaultdict(list)
    for event in events_in_scope(history, scope):
        if event.session is not None:
            sessions[event.deployment, event.session].append(event)
    rows = [_row(deployment, session, events, scope) for (deployment, session), events in sessions.items()]
    return sorted(rows, key=lambda row: (row.started_at, row.ingest_seq))


def _row(deployment: int | None, session: str, events: list[Event], scope: Scope) -> Row:
    def count(kind: str) -> int:
        return [event.type for event in events].count(kind)

    instants = sorted(event.occurred_at for event in events)
    return Row(
        deployment=deployment,
        session=session,
        started_at=instants[0],
        ended_at=instants[-1],
        duration_s=time_spent_s(instants, scope),
        surface=single_value(event.surface for event in events),
        mode=single_value(event.mode for event in events),
        tenant=single_value(event.tenant for event in events),
        viewer=single_value(event.viewer for event in events),
        view_count=count("view"),
        navigate_count=count("navigate"),
        dashboard_loaded_count=count("dashboard-loaded"),
        download_count=count("download"),
        drilldown_count=count("drilldown"),
        filter_count=count("x-filter"),
        ai_query_count=sum(event.status == "submitted" for event in events),
        error_count=count("error"),
        has_fatal_error=any(event.fatal for event in events),
        has_ready=count("ready") > 0,
        ingest_seq=min(event.ingest_seq for event in events),
    )


@given(history=histories, scope=scopes)
def test_the_sessions_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope
) -> None:
    assert report_rows(connection, "sessions", history, scope) == expected_rows(history, scope)


# Gaps around 15 and 30 minutes, within one 15-minute interval and across several.
_gaps = st.sampled_from([0, 1, 14, 15, 16, 29, 30, 31, 45, 600]).map(lambda minutes: timedelta(minutes=minutes))
_nudges = st.sampled_from([timedelta(), timedelta(), MICROSECOND, -MICROSECOND])
_visits = st.lists(st.tuples(_gaps, _nudges, st.sampled_from(["view", "view", "drilldown"])), min_size=1, max_size=12)


@given(visit=_visits, start=st.integers(0, 14), gap_minutes=st.sampled_from([None, 15, 30, 45]))
def test_time_spent_excludes_gaps_longer_than_the_setting(
    connection: duckdb.DuckDBPyConnection,
    visit: list[tuple[timedelta, timedelta, str]],
    start: int,
    gap_minutes: int | None,
) -> None:
    at, history = datetime(2026, 11, 2, 10, start), list[Event]()
    for ingest_seq, (gap, nudge, kind) in enumerate(visit):
        at += max(gap + nudge, timedelta())
        history.append(Event(kind, at, ingest_seq, tenant="acme"))
    scope: Scope = {} if gap_minutes is None else {"session_gap_minutes": gap_minutes}
    [row] = report_rows(connection, "sessions", history, scope)
    assert Row(*row).duration_s == pytest.approx(
        time_spent_s([event.occurred_at for event in history], scope), abs=1e-9
    )
    values = [event.occurred_at for event in history if event.type == "drilldown"]
    [(*_, seconds, _)] = rows_in_scope(connection, "tenants", scope)
    until_value = [event.occurred_at for event in history if values and event.occurred_at <= values[0]]
    assert seconds == (pytest.approx(time_spent_s(until_value, scope), abs=1e-9) if values else None)


@given(history=histories, loaded=st.integers(0, 40), scope=scopes)
def test_late_events_join_their_session_without_changing_its_paging_key(
    connection: duckdb.DuckDBPyConnection, history: list[Event], loaded: int, scope: Scope
) -> None:
    # A late `ready` may move events to another deployment, so each event names its own here.
    history = [replace(event, deployment=event.deployment or 1, tenant=event.tenant or "acme") for event in history]
    before = [Row(*row) for row in report_rows(connection, "sessions", history[:loaded], scope)]
    after = [Row(*row) for row in report_rows(connection, "sessions", history, scope)]
    assert before == expected_rows(history[:loaded], scope)
    assert after == expected_rows(history, scope)
    assert {row[:2]: row.ingest_seq for row in before}.items() <= {row[:2]: row.ingest_seq for row in after}.items()


@given(history=histories)
def test_a_reader_gets_no_events_of_other_deployments_in_a_session(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    """A reader of one deployment gets the same rows with and without the events of other deployments."""
    everything = report_rows(connection, "sessions", history, {})
    for deployment in (1, 2):
        scoped = rows_in_scope(connection, "sessions", {"deployments": [deployment]})
        assert scoped == [row for row in everything if row[0] == deployment]


@settings(max_examples=25)
@given(history=histories)
def test_every_event_of_a_session_is_in_exactly_one_row_of_any_day(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    report_rows(connection, "sessions", history, {})
    history = [event for event in history if not event.is_internal]
    bounds = [None, *INSTANTS, None]
    periods = [{"since": since, "until": until} for since, until in pairwise(bounds)]
    parts = [Row(*row) for period in periods for row in rows_in_scope(connection, "sessions", period)]
    views = [event for event in history if event.type == "view" and event.session is not None]
    assert sum(row.view_count for row in parts) == len(views)
