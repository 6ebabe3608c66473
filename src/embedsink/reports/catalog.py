"""The catalog of reports, read from the comments of their views."""

import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from embedsink.errors import Refused, preview, suggestion
from embedsink.reasons import Reason
from embedsink.reports.day_marks import DayMarks
from embedsink.reports.scope import DIMENSIONS, Scope
from embedsink.store.reader import OLDER_SNAPSHOT, Reader
from embedsink.store.sql_files import read_sql, read_views
from embedsink.store.view_catalog import Column

# The view of raw events. It has no aggregation, but the same interface as the view of a report.
EVENT_VIEW = "event_in_scope"
# Only the operator may know which key sent an event, and logs contain key ids.
HIDDEN_EVENT_COLUMNS = ("key_id",)
# The end of the name of a view that has the columns `DIMENSIONS`.
_BY_DIRECTORY = "_by_directory"
# The current names of renamed reports. An operator's dashboards may still use the former names.
_CURRENT_NAMES = {"funnel": "reach", "answers": "ai_query_groups"}

# The comment on a column: a description, and optionally its unit.
_COLUMN_COMMENT = re.compile(r"^(?P<description>.*?\.)(?: Unit: (?P<unit>[^.]+)\.)?$")
_TRAITS = re.compile(r"(?m)^-- Traits: (.+)\.$")
_TYPES_BY_DUCKDB_TYPE = {
    "BIGINT": "integer",
    "HUGEINT": "integer",
    "INTEGER": "integer",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
    "JSON": "json",
}
_JSON_SCHEMAS_BY_TYPE: dict[str, dict[str, Any]] = {
    "integer": {"type": ["integer", "null"]},
    "number": {"type": ["number", "null"]},
    "boolean": {"type": ["boolean", "null"]},
    "timestamp": {"type": ["string", "null"], "format": "date-time"},
    "date": {"type": ["string", "null"], "format": "date"},
    "string": {"type": ["string", "null"]},
    "json": {},
}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column. `type` is integer, number, boolean, timestamp, date, json or string. `unit` may be empty."""

    name: str
    type: str
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report: the question that it answers, the grain of its rows, and its columns.

    Args:
        name, title, question, grain: as in the catalog.
        columns: the columns of all responses.
        dimensions: the columns that the parameter `by` adds.
    """

    name: str
    title: str
    question: str
    grain: str
    columns: list[ReportColumn]
    dimensions: list[ReportColumn] = field(default_factory=list)


@cache
def report_names() -> tuple[str, ...]:
    """Return the names of all reports."""
    return tuple(read_sql("reports"))


def all_reports(reader: Reader) -> list[Report]:
    """Return the reports whose views the database has, as the comments of the views describe them."""
    return [_read_report(reader, name) for name in report_names() if reader.has(name)]


def missing_reports_warning(reader: Reader) -> str | None:
    """Return a message that names the reports that the database lacks; None if it lacks no report."""
    missing = [name for name in report_names() if not reader.has(name)]
    if not missing:
        return None
    noun = "report" if len(missing) == 1 else "reports"
    return f"snapshot: lacks the {noun} {', '.join(missing)}. {OLDER_SNAPSHOT}"


def find_report(reader: Reader, name: str) -> Report:
    """Return a report.

    Raises:
        Refused: no report has this name (reason `not_found`). The message suggests the nearest name.
        Misconfigured: the database is a snapshot of an older embedsink, which lacks the report.
    """
    reader.require(check_report_name(name))
    return _read_report(reader, name)


def describe_report(reader: Reader, name: str) -> dict[str, Any]:
    """Return a report as JSON, with the JSON Schema of a row.

    Raises:
        Refused: no report has this name (reason `not_found`). The message suggests the nearest name.
        Misconfigured: the database is a snapshot of an older embedsink, which lacks the report.
    """
    report = find_report(reader, name)
    return asdict(report) | {"row": row_schema(report)}


def check_report_name(name: str) -> str:
    """Return the name unchanged if a report has this name. Only checked names may be inserted into SQL.

    Raises:
        Refused: no report has this name (reason `not_found`). The message suggests the nearest name.
    """
    if name in report_names():
        return name
    raise Refused(Reason.NOT_FOUND, unknown_report_message(name, report_names()))


def unknown_report_message(name: str, known: Iterable[str]) -> str:
    """Return the error message for a report that does not exist. It suggests the most similar name.

    For the former name of a renamed report, it suggests the current name.
    """
    return f"report {preview(name)} does not exist. {suggestion(_CURRENT_NAMES.get(name, name), known)}"


def parse_columns(requested: str | None, columns: Iterable[str]) -> tuple[str, ...] | None:
    """Parse a list of column names such as `surface,view_count`. Return None for None, which means all columns.

    Args:
        requested: the list.
        columns: the names of the existing columns.

    Raises:
        Refused: a column does not exist or is listed twice (reason `bad_parameter`).
    """
    if requested is None:
        return None
    known = list(columns)
    names = tuple(name.strip() for name in requested.split(","))
    for index, name in enumerate(names):
        if name not in known:
            raise Refused(
                Reason.BAD_PARAMETER, f"columns: column {preview(name)} does not exist. {suggestion(name, known)}"
            )
        if name in names[:index]:
            raise Refused(Reason.BAD_PARAMETER, f"columns: column {preview(name)} is listed twice. Give it once.")
    return names


def visible_columns(reader: Reader, view: str) -> tuple[str, ...]:
    """Return the columns of a view that clients may see. Raise Misconfigured if the view does not exist.

    A dimension is visible only if the reader requests it.
    """
    reader.require(view)
    hidden: Collection[str] = HIDDEN_EVENT_COLUMNS if view == EVENT_VIEW else ()
    if view.endswith(_BY_DIRECTORY):
        hidden = set(DIMENSIONS) - set(reader.variable("dimensions") or ())
    return tuple(column.name for column in reader.columns(view) if column.name not in hidden)


@cache
def reports_with_dimensions() -> tuple[str, ...]:
    """Return the names of the reports that have the parameters `DIRECTORY_PARAMETERS`."""
    return tuple(name for name, sql in read_sql("reports").items() if f"view {name}{_BY_DIRECTORY} " in sql)


def view_of(name: str, scope: Scope) -> str:
    """Return the view with the rows of a report, or of raw events (`EVENT_VIEW`), for a scope.

    Raises:
        Refused: the scope has a dimension, a department or a group, but the report has none (reason `bad_parameter`).
    """
    if not scope.uses_directory:
        return name
    if name in reports_with_dimensions():
        return f"{name}{_BY_DIRECTORY}"
    parameter = "by" if scope.dimensions else "group" if scope.department is None else "department"
    reports = ", ".join(reports_with_dimensions())
    noun = "raw events do" if name == EVENT_VIEW else f"the report {name} does"
    raise Refused(
        Reason.BAD_PARAMETER, f"{parameter}: {noun} not have this parameter. Reports that have it: {reports}."
    )


def depends_on_directory(name: str) -> bool:
    """Return whether a report reads the directory, even without a parameter for departments or groups."""
    return "directory" in _traits(name)


def depends_on_clock(name: str) -> bool:
    """Return whether a report reads the clock. Such a report may change although no event was loaded."""
    return "clock" in _traits(name)


def read_day_marks(reader: Reader, view: str) -> DayMarks:
    """Return the marks of the rows of a report, or of raw events, in the present scope of the reader.

    Args:
        reader: a reader in a transaction (`Reader.consistent`), so that the marks and the rows have the same totals.
        view: the name that `view_of` returns.
    """
    deleted_days = None if "quarantine" in _traits(view) else reader.deleted_days(view)
    return DayMarks(reader.totaled_days(view), deleted_days)


def uses_window_functions(name: str) -> bool:
    """Return whether a view uses window functions. Reading a few rows of such a view takes as long as reading all."""
    return "windows" in _traits(name)


@cache
def _traits(name: str) -> frozenset[str]:
    """Return the traits that the file of a view declares in a line such as `-- Traits: clock, windows.`"""
    line = _TRAITS.search(read_views()[name.removesuffix(_BY_DIRECTORY)])
    return frozenset(line[1].split(", ")) if line else frozenset()


def row_schema(report: Report) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a row of a report in the JSON format."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": report.title,
        "description": report.grain,
        "type": "object",
        "properties": {
            column.name: _JSON_SCHEMAS_BY_TYPE.get(column.type, {}) | {"description": _description_with_unit(column)}
            for column in (*report.columns, *report.dimensions)
        },
        "required": [column.name for column in report.columns],
        "additionalProperties": False,
    }


def type_of(column: Column) -> str:
    """Return the type of a column in the words of `ReportColumn`."""
    return _TYPES_BY_DUCKDB_TYPE.get(column.type, "string")


def _read_report(reader: Reader, name: str) -> Report:
    """Return a report as the comments on the view and on the columns describe it."""
    lines = reader.comment(name).splitlines()
    # A comment has three lines; in older snapshots it may have fewer, so add empty ones.
    title, question, grain = (*lines, "", "", "")[:3]
    columns = [_parse_column(column) for column in reader.columns(name)]
    by_directory = reader.columns(f"{name}{_BY_DIRECTORY}")  # Most reports, and older snapshots, have no such view.
    dimensions = [_parse_column(column) for column in by_directory if column.name in DIMENSIONS]
    return Report(name, title, question, grain, columns, dimensions)


def _parse_column(column: Column) -> ReportColumn:
    """Return a column as its comment describes it: `<description>. Unit: <unit>.`"""
    comment = _COLUMN_COMMENT.match(column.comment)
    if comment is None:
        return ReportColumn(column.name, type_of(column), unit="", description=column.comment)
    return ReportColumn(column.name, type_of(column), unit=comment["unit"] or "", description=comment["description"])


def _description_with_unit(column: ReportColumn) -> str:
    """Return the description of a column, followed by the unit if the column has one."""
    return f"{column.description} Unit: {column.unit}." if column.unit else column.description
