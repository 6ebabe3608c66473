"""The rows of a section's charts: each chart has the reader's period, or its own."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from embedsink.dashboards.comparison import Change
from embedsink.dashboards.labels import NO_COMPARISON, UNCHANGED, ZERO_BEFORE
from embedsink.dashboards.model import Section
from embedsink.dashboards.period import period_of
from embedsink.dashboards.query import TileData, query_section
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING, KeyScope
from embedsink.reports.catalog import Report, all_reports
from embedsink.store.database import Store
from embedsink.store.reader import Reader
from tests.support.given import write_segment
from tests.support.stores import open_store

DAY_MS = 86_400_000
NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)
NUMBER = {"kind": "number", "title": "A", "report": "views", "how": "sum", "column": "view_count"}
TABLE = {"kind": "table", "title": "A", "report": "views", "columns": {"surface": "Surface", "view_count": "Views"}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Views of the app on the 2nd, 4th, 6th and 8th of November, and one dashboard view of deployment 2 on the 4th."""
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder / "store.duckdb")
    given: list[dict[str, object]] = [
        {"type": "view", "surface": "app", "at": f"2026-11-0{day}T10:00:00"} for day in (2, 4, 6, 8)
    ]
    given.append({"type": "view", "deployment": 2, "at": "2026-11-04T10:00:00"})
    store.load(inspect(write_segment(folder, given)))
    yield store
    store.close()


@pytest.fixture(scope="module")
def reports(store: Store) -> dict[str, Report]:
    with store.reader(EVERYTHING.variables()) as reader:
        return {report.name: report for report in all_reports(reader)}


def answers(store: Store, reports: dict[str, Report], *tiles: dict[str, Any], params: dict[str, str]) -> list[TileData]:
    """Return the answers of tiles in one section, in their order."""
    charts = [{"id": f"c{index}"} | tile for index, tile in enumerate(tiles)]
    section = Section.model_validate({"id": "s", "title": "S", "charts": charts})
    with store.reader(EVERYTHING.variables()) as reader:
        tile_data = query_section(reader, section, period_of(params, now=NOW), reports=reports, now=NOW)
    return [tile_data[one["id"]] for one in charts]


def test_a_chart_with_its_own_since_ends_now(store: Store, reports: dict[str, Report]) -> None:
    params = {"since": "2026-11-03", "until": "2026-11-05"}
    readers, own_period = answers(
        store, reports, NUMBER, NUMBER | {"parameters": {"since": "2026-11-04"}}, params=params
    )
    assert (readers.value, readers.value_before) == (2, 1)
    assert readers.params == {"since": "2026-11-03", "until": "2026-11-05", "interval": "hour"}
    assert (own_period.value, own_period.value_before) == (4, None)
    assert own_period.params == {"since": "2026-11-04", "interval": "hour"}


def test_a_chart_with_a_surface_of_its_own_keeps_the_readers_period_and_deployments(
    store: Store, reports: dict[str, Report]
) -> None:
    section = Section.model_validate(
        {"id": "s", "title": "S", "charts": [NUMBER | {"id": "a", "parameters": {"surface": "app"}}]}
    )
    for deployments, value in (((), 1), (("2",), 0)):
        period = period_of({"since": "2026-11-03", "until": "2026-11-05"}, deployments=deployments, now=NOW)
        with store.reader(EVERYTHING.variables()) as reader:
            tiles = query_section(reader, section, period, reports=reports, now=NOW)
        assert tiles["a"].value == value


def test_charts_with_the_same_query_share_it(
    store: Store, reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    rows = Reader.rows

    def counted(reader: Reader, selection: Any, **options: Any) -> Any:
        read.append(selection.view)
        return rows(reader, selection, **options)

    monkeypatch.setattr(Reader, "rows", counted)
    app = NUMBER | {"where": {"surface": "app"}}
    tiles = answers(store, reports, NUMBER, TABLE, app, params={"since": "2026-11-01", "compare": "off"})
    assert (tiles[0].value, tiles[2].value) == (5, 4)
    assert read == ["views"]


def test_a_table_has_its_columns_in_order_and_is_marked_when_cut(store: Store, reports: dict[str, Report]) -> None:
    group = {"by": ["surface"], "sum": ["view_count"]}
    whole, cut = answers(
        store,
        reports,
        TABLE | {"group": group, "columns": {"view_count": "Views", "surface": "Surface"}},
        TABLE | {"group": group, "rows": 1},
        params={"since": "2026-11-01"},
    )
    assert (whole.columns, whole.rows, whole.is_cut) == (
        ["view_count", "surface"],
        [[4, "app"], [1, "dashboard"]],
        False,
    )
    assert replace(cut, params=None) == TileData(["surface", "view_count"], [["app", 4]], [], is_cut=True, row_count=2)


def test_a_chart_spans_the_period_of_its_rows(store: Store, reports: dict[str, Report]) -> None:
    spec = {"mark": "bar", "encoding": {}}
    views = {"kind": "chart", "title": "A", "report": "views", "spec": spec}
    params = {"since": "2026-11-03", "until": "2026-11-05"}
    hours, days = answers(store, reports, views, views | {"report": "activity"}, params=params)
    third_ms = 1_793_664_000_000  # 2026-11-03T00:00Z
    assert (hours.interval, hours.span, hours.ticks) == ("hour", [third_ms, third_ms + 2 * DAY_MS], None)
    assert days.interval == "day"
    [week] = answers(store, reports, views | {"report": "activity"}, params={"period": "7d"})
    assert (week.interval, week.span) == (
        "day",
        [third_ms + DAY_MS, third_ms + 8 * DAY_MS],
    )  # though not every day has rows
    assert days.ticks == [start + DAY_MS // 2 for start in range(days.span[0], days.span[1], DAY_MS)]  # type: ignore[index]


def test_data_that_begins_within_the_previous_period_is_not_comparable_yet(
    store: Store, reports: dict[str, Report]
) -> None:
    rate = NUMBER | {"how": "ratio", "of": ["view_count"]}
    # The first event is from the 2nd.
    partly, part = answers(store, reports, NUMBER, rate, params={"since": "2026-11-04", "until": "2026-11-07"})
    assert (partly.value, partly.value_before, partly.change) == (3, 1, NO_COMPARISON)
    assert part.change == NO_COMPARISON
    [empty_tile] = answers(store, reports, rate, params={"since": "2026-11-03T12:00", "until": "2026-11-03T18:00"})
    assert (empty_tile.value, empty_tile.change) == (None, None)
    full_period, share = answers(store, reports, NUMBER, rate, params={"since": "2026-11-06", "until": "2026-11-08"})
    assert full_period.change == Change("down", None, 0.5, "share")
    assert share.change == UNCHANGED
    later, share = answers(store, reports, NUMBER, rate, params={"since": "2026-11-08", "until": "2026-11-09"})
    assert (later.change, share.change) == (ZERO_BEFORE, ZERO_BEFORE)
    [uncompared] = answers(
        store, reports, NUMBER, params={"since": "2026-11-08", "until": "2026-11-09", "compare": "off"}
    )
    assert uncompared.change is None


def test_a_comparison_needs_earlier_events_of_the_readers_deployments(store: Store, reports: dict[str, Report]) -> None:
    section = Section.model_validate({"id": "s", "title": "S", "charts": [NUMBER | {"id": "a"}]})
    params = {"since": "2026-11-05", "until": "2026-11-07"}
    # Another deployment's first event is from the 2nd, and this deployment's is from the 4th.
    period = period_of(params, allowed=KeyScope(frozenset({2})), now=NOW)
    with store.reader(EVERYTHING.variables()) as reader:
        tiles = query_section(reader, section, period, reports=reports, now=NOW)
    assert (tiles["a"].value_before, tiles["a"].change) == (1, NO_COMPARISON)


def test_the_previous_period_is_empty_without_events(store: Store, reports: dict[str, Report]) -> None:
    spec = {"mark": "bar", "encoding": {}}
    compare = {"x": "period_middle", "y": "view_count"}
    views = {"kind": "chart", "title": "A", "report": "views", "spec": spec, "compare": compare}

    def line(since: str, until: str, params: dict[str, str] | None = None) -> list[tuple[int, int]]:
        [answer] = answers(store, reports, views, params={"since": since, "until": until} | (params or {}))
        assert answer.span
        first, y = answer.columns.index("period_start"), answer.columns.index("view_count")
        return sorted(((row[first] - answer.span[0]) // DAY_MS, row[y]) for row in answer.before)

    # Before it: the 4th with two views, the 5th without any, the 6th.
    assert line("2026-11-07", "2026-11-10", {"timezone": "UTC"}) == [(0, 1), (0, 1), (1, 0), (2, 1)]
    # The 1st is unknown, because the first event is from the 2nd.
    assert line("2026-11-05", "2026-11-09") == [(1, 1), (2, 0), (3, 1), (3, 1)]
    # Without any earlier row there is no line.
    assert line("2026-11-15", "2026-11-18") == []


def test_the_age_of_a_row_counts_from_the_end_of_the_shown_period(store: Store, reports: dict[str, Report]) -> None:
    tenants = {"kind": "number", "title": "A", "report": "tenants", "how": "count"}

    def count(days: int, params: dict[str, str]) -> Any:
        [answer] = answers(store, reports, tenants | {"older_days": {"last_seen_at": days}}, params=params)
        return answer.value

    # The last view is from the 8th at 10:00, or from the 6th if the period ends at the start of the 7th.
    assert [count(days, {"since": "2026-11-01"}) for days in (2, 3)] == [1, 0]
    assert [count(days, {"since": "2026-11-01", "until": "2026-11-07"}) for days in (1, 2)] == [0, 0]
    assert [count(days, {"since": "2026-11-01", "until": "2026-11-08"}) for days in (1, 2)] == [1, 0]
    assert count(2, {"since": "2026-11-01", "until": "2027-01-01"}) == 1, "and no later than now"


def test_markers_are_within_the_period_and_not_in_the_future(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    given: list[dict[str, object]] = [
        {"sync": f"job{index}", "at": at}
        for index, at in enumerate(("2026-11-01T10:00", "2026-11-04T10:00", "2026-11-08T10:00", "2026-11-12T10:00"))
    ]
    store.load(inspect(write_segment(tmp_path, [*given, {"type": "view", "at": "2026-11-04T10:00"}])))
    with store.reader(EVERYTHING.variables()) as reader:
        reports = {report.name: report for report in all_reports(reader)}
    marks = {"report": "sync_impact", "at": "completed_at", "title": "Sync"}
    chart = {"kind": "chart", "title": "A", "report": "views", "spec": {"mark": "bar"}, "marks": marks}
    marked, bare = answers(store, reports, chart, TABLE, params={"since": "2026-11-03", "timezone": "Europe/Berlin"})
    assert marked.marks == [
        int(datetime(2026, 11, day, 11, tzinfo=UTC).timestamp()) * 1_000
        for day in (8, 4)  # in the time of Berlin
    ]
    assert bare.marks is None
    store.close()


def test_tiles_note_the_deleted_days_that_they_lack(store: Store, reports: dict[str, Report]) -> None:
    sessions = NUMBER | {"report": "totals", "column": "session_count"}
    rejections = NUMBER | {"report": "rejections", "column": "quarantined_count"}
    params = {"since": "2026-11-03", "until": "2026-11-07"}
    note = "Events deleted: 2026-11-03 to 2026-11-05."  # The event of the 6th is stored.
    connection = store._load_connection()
    connection.execute("insert into totaled_day select date '2026-11-03' + range::integer, now() from range(4)")
    try:
        for changed, views_note in (({}, None), ({"timezone": "Europe/Berlin"}, note), ({"internal": "only"}, note)):
            tiles = answers(store, reports, NUMBER, sessions, rejections, params=params | changed)
            assert [tile.note for tile in tiles] == [views_note, note, None]
        earlier = {"since": "2026-11-01", "until": "2026-11-03"}
        assert [tile.note for tile in answers(store, reports, sessions, params=earlier)] == [None]
    finally:
        connection.execute("truncate totaled_day")
