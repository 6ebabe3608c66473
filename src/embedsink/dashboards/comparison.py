"""What a number says against the period before, for pages and pictures alike."""

from dataclasses import dataclass
from typing import Any, Literal

from embedsink.dashboards.labels import UNCHANGED, ZERO_BEFORE
from embedsink.dashboards.model import Figure

# Beyond it nobody reads a percentage.
TIMES_ABOVE = 4


@dataclass(frozen=True, slots=True)
class Change:
    """By how much, in which format: as a share, in points of a share, or in times."""

    direction: Literal["up", "down"]
    is_good: bool | None
    by: float
    format: Literal["share", "points", "times"]


def change_of(figure: Figure, value: Any, before: Any) -> Change | str | None:
    """The change of a number, or the words for why there is none; None where there is nothing to say."""
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
