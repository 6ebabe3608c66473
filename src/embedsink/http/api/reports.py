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
from embedsink.http.openapi.errors import ACCESS_REASONS, SPOOL_REASONS
from embedsink.http.openapi.operation import NOT_MODIFIED, READERS, Operation, Success
from embedsink.http.openapi.parameters import (
    directory_parameters,
    if_none_match,
    page_parameters,
    parameter,
    report_parameters,
)
from embedsink.http.openapi.parts import Schema, array, ref
from embedsink.http.query_params import check_parameters
from embedsink.http.report_response import (
    DELETED_HEADERS,
    PAGED_HEADERS,
    TOTALS_HEADERS,
    RowsRequest,
    answer_rows,
    rows_content,
)
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import (
    all_reports,
    check_report_name,
    depends_on_clock,
    depends_on_directory,
    describe_report,
    report_names,
)
from embedsink.reports.format import REPORT_FORMATS, Format
from embedsink.settings import Settings
from embedsink.store.reader import Reader

PATH = "/api/v1/reports"


async def list_reports(request: Request) -> Response:
    """Answer with all reports: the question, the grain and the columns of each."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, allowed=())
    return JSONResponse(await run_short_query(request.state.engine, key, _read_reports), headers=NO_CACHE)


async def show_schema(request: Request) -> Response:
    """Answer with the description of a report, and the JSON Schema of its rows."""
    key = require_key(request, KeyKind.READ)
    name = check_report_name(request.path_params["name"])
    check_parameters(request.query_params, allowed=())
    description = await run_short_query(request.state.engine, key, partial(describe_report, name=name))
    return JSONResponse(description, headers=NO_CACHE)


async def show_report(request: Request) -> Response:
    """Answer with the rows of a report, in the reader's scope. A name without a suffix means JSON."""
    key = require_key(request, KeyKind.READ)
    name, dot, suffix = request.path_params["name"].partition(".")
    name = check_report_name(name)
    if not dot:
        suffix = Format.JSON
    if suffix not in REPORT_FORMATS:
        formats = ", ".join(f".{format}" for format in REPORT_FORMATS)
        raise Refused(Reason.NOT_FOUND, f"report {preview(f'{name}.{suffix}')} does not exist. Formats: {formats}.")
    rows = RowsRequest(
        name,
        view=name,
        format=Format(suffix),
        depends_on_clock=depends_on_clock(name),
        depends_on_directory=depends_on_directory(name),
    )
    return await answer_rows(request, key, rows)


def _read_reports(reader: Reader) -> list[dict[str, Any]]:
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
            method="get",
            path=PATH,
            id="listReports",
            summary="List all reports with their questions, grains and columns",
            success=Success(200, "The reports.", {"application/json": array(ref("Report"))}),
            error_reasons=ACCESS_REASONS,
            key_kinds=READERS,
        ),
        Operation(
            method="get",
            path=f"{PATH}/{{name}}",
            id="readReport",
            summary=(
                "Read the rows of a report in the reader's scope as JSON, or with a suffix as CSV, Parquet or Arrow"
            ),
            success=Success(200, "The rows.", rows_content(REPORT_FORMATS)),
            error_reasons=(*SPOOL_REASONS, Reason.STORAGE_FAILED, Reason.NOT_FOUND),
            key_kinds=READERS,
            parameters=[
                _name_parameter(REPORT_FORMATS),
                *report_parameters(),
                *directory_parameters(),
                *page_parameters(),
                if_none_match(),
            ],
            response_headers=PAGED_HEADERS | TOTALS_HEADERS | DELETED_HEADERS,
            other_statuses=NOT_MODIFIED,
        ),
        Operation(
            method="get",
            path=f"{PATH}/{{name}}/schema",
            id="describeReport",
            summary="Read the description of a report, with the JSON Schema of its rows",
            success=Success(200, "The report.", {"application/json": ref("ReportSchema")}),
            error_reasons=(*ACCESS_REASONS, Reason.NOT_FOUND),
            key_kinds=READERS,
            parameters=[_name_parameter(formats=())],
        ),
    ]


def _name_parameter(formats: Sequence[Format]) -> Schema:
    """Return the OpenAPI parameter `name`: the name of a report, which may have one of these formats as a suffix."""
    suffix = rf"(\.({'|'.join(formats)}))?" if formats else ""
    schema = {"type": "string", "pattern": f"^({'|'.join(report_names())}){suffix}$"}
    description = "The report, and optionally the format of its rows." if formats else "The report."
    return parameter("name", schema, description, location="path")
