"""Dashboards as files: complete, for the requested period, safe, and self-contained."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.image.chart import chart_svg, spec_with_data
from embedsink.dashboards.image.render import render
from embedsink.dashboards.image.sheet import Caption, DataBySection
from embedsink.dashboards.model import Chart, Dashboard
from embedsink.dashboards.period import period_of
from embedsink.dashboards.query import TileData, query_section
from embedsink.dashboards.theme import LIGHT
from embedsink.dashboards.time_axis import span_of
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import all_reports
from embedsink.store.database import Store
from tests.dashboards.image.svg_reader import addresses_of, names_of, parse, texts_of
from tests.support.given import write_segment
from tests.support.stores import open_store

NOW = datetime(2026, 11, 6, 12, tzinfo=UTC)  # the Friday after the Monday of tests/support/given.py
HOSTILE = (
    "<script>alert(1)</script><image href='https://evil.example/x.png'/> \u202e ]]> &amp; \x1b[31m {{7*7}} " + "w" * 300
)
DASHBOARDS = read_dashboards()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Store]]:
    """Create an empty store, a store with ordinary events, and a store with hostile text in every field."""
    texts = ("title", "path", "public_id", "viewer", "tenant", "page", "session")
    wild: dict[str, Any] = dict.fromkeys(texts, HOSTILE) | {"publicId": HOSTILE}
    del wild["public_id"]
    honest: list[dict[str, Any]] = [
        {"type": "ready"},
        *[
            {"type": "view", "at": f"{hour}:00", "title": "Sales", "publicId": "d_1", "viewer": f"u{hour}"}
            for hour in range(10, 15)
        ],
        {"type": "dashboard-loaded", "at": "10:01", "publicId": "d_1", "loadDurationMs": 900},
        {"type": "download", "at": "11:00", "rowCount": 10, "title": "Sales"},
        {"type": "error", "at": "11:30"},
    ]
    kinds = ("view", "download", "drilldown", "error", "dashboard-loaded", "navigate", "ai-query", "ready")
    hostile = [{"type": kind, **wild} | _in_payload(kind) for kind in kinds]
    stores = {}
    for name, given in (("nothing", []), ("honest", honest), ("hostile", hostile)):
        folder = tmp_path_factory.mktemp(name)
        stores[name] = open_store(folder / "store.duckdb")
        stores[name].load(inspect(write_segment(folder, given)))
    yield stores
    for store in stores.values():
        store.close()


def _in_payload(kind: str) -> dict[str, Any]:
    fields = {"drilldown": "member", "error": "message", "ai-query": "query", "navigate": "previousPath"}
    return {fields[kind]: HOSTILE} if kind in fields else {}


def answers_of(store: Store, dashboard: Dashboard, **params: str) -> DataBySection:
    period = period_of(params, now=NOW)
    with store.reader(EVERYTHING.variables()) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        return {
            section.id: _charts(query_section(reader, section, period, reports=reports, now=NOW))
            for section in dashboard.sections
        }


def _charts(answers: dict[str, TileData]) -> dict[str, dict[str, Any]]:
    return {id: asdict(answer) for id, answer in answers.items()}


def caption_of(**params: str) -> Caption:
    start, end = span_of(period_of(params, now=NOW).scope, now=NOW)
    return Caption((start, end), NOW)


def drawn(store: Store, name: str, format: str = "svg", *, is_dark: bool = False, **params: str) -> bytes:
    dashboard = DASHBOARDS[name]
    answers = answers_of(store, dashboard, **params)
    return render(dashboard, answers, caption_of(**params), format=format, is_dark=is_dark)


def test_the_caption_names_the_data_the_time_and_the_scope(stores: dict[str, Store]) -> None:
    dashboard = DASHBOARDS["overview"]
    answers = answers_of(stores["honest"], dashboard, period="7d")
    filters = {"tenant": "acme", "deployment": "1, 2"}
    caption = replace(caption_of(period="7d"), timezone="Europe/Berlin", filters=filters)
    texts = texts_of(render(dashboard, answers, caption, format="svg").decode())
    assert texts[0] == "Overview"
    expected = "31 Oct 2026 – 6 Nov 2026 (Europe/Berlin) · tenant acme · deployment 1, 2 · rendered 6 Nov 2026, 13:00"
    assert expected in texts


def test_the_caption_has_the_time_of_the_snapshot(stores: dict[str, Store]) -> None:
    dashboard = DASHBOARDS["overview"]
    snapshot_at = NOW - timedelta(days=2, hours=3)
    caption = Caption((0, 1), NOW, "Europe/Berlin", {"tenant": "\u202eacme"}, snapshot_at)
    texts = texts_of(render(dashboard, answers_of(stores["nothing"], dashboard), caption, format="svg").decode())
    assert "tenant \\u202eacme · rendered 6 Nov 2026, 13:00, snapshot of 4 Nov 2026, 10:00" in texts[3]


def test_numbers_are_those_of_the_reports(stores: dict[str, Store]) -> None:
    texts = texts_of(drawn(stores["honest"], "overview").decode())
    assert texts[texts.index("Views") + 1] == "5"
    assert texts[texts.index("Downloads") + 1] == "1"
    assert "Sales" in texts  # the label of a bar
    assert "2 Nov" in texts  # and of a day


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_without_events_show_their_empty_texts(stores: dict[str, Store], name: str) -> None:
    svg = drawn(stores["nothing"], name).decode()
    assert DASHBOARDS[name].title in texts_of(svg)
    charts = sum(tile.kind in ("chart", "table") for section in DASHBOARDS[name].sections for tile in section.tiles)
    assert texts_of(svg).count("No data in this period") == charts


@pytest.mark.parametrize("name", DASHBOARDS)
def test_hostile_values_are_escaped_in_every_dashboard(stores: dict[str, Store], name: str) -> None:
    svg = drawn(stores["hostile"], name).decode()
    assert not names_of(svg) & {"script", "image", "foreignObject", "a", "iframe", "use"}
    assert all(address.startswith("url(#") for address in addresses_of(svg))
    assert "\u202e" not in "".join(texts_of(svg))
    assert all(width < 1_200 for width in map(float, _widths_of_cards(svg)))


def _widths_of_cards(svg: str) -> list[str]:
    return [
        element.get("width") or "0"
        for element in parse(svg).iter()
        if element.tag.endswith("}rect") and element.get("rx") == "10"
    ]


def test_each_suffix_gives_a_file_of_its_format(stores: dict[str, Store]) -> None:
    png = drawn(stores["honest"], "tenants", "png")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(png[16:20]) == 2_400
    pdf = drawn(stores["honest"], "tenants", "pdf")
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type/Page/") + pdf.count(b"/Type /Page ") == 1
    html = drawn(stores["honest"], "tenants", "html").decode()
    assert html.startswith("<!doctype html>")
    assert "default-src 'none'" in html
    assert "<script" not in html


def test_an_empty_cell_is_aligned_like_its_column() -> None:
    columns = ["tenant", "view_count", "viewer_count", "active_day_count", "seconds_to_first_value_p50"]
    rows = [["acme", 5, 2, 1, None]]
    answers = {"use": {"all": {"columns": columns, "rows": rows, "before": []}}}
    svg = parse(render(DASHBOARDS["tenants"], answers, caption_of(), format="svg").decode())
    anchors = {element.text: element.get("text-anchor") for element in svg.iter() if element.tag.endswith("}text")}
    assert anchors["Time to first value"] == anchors["Views"] == "end"
    assert anchors["Tenant"] is None


def test_adjacent_charts_are_aligned(stores: dict[str, Store]) -> None:
    chart = {"kind": "chart", "report": "views", "span": 3, "spec": {"mark": "bar", "encoding": {}}, "height": 200}
    words = "What it is, in so many words that one line of a card has no room for all of them, and it needs another."
    pair = [chart | {"id": "a", "title": "A", "description": words}, chart | {"id": "b", "title": "B"}]
    sections = [{"id": "s", "title": "S", "charts": pair}]
    dashboard = Dashboard.model_validate({"title": "T", "description": "D", "sections": sections})
    svg = parse(render(dashboard, answers_of(stores["honest"], dashboard), caption_of(), format="svg").decode())
    inner = [element for element in svg.iter() if element.tag.endswith("}svg") and element.get("y")]
    first, second = (float(element.get("y") or 0) + float(element.get("height") or 0) for element in inner)
    assert first == pytest.approx(second)


def test_dark_mode_has_light_text_on_a_dark_background(stores: dict[str, Store]) -> None:
    light, dark = (drawn(stores["nothing"], "overview", is_dark=is_dark).decode() for is_dark in (False, True))
    assert 'fill="#f4f6f8"' in light
    assert 'fill="#0d1218"' in dark


def test_numbers_follow_the_requested_period(stores: dict[str, Store]) -> None:
    until = (NOW - timedelta(days=7)).date().isoformat()
    texts = texts_of(drawn(stores["honest"], "overview", since="2026-10-01", until=until).decode())
    assert texts[texts.index("Views") + 1] == "0"
    assert "1 Oct 2026 – 29 Oct 2026 (UTC) · rendered 6 Nov 2026, 12:00" in texts


def test_a_compared_chart_has_a_line_of_the_previous_period(stores: dict[str, Store], tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    store.load(
        inspect(
            write_segment(
                tmp_path, [{"type": "view", "at": f"2026-{day} 10:00"} for day in ("10-27", "10-28", "11-03", "11-04")]
            )
        )
    )
    compared = drawn(store, "overview").decode()
    alone = drawn(store, "overview", compare="off").decode()
    store.close()
    assert "stroke-dasharray" in compared
    assert "The dashed line shows the previous period." in texts_of(compared)
    assert "stroke-dasharray" not in alone


def test_long_titles_are_truncated_before_measuring_and_stay_distinct() -> None:
    encoding = {"y": {"field": "title", "type": "nominal"}, "x": {"field": "view_count", "type": "quantitative"}}
    chart = Chart.model_validate(
        {"id": "one", "kind": "chart", "title": "One", "report": "dashboards"}
        | {"spec": {"mark": "bar", "encoding": encoding}}
    )
    titles = [("مرحبا <b>W" * 4_000) + end for end in ("first", "second", "")]
    answer = {"columns": ["title", "view_count"], "rows": [[title, 5] for title in titles], "before": []}
    spec = spec_with_data(chart, answer, LIGHT, width=500, height=200)
    written = [row["title"] for row in spec["datasets"]["rows"]]
    assert max(map(len, written)) < 300
    svg = chart_svg(spec, tile="one")
    assert sum("مرحبا" in text for text in texts_of(svg)) == 3  # Bars with the same name would be merged.


def test_a_long_newest_text_fits_into_its_tile() -> None:
    tile = {"id": "one", "kind": "number", "title": "Last", "report": "errors", "how": "newest", "column": "name"}
    section = {"id": "s", "title": "S", "charts": [tile]}
    dashboard = Dashboard.model_validate({"title": "D", "description": "D.", "sections": [section]})
    answers = {"s": {"one": {"value": "W" * 60_000, "value_before": None}}}
    svg = render(dashboard, answers, caption_of(), format="svg").decode()
    assert max(map(len, texts_of(svg))) < 100


def test_a_table_shows_its_row_count_and_formats_days() -> None:
    tile = {"id": "a", "kind": "table", "title": "A", "report": "export_volumes", "columns": {"day": "Day"}}
    section = {"id": "s", "title": "S", "charts": [tile]}
    dashboard = Dashboard.model_validate({"title": "T", "description": "D", "sections": [section]})
    for row_count, expected in ((1_063, True), (1, False)):
        table = {"columns": ["day"], "rows": [[0]], "is_cut": row_count > 1, "row_count": row_count}
        texts = texts_of(render(dashboard, {"s": {"a": table}}, caption_of(), format="svg").decode())
        assert ("1 of 1,063" in texts) is expected
        assert "1 Jan 1970" in texts
