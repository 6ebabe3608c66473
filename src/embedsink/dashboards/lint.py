"""Dashboards held against the reports that they name: what would fail on an open page is told before, with its place.

a tile ─┬─ what it reads ───────▶ columns of the report
        ├─ what it adds ────────▶ those that hold numbers
        └─ what it shows ───────▶ columns of its rows: the report's, or those of its group
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from embedsink.dashboards.model import PERIOD_COLUMNS, PERIOD_END_COLUMNS, Chart, Dashboard, Figure, Table, Tile
from embedsink.errors import Misconfigured, Refused, instead, quote
from embedsink.reports.catalog import Report, unknown_report
from embedsink.reports.scope import parse_scope

NUMBERS = ("integer", "number")
# How the grain of a report begins that never has more.
_ONE_ROW = "One row per scope"
OfReport = Figure | Chart | Table


def check_dashboards(dashboards: Mapping[str, Dashboard], reports: Iterable[Report]) -> None:
    """Raises Misconfigured for the first report, column or parameter that there is not, with its file and place."""
    known = {report.name: report for report in reports}
    for name, dashboard in dashboards.items():
        for place, tile in _tiles(dashboard):
            _check_tile(f"dashboards/{name}.json: {place}", tile, known)


def lint(dashboards: Mapping[str, Dashboard], reports: Iterable[Report]) -> dict[str, Misconfigured]:
    """What `check_dashboards` says of each dashboard in which something is wrong, by its name."""
    known, mistakes = list(reports), {}
    for name, dashboard in dashboards.items():
        try:
            check_dashboards({name: dashboard}, known)
        except Misconfigured as error:
            mistakes[name] = error
    return mistakes


def drop_invalid_tiles(dashboard: Dashboard, reports: Iterable[Report]) -> tuple[Dashboard, list[str]]:
    """A dashboard without the tiles that name what there is not, and the titles of these.

    Raises:
        Misconfigured: no tile is left.
    """
    known = {report.name: report for report in reports}
    sections, left_out = [], []
    for section in dashboard.sections:
        right = [tile for tile in section.charts if _is_right(tile, known)]
        left_out += [tile.title for tile in section.charts if tile not in right]
        if right:
            sections.append(section.model_copy(update={"charts": right}))
    if not sections:
        raise Misconfigured(f"{dashboard.title}: shows nothing but what these reports lack.")
    return dashboard.model_copy(update={"sections": sections}), left_out


def _is_right(tile: Tile, reports: Mapping[str, Report]) -> bool:
    try:
        _check_tile(tile.title, tile, reports)
    except Misconfigured:
        return False
    return True


def _tiles(dashboard: Dashboard) -> Iterator[tuple[str, Tile]]:
    for number, section in enumerate(dashboard.sections):
        for place, tile in enumerate(section.charts):
            yield f"sections[{number}].charts[{place}]", tile


def _check_tile(place: str, tile: Tile, reports: Mapping[str, Report]) -> None:
    if not isinstance(tile, Figure | Chart | Table):
        return
    report = reports.get(tile.report)
    if report is None:
        raise Misconfigured(f"{place}.report: {unknown_report(tile.report, sorted(reports))}")
    try:
        parse_scope({str(name): value for name, value in tile.parameters.items()})
    except Refused as error:
        raise Misconfigured(f"{place}.parameters: {error}") from None
    _check_columns(place, tile, report)
    if isinstance(tile, Chart):
        _check_spec(place, tile.spec)
        _check_marks(place, tile, reports)


def _check_marks(place: str, chart: Chart, reports: Mapping[str, Report]) -> None:
    if chart.marks is None:
        return
    name = chart.marks.report
    if name not in reports:
        raise Misconfigured(f"{place}.marks.report: {unknown_report(name, sorted(reports))}")
    _check_moment(f"{place}.marks.at", chart.marks.at, reports[name])


def _check_moment(place: str, column: str, report: Report) -> None:
    moments = sorted(one.name for one in report.columns if one.type == "timestamp")
    if column not in moments:
        listed = instead(column, moments)
        raise Misconfigured(f"{place}: column {quote(column)} of report {report.name} holds no times. {listed}")


def _check_columns(place: str, tile: OfReport, report: Report) -> None:
    read = {column.name: column.type for column in report.columns}
    if isinstance(tile, Figure):
        _check_figure(place, tile, report)
    for where, column in columns_read(tile):
        _check_column(f"{place}.{where}", column, read, f"report {report.name}")
    for column in tile.older_days:
        _check_moment(f"{place}.older_days.{column}", column, report)
    for where, column in _added_by(tile):
        if read[column] not in NUMBERS:
            adds = sorted(name for name, type_ in read.items() if type_ in NUMBERS)
            listed = instead(column, sorted(adds))
            raise Misconfigured(f"{place}.{where}: column {quote(column)} holds no numbers. {listed}")
    if isinstance(tile, Figure):
        return
    _check_group(place, tile)
    shown = tile.group.columns if tile.group else list(read)
    whose = "this group" if tile.group else f"report {report.name}"
    if tile.sort:
        _check_column(f"{place}.sort", tile.sort.removeprefix("-"), shown, whose)
    known = {*shown, *(PERIOD_END_COLUMNS if set(shown) & set(PERIOD_COLUMNS) else ())}
    for where, column in columns_shown(tile):
        made = _made_by(tile) if isinstance(tile, Chart) and where.startswith("spec") else set()
        _check_column(f"{place}.{where}", column, known | made, whose)


def _check_column(place: str, column: str, known: Collection[str], whose: str) -> None:
    if column not in known:
        listed = instead(column, sorted(known))
        raise Misconfigured(f"{place}: column {quote(column)} does not exist in {whose}. {listed}")


def _check_group(place: str, tile: Chart | Table) -> None:
    if isinstance(tile, Chart) and tile.leading and (tile.group or tile.sort):
        raise Misconfigured(
            f"{place}.leading: stands beside group or sort, which choose rows, too. Remove one of them."
        )
    if tile.group and not (tile.group.sum or tile.group.median or tile.group.count or tile.sort):
        raise Misconfigured(
            f"{place}.group: nothing says which rows come first. Name columns in `sum`, one in `count`, or a `sort`."
        )
    if tile.group and len(set(tile.group.columns)) < len(tile.group.columns):
        raise Misconfigured(f"{place}.group: names a column twice. Name each once.")


def _check_figure(place: str, figure: Figure, report: Report) -> None:
    needed = {
        "sum": ("column",),
        "newest": ("column",),
        "distinct": ("column",),
        "ratio": ("column", "of"),
        "only": ("column",),
    }
    if figure.how == "only" and not report.grain.startswith(_ONE_ROW):
        raise Misconfigured(f"{place}.how: `only` is for a report of one row, and {report.name} has many. Name totals.")
    for name in needed.get(figure.how, ()):
        if not getattr(figure, name):
            raise Misconfigured(f"{place}.{name}: is missing; `{figure.how}` needs it. Name a column.")


def _check_spec(place: str, spec: dict[str, Any]) -> None:
    """A spec brings no rows and leads nowhere: what it shows is the report's, and it runs on strangers' texts."""
    for where, name, value in _entries(spec, "spec"):
        if name in ("data", "datasets", "url", "href", "usermeta") or (name == "from" and isinstance(value, dict)):
            raise Misconfigured(f"{place}.{where}: may not stand in a spec; the rows are the report's. Remove it.")


def columns_read(tile: OfReport) -> Iterator[tuple[str, str]]:
    """Every column of the report that a tile reads, and where it says so."""
    for column in tile.where:
        yield f"where.{column}", column
    if tile.nonzero:
        yield "nonzero", tile.nonzero
    for column in tile.older_days:
        yield f"older_days.{column}", column
    if isinstance(tile, Figure):
        if tile.column:
            yield "column", tile.column
        yield from ((f"of[{place}]", column.removeprefix("-")) for place, column in enumerate(tile.of))
    elif tile.group:
        yield from ((f"group.by[{place}]", column) for place, column in enumerate(tile.group.by))
        yield from ((f"group.sum[{place}]", column) for place, column in enumerate(tile.group.sum))
        yield from ((f"group.median[{place}]", column) for place, column in enumerate(tile.group.median))
    if isinstance(tile, Chart) and tile.leading:
        yield from (("leading.column", tile.leading.column), ("leading.by", tile.leading.by))


def _added_by(tile: OfReport) -> Iterator[tuple[str, str]]:
    """Those of them whose values are added, or multiplied."""
    if not isinstance(tile, Figure):
        yield from (
            (where, column)
            for where, column in columns_read(tile)
            if where.startswith(("group.sum", "group.median", "leading.by"))
        )
    elif tile.how in ("sum", "ratio") or (tile.how in ("newest", "only") and tile.times != 1):
        yield from (
            (where, column) for where, column in columns_read(tile) if where == "column" or where.startswith("of")
        )


def columns_shown(tile: Chart | Table) -> Iterator[tuple[str, str]]:
    """Every column that a tile shows, of those that its rows have."""
    if isinstance(tile, Table):
        yield from ((f"columns.{column}", column) for column in tile.columns)
        return
    if tile.compare:
        yield from (("compare.x", tile.compare.x), ("compare.y", tile.compare.y))
    yield from _fields_of(tile.spec)


def _fields_of(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for where, name, value in _entries(spec, "spec"):
        if name == "field" and isinstance(value, str):
            yield where, value
        if name in ("groupby", "fold", "fields") and isinstance(value, list):
            yield from ((f"{where}[{place}]", field) for place, field in enumerate(value) if isinstance(field, str))


def _made_by(chart: Chart) -> set[str]:
    """The columns that a spec makes itself."""
    made: set[str] = set()
    for _, name, value in _entries(chart.spec, "spec"):
        if name == "as":
            made |= set(value if isinstance(value, list) else [value])
    return made


def _entries(value: Any, place: str) -> Iterator[tuple[str, str, Any]]:
    """Every entry of every object in a spec: its place, its name and its value."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield f"{place}.{name}", name, part
            yield from _entries(part, f"{place}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _entries(part, f"{place}[{number}]")
