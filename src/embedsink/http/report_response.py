"""Rows of a view as an answer: parameters, whether the reader has them already, a page of them, in their format."""

from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.keys import Key
from embedsink.engine import Engine
from embedsink.http.etag import EtagCheck
from embedsink.http.execute import ask_briefly, while_awaited
from embedsink.http.query_params import ROWS, STYLE, check_parameters, rows_of, scope_of, style_of
from embedsink.http.security_headers import ASKED_ABOUT
from embedsink.http.streaming import Spooled, download, spooled
from embedsink.reports.format import Format
from embedsink.reports.formats import write_rows
from embedsink.reports.pagination import Cursor, PageRequest
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
class Question:
    """What is asked for: the name in the file's name, the view behind it, and whether it looks at the clock."""

    name: str
    view: str
    format: Format
    is_timed: bool = False


async def answer_rows(request: Request, key: Key, question: Question) -> Response:
    """The rows, whole or a page of them; 304 where the reader has them."""
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *STYLE, *ROWS))
    scope = await run_in_threadpool(scope_of, query, key)
    engine: Engine = request.state.engine
    asked = rows_of(query, question.name, None if key.deployments is None else engine.opaque_numbers)
    style = style_of(query)
    freshness = EtagCheck.of(request, key, is_timed=question.is_timed or scope.is_relative)
    if freshness.is_known:
        # Whoever says `*` has not been answered before: a wrong column is told, and not taken for an unchanged answer.
        if asked.is_partial:
            await ask_briefly(engine, key, partial(asked.check, view=question.view))
        return freshness.not_modified(ASKED_ABOUT)

    def write(reader: Reader, file: Spooled) -> Cursor | None:
        selection, following = asked.select(reader, question.view)
        write_rows(reader, selection, file, question.format, csv=style, scratch=file.scratch)
        return following

    file, following = await while_awaited(request, spooled(engine, scope.variables(), write, key_id=key.key_id))
    return download(
        request,
        key,
        file,
        freshness,
        media_type=MEDIA_TYPES[question.format],
        file_name=None if question.format is Format.JSON else f"{file_stem(question.name, scope)}.{question.format}",
        headers=_onward(request, following, asked),
    )


def file_stem(name: str, scope: Scope) -> str:
    """The name of a file to save: what it is, and its period by the reader's clocks."""
    period = [scope.local(moment).strftime("%Y-%m-%d") for moment in (scope.since, scope.until) if moment]
    return "_".join([name, *period])


def _onward(request: Request, following: Cursor | None, asked: PageRequest) -> dict[str, str]:
    """Where the next page is (RFC 8288)."""
    if following is None:
        return {}
    cursor = following.encode(asked.query, asked.opaque)
    same = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {
        "Link": f'<{request.url.path}?{urlencode([*same, ("cursor", cursor)])}>; rel="next"',
        "X-Next-Cursor": cursor,
    }
