"""Column pruning: a query selects only the columns of a report that the tiles need."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from embedsink.dashboards.model import PERIOD_COLUMNS, Chart, NumberTile, Table
from embedsink.reports.catalog import Report

_WORD = re.compile(r"\w+")


def required_columns(report: Report, tiles: Iterable[NumberTile | Chart | Table]) -> tuple[str, ...]:
    """Return the columns that the tiles read, in the report's order. Without any, return the report's first column."""
    columns = {column for tile in tiles for column in _columns_of(report, tile)}
    names = [column.name for column in report.columns]
    return tuple(name for name in names if name in columns) or (names[0],)  # A query needs a column.


def result_columns(report: Report, tile: Chart | Table) -> list[str]:
    """Return the columns of a tile's rows: those of its group; without a group, all report columns that it requires.

    The rows of a table can have more columns than it shows, such as the column that it sorts by.
    """
    return list(tile.group.columns if tile.group else required_columns(report, [tile]))


def text_filters(tiles: Sequence[NumberTile | Chart | Table]) -> tuple[tuple[str, str], ...]:
    """Return the filters on texts that all tiles share, as pairs of column and value for the query.

    The query compares texts only, so other filters are omitted.
    """
    filters_by_tile = [
        {(column, value) for column, value in tile.where.items() if isinstance(value, str)} for tile in tiles
    ]
    return tuple(sorted(set.intersection(*filters_by_tile)))


def columns_read(tile: NumberTile | Chart | Table) -> Iterator[tuple[str, str]]:
    """Yield the path in the tile and the name of every report column that a tile reads."""
    for column in tile.where:
        yield f"where.{column}", column
    if tile.nonzero:
        yield "nonzero", tile.nonzero
    for column in tile.older_days:
        yield f"older_days.{column}", column
    if isinstance(tile, NumberTile):
        if tile.column:
            yield "column", tile.column
        # A minus before a name subtracts the column.
        yield from ((f"of[{index}]", column.removeprefix("-")) for index, column in enumerate(tile.of))
    elif tile.group:
        yield from ((f"group.by[{index}]", column) for index, column in enumerate(tile.group.by))
        yield from ((f"group.sum[{index}]", column) for index, column in enumerate(tile.group.sum))
        yield from ((f"group.median[{index}]", column) for index, column in enumerate(tile.group.median))
    if isinstance(tile, Chart) and tile.leading:
        yield from (("leading.column", tile.leading.column), ("leading.by", tile.leading.by))


def _columns_of(report: Report, tile: NumberTile | Chart | Table) -> set[str]:
    """Return the names of the columns that a tile reads, shows or sorts by."""
    columns = {column for _, column in columns_read(tile)}
    if isinstance(tile, NumberTile) or tile.group:
        return columns  # The tile shows only these.
    # A chart or table by period shows where each period ends, which is computed from these columns.
    columns.update(PERIOD_COLUMNS)
    if tile.sort:
        columns.add(tile.sort.removeprefix("-"))
    if isinstance(tile, Table):
        columns.update(tile.columns)
    else:
        columns.update(_columns_of_chart(report, tile))
    return columns


def _columns_of_chart(report: Report, chart: Chart) -> set[str]:
    """Return the names of the columns that the spec or the comparison of a chart may read."""
    # The button "Show as table" shows these columns. `deployment` and the columns without numbers distinguish the rows.
    columns = {"deployment", *(column.name for column in report.columns if column.type not in ("integer", "number"))}
    # Expressions can name a column anywhere in the spec.
    columns.update(_WORD.findall(json.dumps(chart.spec, ensure_ascii=False)))
    if chart.compare:
        columns.update((chart.compare.x, chart.compare.y))
    return columns
