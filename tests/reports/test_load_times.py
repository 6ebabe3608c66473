"""`load_times` and the attribution of events in `dashboards` agree with an oracle that walks through each history."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rows import replace_events, variables

START = datetime(2026, 11, 2, 10)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOW = START + 3 * DAY
# The types that `dashboards` counts.
COUNTED = ("view", "download", "drilldown", "error")


@dataclass(frozen=True)
class Event:
    """An event of a dashboard. `after` is its time since START."""

    type: str
    after: timedelta = timedelta()
    public_id: str | None = "d1"
    seq: int | None = None
    deployment: int | None = 1
    session: str | None = "s1"
    surface: str = "dashboard"
    tenant: str | None = None
    load_duration_ms: float | None = None
    widget_count: float | None = None

    @property
    def occurred_at(self) -> datetime:
        return START + self.after


@dataclass
class AttributedEvent:
    """An event with its dashboard. `is_loaded` applies to view events."""

    event: Event
    public_id: str | None
    is_loaded: bool = False

    @property
    def is_unpaired(self) -> bool:
        return self.event.session is None or self.public_id is None

    @property
    def never_loaded(self) -> bool:
        is_late = self.event.occurred_at + MINUTE <= NOW
        return self.event.type == "view" and not self.is_unpaired and not self.is_loaded and is_late


class Row(NamedTuple):
    """A row of `load_times`."""

    loaded_count: int
    never_loaded_count: int
    load_p50_ms: float | None
    load_p75_ms: float | None
    load_p95_ms: float | None
    widget_count_avg: float | None
    view_count: int
    unpaired_view_count: int


Key = tuple[datetime, int | None, str | None]
Scope = Mapping[str, Any]


def attributed_events(history: Iterable[Event], scope: Scope) -> list[AttributedEvent]:
    """Return the events with their dashboards. This is the oracle: it walks through the events in order."""
    showing: dict[object, Event] = {}
    loading: dict[object, AttributedEvent] = {}
    attributed = []
    # Python's sort is stable, so events with equal keys stay in the order of ingest_seq.
    for event in sorted(history, key=lambda e: (e.after, e.seq is None, e.seq or 0)):
        if not _is_in_scope(event, scope):
            continue
        attributed_event = AttributedEvent(event, event.public_id)
        attributed.append(attributed_event)
        if event.session is None:
            continue
        dashboard = (event.deployment, event.session, event.surface)
        if event.type == "view":
            showing[dashboard] = event
        elif event.public_id is None and dashboard in showing and event.after - showing[dashboard].after <= DAY:
            attributed_event.public_id = showing[dashboard].public_id
        if event.surface == "dashboard" and attributed_event.public_id is not None:
            _load(attributed_event, loading)
    return attributed


def _load(attributed_event: AttributedEvent, loading: dict[object, AttributedEvent]) -> None:
    queue = (attributed_event.event.deployment, attributed_event.event.session, attributed_event.public_id)
    if attributed_event.event.type == "view":
        loading[queue] = attributed_event
    elif attributed_event.event.type == "dashboard-loaded" and queue in loading:
        view = loading.pop(queue)
        view.is_loaded = attributed_event.event.after - view.event.after <= DAY


def _is_in_scope(event: Event, scope: Scope) -> bool:
    deployments = scope.get("deployments")
    return (deployments is None or event.deployment in deployments) and scope.get("surface") in (None, event.surface)


def _in_scope(history: Iterable[AttributedEvent], scope: Scope) -> Iterator[AttributedEvent]:
    """Return the events of the period and the tenant, after attribution and pairing."""
    since, until = scope.get("since", datetime.min), scope.get("until", datetime.max)
    return (
        attributed_event
        for attributed_event in history
        if since <= attributed_event.event.occurred_at < until
        and scope.get("tenant") in (None, attributed_event.event.tenant)
    )


def expected_rows(history: Iterable[Event], scope: Scope) -> dict[Key, Row]:
    groups: dict[Key, list[AttributedEvent]] = defaultdict(list)
    for attributed_event in _in_scope(attributed_events(history, scope), scope):
        event = attributed_event.event
        if event.surface == "dashboard" and event.type in ("view", "dashboard-loaded"):
            period = event.occurred_at.replace(minute=0, second=0, microsecond=0)
            if scope.get("interval") != "hour":
                period = period.replace(hour=0)
            groups[period, event.deployment, attributed_event.public_id].append(attributed_event)
    return {key: _row(group) for key, group in groups.items()}


def _row(group: list[AttributedEvent]) -> Row:
    views = [attributed_event for attributed_event in group if attributed_event.event.type == "view"]
    loads = [attributed_event.event for attributed_event in group if attributed_event.event.type == "dashboard-loaded"]
    reported = (load.load_duration_ms for load in loads)
    durations = sorted(duration for duration in reported if duration is not None and 0 <= duration <= 86_400_000)
    counts = [
        Fraction(load.widget_count)
        for load in loads
        if load.widget_count is not None and 0 <= load.widget_count <= 100_000 and load.widget_count % 1 == 0
    ]
    return Row(
        loaded_count=len(loads),
        never_loaded_count=sum(view.never_loaded for view in views),
        load_p50_ms=_percentile(durations, 50),
        load_p75_ms=_percentile(durations, 75),
        load_p95_ms=_percentile(durations, 95),
        widget_count_avg=float(sum(counts) / len(counts)) if counts else None,
        view_count=len(views),
        unpaired_view_count=sum(view.is_unpaired for view in views),
    )


def _percentile(ordered: list[float], percent: int) -> float | None:
    if not ordered:
        return None
    position = Fraction(percent * (len(ordered) - 1), 100)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    below, above = Fraction(ordered[low]), Fraction(ordered[high])
    return float(below + (above - below) * (position - low))


def expected_counts(history: Iterable[Event], scope: Scope) -> dict[tuple[int | None, str], dict[str, int]]:
    """Return the expected counts of `dashboards`, by deployment and public id."""
    counts: dict[tuple[int | None, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))
    for attributed_event in _in_scope(attributed_events(history, scope), scope):
        if attributed_event.public_id is not None:
            counted = counts[attributed_event.event.deployment, attributed_event.public_id]
            if attributed_event.event.type in counted:
                counted[attributed_event.event.type] += 1
    return dict(counts)


def remember(connection: duckdb.DuckDBPyConnection, history: Iterable[Event]) -> None:
    rows = [
        {name: value for name, value in vars(event).items() if name != "after"}
        | {"occurred_at": event.occurred_at, "ingest_seq": ingest_seq}
        for ingest_seq, event in enumerate(history)
    ]
    # Insert in reverse order, so that the report can't rely on the table's order instead of ingest_seq.
    replace_events(connection, reversed(rows))


def report_rows(connection: duckdb.DuckDBPyConnection, scope: Scope) -> dict[Key, Row]:
    with variables(connection, {"now": NOW, **scope}):
        rows = connection.execute("select * from load_times").fetchall()
    rows_by_key = {row[:3]: Row(*row[3:]) for row in rows}
    assert len(rows_by_key) == len(rows)
    return rows_by_key


def dashboard_counts(
    connection: duckdb.DuckDBPyConnection, scope: Scope
) -> dict[tuple[int | None, str], dict[str, int]]:
    with variables(connection, {"now": NOW, **scope}):
        rows = connection.execute(
            "select deployment, public_id, view_count, download_count, drilldown_count, error_count from dashboards"
        ).fetchall()
    return {row[:2]: dict(zip(COUNTED, row[2:], strict=True)) for row in rows}


def view_counts_alone(connection: duckdb.DuckDBPyConnection, scope: Scope) -> dict[tuple[int | None, str], int]:
    """Return the view counts of `dashboards` in a query that selects no other counts."""
    columns = ["deployment", "public_id", "view_count"]
    with variables(connection, {"now": NOW, "requested_columns": columns, **scope}):
        rows = connection.execute(f"select {', '.join(columns)} from dashboards").fetchall()
    return {row[:2]: row[2] for row in rows}


def assert_same(found: dict[Key, Row], expected: dict[Key, Row]) -> None:
    assert found.keys() == expected.keys()
    for key, row in found.items():
        # Percentiles are interpolated in floating point; all other values are exact.
        assert row[:2] + row[5:] == expected[key][:2] + expected[key][5:]
        exact = expected[key][2:5]
        assert list(row[2:5]) == [cell and pytest.approx(cell, rel=1e-12) for cell in exact]


def test_all_histories_of_up_to_four_events_agree_with_the_oracle(connection: duckdb.DuckDBPyConnection) -> None:
    steps = [("view", "d1"), ("view", "d2"), ("dashboard-loaded", "d1"), ("dashboard-loaded", None), ("view", None)]
    histories = [history for length in range(1, 5) for history in product(steps, repeat=length)]
    events = [
        Event(type, second * SECOND, public_id, session=f"s{number}", deployment=number)
        for number, history in enumerate(histories)
        for second, (type, public_id) in enumerate(history)
    ]
    remember(connection, events)
    assert_same(report_rows(connection, {}), expected_rows(events, {}))


# Most events belong to one dashboard and session, and to three instants, so that their order matters.
OTHER_DASHBOARDS: list[dict[str, Any]] = [
    {"deployment": 2},
    {"deployment": None},
    {"session": "s2"},
    {"session": ""},
    {"session": None},
    {"surface": "app"},
    {"tenant": "acme"},
    {"tenant": "acme"},
    {"tenant": "initech"},
]
INSTANTS = [
    timedelta(),
    SECOND,
    2 * SECOND,
    timedelta(hours=14) - SECOND,
    timedelta(hours=14),
    DAY,
    DAY + timedelta(milliseconds=1),
    DAY + SECOND,
    NOW - START - MINUTE,
    NOW - START - MINUTE + timedelta(milliseconds=1),
    NOW - START,
]
# Instants around one day later, and around midnight.
AT_LIMITS = [[timedelta(), DAY], [timedelta(), DAY, DAY + timedelta(milliseconds=1)], INSTANTS[3:5]]


def events_at(moments: list[timedelta]) -> st.SearchStrategy[Event]:
    return st.builds(
        lambda dashboard, **fields: Event(**fields, **dashboard),
        dashboard=st.sampled_from([{}] * 20 + OTHER_DASHBOARDS),
        type=st.sampled_from(["view"] * 5 + ["dashboard-loaded"] * 5 + ["download", "drilldown", "error", "navigate"]),
        after=st.sampled_from(moments),
        public_id=st.sampled_from(["d1"] * 5 + ["d2", "d2", None, None, None, ""]),
        seq=st.sampled_from([None, None, 0, 1, 2**53 - 1]),
        load_duration_ms=st.sampled_from([None, 0.0, 0.1, 1234.5, 86_400_000.0, 86_400_000.5, -1.0, 1.5e300]),
        widget_count=st.sampled_from([None, 0.0, 1.0, 7.0, 100_000.0, 100_001.0, -1.0, 2.5]),
    )


# Each example has several sessions. Some events arrive twice.
histories = (
    (st.lists(st.sampled_from(INSTANTS), min_size=1, max_size=3) | st.sampled_from(AT_LIMITS))
    .flatmap(lambda moments: st.lists(events_at(moments), min_size=4, max_size=20))
    .map(lambda history: history + history[::7])
)
instants = st.sampled_from(INSTANTS).map(lambda after: START + after)
scopes = st.fixed_dictionaries(
    {},
    optional={
        "since": instants,
        "until": instants,
        "surface": st.sampled_from(["dashboard", "app"]),
        "deployments": st.lists(st.sampled_from([1, 2]), max_size=2),
        "tenant": st.just("acme"),
        "interval": st.sampled_from(["hour", "day"]),
    },
)


@given(history=histories, scope=scopes)
def test_the_loads_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: dict[str, object]
) -> None:
    remember(connection, history)
    assert_same(report_rows(connection, scope), expected_rows(history, scope))
    # A dashboard with only a navigation has no row.
    counts = expected_counts([event for event in history if event.type != "navigate"], scope)
    assert dashboard_counts(connection, scope) == counts
    assert view_counts_alone(connection, scope) == {key: count["view"] for key, count in counts.items()}


@given(history=histories, tenants=st.lists(st.sampled_from(["acme", "initech"]), min_size=30, max_size=30))
def test_the_counts_of_all_tenants_add_up_to_the_unfiltered_counts(
    connection: duckdb.DuckDBPyConnection, history: list[Event], tenants: list[str]
) -> None:
    history = [replace(event, tenant=tenant) for event, tenant in zip(history, tenants, strict=False)]
    remember(connection, history)
    scopes: list[Scope] = [{"tenant": tenant} for tenant in ("acme", "initech")]
    counts: Counter[object] = Counter()
    for scope in scopes:
        counts.update(_flat(dashboard_counts(connection, scope)))
        counts.update(_flat({key: row._asdict() for key, row in report_rows(connection, scope).items()}))
    unfiltered: Counter[object] = Counter(_flat(dashboard_counts(connection, {})))
    unfiltered.update(_flat({key: row._asdict() for key, row in report_rows(connection, {}).items()}))
    assert counts == unfiltered


def _flat(rows: Mapping[Any, Mapping[str, Any]]) -> dict[object, int]:
    """Return the counts of events, by row and column."""
    is_count = re.compile("_count$|view|download|drilldown|error")
    return {(key, name): count for key, row in rows.items() for name, count in row.items() if is_count.search(name)}


def test_events_without_a_session_belong_to_no_view(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute("truncate event")
    connection.execute(
        """
        insert into event by name
        select
            i as ingest_seq,
            timestamp '2026-11-02 10:00' + to_milliseconds(i) as occurred_at,
            if(i % 2 = 0, 'view', 'drilldown') as type,
            if(i % 2 = 0, 'd1', null) as public_id,
            if(i < 10, 's', null) as session,
            1 as deployment,
            'dashboard' as surface
        from range(40_000) as t(i)
        """
    )
    expected = {"view": 20_000, "download": 0, "drilldown": 5, "error": 0}
    assert dashboard_counts(connection, {}) == {(1, "d1"): expected}


def test_a_dashboard_of_the_previous_day_is_listed_with_any_columns(connection: duckdb.DuckDBPyConnection) -> None:
    remember(connection, [Event("view"), Event("drilldown", 14 * HOUR, None), Event("error", DAY, None, surface="app")])
    for after, rows in ((SECOND, 1), (14 * HOUR, 1), (14 * HOUR + SECOND, 0)):
        found = view_counts_alone(connection, {"since": START + after, "until": START + 3 * DAY})
        assert found == ({(1, "d1"): 0} if rows else {})


@settings(max_examples=20)
@given(history=histories)
def test_a_single_day_has_the_same_row_as_within_a_period(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    remember(connection, history)
    all_rows = report_rows(connection, {})
    midnight = datetime(2026, 11, 2)
    days = [midnight + number * DAY for number in range(4)]
    single_days = [report_rows(connection, {"since": day, "until": day + DAY}) for day in days]
    assert {key: row for rows in single_days for key, row in rows.items()} == all_rows


@settings(max_examples=20)
@given(history=histories)
def test_a_later_load_only_reduces_never_loaded_count(
    connection: duckdb.DuckDBPyConnection, history: list[Event]
) -> None:
    remember(connection, [event for event in history if event.type != "dashboard-loaded"])
    before = report_rows(connection, {})
    remember(connection, history)
    for key, row in report_rows(connection, {}).items():
        if key in before:
            assert row.never_loaded_count <= before[key].never_loaded_count
            assert row.view_count == before[key].view_count
        else:
            assert row.never_loaded_count == 0
