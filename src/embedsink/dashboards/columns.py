"""Column pruning: the columns of a report that its tiles need. The store computes no others."""

import json
import re
from collections.abc import Iterable, Sequence

from embedsink.dashboards.model import PERIOD_COLUMNS, Chart, Figure, Table
from embedsink.reports.catalog import Report

_WORD = re.compile(r"\w+")


def required_columns(report: Report, tiles: Iterable[Figure | Chart | Table]) -> tuple[str, ...]:
    """Return the columns that the tiles read, in report order. At least one, so that the query returns rows."""
    columns = {column for tile in tiles for column in _columns_of(report, tile)}
    names = [column.name for column in report.columns]
    return tuple(name for name in names if name in columns) or (names[0],)


def row_columns(report: Report, tile: Chart | Table) -> list[str]:
    """Return the columns of a chart's rows, or of a table's rows before reordering."""
    return list(tile.group.columns if tile.group else required_columns(report, [tile]))


def text_filters(tiles: Sequence[Figure | Chart | Table]) -> tuple[tuple[str, str], ...]:
    """Return the column filters that all tiles share. Rows that fail them need not be read."""
    filters = [{(column, value) for column, value in tile.where.items() if isinstance(value, str)} for tile in tiles]
    return tuple(sorted(set.intersection(*filters)))


def _columns_of(report: Report, tile: Figure | Chart | Table) -> set[str]:
    columns = {*tile.where, *tile.older_days, *([tile.nonzero] if tile.nonzero else [])}
    if isinstance(tile, Figure):
        return columns.union([tile.column] if tile.column else [], (name.removeprefix("-") for name in tile.of))
    if tile.group:
        return columns.union(tile.group.by, tile.group.sum, tile.group.median)
    columns.update(PERIOD_COLUMNS, [tile.sort.removeprefix("-")] if tile.sort else [])
    if isinstance(tile, Table):
        return columns.union(tile.columns)
    # Dimensions are not numbers, except deployments. Expressions can name a column anywhere in the spec.
    columns.update(one.name for one in report.columns if one.type not in ("integer", "number"))
    columns.update(["deployment"], _WORD.findall(json.dumps(tile.spec, ensure_ascii=False)))
    columns.update([tile.compare.x, tile.compare.y] if tile.compare else [])
    return columns.union([tile.leading.column, tile.leading.by] if tile.leading else [])
