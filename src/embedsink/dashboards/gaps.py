"""Zero rows for periods without events, so that the line of the previous period drops to zero."""

from collections.abc import Iterator, Sequence
from typing import Any

from embedsink.dashboards.model import PERIOD_END_COLUMNS, Chart
from embedsink.dashboards.time_axis import TICKS_MAX, Clock


def fill_gaps(
    chart: Chart, names: Sequence[str], rows: list[list[Any]], clock: Clock, time: tuple[int | None, int]
) -> list[list[Any]]:
    """Return the rows of the previous period with a zero row for each missing period, or no rows if there are none.

    Args:
        chart: a chart with a comparison.
        names: the columns, with those added for periods.
        rows: shifted onto the current period.
        clock: the reader's clock.
        time: the start and end to fill, in epoch milliseconds; a start of None means the first row.
    """
    if (
        chart.compare is None
        or not rows
        or "period_start" not in names
        or chart.compare.x not in (*PERIOD_END_COLUMNS, "period_start")
    ):
        return rows
    start, middle, y = (names.index(name) for name in ("period_start", "period_middle", chart.compare.y))
    # Compare by the middles: after a clock change, a shifted period doesn't start exactly where a current one starts.
    existing = {clock.start(row[middle]) for row in rows}
    filled_rows = list(rows)
    first, end = time
    for start_ms in _starts(clock, min(existing) if first is None else first, end):
        if start_ms not in existing:
            row = [None] * (len(names) - len(PERIOD_END_COLUMNS)) + clock.period_columns(start_ms)
            row[start], row[y] = start_ms, 0
            filled_rows.append(row)
    return filled_rows


def _starts(clock: Clock, first: int, end: int) -> Iterator[int]:
    start_ms = clock.start(first)
    for _ in range(TICKS_MAX):
        if start_ms >= end:
            return
        yield start_ms
        start_ms = clock.end(start_ms)
