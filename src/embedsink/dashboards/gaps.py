"""Periods of which a report has no row, because nothing happened: there the line of the period before is at nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from embedsink.dashboards.model import PERIOD_END_COLUMNS, Chart
from embedsink.dashboards.time_axis import TICKS_MAX, Clock


def fill_gaps(
    chart: Chart, names: Sequence[str], rows: list[list[Any]], clock: Clock, time: tuple[int | None, int]
) -> list[list[Any]]:
    """The rows of the period before with those of its periods that have none; none at all where it has no row.

    Args:
        chart: one that is compared.
        names: of the columns, with what is added to a row of a period.
        rows: moved onto the period that is seen.
        clock: the reader's.
        time: from where to where to fill, in epoch milliseconds; None for from the first row on.
    """
    if (
        chart.compare is None
        or not rows
        or "period_start" not in names
        or chart.compare.x not in (*PERIOD_END_COLUMNS, "period_start")
    ):
        return rows
    start, middle, y = (names.index(name) for name in ("period_start", "period_middle", chart.compare.y))
    # By their middles: where the clocks changed meanwhile, a period that was moved doesn't begin where one begins here.
    known = {clock.start(row[middle]) for row in rows}
    found = list(rows)
    first, end = time
    for start_ms in _starts(clock, min(known) if first is None else first, end):
        if start_ms not in known:
            row = [None] * (len(names) - len(PERIOD_END_COLUMNS)) + clock.places(start_ms)
            row[start], row[y] = start_ms, 0
            found.append(row)
    return found


def _starts(clock: Clock, first: int, end: int) -> Iterator[int]:
    start_ms = clock.start(first)
    for _ in range(TICKS_MAX):
        if start_ms >= end:
            return
        yield start_ms
        start_ms = clock.end(start_ms)
