"""Rows of a view as an answer: parameters, whether the reader has them already, a page of them, in their format."""

from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import Key
from embedsink.engine import Engine
from embedsink.http.etag import EtagCheck
from embedsink.http.execute import cancel_on_disconnect, run_short_query
from embedsink.http.query_params import (
    CSV_PARAMETERS,
    PAGE_PARAMETERS,
    check_parameters,
    parse_csv_style,
    parse_page,
    parse_report_scope,
)
from embedsink.http.security_headers import NO_CACHE
from embedsink.http.streaming import SpoolFile, download, spool_query
from embedsink.reports.format import Format
from embedsink.reports.formats import write_rows
from embedsink.reports.pagination import Cursor, RowsAsked
from embedsink.reports.scope import PARAMETERS, Scope
from embedsink.store.reader import Reader

MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.CSV: "text/csv; charset=utf-8; header=present",
    Format.NDJSON: "application/x-ndjson",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """What is asked for: the name in the file's name, the view behind it, and whether it looks at the clock."""

    name: str
    view: str
    format: Format
    is_timed: bool = False


async def answer_rows(request: Request, key: Key, question: RowsRequest) -> Response:
    """The rows, whole or a page of them; 304 where the reader has them."""
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *CSV_PARAMETERS, *PAGE_PARAMETERS))
    scope = await run_in_threadpool(parse_report_scope, query, key)
    engine: Engine = request.state.engine
    asked = parse_page(query, question.name, None if key.deployments is None else engine.opaque)
    style = parse_csv_style(query)
    etag = EtagCheck.of(request, key, is_timed=question.is_timed or scope.is_relative)
    if etag.is_known:
        # Whoever says `*` has not been answered before: a wrong column is told, and not taken for an unchanged answer.
        if asked.names_rows:
            await run_short_query(engine, key, partial(asked.check, view=question.view))
        return etag.not_modified(NO_CACHE)

    def write(reader: Reader, file: SpoolFile) -> Cursor | None:
        selection, following = asked.select(reader, question.view)
        write_rows(reader, selection, file, question.format, style=style, scratch=file.scratch)
        return following

    file, following = await cancel_on_disconnect(
        request, spool_query(engine, scope.variables(), write, key_id=key.key_id)
    )
    return download(
        request,
        key,
        file,
        etag,
        media_type=MEDIA_TYPES[question.format],
        file_name=None if question.format is Format.JSON else f"{file_stem(question.name, scope)}.{question.format}",
        headers=_onward(request, following, asked),
    )


def file_stem(name: str, scope: Scope) -> str:
    """The name of a file to save: what it is, and its period by the reader's clocks."""
    period = [scope.local(moment).strftime("%Y-%m-%d") for moment in (scope.since, scope.until) if moment]
    return "_".join([name, *period])


def _onward(request: Request, following: Cursor | None, asked: RowsAsked) -> dict[str, str]:
    """Where the next page is (RFC 8288)."""
    if following is None:
        return {}
    cursor = following.encode(asked.question, asked.opaque)
    same = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {
        "Link": f'<{request.url.path}?{urlencode([*same, ("cursor", cursor)])}>; rel="next"',
        "X-Next-Cursor": cursor,
    }
