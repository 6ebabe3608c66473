"""The comparison of a number with the previous period: the change, and whether it is good."""

import pytest

from embedsink.dashboards.comparison import Change, change_of
from embedsink.dashboards.labels import UNCHANGED, ZERO_BEFORE
from embedsink.dashboards.model import NumberTile


def figure(**fields: str) -> NumberTile:
    named = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": "only"}
    return NumberTile.model_validate(named | fields)


@pytest.mark.parametrize(
    ("better", "value", "before", "is_good"),
    [("up", 2, 1, True), ("up", 1, 2, False), ("down", 2, 1, False), ("down", 1, 2, True), ("neither", 2, 1, None)],
)
def test_more_is_good_where_the_file_defines_it(better: str, value: int, before: int, is_good: bool | None) -> None:
    change = change_of(figure(better=better), value, before)
    assert isinstance(change, Change)
    assert (change.direction, change.is_good) == ("up" if value > before else "down", is_good)


@pytest.mark.parametrize(
    ("value", "before", "by", "format"),
    [
        (110, 100, 0.1, "share"),
        (25, 100, 0.75, "share"),
        (400, 100, 3, "share"),
        (401, 100, 4, "times"),
        (448, 100, 4.5, "times"),
        (155_055, 2, 77_528, "times"),
    ],
)
def test_large_growth_is_shown_as_a_factor(value: int, before: int, by: float, format: str) -> None:
    change = change_of(figure(), value, before)
    assert isinstance(change, Change)
    assert change.by == pytest.approx(by)
    assert change.format == format


def test_shares_differ_by_points() -> None:
    change = change_of(figure(format="share"), 0.9, 0.1)
    assert isinstance(change, Change)
    assert change.by == pytest.approx(0.8)
    assert change.format == "points"


@pytest.mark.parametrize(
    ("value", "before", "text"), [(7, 0, ZERO_BEFORE), (7, 7, UNCHANGED), (7, None, None), (None, 7, None)]
)
def test_a_label_replaces_a_change_from_zero_or_to_an_equal_value(
    value: int | None, before: int | None, text: str | None
) -> None:
    assert change_of(figure(), value, before) == text
