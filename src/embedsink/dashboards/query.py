"""Queries of a section: each report is read once per scope, and its rows feed all tiles of that report.

rows of a report ─┬─▶ a number
                  ├─▶ the rows of a chart, up to its limit
                  └─▶ the top rows of a table
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from embedsink.dashboards.aggregate import Aggregator, TopRows, aggregator_for, row_filter
from embedsink.dashboards.columns import required_columns, row_columns, text_filters
from embedsink.dashboards.comparison import Change, change_of
from embedsink.dashboards.gaps import fill_gaps
from embedsink.dashboards.labels import NO_COMPARISON, ZERO_BEFORE
from embedsink.dashboards.model import PERIOD_COLUMNS, PERIOD_END_COLUMNS, Chart, Figure, Gauge, Marks, Section, Table
from embedsink.dashboards.period import Period
from embedsink.dashboards.time_axis import Clock, span_of, utc_of
from embedsink.reports.catalog import Report
from embedsink.reports.scope import Scope, parse_scope
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

# The view that pairs the stages of AI queries. It takes most of the time of the reports that build on it.
_PAIRS = "ai_pair"
_BEFORE = "event_before"
PAIRED = ("ai_queries", "ai_query", "ai_query_groups")
# More marks would hide the chart.
MARKS_MAX = 100

_Tile = Figure | Chart | Table
# A report and the parameters that the tile sets itself.
_Source = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class ChartAnswer:
    """The data of one tile.

    Args:
        columns: the names of the columns of `rows`.
        rows: the rows; times are epoch milliseconds of the reader's local time.
        before: the rows of the previous period.
        value, value_before: the value of a number, and its value in the previous period.
        change: the change between them, or a label in place of a change.
        is_cut, row_count: whether rows are left out, and the number of all rows.
        marks: the marked times of a chart, newest first.
        params: the query parameters of the report with the same scope.
        interval, span, ticks: the time axis of a chart (`Clock.ticks`).
    """

    columns: list[str]
    rows: list[list[Any]]
    before: list[list[Any]]
    value: Any = None
    value_before: Any = None
    change: Change | str | None = None
    is_cut: bool = False
    row_count: int | None = None
    marks: list[int] | None = None
    params: dict[str, str] | None = None
    interval: str | None = None
    span: list[int] | None = None
    ticks: list[int] | None = None


def answer_section(
    reader: Reader, section: Section, period: Period, *, reports: Mapping[str, Report], now: datetime
) -> dict[str, ChartAnswer]:
    """Return the data of each tile by its id, from one consistent state of the store, without server gauges.

    Args:
        reader: a reader of the store; its scope is replaced.
        section: a section that passed the lint.
        period: the period and the previous period.
        reports: the report catalog by name.
        now: the current time, with a zone.
    """
    tiles = [tile for tile in section.charts if not isinstance(tile, Gauge)]
    answers: dict[str, ChartAnswer] = {}
    with reader.consistent():
        request = _Request(period, now, has_begun=_has_begun(reader, period))
        sources = {source: list(group) for source, group in itertools.groupby(sorted(tiles, key=_source), key=_source)}
        _cache_pairs(reader, sources, request)
        for (name, overrides), group in sources.items():
            answers |= _answer_source(reader, reports[name], dict(overrides), group, request)
        marked_times = {marks: _marked_times(reader, marks, request) for tile in tiles if (marks := _marks_of(tile))}
    for tile in tiles:
        if marks := _marks_of(tile):
            answers[tile.id] = replace(answers[tile.id], marks=marked_times[marks])
    return {tile.id: answers[tile.id] for tile in tiles}


def _cache_pairs(reader: Reader, sources: Mapping[_Source, Sequence[_Tile]], request: "_Request") -> None:
    """Pair the AI queries of both periods once, for all tiles."""
    period = request.period
    groups = [group for (name, overrides), group in sources.items() if name in PAIRED and not overrides]
    compared = [group for group in groups if period.before and any(map(_has_before, group))]
    # Snapshots of older servers don't have this view.
    if len(groups) + len(compared) > 1 and reader.has(_PAIRS):
        first = period.before if period.before and compared else period.scope
        reader.set_variables(**period.scope.variables())
        reader.materialize(_PAIRS, since=first.since, until=period.scope.until)


def _marks_of(tile: _Tile) -> Marks | None:
    return tile.marks if isinstance(tile, Chart) else None


def _marked_times(reader: Reader, marks: Marks, request: "_Request") -> list[int]:
    """Return the marked times in the period, up to now."""
    scope, now = request.period.scope, utc_of(request.now)
    newest = TopRows([marks.at], f"-{marks.at}", MARKS_MAX)
    for rows in reader.set_variables(**scope.variables()).rows(SelectQuery(marks.report, (marks.at,))):
        for row in rows:
            if row[0] is not None and row[0] <= now:
                newest.add(row)
    return [Clock(scope).shown(at) for (at,) in newest.rows()]


def _source(tile: _Tile) -> _Source:
    return tile.report, tuple(sorted((str(name), value) for name, value in tile.parameters.items()))


@dataclass(frozen=True, slots=True)
class _Request:
    """The request for a section. `has_begun` is whether events existed before the previous period."""

    period: Period
    now: datetime
    has_begun: bool


@dataclass(frozen=True, slots=True)
class _Presentation:
    """The presentation that all tiles of a report share: clock, time axis, parameters and comparison."""

    report: Report
    clock: Clock
    span: list[int]
    params: dict[str, str]
    has_begun: bool
    # The end of the previous period, shifted onto the current one.
    before_end: int


def _answer_source(
    reader: Reader, report: Report, overrides: dict[str, str], tiles: list[_Tile], request: _Request
) -> dict[str, ChartAnswer]:
    """Return the data of the tiles with the same report and parameters."""
    period, now = request.period, request.now
    current = _read(reader, report, tiles, _tile_scope(period.scope, overrides, now), now)
    before: list[Aggregator | None] = [None] * len(tiles)
    compared = [tile for tile in tiles if "since" not in overrides and _has_before(tile)]
    if period.before and compared:
        aggregators = iter(_read(reader, report, compared, _tile_scope(period.before, overrides, now), now))
        before = [next(aggregators) if tile in compared else None for tile in tiles]
    params = period.params | overrides
    if "since" in overrides:
        params.pop("until", None)
    shift = (period.scope.since or utc_of(now)) - (period.before.since or utc_of(now)) if period.before else timedelta()
    clock, span = Clock(period.scope, shift), span_of(period.scope, now=now)
    before_end = clock.shown(period.before.until, is_before=True) if period.before and period.before.until else span[1]
    presentation = _Presentation(report, clock, span, params, request.has_begun, before_end)
    return {
        tile.id: _answer(tile, one, other, presentation)
        for tile, one, other in zip(tiles, current, before, strict=True)
    }


def _has_begun(reader: Reader, period: Period) -> bool:
    """Return whether events existed before the previous period. Otherwise that period is incomplete."""
    if period.before is None or period.before.since is None or not reader.has(_BEFORE):  # older snapshots lack the view
        return True
    variables = period.before.variables() | {"until": period.before.since}
    return any(reader.set_variables(**variables).rows(SelectQuery(_BEFORE, limit=1)))


def _has_before(tile: _Tile) -> bool:
    return (isinstance(tile, Figure) and tile.how != "newest") or (isinstance(tile, Chart) and tile.compare is not None)


def _tile_scope(scope: Scope, overrides: dict[str, str], now: datetime) -> dict[str, Any]:
    """Return the reader's scope with the parameters of the tile. The deployments stay those of the reader."""
    variables = scope.variables()
    parsed = parse_scope(overrides, now=lambda: now).variables()
    if "since" in overrides:
        variables["until"] = None
    return variables | {name: parsed[name] for name in overrides}


def _read(
    reader: Reader, report: Report, tiles: Sequence[_Tile], variables: dict[str, Any], now: datetime
) -> list[Aggregator]:
    names = list(required_columns(report, tiles))
    current = [aggregator_for(tile, names) for tile in tiles]
    end = min(variables["until"] or utc_of(now), utc_of(now))
    row_filters = [row_filter(tile, names, end) for tile in tiles]
    reader.set_variables(**variables)
    for rows in reader.rows(SelectQuery(report.name, tuple(names), where=text_filters(tiles))):
        for one, matches in zip(current, row_filters, strict=True):
            for row in rows:
                if matches(row):
                    one.add(row)
    return current


def _answer(tile: _Tile, current: Any, before: Any, presentation: _Presentation) -> ChartAnswer:
    clock, params = presentation.clock, presentation.params
    if isinstance(tile, Figure):
        value = clock.shown(current.value())
        if before is None:
            return ChartAnswer([], [], [], value, params=params)
        earlier = before.value()
        change = change_of(tile, value, earlier)
        if value is not None and not presentation.has_begun:
            change = NO_COMPARISON
        elif value is not None and earlier is None:
            change = ZERO_BEFORE  # A share without events is None.
        return ChartAnswer([], [], [], value, earlier, change, params=params)
    names = row_columns(presentation.report, tile)
    rows = [[clock.shown(value) for value in row] for row in _select_columns(current, names)]
    earlier = [[clock.shown(value, is_before=True) for value in row] for row in _select_columns(before, names)]
    if start := next((name for name in PERIOD_COLUMNS if name in names), None):
        index = names.index(start)
        names += PERIOD_END_COLUMNS
        for row in itertools.chain(rows, earlier):
            row += clock.period_columns(row[index], is_day=start == "day")
    if isinstance(tile, Chart) and earlier:
        time = (presentation.span[0], min(presentation.before_end, presentation.span[1]))
        earlier = fill_gaps(tile, names, earlier, clock, time if presentation.has_begun else (None, time[1]))
    if isinstance(tile, Table):
        indexes = [names.index(column) for column in tile.columns]
        names, rows = list(tile.columns), [[row[index] for index in indexes] for row in rows]
    answer = ChartAnswer(names, rows, earlier, is_cut=current.is_cut(), row_count=current.row_count, params=params)
    return replace(answer, **_time_of(answer, presentation)) if isinstance(tile, Chart) else answer


def _select_columns(current: Any, names: list[str]) -> list[list[Any]]:
    """Return the rows with the given columns only."""
    indexes = [current.names.index(name) for name in names] if current else []
    return [[row[index] for index in indexes] for row in current.rows()] if current else []


def _time_of(answer: ChartAnswer, presentation: _Presentation) -> dict[str, Any]:
    """Return the time axis of a chart. A report by day always has days."""
    interval, span = presentation.clock.scope.interval, presentation.span
    if (is_day := "day" in answer.columns) and answer.rows and interval != "day":
        first, end = answer.columns.index("day"), answer.columns.index("period_end")
        interval, span = "day", [min(row[first] for row in answer.rows), max(row[end] for row in answer.rows)]
    return {"interval": interval, "span": span, "ticks": presentation.clock.ticks(span, is_day=is_day)}
