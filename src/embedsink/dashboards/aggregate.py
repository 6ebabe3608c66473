"""Streaming aggregates over the rows of a report: one number, the first or top rows, groups and top series.

Memory is limited, because a report can have a million rows, and a tile shows a fraction of them.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from embedsink.dashboards.model import Chart, Group, NumberTile, Table, TopValues

Row = Sequence[Any]
# The maximum number of groups. Rows of further groups are dropped.
GROUPS_MAX = 50_000
# The maximum number of sampled values of a median, an even number. With more values, the sample is every second value,
# then every fourth, and so on.
MEDIAN_SAMPLE_MAX = 2_000
# With more buffered rows, `TopSeries` drops series. It keeps twice as many series as it shows: those with the largest
# sums.
SERIES_ROWS_MAX = 50_000


def row_filter(tile: NumberTile | Chart | Table, names: list[str], end: datetime) -> Callable[[Row], bool]:
    """Return a predicate of rows: whether a tile uses the row.

    Args:
        tile: the tile. The conditions are its fields `where`, `older_days` (minimum ages in days) and `nonzero`.
        names: the names of the columns of a row.
        end: the end of the period, in UTC without a zone.
    """
    # Columns are given by their index in a row.
    required_values = [(names.index(column), value) for column, value in tile.where.items()]
    # Limit the age, because a time before the year 1 can't be represented.
    upper_limits = [
        (names.index(column), end - min(timedelta(days=days), end - datetime.min))
        for column, days in tile.older_days.items()
    ]
    nonzero_index = names.index(tile.nonzero) if tile.nonzero else None
    if nonzero_index is None and not required_values and not upper_limits:
        return lambda row: True

    def matches(row: Row) -> bool:
        if nonzero_index is not None and not row[nonzero_index]:
            return False
        if any(row[index] != value for index, value in required_values):
            return False
        return all(row[index] is not None and row[index] < limit for index, limit in upper_limits)

    return matches


def aggregator_for(tile: NumberTile | Chart | Table, names: list[str]) -> "Aggregator":
    """Return the aggregator of a tile, which computes the content of the tile from the rows of a report.

    The rows have the columns `names`.
    """
    if isinstance(tile, NumberTile):
        return NumberAggregator(tile, names)
    if tile.group:
        return GroupedRows(tile.group, names, tile.sort, tile.rows)
    if isinstance(tile, Chart) and tile.leading:
        return TopSeries(tile.leading, names, tile.rows)
    if tile.sort:
        return TopRows(names, tile.sort, tile.rows)
    return FirstRows(names, tile.rows)


class NumberAggregator:
    """The value of a number tile. `NumberTile` describes the computations."""

    def __init__(self, tile: NumberTile, names: list[str]) -> None:
        self._how = tile.how
        self._factor = tile.times
        self._column = names.index(tile.column) if tile.column else -1  # -1 is not used: `count` reads no column.
        # `of` has the columns of a ratio's divisor. A minus before a name subtracts the column.
        self._divisor_columns = [
            (names.index(name.removeprefix("-")), -1 if name.startswith("-") else 1) for name in tile.of
        ]
        self._number: Any = self._initial_number(tile)
        self._divisor = 0
        self._distinct: set[Any] = set()

    @staticmethod
    def _initial_number(tile: NumberTile) -> int | None:
        """Return the number before the first row, which is also the number of a report without rows."""
        if tile.how == "newest":
            return None
        # `only` reads the report `totals`, which has no row without events. A count is then 0, and a share is unknown.
        is_unknown = tile.how == "only" and tile.format != "count"
        return None if is_unknown else 0

    def add(self, row: Row) -> None:
        """Include a row in the computation."""
        if self._how == "count":
            self._number += 1
            return
        value = row[self._column]
        if self._how == "only":
            self._number = value
        elif self._how == "distinct":
            self._distinct.add(value)
        elif self._how == "newest":
            if value is not None and (self._number is None or value > self._number):
                self._number = value
        else:
            # A sum or a ratio. A sum has no divisor columns.
            self._number += value or 0
            self._divisor += sum(sign * (row[column] or 0) for column, sign in self._divisor_columns)

    def value(self) -> Any:
        """Return the number; None if a ratio has no positive divisor, or if `newest` or `only` finds no value.

        If the report has no row, `_initial_number` defines the value of `only`.
        """
        if self._how == "ratio":
            return self._number * self._factor / self._divisor if self._divisor > 0 else None
        if self._how == "distinct":
            return len(self._distinct - {None}) * self._factor  # None is not a value.
        # The newest value can be a time, which can't be multiplied.
        if self._number is None or self._factor == 1:
            return self._number
        return self._number * self._factor


class FirstRows:
    """The first rows, in the order of the report."""

    def __init__(self, names: list[str], rows_max: int) -> None:
        self.names = names
        self.row_count = 0
        self._rows_max = rows_max
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Count a row, and retain the row if it is among the first."""
        self.row_count += 1
        if len(self._rows) < self._rows_max:
            self._rows.append(row)

    def rows(self) -> list[Row]:
        """Return the retained rows."""
        return self._rows

    def is_cut(self) -> bool:
        """Return whether rows are left out."""
        return self.row_count > self._rows_max


class TopRows:
    """The rows with the smallest values of the column `sort`; with a minus before the name, those with the greatest.

    Rows without a value are omitted.
    """

    def __init__(self, names: list[str], sort: str, rows_max: int) -> None:
        self.names = names
        self.row_count = 0
        self._rows_max = rows_max
        self._column = names.index(sort.removeprefix("-"))
        self._is_descending = sort.startswith("-")
        # A heap of (rank, minus row number, row). The first entry ranks lowest, so a better row replaces that entry.
        self._heap: list[tuple[Any, int, Row]] = []

    def add(self, row: Row) -> None:
        """Count a row that has a value, and retain the row if it is among the top rows."""
        value = row[self._column]
        if value is None:
            return
        self.row_count += 1
        rank = value if self._is_descending else _ReverseOrder(value)
        # Of two rows with equal values, the earlier row ranks higher.
        entry = (rank, -self.row_count, row)
        if len(self._heap) < self._rows_max:
            heapq.heappush(self._heap, entry)
        elif entry > self._heap[0]:
            heapq.heapreplace(self._heap, entry)

    def rows(self) -> list[Row]:
        """Return the retained rows, the top row first."""
        return [row for _, _, row in sorted(self._heap, reverse=True)]

    def is_cut(self) -> bool:
        """Return whether rows are left out."""
        return self.row_count > self._rows_max


class GroupedRows:
    """Rows aggregated by group. Without `sort`, groups with greater values of the first aggregate come first."""

    def __init__(self, group: Group, names: list[str], sort: str | None, rows_max: int) -> None:
        self.names = group.columns
        self._key_columns = [names.index(name) for name in group.by]
        self._sum_columns = [names.index(name) for name in group.sum]
        self._median_columns = [names.index(name) for name in group.median]
        self._groups: dict[tuple[Any, ...], _GroupTotals] = {}
        # By default, sort by the first aggregate, which follows the key columns, in descending order.
        self._sort = sort or f"-{self.names[len(group.by)]}"
        self._has_count = group.count is not None
        self._rows_max = rows_max
        self._is_full = False

    def add(self, row: Row) -> None:
        """Add the values of a row to the totals of its group."""
        key = tuple([row[column] for column in self._key_columns])
        totals = self._groups.get(key)
        if totals is None:
            if len(self._groups) == GROUPS_MAX:
                self._is_full = True  # The group of this row is left out.
                return
            medians = [SampledMedian() for _ in self._median_columns]
            totals = self._groups[key] = _GroupTotals([0] * len(self._sum_columns), medians)
        totals.row_count += 1
        for index, column in enumerate(self._sum_columns):
            totals.sums[index] += row[column] or 0
        for sampled_median, column in zip(totals.medians, self._median_columns, strict=True):
            sampled_median.add(row[column])

    def rows(self) -> list[Row]:
        """Return the top groups: their keys, sums, medians and row counts."""
        top = TopRows(self.names, self._sort, self._rows_max)
        for key, totals in self._groups.items():
            medians = [sampled_median.value() for sampled_median in totals.medians]
            counts = [totals.row_count] if self._has_count else []
            top.add((*key, *totals.sums, *medians, *counts))
        return top.rows()

    def is_cut(self) -> bool:
        """Return whether groups are left out."""
        return self._is_full or len(self._groups) > self._rows_max

    @property
    def row_count(self) -> int:
        """The number of groups."""
        return len(self._groups)


@dataclass(slots=True)
class _GroupTotals:
    sums: list[Any]
    medians: list["SampledMedian"]
    row_count: int = 0


class SampledMedian:
    """The median of a stream of values. Beyond `MEDIAN_SAMPLE_MAX` values, it is the median of a sample."""

    def __init__(self) -> None:
        self._sample: list[Any] = []
        self._value_count = 0
        # Every `_step`-th value is in the sample.
        self._step = 1

    def add(self, value: Any) -> None:
        """Add a value, unless it is None. Every `_step`-th value is retained."""
        if value is None:
            return
        if self._value_count % self._step == 0:
            if len(self._sample) == MEDIAN_SAMPLE_MAX:
                # The sample is full: keep every second value of it, and from now on retain half as many. This value is
                # retained too: `_value_count` is a multiple of the new step, because `MEDIAN_SAMPLE_MAX` is even.
                del self._sample[1::2]
                self._step *= 2
            self._sample.append(value)
        self._value_count += 1

    def value(self) -> Any:
        """Return the median of the sample; None without values."""
        return median(self._sample) if self._sample else None


class TopSeries:
    """All rows of the series with the largest sums, in their original order.

    A series is the rows with the same value in the column `leading.column`.
    """

    def __init__(self, leading: TopValues, names: list[str], rows_max: int) -> None:
        self.names = names
        self.row_count = 0
        self._series_column = names.index(leading.column)
        self._sum_column = names.index(leading.by)
        self._series_max = leading.count
        self._kept_series_max = 2 * leading.count  # more than are shown, because later rows change the order
        self._rows_max = rows_max
        self._sum_by_series: dict[Any, Any] = {}
        # The rows of each series that is not dropped, with their row numbers, and the number of all these rows.
        self._rows_by_series: dict[Any, list[tuple[int, Row]]] = {}
        self._buffered_count = 0

    def add(self, row: Row) -> None:
        """Add a row to its series, unless the series was dropped."""
        self.row_count += 1
        series = row[self._series_column]
        if series not in self._sum_by_series:
            if len(self._sum_by_series) == GROUPS_MAX:
                return  # The series of this row is left out.
            self._sum_by_series[series] = 0
            self._rows_by_series[series] = []
        # A dropped series keeps its sum, so that later rows don't start the series again.
        is_dropped = series not in self._rows_by_series
        if is_dropped:
            return
        self._sum_by_series[series] += row[self._sum_column] or 0
        rows = self._rows_by_series[series]
        if len(rows) == self._rows_max:
            return  # `rows` returns at most the first `rows_max` rows, so this row is never shown.
        rows.append((self.row_count, row))
        self._buffered_count += 1
        if self._buffered_count > SERIES_ROWS_MAX and len(self._rows_by_series) > self._kept_series_max:
            self._drop_smallest()

    def rows(self) -> list[Row]:
        """Return the rows of the top series, in the order in which they were added."""
        numbered_rows: list[tuple[int, Row]] = []
        for series in self._top_series(self._series_max):
            numbered_rows += self._rows_by_series[series]
        numbered_rows.sort()  # by row number
        return [row for _, row in numbered_rows[: self._rows_max]]

    def is_cut(self) -> bool:
        """Return whether rows are left out."""
        is_series_left_out = len(self._sum_by_series) > self._series_max
        return is_series_left_out or self.row_count > self._rows_max

    def _top_series(self, count: int) -> list[Any]:
        """Return the `count` series with the largest sums, of those that are not dropped."""
        return heapq.nlargest(count, self._rows_by_series, key=self._sum_by_series.__getitem__)

    def _drop_smallest(self) -> None:
        """Drop the rows of the series with the smallest sums.

        A dropped series is never shown again, because the line of that series would have a gap.
        """
        kept_series = self._top_series(self._kept_series_max)
        self._rows_by_series = {series: self._rows_by_series[series] for series in kept_series}
        self._buffered_count = sum(map(len, self._rows_by_series.values()))


@dataclass(frozen=True, slots=True)
class _ReverseOrder:
    """A value that compares in the reverse order: the smaller value is the greater `_ReverseOrder`."""

    value: Any

    def __lt__(self, other: "_ReverseOrder") -> bool:
        return bool(other.value < self.value)


RowsAggregator = FirstRows | TopRows | GroupedRows | TopSeries
Aggregator = NumberAggregator | RowsAggregator
