"""The report `tenants` agrees with an oracle that collects the viewers, days and sessions of each tenant."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import NamedTuple
from zoneinfo import ZoneInfo

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import (
    NOW,
    Event,
    Scope,
    events_in_scope,
    histories,
    report_rows,
    rows_in_scope,
    scopes,
    time_spent_s,
)


class Row(NamedTuple):
    """One row of the report `tenants`."""

    tenant: str | None
    viewer_count: int
    active_day_count: int
    view_count: int
    first_seen_at: datetime
    last_seen_at: datetime
    seconds_to_first_value_p50: float | None
    is_quiet: bool


def expected_rows(history: list[Event], scope: Scope) -> list[Row]:
    """Return the rows of the oracle."""
    tenants: dict[str | None, list[Event]] = defaultdict(list)
    for event in events_in_scope(history, scope):
        tenants[event.tenant].append(event)
    names = sorted(tenants, key=lambda name: (name is None, name or ""))
    return [_row(name, tenants[name], scope) for name in names]


def _row(tenant: str | None, events: list[Event], scope: Scope) -> Row:
    zone = ZoneInfo(scope.get("timezone", "UTC"))
    now = scope.get("now", NOW)
    last_seen_at = max(event.occurred_at for event in events)
    delays = list(_seconds_to_first_value(events, scope))
    return Row(
        tenant=tenant,
        viewer_count=len({event.viewer for event in events} - {None}),
        active_day_count=len({_day(event.occurred_at, zone) for event in events}),
        view_count=sum(event.type == "view" for event in events),
        first_seen_at=min(event.occurred_at for event in events),
        last_seen_at=last_seen_at,
        seconds_to_first_value_p50=round(median(delays), 6) if delays else None,
        is_quiet=min(scope.get("until", now), now) - last_seen_at > timedelta(days=14),
    )


def _day(instant: datetime, zone: ZoneInfo) -> date:
    return instant.replace(tzinfo=UTC).astimezone(zone).date()


def _seconds_to_first_value(events: list[Event], scope: Scope) -> Iterator[float]:
    sessions: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        if event.session is not None:
            sessions[event.deployment, event.session].append(event)
    for own in sessions.values():
        values = [event.occurred_at for event in own if _is_value(event)]
        if values:
            yield time_spent_s([event.occurred_at for event in own if event.occurred_at <= min(values)], scope)


def _is_value(event: Event) -> bool:
    return event.type in ("drilldown", "download") or event.status == "completed"


def rounded(rows: list[tuple[object, ...]]) -> list[Row]:
    """Round the median to a microsecond, because interpolation may differ in the last bit."""
    tenants = [Row(*row) for row in rows]  # type: ignore[arg-type]
    return [
        row._replace(
            seconds_to_first_value_p50=row.seconds_to_first_value_p50
            if row.seconds_to_first_value_p50 is None
            else round(row.seconds_to_first_value_p50, 6)
        )
        for row in tenants
    ]


@given(history=histories, scope=scopes)
def test_the_tenants_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope
) -> None:
    assert rounded(report_rows(connection, "tenants", history, scope)) == expected_rows(history, scope)


@given(history=histories)
def test_a_tenant_filter_does_not_change_the_row_of_the_tenant(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    everything = report_rows(connection, "tenants", history, {})
    for tenant in ("acme", "initech"):
        assert rows_in_scope(connection, "tenants", {"tenant": tenant}) == [r for r in everything if r[0] == tenant]


zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Pacific/Chatham"]
)


@given(
    instants=st.lists(st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)), max_size=40, min_size=1),
    near=st.lists(st.integers(-1, 1), max_size=40),
    zone=zones,
)
def test_days_are_in_the_readers_time_zone(
    connection: duckdb.DuckDBPyConnection, instants: list[datetime], near: list[int], zone: str
) -> None:
    """Compare instants around each midnight of the zone, across both clock changes."""
    midnights = [instant.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) for instant in instants]
    utc = [midnight.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None) for midnight in midnights]
    edges = [instant + timedelta(microseconds=step) for instant, step in zip(utc, near, strict=False)]
    history = [
        Event("view", occurred_at=instant, ingest_seq=ingest_seq) for ingest_seq, instant in enumerate(instants + edges)
    ]
    scope = {"timezone": zone, "now": datetime(2027, 1, 1)}
    rows = rounded(report_rows(connection, "tenants", history, scope))
    assert rows == expected_rows(history, scope)
