"""The change of a number from the previous period, for pages and images."""

from dataclasses import dataclass
from typing import Any, Literal

from embedsink.dashboards.labels import UNCHANGED, ZERO_BEFORE
from embedsink.dashboards.model import NumberTile

# A value that is more than this many times the previous one is shown as a factor, such as ×5.2. Others are percentages.
FACTOR_ABOVE = 4


@dataclass(frozen=True, slots=True)
class Change:
    """A change. `by` is its size: a share, percentage points, or a factor (`times`)."""

    direction: Literal["up", "down"]
    is_good: bool | None
    by: float
    format: Literal["share", "points", "times"]


def change_of(tile: NumberTile, value: Any, before: Any) -> Change | str | None:
    """Return the change from `before` to `value`, or a label if `before` is 0 or equal; None without two numbers."""
    if not isinstance(value, int | float) or not isinstance(before, int | float):
        return None
    if not before:
        return ZERO_BEFORE
    if value == before:
        return UNCHANGED
    size, format = _change_size(value, before, is_share=tile.format == "share")
    direction: Literal["up", "down"] = "up" if value > before else "down"
    is_good = None if tile.better == "neither" else direction == tile.better
    return Change(direction, is_good, size, format)


def _change_size(value: float, before: float, *, is_share: bool) -> tuple[float, Literal["share", "points", "times"]]:
    """Return the size of a change, which is never negative, and the format to show it in."""
    if is_share:
        return abs(value - before), "points"
    factor = value / before
    if factor > FACTOR_ABOVE:  # A large increase is easier to read as ×5.2 than as 420%.
        digits = 1 if factor < 10 else 0
        return round(factor, digits), "times"
    return abs(factor - 1), "share"
