"""The change of a number from the previous period, for pages and images."""

from dataclasses import dataclass
from typing import Any, Literal

from embedsink.dashboards.labels import UNCHANGED, ZERO_BEFORE
from embedsink.dashboards.model import Figure

# Larger ratios are shown as a factor instead of a percentage.
TIMES_ABOVE = 4


@dataclass(frozen=True, slots=True)
class Change:
    """A change: `by` as a share, in percentage points, or as a factor."""

    direction: Literal["up", "down"]
    is_good: bool | None
    by: float
    format: Literal["share", "points", "times"]


def change_of(figure: Figure, value: Any, before: Any) -> Change | str | None:
    """Return the change of a number, a label in place of a change, or None without numbers to compare."""
    if not isinstance(value, int | float) or not isinstance(before, int | float):
        return None
    if not before:
        return ZERO_BEFORE
    if value == before:
        return UNCHANGED
    by, format = _by(value, before, is_share=figure.format == "share")
    is_more = value > before
    is_good = None if figure.better == "neither" else (figure.better == "up") == is_more
    return Change("up" if is_more else "down", is_good, by, format)


def _by(value: float, before: float, *, is_share: bool) -> tuple[float, Literal["share", "points", "times"]]:
    if is_share:
        return abs(value - before), "points"
    times = value / before
    if times > TIMES_ABOVE:
        return round(times, 1 if times < 10 else 0), "times"
    return abs(times - 1), "share"
