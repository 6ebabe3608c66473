"""The files of `dashboards/`: read, and held against the reports that they name."""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from embedsink.charts.model import ADDED, PERIOD_COLUMNS, Chart, Dashboard, Figure, Table, Tile
from embedsink.errors import Misconfigured, Refused, quote
from embedsink.reasons import Reason
from embedsink.reports import Report, parse_scope

# How the grain of a report begins that never has more.
_ONE_ROW = "One row per scope"


@cache
def dashboards_folder() -> Path:
    """Where they lie: in the package when it was installed, at the top of the checkout when not."""
    packaged = Path(__file__).parents[1] / "dashboards"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "dashboards"


def read_dashboards(folder: Path | None = None) -> dict[str, Dashboard]:
    """Every dashboard by its name, in the order of `place`.

    Raises:
        Misconfigured: a file is no dashboard; it names the file and the place in it.
    """
    found = {path.stem: _read(path) for path in sorted((folder or dashboards_folder()).glob("*.json"))}
    return dict(sorted(found.items(), key=lambda entry: (entry[1].place, entry[0])))


def find_dashboard(dashboards: Mapping[str, Dashboard], name: str) -> Dashboard:
    """The dashboard of this name.

    Raises:
        Refused: `not_found`.
    """
    dashboard = dashboards.get(name)
    if dashboard is None:
        raise Refused(Reason.NOT_FOUND, f"dashboard {quote(name)} does not exist. {_instead(name, dashboards)}")
    return dashboard


def check_dashboards(dashboards: Mapping[str, Dashboard], reports: Iterable[Report]) -> None:
    """Raises Misconfigured for the first report, column or parameter that there is not, with its file and place."""
    known = {report.name: report for report in reports}
    for name, dashboard in dashboards.items():
        for place, tile in _tiles(dashboard):
            _check_tile(f"dashboards/{name}.json: {place}", tile, known)


def _read(path: Path) -> Dashboard:
    file = f"dashboards/{path.name}"
    try:
        dashboard = Dashboard.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misconfigured(f"{file}: {_place(first['loc'])}: {first['msg']}. Correct the file.") from None
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"{file}: is not JSON ({error}). Correct the file.") from None
    for what, ids in _ids(dashboard):
        for id in ids:
            if ids.count(id) > 1:
                raise Misconfigured(f"{file}: {what}: id {quote(id)} stands twice. Give each one of its own.")
    return dashboard


def _ids(dashboard: Dashboard) -> Iterator[tuple[str, list[str]]]:
    yield "sections", [section.id for section in dashboard.sections]
    yield "charts", [tile.id for section in dashboard.sections for tile in section.charts]


def _tiles(dashboard: Dashboard) -> Iterator[tuple[str, Tile]]:
    for number, section in enumerate(dashboard.sections):
        for place, tile in enumerate(section.charts):
            yield f"sections[{number}].charts[{place}]", tile


def _check_tile(place: str, tile: Tile, reports: Mapping[str, Report]) -> None:
    if not isinstance(tile, Figure | Chart | Table):
        return
    report = reports.get(tile.report)
    if report is None:
        raise Misconfigured(
            f"{place}.report: report {quote(tile.report)} does not exist. {_instead(tile.report, reports)}"
        )
    try:
        parse_scope({str(name): value for name, value in tile.parameters.items()})
    except Refused as error:
        raise Misconfigured(f"{place}.parameters: {error}") from None
    columns = {column.name for column in report.columns}
    if columns & set(PERIOD_COLUMNS):
        columns |= set(ADDED)
    for where, column in _columns_of(tile):
        if column not in columns | (_made_by(tile) if where.startswith(("spec", "sort", "columns")) else set()):
            raise Misconfigured(
                f"{place}.{where}: column {quote(column)} does not exist in report {report.name}. "
                f"{_instead(column, columns)}"
            )
    if isinstance(tile, Chart):
        _check_spec(place, tile.spec)
    if isinstance(tile, Figure):
        _check_figure(place, tile, report)


def _check_figure(place: str, figure: Figure, report: Report) -> None:
    needed = {"sum": ("column",), "newest": ("column",), "ratio": ("column", "of"), "only": ("column",)}
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


def _columns_of(tile: Figure | Chart | Table) -> Iterator[tuple[str, str]]:
    """Every column that a tile names, and where."""
    for column in tile.where:
        yield f"where.{column}", column
    if tile.nonzero:
        yield "nonzero", tile.nonzero
    if isinstance(tile, Figure):
        if tile.column:
            yield "column", tile.column
        yield from ((f"of[{place}]", column.removeprefix("-")) for place, column in enumerate(tile.of))
        return
    if tile.group:
        yield from ((f"group.by[{place}]", column) for place, column in enumerate(tile.group.by))
        yield from ((f"group.sum[{place}]", column) for place, column in enumerate(tile.group.sum))
    if tile.sort:
        yield "sort", tile.sort.removeprefix("-")
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


def _made_by(tile: Figure | Chart | Table) -> set[str]:
    """The columns that a tile makes itself."""
    made: set[str] = set()
    if isinstance(tile, Chart | Table) and tile.group and tile.group.count:
        made.add(tile.group.count)
    if isinstance(tile, Chart):
        for _, name, value in _entries(tile.spec, "spec"):
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


def _place(location: tuple[int | str, ...]) -> str:
    # Pydantic puts the kind of a tile between its number and its field.
    words = [part for part in location if part not in ("number", "chart", "table", "server")]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in words).removeprefix(".") or "file"


def _instead(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1)
    return f'Did you mean "{nearest[0]}"?' if nearest else f"There are {', '.join(names)}."
