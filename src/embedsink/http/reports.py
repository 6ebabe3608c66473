"""`/api/v1/reports`: the list of reports, and the rows of one as JSON or CSV, streamed."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from functools import partial
from tempfile import SpooledTemporaryFile

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Send

from embedsink.errors import Refused, quote
from embedsink.http.access import require_key
from embedsink.http.parameters import check_parameters
from embedsink.keys import Key, KeyKind
from embedsink.reasons import Reason
from embedsink.reports import (
    PARAMETERS,
    Report,
    Scope,
    all_reports,
    csv_chunks,
    json_chunks,
    known_name,
    parse_scope,
)
from embedsink.sink import Sink
from embedsink.store import EVERYTHING

FORMATS = {"json": "application/json", "csv": "text/csv; charset=utf-8; header=present"}
CHUNK_BYTES = 65_536
SPOOLED_BYTES_MAX = 1_048_576
_HEADERS = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}


async def list_reports(request: Request) -> Response:
    """Every report with its question, its grain and its columns."""
    require_key(request, KeyKind.READ)
    sink: Sink = request.state.sink
    reports = await run_in_threadpool(_list, sink)
    return JSONResponse([asdict(report) for report in reports], headers=_HEADERS)


async def show_report(request: Request) -> Response:
    """The rows of a report, in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    name, _, suffix = request.path_params["name"].partition(".")
    name, suffix = known_name(name), suffix or "json"
    if suffix not in FORMATS:
        raise Refused(Reason.NOT_FOUND, f"report {name}.{suffix[:16]} does not exist. There are .json and .csv.")
    scope, guard = _scope_of(request, key), _guard_of(request, suffix)
    sink: Sink = request.state.sink
    async with sink.report_slots:
        spooled = await run_in_threadpool(_spool, sink, scope, name, suffix, guard)
    headers = dict(_HEADERS)
    if suffix == "csv":
        headers["Content-Disposition"] = f'attachment; filename="{_file_name(name, scope)}.csv"'
    return Download(_chunks(spooled), partial(sink.keys.is_live, key), media_type=FORMATS[suffix], headers=headers)


def _spool(sink: Sink, scope: Scope, name: str, suffix: str, guard: bool) -> SpooledTemporaryFile[bytes]:
    """The report, in memory or in a file without a name: a slow reader must not hold a transaction of the store."""
    spooled = SpooledTemporaryFile(SPOOLED_BYTES_MAX, dir=str(sink.folder.path))  # noqa: SIM115  the stream closes it
    try:
        with sink.store.reader(scope.variables()) as reader:
            for chunk in csv_chunks(reader, name, guard=guard) if suffix == "csv" else json_chunks(reader, name):
                spooled.write(chunk)
    except BaseException:
        spooled.close()
        raise
    spooled.seek(0)
    return spooled


async def _chunks(spooled: SpooledTemporaryFile[bytes]) -> AsyncGenerator[bytes]:
    with spooled:
        while chunk := await run_in_threadpool(spooled.read, CHUNK_BYTES):
            yield chunk


class _Revoked(Exception):
    """The key that a download began with holds no more."""


class Download(StreamingResponse):
    """A stream that is cut when its key is revoked."""

    def __init__(self, content: AsyncGenerator[bytes], may_go_on: Callable[[], bool], **options: object) -> None:
        super().__init__(content, **options)  # type: ignore[arg-type]
        self._content = content
        self._may_go_on = may_go_on

    async def stream_response(self, send: Send) -> None:
        async def send_while_allowed(message: Message) -> None:
            if not self._may_go_on():
                raise _Revoked
            await send(message)

        try:
            await super().stream_response(send_while_allowed)
        except _Revoked:
            return  # uvicorn closes the connection of an answer that is not whole
        finally:
            await self._content.aclose()


def _list(sink: Sink) -> list[Report]:
    with sink.store.reader(EVERYTHING) as reader:
        return all_reports(reader)


def _scope_of(request: Request, key: Key) -> Scope:
    query = request.query_params
    check_parameters(query, (*PARAMETERS, "guard"))
    asked = {name: query.get(name) for name in PARAMETERS}
    return parse_scope(asked, deployments=query.getlist("deployment"), allowed=key.deployments)


def _guard_of(request: Request, suffix: str) -> bool:
    guard = request.query_params.get("guard", "on")
    if guard not in ("on", "off"):
        raise Refused(Reason.BAD_PARAMETER, f"guard: {quote(guard)} is not one of on, off.")
    return guard == "on" and suffix == "csv"


def _file_name(name: str, scope: Scope) -> str:
    period = [moment.strftime("%Y-%m-%d") for moment in (scope.since, scope.until) if moment]
    return "_".join([name, *period])
