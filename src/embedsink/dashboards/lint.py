"""Checks of dashboards against the report catalog, which find errors before a page fails.

a tile ─┬─ columns that it reads ───▶ must be columns of the report
        ├─ columns that it sums ────▶ must be numeric columns
        └─ columns that it shows ───▶ must be columns of its rows: those of the report, or those of its group
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from embedsink.dashboards.columns import columns_read
from embedsink.dashboards.model import PERIOD_COLUMNS, PERIOD_END_COLUMNS, Chart, Dashboard, NumberTile, Table, Tile
from embedsink.dashboards.vega_spec import complete_spec
from embedsink.errors import Misconfigured, Refused, preview, suggestion
from embedsink.reports.catalog import Report, unknown_report_message
from embedsink.reports.scope import parse_scope

NUMBERS = ("integer", "number")
# Members of a Vega-Lite spec that contain rows, or options of vega-embed (`usermeta`).
_DATA_MEMBERS = {"data", "datasets", "usermeta"}
_LINK_MEMBERS = {"url", "href"}
# The beginning of the grain of a report with a single row.
_ONE_ROW_GRAIN = "One row per scope"
ReportTile = NumberTile | Chart | Table


def check_dashboards(dashboards: Mapping[str, Dashboard], reports: Iterable[Report]) -> None:
    """Raise Misconfigured for the first invalid tile, such as one with an unknown column.

    The message begins with the file and the path of the error.
    """
    known = {report.name: report for report in reports}
    for name, dashboard in dashboards.items():
        for path, tile in _tiles_with_paths(dashboard):
            _check_tile(f"dashboards/{name}.json: {path}", tile, known)


def lint(dashboards: Mapping[str, Dashboard], reports: Iterable[Report]) -> dict[str, Misconfigured]:
    """Return the first error of each invalid dashboard, by the name of the dashboard."""
    known_reports = list(reports)
    errors = {}
    for name, dashboard in dashboards.items():
        try:
            check_dashboards({name: dashboard}, known_reports)
        except Misconfigured as error:
            errors[name] = error
    return errors


def drop_invalid_tiles(dashboard: Dashboard, reports: Iterable[Report]) -> tuple[Dashboard, list[str]]:
    """Return a dashboard without its invalid tiles, and the titles of those tiles.

    A tile is invalid, for example, if an older snapshot lacks its report.

    Raises:
        Misconfigured: no tile is valid.
    """
    known = {report.name: report for report in reports}
    sections = []
    dropped_titles = []
    for section in dashboard.sections:
        valid_tiles = [tile for tile in section.tiles if _is_valid(tile, known)]
        dropped_titles += [tile.title for tile in section.tiles if tile not in valid_tiles]
        if valid_tiles:
            sections.append(section.model_copy(update={"tiles": valid_tiles}))
    if not sections:
        raise Misconfigured(
            f"{dashboard.title}: none of its tiles can be drawn with the available reports. Choose another dashboard."
        )
    return dashboard.model_copy(update={"sections": sections}), dropped_titles


def _is_valid(tile: Tile, reports: Mapping[str, Report]) -> bool:
    """Return whether a tile passes all checks."""
    try:
        _check_tile(tile.title, tile, reports)
    except Misconfigured:
        return False
    return True


def _tiles_with_paths(dashboard: Dashboard) -> Iterator[tuple[str, Tile]]:
    """Yield the path in the file and the tile, for each tile."""
    for section_index, section in enumerate(dashboard.sections):
        for tile_index, tile in enumerate(section.tiles):
            yield f"sections[{section_index}].charts[{tile_index}]", tile


def _check_tile(path: str, tile: Tile, reports: Mapping[str, Report]) -> None:
    """Check the report, the parameters, the columns and the spec of a tile. A gauge has none of them, so it passes."""
    if not isinstance(tile, NumberTile | Chart | Table):
        return
    report = reports.get(tile.report)
    if report is None:
        raise Misconfigured(f"{path}.report: {unknown_report_message(tile.report, sorted(reports))}")
    try:
        parse_scope({str(name): value for name, value in tile.parameters.items()})
    except Refused as error:
        raise Misconfigured(f"{path}.parameters: {error}") from None
    if isinstance(tile, Chart):
        _check_spec(path, tile)
        _check_marks(path, tile, reports)
    _check_columns(path, tile, report)


def _check_marks(path: str, chart: Chart, reports: Mapping[str, Report]) -> None:
    """Check the report and the column of the marked times."""
    if chart.marks is None:
        return
    name = chart.marks.report
    if name not in reports:
        raise Misconfigured(f"{path}.marks.report: {unknown_report_message(name, sorted(reports))}")
    _check_time_column(f"{path}.marks.at", chart.marks.at, reports[name])


def _check_time_column(path: str, column: str, report: Report) -> None:
    """Check that a column of a report has times."""
    time_columns = sorted(candidate.name for candidate in report.columns if candidate.type == "timestamp")
    if column not in time_columns:
        advice = suggestion(column, time_columns)
        raise Misconfigured(f"{path}: column {preview(column)} of report {report.name} is not a time column. {advice}")


def _check_columns(path: str, tile: ReportTile, report: Report) -> None:
    """Check that the columns of a tile exist, that `older_days` uses times, and that calculations use numbers."""
    types = {column.name: column.type for column in report.columns}
    if isinstance(tile, NumberTile):
        _check_number(path, tile, report)
    for where, column in columns_read(tile):
        _check_column(f"{path}.{where}", column, types, f"report {report.name}")
    for column in tile.older_days:
        _check_time_column(f"{path}.older_days.{column}", column, report)
    for where, column in _numeric_columns_of(tile):
        if types[column] not in NUMBERS:
            numeric_columns = sorted(name for name, type_ in types.items() if type_ in NUMBERS)
            advice = suggestion(column, numeric_columns)
            raise Misconfigured(f"{path}.{where}: column {preview(column)} is not numeric. {advice}")
    if isinstance(tile, Chart | Table):
        _check_group(path, tile)
        _check_shown_columns(path, tile, report)


def _check_shown_columns(path: str, tile: Chart | Table, report: Report) -> None:
    """Check that the rows of a tile have the columns that the tile shows or sorts by."""
    row_columns = tile.group.columns if tile.group else [column.name for column in report.columns]
    owner = "this group" if tile.group else f"report {report.name}"
    if tile.sort:
        _check_column(f"{path}.sort", tile.sort.removeprefix("-"), row_columns, owner)
    known_columns = set(row_columns)
    # A row of a period gets further columns, such as the end of the period.
    if known_columns & set(PERIOD_COLUMNS):
        known_columns.update(PERIOD_END_COLUMNS)
    # A spec can also use the columns that its transforms compute.
    spec_columns = known_columns | _computed_columns(tile.spec) if isinstance(tile, Chart) else known_columns
    for where, column in columns_shown(tile):
        known = spec_columns if where.startswith("spec") else known_columns
        _check_column(f"{path}.{where}", column, known, owner)


def _check_column(path: str, column: str, known: Collection[str], owner: str) -> None:
    """Check that a column is known. `owner` names the report or the group in the message."""
    if column not in known:
        advice = suggestion(column, sorted(known))
        raise Misconfigured(f"{path}: column {preview(column)} does not exist in {owner}. {advice}")


def _check_group(path: str, tile: Chart | Table) -> None:
    """Check that `leading` is used alone, that a group has a sort order, and that it names no column twice."""
    if isinstance(tile, Chart) and tile.leading and (tile.group or tile.sort):
        raise Misconfigured(f"{path}.leading: can't be combined with group or sort. Remove one of them.")
    if tile.group and not (tile.group.sum or tile.group.median or tile.group.count or tile.sort):
        advice = "Add `sum`, `median` or `count`, or add a `sort` to the tile."
        raise Misconfigured(f"{path}.group: has no sort order. {advice}")
    if tile.group and len(set(tile.group.columns)) < len(tile.group.columns):
        raise Misconfigured(f"{path}.group: names a column twice. Name each once.")


def _check_number(path: str, tile: NumberTile, report: Report) -> None:
    """Check that a number tile has the fields that the computation requires. `only` requires a report with one row."""
    # All other computations require a column only.
    required_fields: dict[str, tuple[str, ...]] = {"count": (), "ratio": ("column", "of")}
    if tile.how == "only" and not report.grain.startswith(_ONE_ROW_GRAIN):
        raise Misconfigured(
            f"{path}.how: `only` requires a report with one row, and {report.name} has many. Use the report `totals`."
        )
    for name in required_fields.get(tile.how, ("column",)):
        if not getattr(tile, name):
            raise Misconfigured(f"{path}.{name}: is missing; `{tile.how}` requires it. Name a column.")


def _check_spec(path: str, chart: Chart) -> None:
    """Reject a spec that can't be completed with the defaults, or that contains data or links.

    All rows must come from the report, and links could contain untrusted texts.
    """
    try:
        complete_spec(chart)
    except (AttributeError, TypeError, ValueError, RecursionError):  # A member has another type than in Vega-Lite.
        raise Misconfigured(
            f"{path}.spec: does not have the structure of a Vega-Lite spec. Correct it, or begin with a chart of a "
            "built-in dashboard."
        ) from None
    for where, name, value in _members(chart.spec, "spec"):
        is_lookup = name == "from" and isinstance(value, dict)  # The `lookup` transform reads other data.
        if is_lookup or name in _DATA_MEMBERS | _LINK_MEMBERS:
            reason = "The rows come from the report, and links may be unsafe"
            raise Misconfigured(f"{path}.{where}: is not allowed in a spec. {reason}. Remove it.")


def _numeric_columns_of(tile: ReportTile) -> Iterator[tuple[str, str]]:
    """Yield the path in the tile and the name of every column that must be numeric for a sum, product or median."""
    if isinstance(tile, NumberTile):
        is_summed = tile.how in ("sum", "ratio")
        is_multiplied = tile.how in ("newest", "only") and tile.times != 1
        fields = ["column", "of"] if is_summed or is_multiplied else []
    else:
        fields = ["group.sum", "group.median", "leading.by"]
    for where, column in columns_read(tile):
        field, _, _ = where.partition("[")  # `of[0]` is in the field `of`.
        if field in fields:
            yield where, column


def columns_shown(tile: Chart | Table) -> Iterator[tuple[str, str]]:
    """Yield the path in the tile and the name of every column that a tile shows."""
    if isinstance(tile, Table):
        yield from ((f"columns.{column}", column) for column in tile.columns)
        return
    if tile.compare:
        yield from (("compare.x", tile.compare.x), ("compare.y", tile.compare.y))
    yield from _columns_of_spec(tile.spec)


def _columns_of_spec(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path in the tile and the name of every column that a spec names."""
    for where, name, value in _members(spec, "spec"):
        if name == "field" and isinstance(value, str):
            yield where, value
        if name in ("groupby", "fold", "fields") and isinstance(value, list):
            yield from ((f"{where}[{index}]", field) for index, field in enumerate(value) if isinstance(field, str))


def _computed_columns(spec: dict[str, Any]) -> set[str]:
    """Return the columns that the transforms of a spec compute."""
    computed: set[str] = set()
    for _, name, value in _members(spec, "spec"):
        if name == "as":
            names = value if isinstance(value, list) else [value]
            computed |= {computed_name for computed_name in names if isinstance(computed_name, str)}
    return computed


def _members(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, name and value of each member of each object in a spec."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield f"{path}.{name}", name, member
            yield from _members(member, f"{path}.{name}")
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _members(element, f"{path}[{index}]")
