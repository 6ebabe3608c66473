"""`/api/v1/reports`: which there are, what one row of each is, and their rows."""

from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.auth.key import KeyKind
from embedsink.errors import Refused, quote
from embedsink.http.authentication import require_key
from embedsink.http.execute import run_short_query
from embedsink.http.query_params import check_parameters
from embedsink.http.report_response import RowsRequest, answer_rows
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import all_reports, describe, is_timed, known_name
from embedsink.reports.format import REPORT_FORMATS, Format
from embedsink.store.reader import Reader


async def list_reports(request: Request) -> Response:
    """Every report with its question, its grain and its columns."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, ())
    return JSONResponse(await run_short_query(request.state.engine, key, _list), headers=NO_CACHE)


async def show_schema(request: Request) -> Response:
    """One report with its question, its grain and its columns, and a row of it as JSON Schema."""
    key = require_key(request, KeyKind.READ)
    name = known_name(request.path_params["name"])
    check_parameters(request.query_params, ())
    described = await run_short_query(request.state.engine, key, partial(describe, name=name))
    return JSONResponse(described, headers=NO_CACHE)


async def show_report(request: Request) -> Response:
    """The rows of a report, in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    name, _, suffix = request.path_params["name"].partition(".")
    name, suffix = known_name(name), suffix or Format.JSON
    if suffix not in REPORT_FORMATS:
        there_are = f"{', '.join(f'.{format}' for format in REPORT_FORMATS[:-1])} and .{REPORT_FORMATS[-1]}"
        raise Refused(Reason.NOT_FOUND, f"report {quote(f'{name}.{suffix}')} does not exist. There are {there_are}.")
    return await answer_rows(request, key, RowsRequest(name, name, Format(suffix), is_timed(name)))


def _list(reader: Reader) -> list[dict[str, Any]]:
    return [asdict(report) for report in all_reports(reader)]
