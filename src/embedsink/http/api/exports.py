"""What is taken away as files: raw events, the period in one ZIP, and the snapshot."""

import os
from contextlib import ExitStack
from functools import partial
from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, Unavailable, quote
from embedsink.http.authentication import require_key
from embedsink.http.etag import EtagCheck, is_known
from embedsink.http.execute import cancel_on_disconnect
from embedsink.http.problems import unsatisfiable_range_response
from embedsink.http.query_params import CSV_PARAMETERS, check_parameters, parse_csv_style, parse_report_scope
from embedsink.http.ranges import Unsatisfiable, is_range_requested
from embedsink.http.report_response import RowsRequest, answer_rows, file_stem
from embedsink.http.security_headers import NO_CACHE
from embedsink.http.streaming import FileDownload, download, spool_query
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENTS
from embedsink.reports.format import Format
from embedsink.reports.scope import PARAMETERS
from embedsink.reports.zip_export import write_summary
from embedsink.store.reader import Reader

EVENT_FORMATS = (Format.CSV, Format.NDJSON, Format.PARQUET)
# Which database file it is stands in its first bytes; there is no registered type.
SNAPSHOT_MEDIA_TYPE = "application/vnd.duckdb"


async def show_events(request: Request) -> Response:
    """Raw events in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    suffix = request.path_params["suffix"]
    if suffix not in EVENT_FORMATS:
        there_are = "There are .csv, .ndjson and .parquet."
        raise Refused(Reason.NOT_FOUND, f"{quote(f'events.{suffix}')} does not exist. {there_are}")
    return await answer_rows(request, key, RowsRequest("events", EVENTS, Format(suffix)))


async def show_summary(request: Request) -> Response:
    """Every report for a period as CSV, all of one moment, in one ZIP."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *CSV_PARAMETERS))
    scope, style = await run_in_threadpool(parse_report_scope, query, key), parse_csv_style(query)
    etag = EtagCheck.of(request, key, is_timed=True)
    if etag.is_known:
        return etag.not_modified(NO_CACHE)

    def write(reader: Reader, file: IO[bytes]) -> None:
        write_summary(reader, scope, file, style=style)

    file, _ = await cancel_on_disconnect(
        request, spool_query(request.state.engine, scope.variables(), write, key_id=key.key_id)
    )
    name = f"{file_stem('summary', scope)}.zip"
    return download(request, key, file, etag, media_type="application/zip", file_name=name)


async def show_snapshot(request: Request) -> Response:
    """The whole snapshot, every deployment in it: only for a key for all of them."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, ())
    if key.deployments is not None:
        raise Refused(Reason.OUT_OF_SCOPE, "analytics.duckdb: holds every deployment. Use a read key without a scope.")
    engine: Engine = request.state.engine
    try:
        descriptor = os.open(engine.folder.snapshot, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Unavailable(
            Reason.NOT_READY, "analytics.duckdb: does not exist yet. Ask again in some seconds.", retry_after_s=5
        ) from None
    return _snapshot_of(request, key, descriptor)


def _snapshot_of(request: Request, key: Key, descriptor: int) -> Response:
    engine: Engine = request.state.engine
    status = os.fstat(descriptor)
    # Strong: a snapshot is a file of its own, written whole and then renamed.
    headers = NO_CACHE | {"ETag": f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'}
    with ExitStack() as held:
        held.callback(os.close, descriptor)
        if is_known(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        try:
            is_part = is_range_requested(request, tag=headers["ETag"], size=status.st_size)
        except Unsatisfiable:
            return unsatisfiable_range_response(request, status.st_size)
        held.pop_all()  # The download closes it.
    return FileDownload(
        descriptor,
        partial(engine.keys.is_live, key),
        place=engine.snapshot_slots.place(key.key_id),
        is_part=is_part,
        filename=engine.folder.snapshot.name,
        media_type=SNAPSHOT_MEDIA_TYPE,
        headers=headers,
    )
