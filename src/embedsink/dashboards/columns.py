"""Which columns of a report its charts need: what nobody shows is not asked for, and so costs the store nothing."""

import json
import re
from collections.abc import Iterable, Sequence

from embedsink.dashboards.model import PERIOD_COLUMNS, Chart, Figure, Table
from embedsink.reports.catalog import Report

_WORD = re.compile(r"\w+")


def required_columns(report: Report, tiles: Iterable[Figure | Chart | Table]) -> tuple[str, ...]:
    """What all of these read of the report, in its order; one at least, so that there are rows."""
    named = {column for tile in tiles for column in _named(report, tile)}
    names = [column.name for column in report.columns]
    return tuple(name for name in names if name in named) or (names[0],)


def row_columns(report: Report, tile: Chart | Table) -> list[str]:
    """Those of the rows of a chart, or of a table before it has its own order."""
    return list(tile.group.columns if tile.group else required_columns(report, [tile]))


def text_filters(tiles: Sequence[Figure | Chart | Table]) -> tuple[tuple[str, str], ...]:
    """The texts that the rows of all these tiles have in some columns: no other row need be read."""
    wanted = [{(column, value) for column, value in tile.where.items() if isinstance(value, str)} for tile in tiles]
    return tuple(sorted(set.intersection(*wanted)))


def _named(report: Report, tile: Figure | Chart | Table) -> set[str]:
    named = {*tile.where, *tile.older_days, *([tile.nonzero] if tile.nonzero else [])}
    if isinstance(tile, Figure):
        return named.union([tile.column] if tile.column else [], (name.removeprefix("-") for name in tile.of))
    if tile.group:
        return named.union(tile.group.by, tile.group.sum, tile.group.median)
    named.update(PERIOD_COLUMNS, [tile.sort.removeprefix("-")] if tile.sort else [])
    if isinstance(tile, Table):
        return named.union(tile.columns)
    # What tells rows apart is no number, but for deployments; and an expression can name a column anywhere.
    named.update(one.name for one in report.columns if one.type not in ("integer", "number"))
    named.update(["deployment"], _WORD.findall(json.dumps(tile.spec, ensure_ascii=False)))
    named.update([tile.compare.x, tile.compare.y] if tile.compare else [])
    return named.union([tile.leading.column, tile.leading.by] if tile.leading else [])
