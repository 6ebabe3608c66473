"""`/api/v1/reports`: the list of reports, the schema of a report, and its rows."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embedsink.auth.keys import KeyKind
from embedsink.errors import Refused, preview
from embedsink.http.authentication import require_key
from embedsink.http.execute import run_short_query
from embedsink.http.openapi.errors import ACCESS, SPOOLED
from embedsink.http.openapi.operation import NOT_MODIFIED, READERS, Operation
from embedsink.http.openapi.parameters import if_none_match, page_parameters, parameter, report_parameters
from embedsink.http.openapi.parts import Schema, array, ref
from embedsink.http.query_params import check_parameters
from embedsink.http.report_response import PAGED_HEADERS, RowsRequest, answer_rows, rows_content
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import all_reports, check_report_name, depends_on_clock, describe_report, report_names
from embedsink.reports.format import REPORT_FORMATS, Format
from embedsink.settings import Settings
from embedsink.store.reader import Reader

PATH = "/api/v1/reports"


async def list_reports(request: Request) -> Response:
    """Answer with all reports: the question, the grain and the columns of each."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, ())
    return JSONResponse(await run_short_query(request.state.engine, key, _list), headers=NO_CACHE)


async def show_schema(request: Request) -> Response:
    """Answer with the description of a report, and the JSON Schema of its rows."""
    key = require_key(request, KeyKind.READ)
    name = check_report_name(request.path_params["name"])
    check_parameters(request.query_params, ())
    described = await run_short_query(request.state.engine, key, partial(describe_report, name=name))
    return JSONResponse(described, headers=NO_CACHE)


async def show_report(request: Request) -> Response:
    """Answer with the rows of a report, in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    name, _, suffix = request.path_params["name"].partition(".")
    name, suffix = check_report_name(name), suffix or Format.JSON
    if suffix not in REPORT_FORMATS:
        formats = f"{', '.join(f'.{format}' for format in REPORT_FORMATS[:-1])} and .{REPORT_FORMATS[-1]}"
        raise Refused(Reason.NOT_FOUND, f"report {preview(f'{name}.{suffix}')} does not exist. Formats: {formats}.")
    return await answer_rows(request, key, RowsRequest(name, name, Format(suffix), depends_on_clock(name)))


def _list(reader: Reader) -> list[dict[str, Any]]:
    return [asdict(report) for report in all_reports(reader)]


ROUTES = [
    Route(PATH, list_reports),
    Route(f"{PATH}/{{name}}", show_report),
    Route(f"{PATH}/{{name}}/schema", show_schema),
]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [
        Operation(
            "get",
            PATH,
            "listReports",
            "List all reports with their questions, grains and columns",
            (200, "The reports.", {"application/json": array(ref("Report"))}),
            (*ACCESS, Reason.BAD_PARAMETER),
            READERS,
        ),
        Operation(
            "get",
            f"{PATH}/{{name}}",
            "readReport",
            "Read the rows of a report in the reader's scope, as JSON or with a suffix as CSV, Parquet or Arrow",
            (200, "The rows.", rows_content(REPORT_FORMATS)),
            (*SPOOLED, Reason.NOT_FOUND),
            READERS,
            parameters=[_name(REPORT_FORMATS), *report_parameters(), *page_parameters(), if_none_match()],
            headers=PAGED_HEADERS,
            others=NOT_MODIFIED,
        ),
        Operation(
            "get",
            f"{PATH}/{{name}}/schema",
            "describeReport",
            "Read the description of a report, with the JSON Schema of its rows",
            (200, "The report.", {"application/json": ref("ReportSchema")}),
            (*ACCESS, Reason.BAD_PARAMETER, Reason.NOT_FOUND),
            READERS,
            parameters=[_name(())],
        ),
    ]


def _name(formats: Sequence[Format]) -> Schema:
    suffix = rf"(\.({'|'.join(formats)}))?" if formats else ""
    pattern = {"type": "string", "pattern": f"^({'|'.join(report_names())}){suffix}$"}
    return parameter("name", pattern, "The report, and optionally the format of its rows.", location="path")
