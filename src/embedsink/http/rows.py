"""Rows of a view as an answer: parameters, whether the reader has them already, a page of them, in their format."""

from dataclasses import dataclass
from typing import IO
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.http.download import download, spooled
from embedsink.http.freshness import Freshness
from embedsink.http.headers import ASKED_ABOUT
from embedsink.http.parameters import ROWS, STYLE, check_parameters, rows_of, scope_of, style_of
from embedsink.http.reading import while_awaited
from embedsink.keys import Key
from embedsink.reports import PARAMETERS, Cursor, Format, RowsAsked, Scope, write_rows
from embedsink.sink import Sink
from embedsink.store import EVERYTHING, Reader

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
    style, asked = style_of(query), rows_of(query, question.name)
    freshness = Freshness.of(request, key, is_timed=question.is_timed or scope.is_relative)
    sink: Sink = request.state.sink
    if freshness.is_known:
        await run_in_threadpool(_check, sink, asked, question.view)
        return freshness.not_modified(ASKED_ABOUT)

    def write(reader: Reader, file: IO[bytes]) -> Cursor | None:
        selection, following = asked.select(reader, question.view)
        write_rows(reader, selection, file, question.format, style=style, folder=sink.folder.path)
        return following

    file, following = await while_awaited(request, spooled(sink, scope.variables(), write))
    return download(
        request,
        key,
        file,
        freshness,
        media_type=MEDIA_TYPES[question.format],
        file_name=None if question.format is Format.JSON else f"{file_stem(question.name, scope)}.{question.format}",
        headers=_onward(request, following, asked.question),
    )


def _check(sink: Sink, asked: RowsAsked, view: str) -> None:
    # Whoever says `*` has not been answered before: a wrong column is told, and not taken for an unchanged answer.
    if asked.names_rows:
        with sink.store.reader(EVERYTHING, is_brief=True) as reader:
            asked.check(reader, view)


def file_stem(name: str, scope: Scope) -> str:
    """The name of a file to save: what it is, and its period by the reader's clocks."""
    period = [scope.local(moment).strftime("%Y-%m-%d") for moment in (scope.since, scope.until) if moment]
    return "_".join([name, *period])


def _onward(request: Request, following: Cursor | None, question: str) -> dict[str, str]:
    """Where the next page is (RFC 8288)."""
    if following is None:
        return {}
    cursor = following.encode(question)
    same = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {
        "Link": f'<{request.url.path}?{urlencode([*same, ("cursor", cursor)])}>; rel="next"',
        "X-Next-Cursor": cursor,
    }
