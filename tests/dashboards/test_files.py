"""The files of `dashboards/`: the shipped files are valid, and an error names the file and the path."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from embedsink.dashboards.error_messages import TILES_BY_KIND
from embedsink.dashboards.files import dashboards_folder, read_dashboards
from embedsink.dashboards.lint import check_dashboards
from embedsink.dashboards.model import Chart, Gauge, NumberTile
from embedsink.errors import Misconfigured
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import Report, all_reports
from embedsink.store.database import Store
from tests.support.paths import ROOT

SHIPPED = ("overview", "content", "exports", "ai-questions", "reliability", "tenants", "pipeline")
SPEC = {"mark": "bar", "encoding": {"x": {"field": "surface"}, "y": {"field": "view_count"}}}
NUMBER = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": "sum", "column": "view_count"}
CHART = {"id": "b", "kind": "chart", "title": "B", "report": "views", "spec": SPEC}
TABLE = {"id": "c", "kind": "table", "title": "C", "report": "views", "columns": {"surface": "Surface"}}
NESTED = json.loads("[" * 900 + "]" * 900)
MARKS = {"report": "sync_impact", "at": "completed_at", "title": "Sync"}
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def reports(opened: Store) -> list[Report]:
    with opened.reader(EVERYTHING.variables()) as reader:
        return all_reports(reader)


def written(folder: Path, *charts: dict[str, Any], **fields: Any) -> Path:
    sections = [{"id": "s", "title": "S", "charts": list(charts)}]
    content = {"title": "T", "description": "D", "sections": sections} | fields
    (folder / "mine.json").write_text(json.dumps(content))
    return folder


def refusal(folder: Path, reports: list[Report]) -> str:
    with pytest.raises(Misconfigured) as error:
        check_dashboards(read_dashboards(folder), reports)
    return str(error.value)


def test_shipped_dashboards_are_valid_and_ordered(reports: list[Report]) -> None:
    dashboards = read_dashboards()
    check_dashboards(dashboards, reports)
    assert tuple(dashboards) == SHIPPED


def test_each_report_is_on_some_dashboard(reports: list[Report]) -> None:
    tiles = [tile for one in read_dashboards().values() for section in one.sections for tile in section.tiles]
    shown = {tile.report for tile in tiles if not isinstance(tile, Gauge)}
    # `reach` and `sessions` are about single sessions, which no dashboard shows.
    assert {report.name for report in reports} - shown == {"reach", "sessions"}


def test_distinct_counts_are_never_added_over_periods(reports: list[Report]) -> None:
    distinct = {
        column.name for report in reports for column in report.columns if column.description.startswith("Distinct")
    }
    assert {"viewer_count", "session_count", "weekly_viewer_count"} <= distinct
    for name, dashboard in read_dashboards().items():
        for section in dashboard.sections:
            for tile in section.tiles:
                if isinstance(tile, NumberTile) and tile.how in ("sum", "ratio"):
                    assert not {tile.column, *tile.of} & distinct, f"{name}: {tile.id}"
                if isinstance(tile, Chart) and tile.compare:
                    assert tile.compare.y not in distinct, f"{name}: {tile.id}"


def test_files_are_read_from_the_package_or_the_checkout() -> None:
    assert (dashboards_folder() / "overview.json").exists()


def test_adding_a_dashboard_is_adding_a_file(tmp_path: Path, reports: list[Report]) -> None:
    dashboards = read_dashboards(written(tmp_path, NUMBER, CHART, TABLE))
    check_dashboards(dashboards, reports)
    assert [tile.id for tile in dashboards["mine"].sections[0].tiles] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("chart", "message"),
    [
        (NUMBER | {"report": "view"}, '[0].report: report "view" does not exist. Did you mean "views"?'),
        (NUMBER | {"report": "funnel"}, '[0].report: report "funnel" does not exist. Did you mean "reach"?'),
        (
            NUMBER | {"column": "views_count"},
            '[0].column: column "views_count" does not exist in report views. Did you mean "view_count"?',
        ),
        (NUMBER | {"how": "ratio", "of": ["-x"]}, '[0].of[0]: column "x" does not exist in report views. Valid names'),
        (NUMBER | {"how": "ratio"}, "[0].of: is missing; `ratio` requires it. Name a column."),
        (
            NUMBER | {"how": "only"},
            "[0].how: `only` requires a report with one row, and views has many. Use the report `totals`.",
        ),
        (NUMBER | {"how": "only", "report": "totals", "column": "views"}, '[0].column: column "views" does not exist'),
        (NUMBER | {"parameters": {"interval": "year"}}, '[0].parameters: interval: "year" is not one of hour, day'),
        (
            NUMBER | {"parameters": {"limit": "5"}},
            "[0].parameters.limit: is not a parameter that a tile can set. Valid names: interval, since, surface, "
            "tenant.",
        ),
        (NUMBER | {"where": {"surfaces": "app"}}, '[0].where.surfaces: column "surfaces" does not exist'),
        (TABLE | {"columns": {"surfac": "S"}}, '[0].columns.surfac: column "surfac" does not exist in report views.'),
        (TABLE | {"sort": "-view"}, '[0].sort: column "view" does not exist in report views.'),
        (
            CHART | {"spec": {"layer": [{"encoding": {"y": {"field": "viewcount"}}}]}},
            '[0].spec.layer[0].encoding.y.field: column "viewcount" does not exist in report views. Did you mean',
        ),
        (CHART | {"spec": SPEC | {"data": {"url": "x"}}}, "[0].spec.data: is not allowed in a spec"),
        (CHART | {"spec": SPEC | {"encoding": []}}, "[0].spec: does not have the structure of a Vega-Lite spec."),
        (CHART | {"spec": SPEC | {"transform": [{"as": [{}], "fold": 1}]}}, "[0].spec: does not have the structure"),
        (CHART | {"spec": SPEC | {"layer": NESTED}}, "[0].spec: does not have the structure"),
        (CHART | {"spec": {"mark": {"type": "image", "url": "x"}}}, "[0].spec.mark.url: is not allowed in a spec"),
        (CHART | {"spec": {"encoding": {"href": {"field": "surface"}}}}, "[0].spec.encoding.href: is not allowed"),
        (CHART | {"compare": {"x": "period_start", "y": "nothing"}}, '[0].compare.y: column "nothing" does not exist'),
        (CHART | {"leading": {"column": "surfac", "by": "view_count"}}, '[0].leading.column: column "surfac" does not'),
        (
            CHART | {"leading": {"column": "surface", "by": "surface"}},
            '[0].leading.by: column "surface" is not numeric',
        ),
        (
            CHART | {"leading": {"column": "surface", "by": "view_count"}, "sort": "-view_count"},
            "[0].leading: can't be combined with group or sort. Remove one of them.",
        ),
        (
            CHART | {"marks": MARKS | {"report": "sync"}},
            '[0].marks.report: report "sync" does not exist. Did you mean "sync_impact"?',
        ),
        (
            CHART | {"marks": MARKS | {"at": "duration_ms"}},
            '[0].marks.at: column "duration_ms" of report sync_impact is not a time column. Valid names: completed_at.',
        ),
        (
            TABLE | {"older_days": {"view_count": 14}},
            '[0].older_days.view_count: column "view_count" of report views is not a time column. '
            "Valid names: period_start.",
        ),
        (CHART | {"group": {"by": ["surfaces"]}}, '[0].group.by[0]: column "surfaces" does not exist'),
        (CHART | {"group": {"by": ["surface"]}}, "[0].group: has no sort order. Add `sum`, `median` or"),
        (
            CHART | {"group": {"by": ["surface"], "count": "n"}},
            '[0].spec.encoding.y.field: column "view_count" does not exist in this group. Valid names: n, surface.',
        ),
        (
            TABLE | {"group": {"by": ["surface"], "median": ["surface"]}},
            '[0].group.median[0]: column "surface" is not numeric. Valid names: deployment, ',
        ),
        (
            TABLE | {"group": {"by": ["surface"], "sum": ["view_count"], "median": ["view_count"]}},
            "[0].group: names a column twice. Name each once.",
        ),
        (
            TABLE | {"group": {"by": ["surface"], "sum": ["deployment", "surface"]}},
            '[0].group.sum[1]: column "surface" is not numeric. Valid names: deployment, ',
        ),
        (
            TABLE | {"group": {"by": ["deployment"], "count": "n"}},
            '[0].columns.surface: column "surface" does not exist in this group. Valid names: deployment, n.',
        ),
        (
            TABLE | {"group": {"by": ["surface"], "count": "n"}, "sort": "-view_count"},
            '[0].sort: column "view_count" does not exist in this group.',
        ),
        (
            CHART
            | {
                "group": {"by": ["surface"], "sum": ["view_count"]},
                "compare": {"x": "period_start", "y": "view_count"},
            },
            '[0].compare.x: column "period_start" does not exist in this group.',
        ),
        (TABLE | {"sort": "period_end"}, '[0].sort: column "period_end" does not exist in report views.'),
        (NUMBER | {"where": {"bar_end": 1}}, '[0].where.bar_end: column "bar_end" does not exist in report views.'),
        (NUMBER | {"column": "surface"}, '[0].column: column "surface" is not numeric. Valid names: deployment, '),
        (
            NUMBER | {"how": "ratio", "of": ["view_count", "-surface"]},
            '[0].of[1]: column "surface" is not numeric.',
        ),
        (
            NUMBER | {"how": "newest", "column": "period_start", "times": 2},
            '[0].column: column "period_start" is not numeric.',
        ),
        (
            {"id": "a", "kind": "server", "title": "A", "measure": "last_arrival_at"},
            '[0].measure: "last_arrival_at" is not one of loading_delay_s, ',
        ),
    ],
)
def test_an_unknown_report_or_column_is_reported_with_file_and_path(
    tmp_path: Path, reports: list[Report], chart: dict[str, Any], message: str
) -> None:
    assert refusal(written(tmp_path, chart), reports).startswith(f"dashboards/mine.json: sections[0].charts{message}")


SERVER = {"id": "d", "kind": "server", "title": "D", "measure": "journal_bytes"}


def without(tile: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in tile.items() if field != name}


KINDS = "number, chart, table, server"
HOWS = "sum, ratio, newest, count, distinct, only"
FORMATS = "count, number, share, ms, s, bytes, time, text"
# Each error, and its whole message.
WRONG_TILES: list[tuple[Any, str]] = [
    (NUMBER | {"kind": "gauge"}, f'[0].kind: "gauge" is not one of {KINDS}. Write one of these.'),
    (NUMBER | {"kind": "numbers"}, f'[0].kind: "numbers" is not one of {KINDS}. Did you mean "number"?'),
    (NUMBER | {"kind": ["number"]}, f'[0].kind: ["number"] is not one of {KINDS}. Write one of these.'),
    (without(NUMBER, "kind"), f"[0].kind: is missing. Write one of {KINDS}."),
    (without(NUMBER, "how"), "[0].how: is missing. Add it."),
    (5, "[0]: 5 is not an object. Write an object."),
    # A misspelt name is reported before the field that is therefore missing.
    (without(NUMBER, "title") | {"titel": "A"}, '[0].titel: is not a field. Did you mean "title"?'),
    (without(NUMBER, "column") | {"colum": "x"}, '[0].colum: is not a field. Did you mean "column"?'),
    # A name that the file already has is not suggested.
    (
        SERVER | {"titel": "A"},
        "[0].titel: is not a field. The fields are id, title, description, span, kind, measure, format.",
    ),
    (
        NUMBER | {"sort": "surface"},
        "[0].sort: is allowed only in tiles of the kind chart or table. Remove it, or change the kind.",
    ),
    (
        SERVER | {"better": "up"},
        "[0].better: is allowed only in tiles of the kind number. Remove it, or change the kind.",
    ),
    (NUMBER | {"how": "summ"}, f'[0].how: "summ" is not one of {HOWS}. Did you mean "sum"?'),
    (NUMBER | {"how": "average"}, f'[0].how: "average" is not one of {HOWS}. Write one of these.'),
    (NUMBER | {"how": None}, f"[0].how: null is not one of {HOWS}. Write one of these."),
    (NUMBER | {"format": "shares"}, f'[0].format: "shares" is not one of {FORMATS}. Did you mean "share"?'),
    (NUMBER | {"span": 5}, "[0].span: 5 is not one of 1, 2, 3, 4, 6. Write one of these."),
    (NUMBER | {"span": "2"}, '[0].span: "2" is not one of 1, 2, 3, 4, 6. Write one of these.'),
    (NUMBER | {"times": 1.5}, "[0].times: 1.5 is not an integer. Write an integer."),
    (NUMBER | {"title": None}, "[0].title: null is not a string. Write a string."),
    (NUMBER | {"title": ""}, "[0].title: is empty. Set a value."),
    (NUMBER | {"title": "t" * 101}, f'[0].title: "{"t" * 61}…" is longer than 100 characters. Shorten it.'),
    (NUMBER | {"title": "\ud800"}, r'[0].title: "\ud800" has a lone surrogate. Remove it.'),
    (
        NUMBER | {"id": "My Id"},
        '[0].id: "My Id" is not an id: lowercase letters, digits and hyphens, starting with a letter. Correct it.',
    ),
    (
        NUMBER | {"column": "View Count"},
        '[0].column: "View Count" is not a column name: lowercase letters, digits and underscores, '
        "starting with a letter. Correct it.",
    ),
    (
        NUMBER | {"of": ["+a"]},
        '[0].of[0]: "+a" is not a column name, optionally with a minus sign before it. Correct it.',
    ),
    (NUMBER | {"of": "view_count"}, '[0].of: "view_count" is not an array. Write an array.'),
    (
        NUMBER | {"parameters": {"intervall": "day"}},
        '[0].parameters.intervall: is not a parameter that a tile can set. Did you mean "interval"?',
    ),
    (NUMBER | {"parameters": {"since": 5}}, "[0].parameters.since: 5 is not a string. Write a string."),
    (
        NUMBER | {"where": {"tenant": None}},
        "[0].where.tenant: null is not a string, an integer, or true or false. Write one of these.",
    ),
    (
        NUMBER | {"where": {"A b": 1}},
        '[0].where["A b"]: "A b" is not a column name: lowercase letters, digits and underscores, '
        "starting with a letter. Correct it.",
    ),
    (
        SERVER | {"measure": "journal_byte"},
        '[0].measure: "journal_byte" is not one of loading_delay_s, journal_segment_count, journal_bytes, '
        'snapshot_age_s, damaged_count. Did you mean "journal_bytes"?',
    ),
    (CHART | {"spec": "bar"}, '[0].spec: "bar" is not an object. Write an object.'),
    (CHART | {"rows": 0}, "[0].rows: 0 is below 1. Write at least 1."),
    (CHART | {"rows": 9_999}, "[0].rows: 9999 is above 5,000. Write at most 5,000."),
    (
        CHART | {"select": "viewer"},
        '[0].select: "viewer" is not one of surface, deployment, tenant, period_start. Write one of these.',
    ),
    (CHART | {"compare": {"x": "day"}}, "[0].compare.y: is missing. Add it."),
    (CHART | {"group": {"by": []}}, "[0].group.by: is empty. Set a value."),
    (CHART | {"group": {"by": ["a"], "sums": ["b"]}}, '[0].group.sums: is not a field. Did you mean "sum"?'),
    (
        CHART | {"marks": {"report": "sync_impact", "time": "a"}},
        '[0].marks.time: is not a field. Did you mean "title"?',
    ),
    (CHART | {"leading": {"column": "a", "bye": "b"}}, '[0].leading.bye: is not a field. Did you mean "by"?'),
    (TABLE | {"columns": {}}, "[0].columns: is empty. Set a value."),
    (TABLE | {"columns": ["surface"]}, '[0].columns: ["surface"] is not an object. Write an object.'),
]
WRONG_FILES: list[tuple[dict[str, Any], str]] = [
    ({"titles": "T"}, "titles: is not a field. The fields are title, description, position, sections."),
    ({"position": "1"}, 'position: "1" is not an integer. Write an integer.'),
    ({"sections": []}, "sections: is empty. Set a value."),
    ({"sections": {}}, "sections: {} is not an array. Write an array."),
    ({"sections": [1]}, "sections[0]: 1 is not an object. Write an object."),
    (
        {"sections": [{"id": "s", "title": "S", "chart": [NUMBER]}]},
        'sections[0].chart: is not a field. Did you mean "charts"?',
    ),
    (
        {"sections": [{"id": "s", "title": "S", "charts": [NUMBER] * 25}]},
        "sections[0].charts: has more than 24 members. Write fewer.",
    ),
]


@pytest.mark.parametrize(("tile", "message"), WRONG_TILES)
def test_an_invalid_chart_is_reported_in_one_sentence(tmp_path: Path, tile: Any, message: str) -> None:
    assert refusal(written(tmp_path, tile), []) == f"dashboards/mine.json: sections[0].charts{message}"


@pytest.mark.parametrize(("more", "message"), WRONG_FILES)
def test_an_invalid_file_is_reported_in_one_sentence(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    assert refusal(written(tmp_path, NUMBER, **more), []) == f"dashboards/mine.json: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON (line 1, column 2). Correct the file."),
        (b'{\n  "title": "T"\n  "position": 1\n}', "is not JSON (line 3, column 3). Correct the file."),
        (b"", "is not JSON (line 1, column 1). Correct the file."),
        (
            b'{"title": "\xff"}',
            "is not JSON (not UTF-8, too deeply nested, or a number that is too long). Correct the file.",
        ),
        (b"[" * 200_000, "is not JSON (not UTF-8, too deeply nested, or a number that is too long). Correct the file."),
        (b"[]", "file: [] is not an object. Write an object."),
        (b"null", "file: null is not an object. Write an object."),
        (b"{}", "title: is missing. Add it."),
    ],
    ids=["open", "comma", "empty", "latin", "deep", "array", "null", "nothing"],
)
def test_a_file_without_a_dashboard_is_reported_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "mine.json").write_bytes(content)
    assert refusal(tmp_path, []) == f"dashboards/mine.json: {message}"


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.json").mkdir()
    message = "dashboards/mine.json: Is a directory. Make it readable for this user, or remove it."
    assert refusal(tmp_path, []) == message


def test_allowed_values_are_documented() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == list(TILES_BY_KIND)
    for kind, name in (("number", "how"), ("number", "format"), ("server", "measure")):
        values = get_args(TILES_BY_KIND[kind].model_fields[name].annotation)
        assert [value for value in values if f"`{value}`" not in page] == []


def test_a_group_has_the_columns_that_it_makes(tmp_path: Path, reports: list[Report]) -> None:
    group = {"by": ["period_start", "surface"], "sum": ["view_count"], "count": "row_count"}
    spec = {"mark": "bar", "encoding": {"x": {"field": "bar_start"}, "y": {"field": "row_count"}}}
    chart = CHART | {"group": group, "spec": spec, "compare": {"x": "period_middle", "y": "view_count"}}
    table = TABLE | {"group": {"by": ["surface"], "count": "n"}, "sort": "-n", "columns": {"n": "N"}}
    check_dashboards(read_dashboards(written(tmp_path, chart, table)), reports)


def test_a_field_that_a_spec_computes_is_a_column(tmp_path: Path, reports: list[Report]) -> None:
    made = {
        "transform": [{"calculate": "1", "as": "one"}],
        "encoding": {"x": {"field": "one"}, "x2": {"field": "period_end"}},
    }
    check_dashboards(read_dashboards(written(tmp_path, CHART | {"spec": made})), reports)


def test_ids_are_unique(tmp_path: Path, reports: list[Report]) -> None:
    twice = 'dashboards/mine.json: charts: id "a" is not unique. Give each one its own id.'
    assert refusal(written(tmp_path, NUMBER, NUMBER), reports) == twice


@pytest.mark.parametrize("name", ["inspector", "My Desk", "ä", "A", "-a", "a--b", ".hidden"])
def test_a_file_name_that_cannot_be_in_a_url_is_reported(tmp_path: Path, name: str) -> None:
    written(tmp_path, NUMBER).joinpath("mine.json").rename(tmp_path / f"{name}.json")
    advice = "Choose another name" if name == "inspector" else "Use lowercase letters"
    with pytest.raises(Misconfigured, match=rf"^dashboards/{re.escape(name)}\.json: is .*\. {advice}"):
        read_dashboards(tmp_path)


def test_operator_dashboards_extend_ours_and_replace_those_of_the_same_name(tmp_path: Path) -> None:
    built_in = read_dashboards()
    assert read_dashboards(tmp_path / "missing") == built_in
    written(tmp_path, NUMBER).joinpath("mine.json").rename(tmp_path / "overview.json")
    (tmp_path / "support-desk.json").write_text((tmp_path / "overview.json").read_text())
    dashboards = read_dashboards(tmp_path)
    assert dashboards.keys() == {*built_in, "support-desk"}
    assert dashboards["overview"] == dashboards["support-desk"] != built_in["overview"]


def test_a_file_that_is_not_json_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{")
    with pytest.raises(Misconfigured, match=r"^dashboards/mine\.json: is not JSON \(.*\)\. Correct the file\.$"):
        read_dashboards(tmp_path)


def test_the_example_in_the_documentation_is_a_dashboard(tmp_path: Path, reports: list[Report]) -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "support.json").write_text(example)
    check_dashboards(read_dashboards(tmp_path), reports)
    (tmp_path / "support.json").write_text(example.replace('"view_count"', '"views_count"'))
    assert refusal(tmp_path, reports) in page
