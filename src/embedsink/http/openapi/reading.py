"""What readers take away: reports, the summary of a period, raw events and the snapshot."""

from collections.abc import Sequence

from embedsink.auth.keys import KeyKind
from embedsink.http.api import exports, inspection, live
from embedsink.http.openapi.failures import ACCESS, SCOPED, SPOOLED
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import (
    SWITCH,
    arrival_parameters,
    known_tag,
    parameter,
    report_parameters,
    rows_parameters,
    scope_parameters,
)
from embedsink.http.openapi.parts import Schema, array, ref
from embedsink.http.report_response import MEDIA_TYPES
from embedsink.reasons import Reason
from embedsink.reports.catalog import report_names
from embedsink.reports.format import REPORT_FORMATS, Format
from embedsink.reports.recent_events import ROWS_MAX

_KEYS = (KeyKind.READ, KeyKind.ADMIN)
_CACHED = {304: "Nothing was loaded since."}
_TAGGED = {"ETag": "Weak; send it back in If-None-Match."}
_PAGED = {"Link": 'The next page (RFC 8288, rel="next").', "X-Next-Cursor": "The cursor of the next page."}


def operations() -> Sequence[Operation]:
    """All that a read key is for."""
    whole = [_list_reports(), _read_report(), _describe_report(), _read_summary()]
    return [*whole, _read_events(), _follow_events(), _inspect(), _read_snapshot()]


def _list_reports() -> Operation:
    return Operation(
        "get",
        "/api/v1/reports",
        "listReports",
        "Every report with its question, its grain and its columns",
        (200, "The reports.", {"application/json": array(ref("Report"))}),
        (*ACCESS, Reason.BAD_PARAMETER),
        _KEYS,
    )


def _read_report() -> Operation:
    return Operation(
        "get",
        "/api/v1/reports/{name}",
        "readReport",
        "The rows of a report, in the reader's scope; as JSON, or with a suffix as CSV, Parquet or Arrow",
        (200, "The rows.", _media_types(REPORT_FORMATS)),
        (*SPOOLED, Reason.NOT_FOUND),
        _KEYS,
        parameters=[_name(REPORT_FORMATS), *report_parameters(), *rows_parameters(), known_tag()],
        headers=_TAGGED | _PAGED,
        others=_CACHED,
    )


def _describe_report() -> Operation:
    return Operation(
        "get",
        "/api/v1/reports/{name}/schema",
        "describeReport",
        "One report with its question, its grain and its columns, and a row of its JSON as JSON Schema",
        (200, "The report.", {"application/json": ref("ReportSchema")}),
        (*ACCESS, Reason.BAD_PARAMETER, Reason.NOT_FOUND),
        _KEYS,
        parameters=[_name(())],
    )


def _read_summary() -> Operation:
    return Operation(
        "get",
        "/api/v1/summary.zip",
        "readSummary",
        "Every report for a period as CSV, all of one moment, with a manifest",
        (200, "The ZIP.", {"application/zip": {}}),
        SPOOLED,
        _KEYS,
        parameters=[*report_parameters(), known_tag()],
        headers=_TAGGED,
        others=_CACHED,
    )


def _read_events() -> Operation:
    suffix = parameter("suffix", {"enum": list(exports.EVENT_FORMATS)}, "How they are written.", place="path")
    return Operation(
        "get",
        "/api/v1/events.{suffix}",
        "readEvents",
        "Raw events in the reader's scope, as rows; what `embedsink import` takes is written by `embedsink export`",
        (200, "The events.", _media_types(exports.EVENT_FORMATS)),
        (*SPOOLED, Reason.NOT_FOUND),
        _KEYS,
        parameters=[suffix, *report_parameters(), *rows_parameters(), known_tag()],
        headers=_TAGGED | _PAGED,
        others=_CACHED,
    )


def _follow_events() -> Operation:
    _, _, deployment, tenant = scope_parameters()
    last = {"type": "string", "pattern": "^[0-9]{1,10}$"}
    return Operation(
        "get",
        "/api/v1/events/live",
        "followEvents",
        "What was just loaded or quarantined, as server-sent events; a stream that goes on",
        (200, "Messages; `data` is JSON.", {live.MEDIA_TYPE: ref("LiveMessage")}),
        (*SCOPED, Reason.OVERLOADED, Reason.RATE_LIMITED, Reason.NOT_READY),
        _KEYS,
        parameters=[
            parameter("rows", SWITCH, "Whether each message has the rows that were loaded. Default: off."),
            parameter("recent", {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}, "Begin with so many rows."),
            deployment,
            tenant,
            *arrival_parameters(),
            parameter("after", last, "The id of the last message that you had."),
            parameter("Last-Event-ID", last, "The same, as browsers say it.", place="header"),
        ],
    )


def _inspect() -> Operation:
    bounds = {"type": "integer", "minimum": 0, "maximum": inspection.WAIT_S_MAX, "default": inspection.WAIT_S_DEFAULT}
    return Operation(
        "get",
        "/api/v1/inspect",
        "inspect",
        "What arrived of one session or since a time, by type, and what was rejected; for tests of a host page",
        (200, "The counts and the rejections.", {"application/json": ref("Inspection")}),
        (*SCOPED, Reason.OVERLOADED, Reason.RATE_LIMITED),
        _KEYS,
        parameters=[
            *scope_parameters(),
            *arrival_parameters(),
            parameter("wait", bounds, "Seconds to wait until everything is loaded that was acknowledged before."),
        ],
    )


def _read_snapshot() -> Operation:
    return Operation(
        "get",
        "/api/v1/analytics.duckdb",
        "readSnapshot",
        "The snapshot that notebooks open, every deployment in it; only for a key without a scope",
        (200, "A DuckDB database.", {exports.SNAPSHOT_MEDIA_TYPE: {}}),
        (*SCOPED, Reason.BAD_RANGE, Reason.OVERLOADED),
        _KEYS,
        parameters=[
            parameter("Range", {"type": "string"}, "One part of it (RFC 9110, section 14.2).", place="header"),
            parameter("If-Range", {"type": "string"}, "The ETag that the part is of, or else all.", place="header"),
            known_tag(),
        ],
        headers={"ETag": "Strong; send it back in If-None-Match or If-Range."},
        others={206: "The part.", 304: "No other snapshot was published since."},
    )


def _name(formats: Sequence[Format]) -> Schema:
    names = "|".join(report_names())
    suffix = rf"(\.({'|'.join(formats)}))?" if formats else ""
    pattern = {"type": "string", "pattern": f"^({names}){suffix}$"}
    return parameter("name", pattern, "The report, and how its rows are written.", place="path")


def _media_types(formats: Sequence[Format]) -> dict[str, Schema]:
    # Of what is no JSON there is nothing to say but its media type (OpenAPI 3.1.0, section 4.8.14.3).
    rows = {Format.JSON: array({"type": "object"}), Format.CSV: {"type": "string"}}
    return {MEDIA_TYPES[format].partition(";")[0]: rows.get(format, {}) for format in formats}
