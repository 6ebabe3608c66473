"""The catalog of reports, read from the comments of their views."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from embedsink.errors import Refused, preview, suggestion
from embedsink.reasons import Reason
from embedsink.store.reader import OLDER_SNAPSHOT, Reader
from embedsink.store.sql_files import read_sql, read_views
from embedsink.store.view_catalog import Column

# Raw events have the interface of a report, without any aggregation.
EVENTS = "event_in_scope"
# Only the operator may know which key sent an event, and logs contain key ids.
EVENT_COLUMNS_HIDDEN = ("key_id",)
# Former names of reports, which dashboards of an operator may still have.
_RENAMED = {"funnel": "reach", "answers": "ai_query_groups"}

_COLUMN_COMMENT = re.compile(r"^(?P<description>.*?\.)(?: Unit: (?P<unit>[^.]+)\.)?$")
_TRAITS = re.compile(r"(?m)^-- Traits: (.+)\.$")
_TYPES = {
    "BIGINT": "integer",
    "HUGEINT": "integer",
    "INTEGER": "integer",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
    "JSON": "json",
}
_JSON_SCHEMAS: dict[str, dict[str, Any]] = {
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
    """A column. `type` is integer, number, boolean, timestamp, date, json or string; `unit` may be empty."""

    name: str
    type: str
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its name, its question, and the grain of its rows."""

    name: str
    title: str
    question: str
    grain: str
    columns: list[ReportColumn]


@cache
def report_names() -> tuple[str, ...]:
    """Return the names of all reports."""
    return tuple(read_sql("reports"))


def all_reports(reader: Reader) -> list[Report]:
    """Return the reports that the database has, described by the comments of their views."""
    return [_describe(reader, name) for name in report_names() if reader.has(name)]


def missing_reports(reader: Reader) -> str | None:
    """Return a sentence with the reports that the database lacks; None if it has all."""
    missing = [name for name in report_names() if not reader.has(name)]
    if not missing:
        return None
    return f"snapshot: lacks the {'report' if len(missing) == 1 else 'reports'} {', '.join(missing)}. {OLDER_SNAPSHOT}"


def find_report(reader: Reader, name: str) -> Report:
    """Return a report.

    Raises:
        Refused: `not_found`, with the nearest name.
        Misconfigured: the database is a snapshot of an older embedsink, which lacks it.
    """
    reader.require(known_name(name))
    return _describe(reader, name)


def describe(reader: Reader, name: str) -> dict[str, Any]:
    """Return a report with its columns, and its rows as JSON Schema.

    Raises:
        Refused: `not_found`, with the nearest name.
    """
    report = find_report(reader, name)
    return asdict(report) | {"row": row_schema(report)}


def known_name(name: str) -> str:
    """Return the name of a report unchanged. No other text is inserted into a statement.

    Raises:
        Refused: `not_found`, with the nearest name.
    """
    if name in report_names():
        return name
    raise Refused(Reason.NOT_FOUND, unknown_report(name, report_names()))


def unknown_report(name: str, known: Iterable[str]) -> str:
    """Return the sentence about a report that does not exist, with the name that was probably meant."""
    return f"report {preview(name)} does not exist. {suggestion(_RENAMED.get(name, name), known)}"


def known_columns(requested: str | None, columns: Iterable[str]) -> tuple[str, ...] | None:
    """Return the columns of a list such as `surface,view_count`; None for all columns.

    Raises:
        Refused: `bad_parameter`, with the nearest name.
    """
    if requested is None:
        return None
    known = list(columns)
    wanted = tuple(name.strip() for name in requested.split(","))
    for index, name in enumerate(wanted):
        if name not in known:
            raise Refused(
                Reason.BAD_PARAMETER, f"columns: column {preview(name)} does not exist. {suggestion(name, known)}"
            )
        if name in wanted[:index]:
            raise Refused(Reason.BAD_PARAMETER, f"columns: column {preview(name)} is listed twice. Give it once.")
    return wanted


def visible_columns(reader: Reader, view: str) -> tuple[str, ...]:
    """Return the columns of a report, or of raw events, that a reader may see."""
    reader.require(view)
    hidden = EVENT_COLUMNS_HIDDEN if view == EVENTS else ()
    return tuple(column.name for column in reader.columns(view) if column.name not in hidden)


def is_timed(name: str) -> bool:
    """Return whether a report may change while nothing is loaded, because it reads the clock."""
    return "clock" in _traits(name)


def is_windowed(name: str) -> bool:
    """Return whether a view compares rows with each other, so that reading a few rows takes as long as reading all."""
    return "windows" in _traits(name)


@cache
def _traits(name: str) -> frozenset[str]:
    """Return the traits that the file of a view declares in a line such as `-- Traits: clock, windows.`"""
    declared = _TRAITS.search(read_views()[name])
    return frozenset(declared[1].split(", ")) if declared else frozenset()


def row_schema(report: Report) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a row of a report's `.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": report.title,
        "description": report.grain,
        "type": "object",
        "properties": {
            column.name: _JSON_SCHEMAS.get(column.type, {}) | {"description": _described(column)}
            for column in report.columns
        },
        "required": [column.name for column in report.columns],
        "additionalProperties": False,
    }


def type_of(column: Column) -> str:
    """Return the type of a column, as in `ReportColumn`."""
    return _TYPES.get(column.type, "string")


def _describe(reader: Reader, name: str) -> Report:
    # Comments in older snapshots may have fewer lines.
    title, question, grain = [*reader.comment(name).splitlines(), "", "", ""][:3]
    columns = []
    for column in reader.columns(name):
        comment = _COLUMN_COMMENT.match(column.comment)
        description, unit = comment.group("description", "unit") if comment else (column.comment, None)
        columns.append(ReportColumn(column.name, type_of(column), unit or "", description))
    return Report(name, title, question, grain, columns)


def _described(column: ReportColumn) -> str:
    return f"{column.description} Unit: {column.unit}." if column.unit else column.description
