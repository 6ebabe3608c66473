"""What has seen the rows of a report, one by one, and what it made of them: a number, a list, sums.

Rows go through and are not kept: a report may have a million, and a chart shows some.
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
# How many different values a chart puts together; beyond it, only those that are known go on.
GROUPS_MAX = 50_000
# How many values are kept for a median, an even number; of more, each second one, then each fourth, and so on.
MEDIAN_VALUES_MAX = 2_000
# How many rows are kept until it is known which values lead; beyond it, those that have least so far are given up.
LEADING_ROWS_MAX = 50_000


def row_filter(tile: Figure | Chart | Table, names: list[str], end: datetime) -> Callable[[Row], bool]:
    """Which rows are a tile's; `end` is when what is seen ends, in UTC without a zone."""
    wanted = [(names.index(column), value) for column, value in tile.where.items()]
    # In the first days of the calendar nothing is older.
    latest = [
        (names.index(column), end - min(timedelta(days=days), end - datetime.min))
        for column, days in tile.older_days.items()
    ]
    some = names.index(tile.nonzero) if tile.nonzero else None
    if some is None and not wanted and not latest:
        return lambda row: True
    return lambda row: (
        (some is None or bool(row[some]))
        and all(row[place] == value for place, value in wanted)
        and all(row[place] is not None and row[place] < most for place, most in latest)
    )


def aggregator_for(tile: Figure | Chart | Table, names: list[str]) -> "Aggregator":
    """What sees the rows for a tile; `names` are those of the columns."""
    if isinstance(tile, Figure):
        return Total(tile, names)
    if tile.group:
        return GroupedRows(tile.group, names, tile.sort, tile.rows)
    if isinstance(tile, Chart) and tile.leading:
        return TopSeries(tile.leading, names, tile.rows)
    return TopRows(names, tile.sort, tile.rows)


class Total:
    """One number of all rows."""

    def __init__(self, figure: Figure, names: list[str]) -> None:
        self._how = figure.how
        self._times = figure.times
        self._column = names.index(figure.column) if figure.column else -1
        self._of = [(names.index(name.removeprefix("-")), -1 if name[0] == "-" else 1) for name in figure.of]
        # Where nothing happened, `totals` has no row: a count is nothing then, and a share is none.
        self._sum: Any = None if figure.how == "only" and figure.format != "count" else 0
        self._whole = 0
        self._greatest: Any = None
        self._different: set[Any] = set()

    def add(self, row: Row) -> None:
        if self._how == "count":
            self._sum += 1
            return
        value = row[self._column]
        if self._how == "only":
            self._sum = value
        elif self._how == "distinct":
            self._different.add(value)
        elif self._how == "newest":
            if value is not None and (self._greatest is None or value > self._greatest):
                self._greatest = self._sum = value
        else:
            self._sum += value or 0
            self._whole += sum(sign * (row[place] or 0) for place, sign in self._of)

    def value(self) -> Any:
        """The number; None where there was nothing to make it of."""
        if self._how == "ratio":
            return self._sum * self._times / self._whole if self._whole > 0 else None
        if self._how == "distinct":
            return len(self._different - {None})
        if self._how == "newest" and self._greatest is None:
            return None
        return self._sum * self._times if self._times != 1 and self._sum is not None else self._sum


class TopRows:
    """The first rows, or the greatest."""

    def __init__(self, names: list[str], sort: str | None, count: int) -> None:
        self.names = names
        self.row_count = 0
        self._count = count
        self._order = _Order(names, sort) if sort else None
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
    """Rows put together, the greatest first."""

    def __init__(self, group: Group, names: list[str], sort: str | None, count: int) -> None:
        self.names = group.columns
        self._by = [names.index(name) for name in group.by]
        self._sum = [names.index(name) for name in group.sum]
        self._median = [names.index(name) for name in group.median]
        self._sums: dict[tuple[Any, ...], list[Any]] = {}
        self._middles: dict[tuple[Any, ...], list[SampledMedian]] = {}
        self._sort = sort or f"-{self.names[len(group.by)]}"
        self._has_count = group.count is not None
        self._count = count
        self._is_full = False

    def add(self, row: Row) -> None:
        key = tuple([row[place] for place in self._by])
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) == GROUPS_MAX:
                self._is_full = True
                return
            sums = self._sums[key] = [0] * (len(self._sum) + 1)
        for place, column in enumerate(self._sum):
            sums[place] += row[column] or 0
        sums[-1] += 1
        if self._median:
            middles = self._middles.setdefault(key, [SampledMedian() for _ in self._median])
            for middle, column in zip(middles, self._median, strict=True):
                middle.add(row[column])

    def rows(self) -> list[Row]:
        listed = TopRows(self.names, self._sort, self._count)
        for key, (*sums, count) in self._sums.items():
            middles = [middle.value() for middle in self._middles.get(key, ())]
            listed.add((*key, *sums, *middles, count) if self._has_count else (*key, *sums, *middles))
        return listed.rows()

    def is_cut(self) -> bool:
        return self._is_full or len(self._sums) > self._count

    @property
    def row_count(self) -> int:
        return len(self._sums)


class SampledMedian:
    """The median of values as they come; of many, that of some of them, evenly spread."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._seen_count = 0
        self._step = 1

    def add(self, value: Any) -> None:
        if value is None:
            return
        if self._seen_count % self._step == 0:
            if len(self._kept) == MEDIAN_VALUES_MAX:
                del self._kept[1::2]
                self._step *= 2
            self._kept.append(value)
        self._seen_count += 1

    def value(self) -> Any:
        return median(self._kept) if self._kept else None


class TopSeries:
    """All rows of the values that lead, in the order in which they came."""

    def __init__(self, leading: TopValues, names: list[str], count: int) -> None:
        self.names = names
        self.row_count = 0
        self._column = names.index(leading.column)
        self._by = names.index(leading.by)
        self._values_max = leading.count
        self._count = count
        self._sums: dict[Any, Any] = {}
        self._rows: dict[Any, list[tuple[int, Row]]] = {}
        self._kept_count = 0

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
            self._kept_count += 1
            if self._kept_count > LEADING_ROWS_MAX:
                self._give_up()

    def rows(self) -> list[Row]:
        led = sorted(itertools.chain.from_iterable(self._rows[value] for value in self._first(self._values_max)))
        return [row for _, row in led[: self._count]]

    def is_cut(self) -> bool:
        return len(self._sums) > self._values_max or self.row_count > self._count

    def _first(self, count: int) -> list[Any]:
        return heapq.nlargest(count, self._rows, key=self._sums.__getitem__)

    def _give_up(self) -> None:
        """Keep only the rows of those that may still lead. What is given up stays so: its line would have a hole."""
        self._rows = {value: self._rows[value] for value in self._first(2 * self._values_max)}
        self._kept_count = sum(map(len, self._rows.values()))


class _Order:
    """How rows are ranked by a column; greater ranks come first, and rows without a value are left out."""

    def __init__(self, names: list[str], sort: str) -> None:
        self._place = names.index(sort.removeprefix("-"))
        self._is_descending = sort.startswith("-")

    def rank(self, row: Row) -> Any:
        value = row[self._place]
        return value if value is None or self._is_descending else _Ascending(value)


@dataclass(frozen=True, slots=True)
class _Ascending:
    """A value, be it a number, a time or a text, that is greater than those that are greater than it."""

    value: Any

    def __lt__(self, other: "_Ascending") -> bool:
        return bool(other.value < self.value)


Aggregator = Total | TopRows | GroupedRows | TopSeries
