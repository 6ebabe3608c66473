"""Numbers, times and changes as English text in images."""

from dataclasses import asdict
from typing import Any

import pytest

from embedsink.dashboards.comparison import Change, change_of
from embedsink.dashboards.image.text import display_name, format_change, format_day, format_time, format_value
from embedsink.dashboards.model import NumberTile

NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00Z


@pytest.mark.parametrize(
    ("value", "format", "shown"),
    [
        (None, "count", "–"),
        (0, "count", "0"),
        (1_234, "count", "1,234"),
        (12_345_678, "count", "12.35M"),
        (12.756, "number", "12.76"),
        (12.0, "number", "12"),
        (1_234.5, "number", "1,234"),
        (0.8714, "share", "87.1%"),
        (1, "share", "100%"),
        (0.25, "s", "250 ms"),
        (9.96, "s", "10 s"),
        (3.14, "s", "3.1 s"),
        (61, "s", "61 s"),
        (600, "s", "10 min"),
        (7_200, "s", "2 h"),
        (259_200, "s", "3 d"),
        (1_500, "ms", "1.5 s"),
        (0, "ms", "0 s"),
        (512, "bytes", "512 B"),
        (1_048_576, "bytes", "1 MB"),
        (NOON_MS, "time", "21 Nov 2026, 12:00"),
        (999.4, "ms", "999 ms"),
        (999.6, "ms", "1 s"),
        ("acme", "text", "acme"),
        (True, "text", "yes"),
    ],
)
def test_a_value_is_formatted_by_its_format(value: Any, format: str, shown: str) -> None:
    assert format_value(value, format) == shown


@pytest.mark.parametrize(
    ("value", "before", "format", "expected"),
    [
        (110, 100, "count", ("up", "10% from 100")),
        (50, 100, "count", ("down", "50% from 100")),
        (0.5, 0.4, "share", ("up", "10 points from 40%")),
        (0.904, 0.798, "share", ("up", "10.6 points from 79.8%")),
        (0.0135, 0.023, "share", ("down", "0.95 points from 2.3%")),
        (7, 7, "count", ("", "no change")),
        (7, 0, "count", ("", "0 before")),
        (7, None, "count", ("", "")),
        (None, 7, "count", ("", "")),
        (300, 100, "count", ("up", "200% from 100")),
        (776, 1, "count", ("up", "×776 from 1")),
        (43, 10, "ms", ("up", "×4.3 from 10 ms")),
    ],
)
def test_a_change_is_relative_to_the_previous_period(
    value: Any, before: Any, format: str, expected: tuple[str, str]
) -> None:
    figure = NumberTile(id="a", kind="number", title="A", report="views", how="only", format=format)  # type: ignore[arg-type]
    changed = change_of(figure, value, before)
    assert format_change(asdict(changed) if isinstance(changed, Change) else changed, before, format) == expected


def test_days_and_times_are_in_the_readers_time_zone() -> None:
    assert (format_day(NOON_MS), format_time(NOON_MS)) == ("21 Nov 2026", "21 Nov 2026, 12:00")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("acme", "acme"),
        ("\u202eevil\u202c", "\\u202eevil\\u202c"),
        ("a\u2066b\u2069\u061c\u200e\u200f", "a\\u2066b\\u2069\\u061c\\u200e\\u200f"),
        ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # A zero-width non-joiner is part of the spelling.
        (" ", "(blank) "),
        ("", "(blank)"),
        ("\u200b", "(blank)\u200b"),
    ],
)
def test_any_name_is_readable(text: str, shown: str) -> None:
    assert display_name(text) == shown
