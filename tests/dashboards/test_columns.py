"""A query selects only the columns that a dashboard shows, and the charts stay the same."""

from pathlib import Path
from typing import Any

import pytest

from embedsink.dashboards import query
from embedsink.dashboards.columns import columns_read, required_columns, result_columns
from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.lint import columns_shown
from embedsink.dashboards.model import Gauge, NumberTile, Section
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import Report, ReportColumn, all_reports
from embedsink.store.database import Store
from tests.dashboards.test_shipped_dashboards import shown
from tests.support.given import Given

REPORT = Report(
    "dashboards",
    "Dashboards",
    "Which?",
    "One row per deployment and dashboard.",
    [
        ReportColumn(name, type_, "", "")
        for name, type_ in (
            ("deployment", "integer"),
            ("title", "string"),
            ("view_count", "integer"),
            ("viewer_count", "integer"),
            ("load_p50_ms", "number"),
            ("last_viewed_at", "timestamp"),
        )
    ],
)


def needed(*tiles: dict[str, Any]) -> tuple[str, ...]:
    return required_columns(REPORT, tiles_of(*tiles))


def tiles_of(*tiles: dict[str, Any]) -> list[Any]:
    charts = [{"id": f"c{index}", "title": "A", "report": "dashboards"} | tile for index, tile in enumerate(tiles)]
    return list(Section.model_validate({"id": "s", "title": "S", "charts": charts}).tiles)


@pytest.mark.parametrize(
    ("tile", "columns"),
    [
        ({"kind": "number", "how": "count"}, ("deployment",)),
        ({"kind": "number", "how": "count", "where": {"title": "Sales"}}, ("title",)),
        ({"kind": "number", "how": "count", "nonzero": "view_count"}, ("view_count",)),
        ({"kind": "number", "how": "count", "older_days": {"last_viewed_at": 3}}, ("last_viewed_at",)),
        (
            {"kind": "number", "how": "ratio", "column": "load_p50_ms", "of": ["view_count", "-viewer_count"]},
            ("view_count", "viewer_count", "load_p50_ms"),
        ),
        ({"kind": "table", "columns": {"title": "Title"}, "sort": "-view_count"}, ("title", "view_count")),
        (
            {"kind": "table", "group": {"by": ["title"], "sum": ["viewer_count"]}, "columns": {"title": "Title"}},
            ("title", "viewer_count"),
        ),
        # The key columns of its rows are selected, and the columns that an expression names.
        (
            {"kind": "chart", "spec": {"transform": [{"calculate": "datum['load_p50_ms'] / 1000", "as": "s"}]}},
            ("deployment", "title", "load_p50_ms", "last_viewed_at"),
        ),
        (
            {"kind": "chart", "spec": {}, "leading": {"column": "title", "by": "view_count"}},
            ("deployment", "title", "view_count", "last_viewed_at"),
        ),
        (
            {"kind": "chart", "spec": {}, "compare": {"x": "last_viewed_at", "y": "viewer_count"}},
            ("deployment", "title", "viewer_count", "last_viewed_at"),
        ),
    ],
)
def test_a_tile_selects_the_columns_that_it_shows_and_reads(tile: dict[str, Any], columns: tuple[str, ...]) -> None:
    assert needed(tile) == columns


def test_a_chart_shows_no_columns_of_other_charts() -> None:
    chart = {"kind": "chart", "spec": {"mark": "bar", "encoding": {"x": {"field": "view_count"}}}}
    number = {"kind": "number", "how": "sum", "column": "viewer_count"}
    assert needed(chart, number) == ("deployment", "title", "view_count", "viewer_count", "last_viewed_at")
    assert result_columns(REPORT, tiles_of(chart)[0]) == ["deployment", "title", "view_count", "last_viewed_at"]


def test_shipped_dashboards_show_the_same_with_all_columns_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Given] = [
        {"type": "ready"},
        {"type": "view", "publicId": "d1", "title": "Sales"},
        {"type": "dashboard-loaded", "publicId": "d1", "loadDurationMs": 900},
        {"type": "download", "rowCount": 7},
        {"type": "drilldown"},
        {"type": "error"},
        {"type": "view", "publicId": "d2", "deployment": 2, "surface": "app"},
        {"type": "navigate"},
        {"type": "ai-query", "surface": "chat"},
        {"type": "ai-query", "surface": "chat", "status": "completed"},
    ]
    given = [
        {**event, "at": f"2026-{day}T{10 + index}:00:00", "viewer": f"u{index % 3}", "tenant": f"t{index % 2}"}
        for day in ("10-13", "10-30", "10-31", "11-01", "11-02")
        for index, event in enumerate(events)
    ]
    params = {"since": "2026-11-01", "until": "2026-11-03"}
    narrow = shown(tmp_path, given, params)
    monkeypatch.setattr(query, "required_columns", lambda report, _: tuple(column.name for column in report.columns))
    (tmp_path / "all").mkdir()
    assert shown(tmp_path / "all", given, params) == narrow
    assert any(answer.rows for answer in narrow.values())


def test_a_query_selects_the_report_columns_that_a_file_names(opened: Store) -> None:
    with opened.reader(EVERYTHING.variables()) as reader:
        reports = {report.name: report for report in all_reports(reader)}
    seen_count = 0
    for dashboard in read_dashboards().values():
        for tile in (tile for section in dashboard.sections for tile in section.tiles if not isinstance(tile, Gauge)):
            report = reports[tile.report]
            named = {column for _, column in columns_read(tile)}
            named |= set() if isinstance(tile, NumberTile) else {column for _, column in columns_shown(tile)}
            named &= {column.name for column in report.columns}
            assert named <= set(required_columns(report, [tile])), tile.id
            seen_count += len(named)
    assert seen_count > 100
