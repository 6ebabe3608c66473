"""The reports: which there are, through which scope they are seen, and how their rows go out.

A report is a view in `sql/views/reports/` and nothing else: its title, question, grain and columns are the comments
there, its scope is a set of session variables, its rows are whatever the view answers.
"""

from embedsink.reports.catalog import (
    EVENTS,
    Report,
    ReportColumn,
    all_reports,
    describe,
    find_report,
    is_timed,
    known_columns,
    known_name,
    missing_reports,
    report_names,
    unknown_report,
    visible_columns,
)
from embedsink.reports.formats import Style, csv_chunks, json_chunks, ndjson_chunks, write_rows
from embedsink.reports.paging import LIMIT_MAX, Cursor, RowsAsked, parse_number
from embedsink.reports.scope import INTERVALS, PARAMETERS, SURFACES, Scope, parse_instant, parse_scope
from embedsink.reports.summary import write_summary
from embedsink.row_format import REPORT_FORMATS, Format

__all__ = [
    "EVENTS",
    "INTERVALS",
    "LIMIT_MAX",
    "PARAMETERS",
    "REPORT_FORMATS",
    "SURFACES",
    "Cursor",
    "Format",
    "Report",
    "ReportColumn",
    "RowsAsked",
    "Scope",
    "Style",
    "all_reports",
    "csv_chunks",
    "describe",
    "find_report",
    "is_timed",
    "json_chunks",
    "known_columns",
    "known_name",
    "missing_reports",
    "ndjson_chunks",
    "parse_instant",
    "parse_number",
    "parse_scope",
    "report_names",
    "unknown_report",
    "visible_columns",
    "write_rows",
    "write_summary",
]
