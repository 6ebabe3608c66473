"""Numbers, times and changes in English words; static/dashboards/words.js writes them for a reader's locale."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import category

NONE = "–"
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SPANS = ((172_800, 86_400, "d", 1), (5_400, 3_600, "h", 1), (90, 60, "min", 0))


def format_value(value: Any, format: str) -> str:
    """A value as a reader reads it; `format` is a tile's."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float) or format == "text":
        return display_name(str(value))
    if format in ("ms", "s"):
        return _span(value / 1_000 if format == "ms" else value)
    if format == "time":
        return format_time(int(value))
    if format == "points":
        # As fine as the share beside it, unless nothing were left.
        return f"{_trimmed(value * 100, 2 if value < 0.01 else 1)} points"
    if format == "times":
        return f"×{_trimmed(value, 1)}"
    if format == "share":
        return f"{_trimmed(value * 100, 1)}%"
    if format == "bytes":
        size, unit = next(((size, unit) for size, unit in _BYTES if value >= size), (1, "B"))
        return f"{_trimmed(value / size, 1)} {unit}"
    if format == "count":
        return f"{_trimmed(value / 1e6, 2)}M" if abs(value) >= 1e6 else f"{value:,.0f}"
    return _trimmed(value, 2 if abs(value) < 100 else 0)


def display_name(text: str) -> str:
    """A text as it can be read: what would turn what is around it by its number, what nobody could see by a word."""
    shown = _TURNING.sub(lambda one: f"\\u{ord(one[0]):04x}", text)
    is_seen = any(not one.isspace() and category(one) not in ("Cc", "Cf") for one in shown)
    return shown if is_seen else f"(blank){shown}"


def format_time(shown_ms: int) -> str:
    """A time of day; `shown_ms` is what the reader's clocks show."""
    return f"{_clock(shown_ms):%-d %b %Y, %H:%M}"


def format_day(shown_ms: int) -> str:
    """A day."""
    return f"{_clock(shown_ms):%-d %b %Y}"


def format_change(told: Mapping[str, Any] | str | None, before: Any, format: str) -> tuple[str, str]:
    """What is told against the period before (charts/change.py): `up`, `down` or nothing, and how much."""
    if told is None or isinstance(told, str):
        return "", told or ""
    return told["direction"], f"{format_value(told['by'], told['format'])} from {format_value(before, format)}"


def _span(seconds: float) -> str:
    if seconds and seconds < 0.9995:
        return f"{seconds * 1_000:,.0f} ms"
    for least, unit_s, unit, digits in _SPANS:
        if seconds >= least:
            return f"{_trimmed(seconds / unit_s, digits)} {unit}"
    return f"{_trimmed(seconds, 1 if seconds < 10 else 0)} s"


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _clock(shown_ms: int) -> datetime:
    return datetime.fromtimestamp(shown_ms / 1_000, UTC)
