"""Rows with zeros for periods without events, so that the line of the previous period drops to zero."""

from collections.abc import Iterator, Sequence
from typing import Any

from embedsink.dashboards.model import PERIOD_END_COLUMNS, Chart
from embedsink.dashboards.time_axis import TICKS_MAX, TimeAxis


def fill_gaps(
    chart: Chart, names: Sequence[str], rows: list[list[Any]], axis: TimeAxis, limits: tuple[int | None, int]
) -> list[list[Any]]:
    """Return the rows of the previous period, with a zero row for each hour, day, week or month that has no row.

    Without any rows, or if the comparison is not by period, return the rows unchanged.

    Args:
        chart: the chart.
        names: the names of the columns, including those added for periods.
        rows: the rows, shifted onto the current period.
        axis: the time axis.
        limits: the start and end of the time to fill, in epoch milliseconds. None means the start of the first row.
    """
    if chart.compare is None or not rows:
        return rows
    is_by_period = "period_start" in names and chart.compare.x in ("period_start", *PERIOD_END_COLUMNS)
    if not is_by_period:
        return rows
    # Periods are compared by their middles: after a clock change, the starts of shifted periods differ by an hour.
    middle = names.index("period_middle")
    existing_starts = {axis.period_start(row[middle]) for row in rows}
    first_ms, end_ms = limits
    if first_ms is None:
        first_ms = min(existing_starts)
    starts = _period_starts(axis, first_ms, end_ms)
    missing_starts = [start_ms for start_ms in starts if start_ms not in existing_starts]
    zero_rows = [_zero_row(names, chart.compare.y, axis, start_ms) for start_ms in missing_starts]
    return [*rows, *zero_rows]


def _zero_row(names: Sequence[str], zero_column: str, axis: TimeAxis, start_ms: int) -> list[Any]:
    """Return the row of a period with 0 in one column. Columns other than those of the period are None."""
    values = dict(zip(PERIOD_END_COLUMNS, axis.period_columns(start_ms), strict=True))
    values |= {"period_start": start_ms, zero_column: 0}
    return [values.get(name) for name in names]


def _period_starts(axis: TimeAxis, first_ms: int, end_ms: int) -> Iterator[int]:
    """Yield the starts of the periods from the one that contains `first_ms` until `end_ms`.

    Stop after `TICKS_MAX` periods: a custom period can have a hundred thousand months. Axis labels have the same limit.
    """
    start_ms = axis.period_start(first_ms)
    for _ in range(TICKS_MAX):
        if start_ms >= end_ms:
            return
        yield start_ms
        start_ms = axis.period_end(start_ms)
