"""Aggregates of a report's rows: numbers, the first or the greatest rows, sums of groups."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest

import embedsink.dashboards.aggregate
from embedsink.dashboards.aggregate import Row, TopSeries, aggregator_for, row_filter
from embedsink.dashboards.columns import text_filters
from embedsink.dashboards.model import Chart, NumberTile, Table, TopValues

NAMES = ["surface", "seen_at", "view_count", "error_count"]
EARLY, LATE, END = datetime(2026, 11, 1), datetime(2026, 11, 2), datetime(2026, 11, 11, 12)
ROWS: list[Row] = [
    ("app", EARLY, 3, 1),
    ("chat", LATE, 5, 0),
    ("app", LATE, 7, None),
    (None, None, 2, 4),
]


def number(function: str, **fields: Any) -> NumberTile:
    content = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": function} | fields
    return NumberTile.model_validate(content)


def table(**fields: Any) -> Table:
    content = {"id": "a", "kind": "table", "title": "A", "report": "views", "columns": {"surface": "S"}} | fields
    return Table.model_validate(content)


def test_no_row_is_older_than_the_calendar() -> None:
    holds = row_filter(number("count", older_days={"seen_at": 14}), NAMES, datetime(1, 1, 5))
    assert not any(holds(row) for row in ROWS)


def shown(tile: NumberTile | Chart | Table, rows: Iterable[Row] = ROWS) -> Any:
    result = aggregator_for(tile, NAMES)
    holds = row_filter(tile, NAMES, END)
    for row in rows:
        if holds(row):
            result.add(row)
    return result


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (number("sum", column="view_count"), 17),
        (number("sum", column="error_count", times=100), 500),
        (number("count"), 4),
        (number("count", where={"surface": "app"}), 2),
        (number("count", nonzero="error_count"), 2),
        (number("count", older_days={"seen_at": 9}), 3),
        (number("count", older_days={"seen_at": 10}), 1),
        (number("count", older_days={"seen_at": 10}, where={"surface": "chat"}), 0),
        (number("count", older_days={"seen_at": 11}), 0),
        (number("sum", column="view_count", where={"surface": "app"}, nonzero="error_count"), 3),
        (number("ratio", column="error_count", of=["view_count", "-error_count"], times=12), 5),
        (number("ratio", column="error_count", of=["view_count"], where={"surface": "tv"}), None),
        (number("distinct", column="surface"), 2),
        (number("distinct", column="surface", times=100), 200),
        (number("distinct", column="surface", where={"surface": "tv"}), 0),
        (number("only", column="view_count", where={"surface": "chat"}), 5),
        (number("only", column="view_count", where={"surface": "chat"}, times=2), 10),
        (number("only", column="view_count", where={"surface": "tv"}), 0),
        (number("only", column="view_count", where={"surface": "tv"}, format="share"), None),
        (number("newest", column="seen_at"), LATE),
        (number("newest", column="view_count", times=2), 14),
        (number("newest", column="seen_at", where={"surface": "tv"}), None),
    ],
)
def test_a_number_aggregates_all_rows(figure: NumberTile, value: Any) -> None:
    assert shown(figure).value() == value
    assert shown(figure, ROWS[::-1]).value() == value


@pytest.mark.parametrize("values", [(0, -5), (-5, 0), (None, 0, -5), (-5, None, 0)])
def test_the_newest_value_is_the_greatest_or_null(values: tuple[int | None, ...]) -> None:
    assert shown(number("newest", column="view_count"), [("app", EARLY, value, 0) for value in values]).value() == 0


def test_without_a_sort_the_first_rows_are_shown() -> None:
    result = shown(table(rows=3))
    assert result.rows() == ROWS[:3]
    assert result.is_cut()
    assert not shown(table(rows=4)).is_cut()


@pytest.mark.parametrize(
    ("sort", "places"),
    [
        ("-view_count", [2, 1, 0, 3]),
        ("view_count", [3, 0, 1, 2]),
        ("-seen_at", [1, 2, 0]),
        ("seen_at", [0, 1, 2]),
        ("-surface", [1, 0, 2]),
        ("surface", [0, 2, 1]),
        ("error_count", [1, 0, 3]),
    ],
)
def test_a_sort_orders_rows_and_puts_nulls_last(sort: str, places: list[int]) -> None:
    assert shown(table(sort=sort)).rows() == [ROWS[index] for index in places]
    for count in range(1, len(places)):
        result = shown(table(sort=sort, rows=count))
        assert result.rows() == [ROWS[index] for index in places[:count]]
        assert result.is_cut()


def test_a_group_has_sums_and_a_count_and_the_greatest_come_first() -> None:
    group = {"by": ["surface"], "sum": ["error_count", "view_count"], "count": "row_count"}
    result = shown(table(group=group))
    assert result.names == ["surface", "error_count", "view_count", "row_count"]
    assert result.rows() == [(None, 4, 2, 1), ("app", 1, 10, 2), ("chat", 0, 5, 1)]
    assert shown(table(group=group, sort="-row_count", rows=1)).rows() == [("app", 1, 10, 2)]
    assert shown(table(group=group, sort="view_count")).rows()[0] == (None, 4, 2, 1)
    assert shown(table(group={"by": ["surface"], "count": "n"})).rows()[0] == ("app", 2)


def test_a_group_has_the_median_of_values_that_cannot_be_added() -> None:
    group = {"by": ["surface"], "median": ["error_count", "view_count"], "count": "row_count"}
    result = shown(table(group=group, sort="-view_count"), [*ROWS, ("chat", LATE, 6, None)])
    assert result.names == ["surface", "error_count", "view_count", "row_count"]
    assert result.rows() == [("chat", 0, 5.5, 2), ("app", 1, 5, 2), (None, 4, 2, 1)]


def test_a_group_without_values_has_no_median() -> None:
    result = shown(table(group={"by": ["surface"], "median": ["error_count"], "count": "n"}), [("app", LATE, 7, None)])
    assert result.rows() == []  # A group without a median is omitted.
    result = shown(
        table(group={"by": ["surface"], "median": ["error_count"]}, sort="surface"), [("app", LATE, 7, None)]
    )
    assert result.rows() == [("app", None)]


def test_the_median_of_many_values_uses_an_even_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.dashboards.aggregate, "MEDIAN_SAMPLE_MAX", 8)
    group = {"by": ["surface"], "median": ["view_count"]}
    for count in (7, 8, 9, 100, 1_000):
        [(_, middle)] = shown(table(group=group), [("app", LATE, number, 0) for number in range(count)]).rows()
        assert middle == pytest.approx((count - 1) / 2, abs=count / 8)


def test_a_group_with_more_rows_than_shown_is_marked_as_cut() -> None:
    group = {"by": ["surface"], "count": "row_count"}
    assert shown(table(group=group, rows=2)).is_cut()
    assert not shown(table(group=group, rows=3)).is_cut()


def test_beyond_the_maximum_known_groups_continue_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.dashboards.aggregate, "GROUPS_MAX", 2)
    result = shown(table(group={"by": ["surface"], "sum": ["view_count"]}), [*ROWS, ("chat", LATE, 1, 0)])
    assert result.rows() == [("app", 10), ("chat", 6)]
    assert result.is_cut()


def led(rows: Iterable[Row] = ROWS, **fields: Any) -> Any:
    content = {"id": "a", "kind": "chart", "title": "A", "report": "views", "spec": {}} | fields
    return shown(Chart.model_validate(content), rows)


def test_the_largest_of_many_lines_are_complete() -> None:
    leading = {"column": "surface", "by": "view_count", "count": 2}
    result = led(leading=leading)
    assert result.rows() == ROWS[:3]
    assert result.is_cut()
    every = led(leading=leading | {"count": 3})
    assert (every.rows(), every.is_cut()) == (ROWS, False)
    assert led(leading=leading | {"by": "error_count", "count": 1}).rows() == [ROWS[3]]


def test_thousands_of_invented_lines_displace_no_larger_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.dashboards.aggregate, "SERIES_ROWS_MAX", 20)
    days: list[list[Row]] = [
        [
            *((f"invented {day} {index}", EARLY, 1, 0) for index in range(50)),
            ("app", EARLY, 3, 0),
            ("chat", EARLY, 2, 0),
        ]
        for day in range(4)
    ]
    result = led([row for rows in days for row in rows], leading={"column": "surface", "by": "view_count", "count": 2})
    assert result.rows() == [("app", EARLY, 3, 0), ("chat", EARLY, 2, 0)] * 4


def test_a_long_line_does_not_take_more_memory_than_its_shown_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.dashboards.aggregate, "SERIES_ROWS_MAX", 20)
    shown_max = 30
    lines = TopSeries(TopValues(column="surface", by="view_count", count=2), list(NAMES), shown_max)
    for _ in range(1_000):
        lines.add(("app", EARLY, 1, 0))
    assert lines._buffered_count == shown_max
    assert lines.rows() == [("app", EARLY, 1, 0)] * shown_max
    assert lines.is_cut()


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 4),
        ({"rows": 1}, 4),
        ({"sort": "-error_count", "rows": 1}, 3),
        ({"group": {"by": ["surface"], "count": "n"}}, 3),
    ],
)
def test_a_cut_table_knows_its_number_of_rows(fields: dict[str, Any], count: int) -> None:
    assert shown(table(**fields)).row_count == count


def test_a_query_selects_only_texts_that_all_tiles_need() -> None:
    app, failed = {"surface": "app"}, {"surface": "app", "error_count": 1}
    assert text_filters([number("count", where=app), table(where=failed)]) == (("surface", "app"),)
    assert text_filters([number("count", where=app), table(where={"surface": "chat"})]) == ()
    assert text_filters([number("count", where=app), table()]) == ()
