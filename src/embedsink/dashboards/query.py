"""Queries of a section: each report is read once per scope, and its rows are passed to all tiles of that report.

rows of a report ─┬─▶ a number
                  ├─▶ the rows of a chart, up to its limit
                  └─▶ the top rows of a table
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from embedsink.dashboards.aggregate import NumberAggregator, RowsAggregator, TopRows, aggregator_for, row_filter
from embedsink.dashboards.columns import required_columns, result_columns, text_filters
from embedsink.dashboards.comparison import Change, change_of
from embedsink.dashboards.gaps import fill_gaps
from embedsink.dashboards.labels import NO_COMPARISON, NOT_BY_DIRECTORY, ZERO_BEFORE
from embedsink.dashboards.model import (
    PERIOD_COLUMNS,
    PERIOD_END_COLUMNS,
    Chart,
    Gauge,
    Marks,
    NumberTile,
    Section,
    Table,
)
from embedsink.dashboards.period import Period
from embedsink.dashboards.time_axis import TimeAxis, span_of
from embedsink.reports.catalog import Report, read_day_marks, reports_with_dimensions, view_of
from embedsink.reports.scope import Scope, parse_scope
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader
from embedsink.store.timezones import naive_utc

# The view that pairs the stages of AI queries, and the reports that read it. The pairing takes most of their time.
_PAIR_VIEW = "ai_pair"
PAIR_REPORTS = ("ai_queries", "ai_query", "ai_query_groups")
_EVENT_BEFORE_VIEW = "event_before"
# More marks would hide the chart.
MARKS_MAX = 100

_ReportTile = NumberTile | Chart | Table


@dataclass(frozen=True, slots=True)
class TileData:
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
        unavailable: why the tile has no data; None if the report supports all filters.
        note: which days come from daily totals, and which were deleted; None without such days.
        interval, span, ticks: the time axis of a chart (`TimeAxis.ticks`).
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
    unavailable: str | None = None
    note: str | None = None
    interval: str | None = None
    span: list[int] | None = None
    ticks: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """The report that a tile reads, and the parameters that the tile sets."""

    report_name: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """The request for a section. `has_earlier_events` states whether an event precedes the previous period."""

    period: Period
    now: datetime
    has_earlier_events: bool


@dataclass(frozen=True, slots=True)
class _Presentation:
    """The parts of the data that all tiles of a source share: the time axis, its span, and the report parameters."""

    report: Report
    axis: TimeAxis
    span: list[int]
    params: dict[str, str]
    has_earlier_events: bool
    # The end of the previous period, shifted onto the current period.
    previous_end_ms: int


def query_section(
    reader: Reader, section: Section, period: Period, *, reports: Mapping[str, Report], now: datetime
) -> dict[str, TileData]:
    """Return the data of each tile by tile id, from one consistent state of the store. Gauges are omitted.

    Args:
        reader: a reader of the store. The query replaces the scope of the reader.
        section: a section that passed the lint.
        period: the period and the previous period.
        reports: the report catalog by name.
        now: the current time, with a zone.
    """
    tiles = [tile for tile in section.tiles if not isinstance(tile, Gauge)]
    data: dict[str, TileData] = {}
    with reader.consistent():
        request = _Request(period, now, _has_earlier_events(reader, period))
        tiles_by_source = _group_by_source(tiles)
        _cache_pairs(reader, tiles_by_source, request)
        for source, source_tiles in tiles_by_source.items():
            if period.scope.uses_directory and source.report_name not in reports_with_dimensions():
                data |= dict.fromkeys((tile.id for tile in source_tiles), _unavailable_data(period))
                continue
            data |= _query_source(reader, reports[source.report_name], dict(source.parameters), source_tiles, request)
        data |= _data_with_marks(reader, tiles, data, request)
    return {tile.id: data[tile.id] for tile in tiles}


def _unavailable_data(period: Period) -> TileData:
    """Return the data of a tile whose report can't be limited to a department or a group."""
    return TileData(
        columns=[], rows=[], before=[], params=period.params, change=NOT_BY_DIRECTORY, unavailable=NOT_BY_DIRECTORY
    )


def _group_by_source(tiles: Sequence[_ReportTile]) -> dict[_Source, list[_ReportTile]]:
    """Group the tiles that read the same report with the same parameters."""
    tiles_by_source: dict[_Source, list[_ReportTile]] = {}
    for tile in tiles:
        parameters = tuple(sorted((str(name), value) for name, value in tile.parameters.items()))
        tiles_by_source.setdefault(_Source(tile.report, parameters), []).append(tile)
    return tiles_by_source


def _has_earlier_events(reader: Reader, period: Period) -> bool:
    """Return whether an event precedes the previous period. If none does, recording may have begun within that period.

    Return True if there is no previous period, or if an older snapshot lacks the view, so that the answer is unknown.
    """
    previous = period.before
    if previous is None or previous.since is None:
        return True
    if not reader.has(_EVENT_BEFORE_VIEW):
        return True
    # The view has the events before `until`. `rows` yields a batch only if the result has a row.
    variables = previous.variables() | {"until": previous.since}
    return any(reader.set_variables(**variables).rows(SelectQuery(_EVENT_BEFORE_VIEW, limit=1)))


def _cache_pairs(reader: Reader, tiles_by_source: Mapping[_Source, Sequence[_ReportTile]], request: _Request) -> None:
    """Store the rows of the view `_PAIR_VIEW` in a temporary table if several queries read the view.

    The view pairs the stages of AI queries, which is slow. The table has the rows of all periods that tiles show.
    """
    current, previous = request.period.scope, request.period.before
    # The table has the scope of the page, so tiles with their own parameters can't read the table.
    sources = [source for source in tiles_by_source if source.report_name in PAIR_REPORTS and not source.parameters]
    # A source with a compared tile is queried for the previous period too.
    compared = [source for source in sources if previous and any(map(_is_compared, tiles_by_source[source]))]
    if len(sources) + len(compared) > 1 and reader.has(_PAIR_VIEW):  # Older snapshots lack the view.
        since = previous.since if previous and compared else current.since
        reader.set_variables(**current.variables()).materialize(_PAIR_VIEW, since=since, until=current.until)


def _is_compared(tile: _ReportTile) -> bool:
    """Return whether a tile shows the previous period too."""
    if isinstance(tile, NumberTile):
        return tile.how != "newest"  # It is usually a time, whose change means nothing.
    return isinstance(tile, Chart) and tile.compare is not None


def _data_with_marks(
    reader: Reader, tiles: Sequence[_ReportTile], data: Mapping[str, TileData], request: _Request
) -> dict[str, TileData]:
    """Return the data of the charts that have marked times, by tile id, with these times added."""
    times_by_marks: dict[Marks, list[int]] = {}
    marked: dict[str, TileData] = {}
    for tile in tiles:
        if isinstance(tile, Chart) and tile.marks:
            if tile.marks not in times_by_marks:  # Several charts can have the same marks.
                times_by_marks[tile.marks] = _marked_times(reader, tile.marks, request)
            marked[tile.id] = replace(data[tile.id], marks=times_by_marks[tile.marks])
    return marked


def _marked_times(reader: Reader, marks: Marks, request: _Request) -> list[int]:
    """Return the newest marked times in the period, up to now, as local epoch milliseconds."""
    scope = request.period.scope
    now = naive_utc(request.now)
    newest = TopRows([marks.at], f"-{marks.at}", MARKS_MAX)
    for batch in reader.set_variables(**scope.variables()).rows(SelectQuery(marks.report, (marks.at,))):
        for (marked_at,) in batch:
            if marked_at is not None and marked_at <= now:
                newest.add((marked_at,))
    return [TimeAxis(scope).chart_value(marked_at) for (marked_at,) in newest.rows()]


def _query_source(
    reader: Reader, report: Report, parameters: dict[str, str], tiles: Sequence[_ReportTile], request: _Request
) -> dict[str, TileData]:
    """Return the data of the tiles that read the same report with the same parameters."""
    period = request.period
    variables = _tile_variables(period.scope, parameters, request.now)
    source = replace(report, name=view_of(report.name, period.scope))  # The view has the same columns.
    current = _aggregate(reader, source, tiles, variables, request.now)
    # The scope is that of the current period.
    note = " ".join(read_day_marks(reader, source.name).notes()) or None
    previous: dict[str, Any] = {}
    # A tile with its own `since` has no previous period.
    compared = [] if "since" in parameters else [tile for tile in tiles if _is_compared(tile)]
    if period.before and compared:
        variables = _tile_variables(period.before, parameters, request.now)
        previous = _aggregate(reader, source, compared, variables, request.now)
    presentation = _presentation_of(report, parameters, request)
    data: dict[str, TileData] = {}
    for tile in tiles:
        if isinstance(tile, NumberTile):
            data[tile.id] = _number_data(tile, current[tile.id], previous.get(tile.id), presentation)
        elif isinstance(tile, Table):
            data[tile.id] = _table_data(tile, current[tile.id], presentation)
        else:
            data[tile.id] = _chart_data(tile, current[tile.id], previous.get(tile.id), presentation)
    return data if note is None else {tile_id: replace(tile_data, note=note) for tile_id, tile_data in data.items()}


def _tile_variables(scope: Scope, parameters: dict[str, str], now: datetime) -> dict[str, Any]:
    """Return the session variables for a tile: those of the reader's scope, overridden by the tile's parameters."""
    variables = scope.variables()
    tile_variables = parse_scope(parameters, now=lambda: now).variables()
    if "since" in parameters:
        variables["until"] = None  # A tile with its own `since` reads up to now.
    # Take only the parameters, so that a tile can't change the deployments.
    return variables | {name: tile_variables[name] for name in parameters}


def _aggregate(
    reader: Reader, report: Report, tiles: Sequence[_ReportTile], variables: dict[str, Any], now: datetime
) -> dict[str, Any]:
    """Read a report once, and return the aggregators of the tiles, which have received the rows, by tile id."""
    names = list(required_columns(report, tiles))
    aggregators = [aggregator_for(tile, names) for tile in tiles]
    now_utc = naive_utc(now)
    # Ages count from the end of the period, or from now if the period ends in the future.
    end = min(variables["until"] or now_utc, now_utc)
    row_filters = [row_filter(tile, names, end) for tile in tiles]
    # The query applies only the filters that all tiles share. `row_filters` applies all filters of each tile.
    query = SelectQuery(report.name, tuple(names), where=text_filters(tiles))
    for batch in reader.set_variables(**variables).rows(query):
        for aggregator, matches in zip(aggregators, row_filters, strict=True):
            for row in batch:
                if matches(row):
                    aggregator.add(row)
    return {tile.id: aggregator for tile, aggregator in zip(tiles, aggregators, strict=True)}


def _presentation_of(report: Report, parameters: dict[str, str], request: _Request) -> _Presentation:
    """Return the parts of the data that all tiles of a source share."""
    scope, previous = request.period.scope, request.period.before
    shift = timedelta()  # from the previous period to the current one
    if previous and scope.since and previous.since:  # Both always have `since`; its type allows None.
        shift = scope.since - previous.since
    axis = TimeAxis(scope, shift)
    span = span_of(scope, now=request.now)
    _, end_ms = span
    # Without a previous period, there are no gaps to fill, so the value is not used.
    previous_end_ms = axis.chart_value(previous.until, is_previous=True) if previous and previous.until else end_ms
    params = request.period.params | parameters
    if "since" in parameters:
        params.pop("until", None)  # A tile with its own `since` reads up to now.
    return _Presentation(report, axis, span, params, request.has_earlier_events, previous_end_ms)


def _number_data(
    tile: NumberTile, current: NumberAggregator, previous: NumberAggregator | None, presentation: _Presentation
) -> TileData:
    """Return the data of a number tile, with the change if there is a previous period."""
    value = presentation.axis.chart_value(current.value())
    data = TileData(columns=[], rows=[], before=[], value=value, params=presentation.params)
    if previous is None:
        return data
    value_before = previous.value()
    change: Change | str | None
    if value is not None and not presentation.has_earlier_events:
        change = NO_COMPARISON  # The previous period may be incomplete.
    elif value is not None and value_before is None:
        change = ZERO_BEFORE  # A ratio without events is None.
    else:
        change = change_of(tile, value, value_before)
    return replace(data, value_before=value_before, change=change)


def _table_data(tile: Table, current: RowsAggregator, presentation: _Presentation) -> TileData:
    """Return the data of a table: the listed columns of the rows."""
    names, rows = _shown_rows(tile, current, presentation)
    indexes = [names.index(column) for column in tile.columns]
    return TileData(
        columns=list(tile.columns),
        rows=[[row[index] for index in indexes] for row in rows],
        before=[],
        is_cut=current.is_cut(),
        row_count=current.row_count,
        params=presentation.params,
    )


def _chart_data(
    tile: Chart, current: RowsAggregator, previous: RowsAggregator | None, presentation: _Presentation
) -> TileData:
    """Return the data of a chart: the rows of both periods, and the time axis."""
    names, rows = _shown_rows(tile, current, presentation)
    before: list[list[Any]] = []
    if previous is not None:
        _, before = _shown_rows(tile, previous, presentation, is_previous=True)
        before = _fill_previous_gaps(tile, names, before, presentation)
    interval, span, ticks = _time_axis_of(names, rows, presentation)
    return TileData(
        columns=names,
        rows=rows,
        before=before,
        is_cut=current.is_cut(),
        row_count=current.row_count,
        params=presentation.params,
        interval=interval,
        span=span,
        ticks=ticks,
    )


def _shown_rows(
    tile: Chart | Table, aggregator: RowsAggregator, presentation: _Presentation, *, is_previous: bool = False
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and the rows of a tile. Rows of periods get the columns `PERIOD_END_COLUMNS`."""
    axis = presentation.axis
    names = result_columns(presentation.report, tile)
    indexes = [aggregator.names.index(name) for name in names]
    rows = [[axis.chart_value(row[index], is_previous=is_previous) for index in indexes] for row in aggregator.rows()]
    start_column = next((name for name in PERIOD_COLUMNS if name in names), None)
    if start_column is None:
        return names, rows
    start_index = names.index(start_column)
    for row in rows:
        row += axis.period_columns(row[start_index], is_day=start_column == "day")
    return [*names, *PERIOD_END_COLUMNS], rows


def _fill_previous_gaps(
    tile: Chart, names: list[str], rows: list[list[Any]], presentation: _Presentation
) -> list[list[Any]]:
    """Return the rows of the previous period with their gaps filled (`fill_gaps`)."""
    start_ms, end_ms = presentation.span
    # Without earlier events, recording may have begun with the first row. Earlier periods are then unknown, not zero.
    fill_start_ms = start_ms if presentation.has_earlier_events else None
    fill_end_ms = min(presentation.previous_end_ms, end_ms)  # no later than the end of the axis
    return fill_gaps(tile, names, rows, presentation.axis, (fill_start_ms, fill_end_ms))


def _time_axis_of(
    names: list[str], rows: list[list[Any]], presentation: _Presentation
) -> tuple[str | None, list[int], list[int] | None]:
    """Return the interval, the span and the label positions of a chart.

    The rows of a report by day are days, even if the interval of the scope is an hour, a week or a month. The axis then
    spans the days of the rows, because whole weeks or months could extend beyond them.
    """
    interval, span = presentation.axis.scope.interval, presentation.span
    is_by_day = "day" in names
    if is_by_day and rows and interval != "day":
        start_index, end_index = names.index("day"), names.index("period_end")
        interval = "day"
        span = [min(row[start_index] for row in rows), max(row[end_index] for row in rows)]
    return interval, span, presentation.axis.ticks(span, is_day=is_by_day)
