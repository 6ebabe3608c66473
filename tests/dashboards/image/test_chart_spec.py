"""The drawn axes, legends and stacks of the shipped charts."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.image.chart import chart_svg, spec_with_data
from embedsink.dashboards.model import Chart
from embedsink.dashboards.theme import LIGHT
from tests.dashboards.image.svg_reader import parse, texts_of

DAY_MS = 86_400_000
START_MS = 1_795_219_200_000  # 2026-11-21T00:00Z
TIME = ("period_start", "period_middle", "period_end", "bar_start", "bar_end")
Row = dict[str, Any]


def chart_of(dashboard: str, id: str) -> Chart:
    sections = read_dashboards()[dashboard].sections
    return next(chart for section in sections for chart in section.tiles if chart.id == id and isinstance(chart, Chart))


def format_day(number: int, **row: Any) -> Row:
    """Return the row of a day, with the columns of a period."""
    start = START_MS + number * DAY_MS
    times = (start, start + DAY_MS // 2, start + DAY_MS, start + DAY_MS // 8, start + DAY_MS * 7 // 8)
    return dict(zip(TIME, times, strict=True)) | row


def drawn(chart: Chart, rows: Sequence[Row], before: Sequence[Row] = (), *, width: float = 600) -> str:
    names = list(rows[0])
    answer = {"columns": names, "interval": "day", "span": [START_MS, START_MS + 7 * DAY_MS]}
    answer["ticks"] = [START_MS + number * DAY_MS + DAY_MS // 2 for number in range(7)]
    answer |= {"rows": [list(row.values()) for row in rows], "before": [list(row.values()) for row in before]}
    return chart_svg(spec_with_data(chart, answer, LIGHT, width=width, height=chart.height), tile=chart.id)


def numbers_of(svg: str) -> list[float]:
    """Return the labels of the numeric axis."""
    return [float(text.replace(",", "")) for text in texts_of(svg) if re.fullmatch(r"[\d.,]+", text)]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_axes_of_counts_have_whole_numbers(count: int) -> None:
    rows = [format_day(6, surface="app", view_count=count)]
    numbers = numbers_of(drawn(chart_of("overview", "views-by-surface"), rows))
    assert numbers[0] == 0
    assert len(numbers) > 1
    assert all(number.is_integer() for number in numbers)
    across = numbers_of(drawn(chart_of("overview", "tenants"), [{"tenant": "acme", "view_count": count}]))
    assert len(across) > 1
    assert all(number.is_integer() for number in across)


def test_computed_counts_have_an_axis_of_integers() -> None:
    outcomes = dict.fromkeys(("completed_count", "pending_count", "error_count", "abandoned_count"), 0)
    rows = [format_day(6, submitted_count=1) | outcomes | {"completed_count": 1}]
    assert numbers_of(drawn(chart_of("ai-questions", "lifecycle"), rows)) == [0, 1]


@pytest.mark.parametrize(("dashboard", "id"), [("reliability", "errors-by-surface"), ("overview", "error-rate")])
def test_a_chart_of_zeros_has_an_axis(dashboard: str, id: str) -> None:
    rows = [format_day(number, surface="app", error_count=0, view_count=9) for number in range(3)]
    numbers = numbers_of(drawn(chart_of(dashboard, id), rows))
    assert (numbers[0], numbers[-1]) == (0, 1)


def test_ticks_of_short_durations_have_distinct_labels() -> None:
    rows = [{"title": "Sales", "public_id": "d", "deployment": 1, "load_p50_ms": 1, "load_p95_ms": 2, "view_count": 1}]
    numbers = numbers_of(drawn(chart_of("reliability", "load-range"), rows))
    assert len(numbers) == len(set(numbers)) >= 3
    assert max(numbers) == 0.002


def test_the_axis_includes_a_higher_previous_period() -> None:
    chart = chart_of("overview", "views-by-surface")
    rows = [format_day(number, surface="app", view_count=1) for number in range(3)]
    before = [format_day(number, surface="app", view_count=40) for number in range(3)]
    assert max(numbers_of(drawn(chart, rows, before))) >= 40


def test_the_bar_of_a_single_row_has_a_limited_height() -> None:
    svg = drawn(chart_of("tenants", "tenants"), [{"tenant": "acme", "view_count": 7}])
    [bar] = [element for element in parse(svg).iter() if element.get("aria-roledescription") == "bar"]
    heights = [float(y) for y in re.findall(r"[\d.]+,([\d.]+)(?=[A-Z])", bar.get("d") or "")]
    assert max(heights) - min(heights) == pytest.approx(28)


def test_all_periods_are_labelled_if_only_one_has_rows() -> None:
    texts = texts_of(drawn(chart_of("overview", "views-by-surface"), [format_day(6, surface="app", view_count=1)]))
    assert {"21 Nov", "27 Nov"} < set(texts)


def test_stacked_bars_have_the_order_of_the_legend() -> None:
    reasons = {"bad_field": 9, "wrong_surface": 8, "unknown_type": 7, "not_json": 6, "too_large": 5, "bad_text": 4}
    rows = [format_day(6, reason=reason, quarantined_count=count) for reason, count in reversed(reasons.items())]
    rows.append(format_day(6, reason="wrong_source", quarantined_count=30))
    svg = drawn(chart_of("pipeline", "by-reason"), rows)
    legend = [text for text in texts_of(svg) if text in (*reasons, "wrong_source", "others")]
    assert legend == ["wrong_source", "bad_field", "wrong_surface", "unknown_type", "not_json", "others"]
    bars = [element for element in parse(svg).iter() if element.get("aria-roledescription") == "bar"]
    tops = {_reason_of(bar.get("aria-label") or ""): _top_of(bar.get("d") or "") for bar in bars}
    assert sorted(tops, key=lambda reason: tops[reason]) == legend


def test_labels_show_bidirectional_and_invisible_characters_as_text() -> None:
    rows = [{"tenant": "\u202eevil", "view_count": 2}, {"tenant": " ", "view_count": 1}]
    texts = [text.strip() for text in texts_of(drawn(chart_of("tenants", "tenants"), rows))]
    assert {"\\u202eevil", "(blank)"} <= set(texts)


def _reason_of(label: str) -> str:
    return re.search(r"shown_reason: (\w+)", label)[1]  # type: ignore[index]


def _top_of(path: str) -> float:
    return float(re.match(r"M[\d.]+,([\d.]+)", path)[1])  # type: ignore[index]


@pytest.mark.parametrize(("names", "width", "lines"), [((12, 27, 31, 44), 300, 1), ((10**12, 10**12 + 1, 3), 300, 2)])
def test_a_legend_wraps_into_lines(names: tuple[int, ...], width: int, lines: int) -> None:
    rows = [
        format_day(number, day=START_MS, deployment=name, weekly_viewer_count=1)
        for number in range(2)
        for name in names
    ]
    svg = parse(drawn(chart_of("overview", "viewers"), rows, width=width))
    parents = {child: parent for parent in svg.iter() for child in parent}
    labels = [element for element in svg.iter() if element.text in {str(name) for name in names}]
    assert len(labels) == len(names)
    positions = {_position_of(parents[parents[parents[label]]].get("transform") or "") for label in labels}
    assert len({y for _, y in positions}) == lines


def _position_of(transform: str) -> tuple[float, float]:
    x, y = re.findall(r"-?[\d.]+", transform)
    return float(x), round(float(y))


def test_a_line_without_a_name_is_labelled_as_unnamed() -> None:
    rows = [format_day(6, day=START_MS, deployment=deployment, weekly_viewer_count=3) for deployment in (5, None)]
    texts = texts_of(drawn(chart_of("overview", "viewers"), rows))
    assert {"5", "(none)"} < set(texts)
    assert "null" not in texts


@pytest.mark.parametrize(("days", "runs"), [((0, 1, 4, 5), 2), ((0, 1, 2), 1), ((0, 2, 4), 3)])
def test_lines_have_gaps_at_periods_without_rows(days: Sequence[int], runs: int) -> None:
    rows = [
        format_day(number, surface=surface, error_count=1, view_count=10)
        for number in days
        for surface in ("app", "dashboard")
    ]
    svg = drawn(chart_of("overview", "error-rate"), rows)
    assert svg.count('aria-roledescription="line mark"') == 2 * runs
    assert svg.count('aria-roledescription="point"') == 2 * len(days)


def test_charts_over_time_mark_syncs() -> None:
    row = format_day(6, surface="app", error_count=1, session_count=2, session_with_error_count=1)
    row |= {"load_p50_ms": 1, "load_p95_ms": 2}
    for id in ("errors-by-surface", "error-free", "load-course"):
        chart = chart_of("reliability", id)
        answer: Row = {"interval": "day", "span": [START_MS, START_MS + 7 * DAY_MS], "before": []}
        answer |= {"columns": list(row), "rows": [list(row.values())]}
        marks = [START_MS + DAY_MS, START_MS + 3 * DAY_MS]
        spec = spec_with_data(chart, answer | {"marks": marks}, LIGHT, width=600, height=300)
        assert chart_svg(spec, tile=id).count("dbt sync completed: ") == 2
        spec = spec_with_data(chart, answer, LIGHT, width=600, height=300)
        assert "dbt sync completed: " not in chart_svg(spec, tile=id)


def test_an_export_is_a_bar_from_zero_below_the_usual_volume() -> None:
    usual = {"usual_total_row_count_max": 400, "viewer_count": 1, "is_total_unusual": False}
    rows = [format_day(number, day=START_MS, total_row_count=100 * number) | usual for number in (1, 2, 3)]
    svg = drawn(chart_of("exports", "unusual"), rows)
    heights = [float(one) for one in re.findall(r'roledescription="bar"[^>]* d="M[^h]*h[^v]*v([\d.]+)h', svg)]
    assert [round(height / heights[0], 2) for height in heights] == [1, 2, 3]
