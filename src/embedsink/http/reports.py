"""`/api/v1/reports`: which there are, what one row of each is, and their rows."""

from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.errors import Refused, quote
from embedsink.http.access import require_key
from embedsink.http.headers import ASKED_ABOUT
from embedsink.http.parameters import check_parameters
from embedsink.http.rows import Question, answer_rows
from embedsink.keys import KeyKind
from embedsink.reasons import Reason
from embedsink.reports import REPORT_FORMATS, Format, all_reports, describe, is_timed, known_name
from embedsink.sink import Sink
from embedsink.store import EVERYTHING


async def list_reports(request: Request) -> Response:
    """Every report with its question, its grain and its columns."""
    require_key(request, KeyKind.READ)
    check_parameters(request.query_params, ())
    return JSONResponse(await run_in_threadpool(_list, request.state.sink), headers=ASKED_ABOUT)


async def show_schema(request: Request) -> Response:
    """One report with its question, its grain and its columns, and a row of it as JSON Schema."""
    require_key(request, KeyKind.READ)
    name = known_name(request.path_params["name"])
    check_parameters(request.query_params, ())
    return JSONResponse(await run_in_threadpool(_schema, request.state.sink, name), headers=ASKED_ABOUT)


async def show_report(request: Request) -> Response:
    """The rows of a report, in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    name, _, suffix = request.path_params["name"].partition(".")
    name, suffix = known_name(name), suffix or Format.JSON
    if suffix not in REPORT_FORMATS:
        there_are = f"{', '.join(f'.{format}' for format in REPORT_FORMATS[:-1])} and .{REPORT_FORMATS[-1]}"
        raise Refused(Reason.NOT_FOUND, f"report {quote(f'{name}.{suffix}')} does not exist. There are {there_are}.")
    return await answer_rows(request, key, Question(name, name, Format(suffix), is_timed(name)))


def _list(sink: Sink) -> list[dict[str, Any]]:
    with sink.store.reader(EVERYTHING, is_brief=True) as reader:
        return [asdict(report) for report in all_reports(reader)]


def _schema(sink: Sink, name: str) -> dict[str, Any]:
    with sink.store.reader(EVERYTHING, is_brief=True) as reader:
        return describe(reader, name)
