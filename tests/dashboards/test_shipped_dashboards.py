"""The shipped dashboards on sample events."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.model import Chart, NumberTile
from embedsink.dashboards.period import period_of
from embedsink.dashboards.query import TileData, query_section
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import all_reports
from tests.support.given import Given, write_segment
from tests.support.stores import open_store

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
Shown = dict[tuple[str, str], TileData]


def shown(folder: Path, given: Iterable[Given], params: dict[str, str] | None = None) -> Shown:
    """Return the result of every chart, by dashboard and chart id."""
    store = open_store(folder / "store.duckdb")
    store.load(inspect(write_segment(folder, given)))
    tiles: Shown = {}
    with store.reader(EVERYTHING.variables()) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        for name, dashboard in read_dashboards().items():
            for section in dashboard.sections:
                answers = query_section(reader, section, period_of(params or {}, now=NOW), reports=reports, now=NOW)
                tiles |= {(name, id): answer for id, answer in answers.items()}
    store.close()
    return tiles


def objects(answer: TileData) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def test_an_action_without_an_answer_does_not_count_as_acted_on(tmp_path: Path) -> None:
    unanswered: list[Given] = [
        event
        for hour in ("08", "09", "10", "11")
        for event in (
            {"type": "ai-query", "surface": "chat", "query": f"at {hour}", "at": f"{hour}:00"},
            {"type": "drilldown", "at": f"{hour}:01"},
        )
    ]
    answered: list[Given] = [
        {"type": "ai-query", "surface": "chat", "query": "z", "status": status, "at": at}
        for status, at in (("submitted", "12:00:00"), ("completed", "12:00:02"))
    ]
    assert shown(tmp_path, unanswered + answered)["ai-questions", "acted-on"].value == 0


def test_an_image_does_not_lower_the_export_volume(tmp_path: Path) -> None:
    given: list[Given] = [{"type": "download", "rowCount": 1_000}, {"type": "download", "format": "png"}]
    assert shown(tmp_path, given)["exports", "rows-per-download"].value == 1_000


def test_a_billion_rows_are_unusual_for_the_day_and_the_viewer(tmp_path: Path) -> None:
    given: list[Given] = [
        {"type": "download", "rowCount": 10**9 if day == 2 else 10_000, "at": f"2026-{month}T10:00:00"}
        for day, month in enumerate(("10-30", "10-31", "11-02", "11-03"), start=0)
    ]
    given.append({"type": "download", "rowCount": 10_000, "at": "2026-10-29T10:00:00"})
    tiles = shown(tmp_path, given)
    days = {row["total_row_count"]: row["usual_total_row_count_max"] for row in objects(tiles["exports", "unusual"])}
    assert days == {10_000: 20_000, 10**9: 20_000}
    [who] = objects(tiles["exports", "unusual-viewers"])
    assert (who["viewer"], who["exported_row_count"], who["usual_row_count_max"]) == ("u1", 10**9, 20_000)


def test_invented_deployments_displace_no_used_deployment(tmp_path: Path) -> None:
    given: list[Given] = [{"type": "view", "viewer": f"u{index}", "deployment": 5 + index % 2} for index in range(5)]
    given += [{"type": "ready", "deployment": -index, "session": f"i{index}"} for index in range(1, 100)]
    given += [{"type": "view", "deployment": None, "session": None, "viewer": f"u{index}"} for index in range(2)]
    viewers = shown(tmp_path, given)["overview", "viewers"]
    drawn = {row["deployment"] for row in objects(viewers)}
    assert {5, 6, None} < drawn
    assert len(drawn) == 7
    assert viewers.is_cut


def test_numbers_with_the_same_name_are_equal_on_all_pages(tmp_path: Path) -> None:
    given: list[Given] = [
        {"type": "view", "tenant": "acme"},
        {"type": "view", "surface": "app", "session": "s2", "viewer": "u2"},
        {"type": "view", "deployment": None, "session": None, "viewer": None},
        {"type": "download", "tenant": "acme", "rowCount": 3},
        {"type": "download", "deployment": None, "session": None},
        {"type": "error", "surface": "chat", "session": "s3"},
        {"type": "ai-query", "surface": "chat", "session": "s3"},
    ]
    tiles = shown(tmp_path, given)
    values = defaultdict(set)
    for name, dashboard in read_dashboards().items():
        for section in dashboard.sections:
            for tile in section.tiles:
                if isinstance(tile, NumberTile):
                    values[tile.title].add(tiles[name, tile.id].value)
    assert {title: several for title, several in values.items() if len(several) > 1} == {}
    assert values["Active tenants"] == {1}


def test_a_chart_over_time_has_room_for_every_deployment(tmp_path: Path) -> None:
    # One row per day, surface and agent of 60 deployments exceeds a chart's limit: its sums would be too small.
    given: list[Given] = [
        {"type": type, "surface": surface, "deployment": deployment, "session": f"{deployment}", "at": at}
        for deployment in range(60)
        for type in ("view", "error")
        for surface in ("dashboard", "app")
        for at in ("08:00", "09:00")
    ]
    tiles = shown(tmp_path, given)
    assert sum(row["view_count"] for row in objects(tiles["overview", "views-by-surface"])) == 240
    over_time = [
        (name, chart.id)
        for name, dashboard in read_dashboards().items()
        for section in dashboard.sections
        for chart in section.tiles
        if isinstance(chart, Chart) and "period_start" in tiles[name, chart.id].columns
    ]
    assert len(over_time) >= 10
    for location in over_time:
        columns = set(tiles[location].columns)
        assert not columns & {"deployment", "agent_id", "public_id"}, location


def test_each_line_of_a_tooltip_has_a_title_and_not_the_name_of_a_column() -> None:
    bare = [
        (name, tile.id, field["field"])
        for name, dashboard in read_dashboards().items()
        for section in dashboard.sections
        for tile in section.tiles
        if isinstance(tile, Chart)
        for field in tooltip_fields(tile.spec)
        if not field.get("title")
    ]
    assert bare == []


def tooltip_fields(spec: Any) -> Iterable[dict[str, Any]]:
    """Yield the lines of all tooltips within a spec."""
    if isinstance(spec, list):
        for part in spec:
            yield from tooltip_fields(part)
    elif isinstance(spec, dict):
        lines = spec.get("tooltip", [])
        yield from lines if isinstance(lines, list) else [lines]
        for part in spec.values():
            yield from tooltip_fields(part)
