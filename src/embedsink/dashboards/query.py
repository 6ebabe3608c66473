"""What the charts of a section show: each report is read once a scope, and its rows go through all charts of it.

rows of a report ─┬─▶ a number
                  ├─▶ the rows of a chart, at most so many
                  └─▶ the greatest rows of a table
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from embedsink.dashboards.aggregate import Aggregator, TopRows, condition, seeing
from embedsink.dashboards.columns import needed_columns, shown_columns, texts_wanted
from embedsink.dashboards.comparison import Change, change_of
from embedsink.dashboards.gaps import filled
from embedsink.dashboards.labels import NONE_BEFORE, NOT_YET
from embedsink.dashboards.model import ADDED, PERIOD_COLUMNS, Chart, Figure, Gauge, Marks, Section, Table
from embedsink.dashboards.period import Period
from embedsink.dashboards.time_axis import Clock, span_of, utc_of
from embedsink.reports.catalog import Report
from embedsink.reports.scope import Scope, parse_scope
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

# What takes most of the time of the reports that build on it, whose stages of AI queries are paired there.
_PAIRS = "ai_pair"
_BEFORE = "event_before"
PAIRED = ("ai_queries", "ai_query", "ai_query_groups")
# More of them hide what is drawn.
MARKS_MAX = 100

_Tile = Figure | Chart | Table
# A report, and the parameters of a chart's own.
_Source = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class ChartAnswer:
    """What one chart shows.

    Args:
        columns: names of what stands in `rows`.
        rows: times are epoch milliseconds of what the reader's clocks show.
        before: the same of the period before.
        value, value_before: a number's; change: what it says against the period before, or the words for why nothing.
        is_cut: there are more rows than are shown; row_count: how many there are.
        marks: of a chart, the moments that are marked in it, the newest first.
        asked: the words of the report's address.
        interval, span, ticks: of a chart: how long a period is, where time begins and ends, and the middles of its
            periods (`Clock.ticks`).
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
    asked: dict[str, str] | None = None
    interval: str | None = None
    span: list[int] | None = None
    ticks: list[int] | None = None


def answer_section(
    reader: Reader, section: Section, period: Period, *, reports: Mapping[str, Report], now: datetime
) -> dict[str, ChartAnswer]:
    """What each chart of a section shows, all of one moment; charts of the server itself are left out.

    Args:
        reader: with any scope; its variables are set anew.
        section: a checked one.
        period: what is seen.
        reports: all that there are, by name.
        now: the clock, with a zone.
    """
    tiles = [tile for tile in section.charts if not isinstance(tile, Gauge)]
    answers: dict[str, ChartAnswer] = {}
    with reader.consistent():
        asked = _Asked(period, now, has_begun=_has_begun(reader, period))
        sources = {source: list(group) for source, group in itertools.groupby(sorted(tiles, key=_source), key=_source)}
        _keep_pairs(reader, sources, asked)
        for (name, own), group in sources.items():
            answers |= _answer_source(reader, reports[name], dict(own), group, asked)
        moments = {marks: _moments(reader, marks, asked) for tile in tiles if (marks := _marks_of(tile))}
    for tile in tiles:
        if marks := _marks_of(tile):
            answers[tile.id] = replace(answers[tile.id], marks=moments[marks])
    return {tile.id: answers[tile.id] for tile in tiles}


def _keep_pairs(reader: Reader, sources: Mapping[_Source, Sequence[_Tile]], asked: "_Asked") -> None:
    """Pair AI queries once for all that is asked of them, of the period and the one before it."""
    period = asked.period
    groups = [group for (name, own), group in sources.items() if name in PAIRED and not own]
    compared = [group for group in groups if period.before and any(map(_has_before, group))]
    # Snapshots of older servers have no such view.
    if len(groups) + len(compared) > 1 and reader.has(_PAIRS):
        first = period.before if period.before and compared else period.scope
        reader.narrowed(**period.scope.variables()).keep(_PAIRS, since=first.since, until=period.scope.until)


def _marks_of(tile: _Tile) -> Marks | None:
    return tile.marks if isinstance(tile, Chart) else None


def _moments(reader: Reader, marks: Marks, asked: "_Asked") -> list[int]:
    """When what is marked happened, in the period and until now."""
    scope, now = asked.period.scope, utc_of(asked.now)
    listed = TopRows([marks.at], f"-{marks.at}", MARKS_MAX)
    for rows in reader.narrowed(**scope.variables()).rows(SelectQuery(marks.report, (marks.at,))):
        for row in rows:
            if row[0] is not None and row[0] <= now:
                listed.see(row)
    return [Clock(scope).shown(at) for (at,) in listed.rows()]


def _source(tile: _Tile) -> _Source:
    return tile.report, tuple(sorted((str(name), value) for name, value in tile.parameters.items()))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of every chart of a section; `has_begun` tells whether all of the period before was seen."""

    period: Period
    now: datetime
    has_begun: bool


@dataclass(frozen=True, slots=True)
class _Shown:
    """How everything of a report is shown: by which clock, over which time, under which address, compared or not."""

    report: Report
    clock: Clock
    span: list[int]
    words: dict[str, str]
    has_begun: bool
    # Where the period before ends, moved onto this one.
    before_end: int


def _answer_source(
    reader: Reader, report: Report, own: dict[str, str], tiles: list[_Tile], asked: _Asked
) -> dict[str, ChartAnswer]:
    """What the charts of one report with the same parameters of their own show."""
    period, now = asked.period, asked.now
    seen = _read(reader, report, tiles, _own_scope(period.scope, own, now), now)
    before: list[Aggregator | None] = [None] * len(tiles)
    compared = [tile for tile in tiles if "since" not in own and _has_before(tile)]
    if period.before and compared:
        found = iter(_read(reader, report, compared, _own_scope(period.before, own, now), now))
        before = [next(found) if tile in compared else None for tile in tiles]
    words = period.asked | own
    if "since" in own:
        words.pop("until", None)
    shift = (period.scope.since or utc_of(now)) - (period.before.since or utc_of(now)) if period.before else timedelta()
    clock, span = Clock(period.scope, shift), span_of(period.scope, now=now)
    before_end = clock.shown(period.before.until, is_before=True) if period.before and period.before.until else span[1]
    shown = _Shown(report, clock, span, words, asked.has_begun, before_end)
    return {tile.id: _answer(tile, one, other, shown) for tile, one, other in zip(tiles, seen, before, strict=True)}


def _has_begun(reader: Reader, period: Period) -> bool:
    """Whether anything had happened when the period before began: else not all of it was seen."""
    if period.before is None or period.before.since is None or not reader.has(_BEFORE):  # an older snapshot lacks it
        return True
    variables = period.before.variables() | {"until": period.before.since}
    return any(reader.narrowed(**variables).rows(SelectQuery(_BEFORE, limit=1)))


def _has_before(tile: _Tile) -> bool:
    return (isinstance(tile, Figure) and tile.how != "newest") or (isinstance(tile, Chart) and tile.compare is not None)


def _own_scope(scope: Scope, own: dict[str, str], now: datetime) -> dict[str, Any]:
    """The reader's scope, and over it what the chart itself asks for; its deployments stay the reader's."""
    variables = scope.variables()
    parsed = parse_scope(own, now=lambda: now).variables()
    if "since" in own:
        variables["until"] = None
    return variables | {name: parsed[name] for name in own}


def _read(
    reader: Reader, report: Report, tiles: Sequence[_Tile], variables: dict[str, Any], now: datetime
) -> list[Aggregator]:
    names = list(needed_columns(report, tiles))
    seen = [seeing(tile, names) for tile in tiles]
    end = min(variables["until"] or utc_of(now), utc_of(now))
    conditions = [condition(tile, names, end) for tile in tiles]
    for rows in reader.narrowed(**variables).rows(SelectQuery(report.name, tuple(names), where=texts_wanted(tiles))):
        for one, holds in zip(seen, conditions, strict=True):
            for row in rows:
                if holds(row):
                    one.see(row)
    return seen


def _answer(tile: _Tile, seen: Any, before: Any, shown: _Shown) -> ChartAnswer:
    clock, asked = shown.clock, shown.words
    if isinstance(tile, Figure):
        value = clock.shown(seen.value())
        if before is None:
            return ChartAnswer([], [], [], value, asked=asked)
        earlier = before.value()
        change = change_of(tile, value, earlier)
        if value is not None and not shown.has_begun:
            change = NOT_YET
        elif value is not None and earlier is None:
            change = NONE_BEFORE  # A share of nothing is none.
        return ChartAnswer([], [], [], value, earlier, change, asked=asked)
    names = shown_columns(shown.report, tile)
    rows = [[clock.shown(value) for value in row] for row in _narrowed(seen, names)]
    earlier = [[clock.shown(value, is_before=True) for value in row] for row in _narrowed(before, names)]
    if start := next((name for name in PERIOD_COLUMNS if name in names), None):
        place = names.index(start)
        names += ADDED
        for row in itertools.chain(rows, earlier):
            row += clock.places(row[place], is_day=start == "day")
    if isinstance(tile, Chart) and earlier:
        time = (shown.span[0], min(shown.before_end, shown.span[1]))
        earlier = filled(tile, names, earlier, clock, time if shown.has_begun else (None, time[1]))
    if isinstance(tile, Table):
        places = [names.index(column) for column in tile.columns]
        names, rows = list(tile.columns), [[row[place] for place in places] for row in rows]
    answer = ChartAnswer(names, rows, earlier, is_cut=seen.is_cut(), row_count=seen.row_count, asked=asked)
    return replace(answer, **_time_of(answer, shown)) if isinstance(tile, Chart) else answer


def _narrowed(seen: Any, names: list[str]) -> list[list[Any]]:
    """Its rows, without what only the other charts of its report need."""
    places = [seen.names.index(name) for name in names] if seen else []
    return [[row[place] for place in places] for row in seen.rows()] if seen else []


def _time_of(answer: ChartAnswer, shown: _Shown) -> dict[str, Any]:
    """The time of a chart. A report of days has days, whatever is asked for."""
    interval, span = shown.clock.scope.interval, shown.span
    if (is_day := "day" in answer.columns) and answer.rows and interval != "day":
        first, end = answer.columns.index("day"), answer.columns.index("period_end")
        interval, span = "day", [min(row[first] for row in answer.rows), max(row[end] for row in answer.rows)]
    return {"interval": interval, "span": span, "ticks": shown.clock.ticks(span, is_day=is_day)}
