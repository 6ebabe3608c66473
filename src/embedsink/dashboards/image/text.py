"""Numbers, times and changes as English text; static/dashboards/format.js formats them in the reader's locale."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import category

NONE = "–"
_BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# The sizes and names of units.
_BYTE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# For each unit: the minimum duration and the length of the unit in seconds, its name, and its decimal places.
_DURATION_UNITS = ((172_800, 86_400, "d", 1), (5_400, 3_600, "h", 1), (90, 60, "min", 0))
# Shorter durations are shown in milliseconds. This one would round to 1,000 ms.
_SHOWN_IN_MS_BELOW_S = 0.9995


def format_value(value: Any, format: str) -> str:
    """Return a value as text, in one of the formats of a tile or a change."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float) or format == "text":
        return display_name(str(value))
    if format in ("ms", "s"):
        return _duration_text(value / 1_000 if format == "ms" else value)
    if format == "time":
        return format_time(int(value))
    if format == "points":
        # The value is a size, so it is never negative. Below 1 percentage point, one decimal place could show zero.
        return f"{_rounded_text(value * 100, 2 if value < 0.01 else 1)} points"
    if format == "times":  # a factor, not a time
        return f"×{_rounded_text(value, 1)}"
    if format == "share":
        return f"{_rounded_text(value * 100, 1)}%"
    if format == "bytes":
        return _bytes_text(value)
    if format == "count":
        return f"{_rounded_text(value / 1e6, 2)}M" if abs(value) >= 1e6 else f"{value:,.0f}"
    return _rounded_text(value, 2 if abs(value) < 100 else 0)  # `number`


def display_name(text: str) -> str:
    """Return a text with bidirectional controls as escapes, and invisible texts marked as `(blank)`."""
    escaped = _BIDI_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    is_visible = any(not character.isspace() and category(character) not in ("Cc", "Cf") for character in escaped)
    return escaped if is_visible else f"(blank){escaped}"


def format_time(local_ms: int) -> str:
    """Return a date and a time of day, from epoch milliseconds of the reader's local time."""
    return f"{_local_time(local_ms):%-d %b %Y, %H:%M}"


def format_day(local_ms: int) -> str:
    """Return a date, from epoch milliseconds of the reader's local time."""
    return f"{_local_time(local_ms):%-d %b %Y}"


def format_change(change: Mapping[str, Any] | str | None, before: Any, format: str) -> tuple[str, str]:
    """Return the direction (`up`, `down` or empty) and the text of a change. `format` is that of the value `before`."""
    if change is None:
        return "", ""
    if isinstance(change, str):
        return "", change
    return change["direction"], f"{format_value(change['by'], change['format'])} from {format_value(before, format)}"


def _bytes_text(value: float) -> str:
    """Return a number of bytes in the largest suitable unit."""
    for size, unit in _BYTE_UNITS:
        if value >= size:
            return f"{_rounded_text(value / size, 1)} {unit}"
    return f"{_rounded_text(value, 1)} B"


def _duration_text(seconds: float) -> str:
    """Return a duration in the largest suitable unit."""
    if seconds != 0 and seconds < _SHOWN_IN_MS_BELOW_S:
        return f"{seconds * 1_000:,.0f} ms"
    for minimum, unit_s, unit, digits in _DURATION_UNITS:
        if seconds >= minimum:
            return f"{_rounded_text(seconds / unit_s, digits)} {unit}"
    return f"{_rounded_text(seconds, 1 if seconds < 10 else 0)} s"


def _rounded_text(value: float, digits: int) -> str:
    """Return a number with at most this number of digits after the point, without trailing zeros."""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _local_time(local_ms: int) -> datetime:
    """Return the local time, with UTC as a placeholder for the reader's zone, from epoch milliseconds of that time."""
    return datetime.fromtimestamp(local_ms / 1_000, UTC)
