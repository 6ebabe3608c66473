"""Streaming aggregates over the rows of a report: one number, top rows, groups and top series.

Memory is bounded: a report can have a million rows, and a chart shows a fraction of them.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from embedsink.dashboards.model import Chart, Figure, Group, Table, TopValues

Row = Sequence[Any]
# The maximum number of groups. Rows of further groups are dropped.
GROUPS_MAX = 50_000
# The maximum sample of a median, an even number. Beyond it every second value is kept, then every fourth, and so on.
MEDIAN_VALUES_MAX = 2_000
# The maximum number of buffered rows of a top series. Beyond it, the series with the smallest sums are dropped.
LEADING_ROWS_MAX = 50_000


def row_filter(tile: Figure | Chart | Table, names: list[str], end: datetime) -> Callable[[Row], bool]:
    """Return the filter of a tile's rows. `end` is the end of the period, in UTC without a zone."""
    equal = [(names.index(column), value) for column, value in tile.where.items()]
    # The clamp keeps dates within the calendar.
    latest = [
        (names.index(column), end - min(timedelta(days=days), end - datetime.min))
        for column, days in tile.older_days.items()
    ]
    nonzero = names.index(tile.nonzero) if tile.nonzero else None
    if nonzero is None and not equal and not latest:
        return lambda row: True
    return lambda row: (
        (nonzero is None or bool(row[nonzero]))
        and all(row[index] == value for index, value in equal)
        and all(row[index] is not None and row[index] < limit for index, limit in latest)
    )


def aggregator_for(tile: Figure | Chart | Table, names: list[str]) -> "Aggregator":
    """Return the aggregator of a tile for rows with the columns `names`."""
    if isinstance(tile, Figure):
        return Total(tile, names)
    if tile.group:
        return GroupedRows(tile.group, names, tile.sort, tile.rows)
    if isinstance(tile, Chart) and tile.leading:
        return TopSeries(tile.leading, names, tile.rows)
    return TopRows(names, tile.sort, tile.rows)


class Total:
    """One number over all rows."""

    def __init__(self, figure: Figure, names: list[str]) -> None:
        self._function = figure.how
        self._times = figure.times
        self._column = names.index(figure.column) if figure.column else -1
        self._divisor_columns = [
            (names.index(name.removeprefix("-")), -1 if name[0] == "-" else 1) for name in figure.of
        ]
        # Without events `totals` has no row: a count is then 0, and a share is None.
        self._sum: Any = None if figure.how == "only" and figure.format != "count" else 0
        self._divisor = 0
        self._newest: Any = None
        self._distinct: set[Any] = set()

    def add(self, row: Row) -> None:
        if self._function == "count":
            self._sum += 1
            return
        value = row[self._column]
        if self._function == "only":
            self._sum = value
        elif self._function == "distinct":
            self._distinct.add(value)
        elif self._function == "newest":
            if value is not None and (self._newest is None or value > self._newest):
                self._newest = self._sum = value
        else:
            self._sum += value or 0
            self._divisor += sum(sign * (row[index] or 0) for index, sign in self._divisor_columns)

    def value(self) -> Any:
        """Return the number, or None without rows to compute it from."""
        if self._function == "ratio":
            return self._sum * self._times / self._divisor if self._divisor > 0 else None
        if self._function == "distinct":
            return len(self._distinct - {None})
        if self._function == "newest" and self._newest is None:
            return None
        return self._sum * self._times if self._times != 1 and self._sum is not None else self._sum


class TopRows:
    """The first rows, or the greatest by a column."""

    def __init__(self, names: list[str], sort: str | None, count: int) -> None:
        self.names = names
        self.row_count = 0
        self._count = count
        self._order = _Ranking(names, sort) if sort else None
        self._rows: list[Any] = []

    def add(self, row: Row) -> None:
        rank = self._order.rank(row) if self._order else None
        if self._order and rank is None:
            return
        self.row_count += 1
        if self._order is None:
            if len(self._rows) < self._count:
                self._rows.append(row)
            return
        entry = (rank, -self.row_count, row)
        if len(self._rows) < self._count:
            heapq.heappush(self._rows, entry)
        elif entry > self._rows[0]:
            heapq.heapreplace(self._rows, entry)

    def rows(self) -> list[Row]:
        return self._rows if self._order is None else [row for _, _, row in sorted(self._rows, reverse=True)]

    def is_cut(self) -> bool:
        return self.row_count > self._count


class GroupedRows:
    """Rows aggregated by group, the greatest group first."""

    def __init__(self, group: Group, names: list[str], sort: str | None, count: int) -> None:
        self.names = group.columns
        self._by = [names.index(name) for name in group.by]
        self._sum = [names.index(name) for name in group.sum]
        self._median = [names.index(name) for name in group.median]
        self._sums: dict[tuple[Any, ...], list[Any]] = {}
        self._medians: dict[tuple[Any, ...], list[SampledMedian]] = {}
        self._sort = sort or f"-{self.names[len(group.by)]}"
        self._has_count = group.count is not None
        self._count = count
        self._is_full = False

    def add(self, row: Row) -> None:
        key = tuple([row[index] for index in self._by])
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) == GROUPS_MAX:
                self._is_full = True
                return
            sums = self._sums[key] = [0] * (len(self._sum) + 1)
        for index, column in enumerate(self._sum):
            sums[index] += row[column] or 0
        sums[-1] += 1
        if self._median:
            medians = self._medians.setdefault(key, [SampledMedian() for _ in self._median])
            for sample, column in zip(medians, self._median, strict=True):
                sample.add(row[column])

    def rows(self) -> list[Row]:
        top = TopRows(self.names, self._sort, self._count)
        for key, (*sums, count) in self._sums.items():
            medians = [sample.value() for sample in self._medians.get(key, ())]
            top.add((*key, *sums, *medians, count) if self._has_count else (*key, *sums, *medians))
        return top.rows()

    def is_cut(self) -> bool:
        return self._is_full or len(self._sums) > self._count

    @property
    def row_count(self) -> int:
        return len(self._sums)


class SampledMedian:
    """The median of a stream of values, computed from an evenly spaced sample if there are many."""

    def __init__(self) -> None:
        self._sample: list[Any] = []
        self._value_count = 0
        self._step = 1

    def add(self, value: Any) -> None:
        if value is None:
            return
        if self._value_count % self._step == 0:
            if len(self._sample) == MEDIAN_VALUES_MAX:
                del self._sample[1::2]
                self._step *= 2
            self._sample.append(value)
        self._value_count += 1

    def value(self) -> Any:
        return median(self._sample) if self._sample else None


class TopSeries:
    """All rows of the series with the largest sums, in their original order."""

    def __init__(self, leading: TopValues, names: list[str], count: int) -> None:
        self.names = names
        self.row_count = 0
        self._column = names.index(leading.column)
        self._by = names.index(leading.by)
        self._values_max = leading.count
        self._count = count
        self._sums: dict[Any, Any] = {}
        self._rows: dict[Any, list[tuple[int, Row]]] = {}
        self._buffered_count = 0

    def add(self, row: Row) -> None:
        self.row_count += 1
        value = row[self._column]
        if value not in self._sums:
            if len(self._sums) == GROUPS_MAX:
                return
            self._sums[value], self._rows[value] = 0, []
        self._sums[value] += row[self._by] or 0
        if value in self._rows:
            self._rows[value].append((self.row_count, row))
            self._buffered_count += 1
            if self._buffered_count > LEADING_ROWS_MAX:
                self._drop_trailing()

    def rows(self) -> list[Row]:
        rows = sorted(itertools.chain.from_iterable(self._rows[value] for value in self._top_values(self._values_max)))
        return [row for _, row in rows[: self._count]]

    def is_cut(self) -> bool:
        return len(self._sums) > self._values_max or self.row_count > self._count

    def _top_values(self, count: int) -> list[Any]:
        return heapq.nlargest(count, self._rows, key=self._sums.__getitem__)

    def _drop_trailing(self) -> None:
        """Drop all but the leading series. A dropped series stays dropped, because its line would have a gap."""
        self._rows = {value: self._rows[value] for value in self._top_values(2 * self._values_max)}
        self._buffered_count = sum(map(len, self._rows.values()))


class _Ranking:
    """The sort order of rows: greater ranks come first, and rows without a value are omitted."""

    def __init__(self, names: list[str], sort: str) -> None:
        self._index = names.index(sort.removeprefix("-"))
        self._is_descending = sort.startswith("-")

    def rank(self, row: Row) -> Any:
        value = row[self._index]
        return value if value is None or self._is_descending else _Ascending(value)


@dataclass(frozen=True, slots=True)
class _Ascending:
    """A value of any type whose comparison is reversed."""

    value: Any

    def __lt__(self, other: "_Ascending") -> bool:
        return bool(other.value < self.value)


Aggregator = Total | TopRows | GroupedRows | TopSeries
