"""Downloads: raw events, the reports of a period as a ZIP file, and the snapshot."""

import os
from contextlib import ExitStack
from functools import partial
from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, Unavailable, preview
from embedsink.http.audit_entries import record_export, record_file_export
from embedsink.http.authentication import check_unlimited, require_key
from embedsink.http.etag import EtagCheck, is_not_modified
from embedsink.http.execute import cancel_on_disconnect, run_short_query
from embedsink.http.openapi.errors import AUDIT_REASONS, SCOPE_REASONS, SPOOL_REASONS
from embedsink.http.openapi.operation import NOT_MODIFIED, READERS, WEAK_ETAG, Operation, Success
from embedsink.http.openapi.parameters import (
    directory_parameters,
    if_none_match,
    page_parameters,
    parameter,
    report_parameters,
)
from embedsink.http.openapi.parts import TEXT
from embedsink.http.problems import unsatisfiable_range_response
from embedsink.http.query_params import CSV_PARAMETERS, check_parameters, parse_csv_options, parse_report_scope
from embedsink.http.ranges import Unsatisfiable, is_range_requested
from embedsink.http.report_response import (
    DELETED_HEADERS,
    PAGED_HEADERS,
    RowsRequest,
    answer_rows,
    file_stem,
    rows_content,
)
from embedsink.http.security_headers import NO_CACHE
from embedsink.http.spool import spool_query
from embedsink.http.streaming import FileDownload, download_response
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENT_VIEW
from embedsink.reports.directory import had_directory
from embedsink.reports.format import Format
from embedsink.reports.scope import DIRECTORY_PARAMETERS, PARAMETERS
from embedsink.reports.zip_export import write_summary
from embedsink.settings import Settings
from embedsink.store.reader import Reader

EVENT_FORMATS = (Format.CSV, Format.NDJSON, Format.PARQUET)
# DuckDB has no registered media type.
SNAPSHOT_MEDIA_TYPE = "application/vnd.duckdb"


async def show_events(request: Request) -> Response:
    """Answer with raw events in the reader's scope."""
    key = require_key(request, KeyKind.READ)
    suffix = request.path_params["suffix"]
    if suffix not in EVENT_FORMATS:
        formats = "Formats: .csv, .ndjson and .parquet."
        raise Refused(Reason.NOT_FOUND, f"{preview(f'events.{suffix}')} does not exist. {formats}")
    return await answer_rows(request, key, RowsRequest("events", view=EVENT_VIEW, format=Format(suffix)))


async def show_summary(request: Request) -> Response:
    """Answer with a ZIP file of all reports for a period as CSV, read in one transaction."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *DIRECTORY_PARAMETERS, *CSV_PARAMETERS))
    # In a thread: checking a `timezone` loads the list of all time zones once, and compares a misspelt one with all.
    scope = await run_in_threadpool(parse_report_scope, query, request.state.engine.privacy.stored_scope(key.scope))
    csv_options = parse_csv_options(query)
    etag = EtagCheck.of(request, key, depends_on_clock=True, depends_on_directory=True)  # A period such as 7d ends now.
    if etag.is_not_modified:
        return etag.not_modified_response(NO_CACHE)

    def write(reader: Reader, file: IO[bytes]) -> None:
        write_summary(reader, scope, file, csv=csv_options)

    engine: Engine = request.state.engine
    # `spool_query` also returns the result of `write`, which returns nothing.
    file, _ = await cancel_on_disconnect(
        request, spool_query(engine, partial(engine.store.reader, scope.variables()), write, key_id=key.key_id)
    )
    await record_file_export(request, key, "summary.zip", file)
    name = f"{file_stem('summary', scope)}.zip"
    return download_response(request, key, file, etag, media_type="application/zip", file_name=name)


async def show_snapshot(request: Request) -> Response:
    """Answer with the snapshot. The key must have no scope, because the snapshot contains everything, even names."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, allowed=())
    check_unlimited(key, "analytics.duckdb: contains all deployments and tenants")
    engine: Engine = request.state.engine
    if not key.shows_names and await run_short_query(engine, key, had_directory, scope=key.scope):
        detail = "analytics.duckdb: can contain the names of people in the directory. Use a read key with names."
        raise Refused(Reason.OUT_OF_SCOPE, detail)
    try:
        descriptor = os.open(engine.folder.snapshot, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Unavailable(
            Reason.NOT_READY, "analytics.duckdb: does not exist yet. Retry in a few seconds.", retry_after_s=5
        ) from None
    return await _snapshot_response(request, key, descriptor)


async def _snapshot_response(request: Request, key: Key, descriptor: int) -> Response:
    """Return a 200 with the file, a 206 with a range, a 304 or a 416 (RFC 9110).

    A 304 and a 416 close the descriptor at once. A download closes the descriptor at its end.
    """
    engine: Engine = request.state.engine
    file_status = os.fstat(descriptor)
    # A strong tag: each snapshot is a new file, which is written completely and then renamed.
    etag = f'"{file_status.st_ino:x}-{file_status.st_mtime_ns:x}-{file_status.st_size:x}"'
    headers = NO_CACHE | {"ETag": etag}
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if is_not_modified(request, etag):
            return Response(status_code=304, headers=headers)
        try:
            is_range = is_range_requested(request, etag=etag, size=file_status.st_size)
        except Unsatisfiable:
            return unsatisfiable_range_response(request, file_status.st_size)
        await record_export(request, key, engine.folder.snapshot.name, byte_count=file_status.st_size)
        stack.pop_all()  # The download closes the descriptor.
    return FileDownload(
        descriptor,
        partial(request.state.credentials.is_live, key),
        slot=engine.limiters.snapshots.slot(key.key_id),
        honors_range=is_range,
        filename=engine.folder.snapshot.name,
        media_type=SNAPSHOT_MEDIA_TYPE,
        headers=headers,
    )


ROUTES = [
    Route("/api/v1/summary.zip", show_summary),
    Route("/api/v1/events.{suffix}", show_events),
    Route("/api/v1/analytics.duckdb", show_snapshot),
]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [_summary_operation(), _events_operation(), _snapshot_operation()]


def _summary_operation() -> Operation:
    return Operation(
        method="get",
        path="/api/v1/summary.zip",
        id="readSummary",
        summary="Download all reports for a period as CSV files with a manifest, read in one transaction",
        success=Success(200, "The ZIP file.", {"application/zip": {}}),
        error_reasons=(*SPOOL_REASONS, Reason.STORAGE_FAILED),
        key_kinds=READERS,
        parameters=[*report_parameters(), *directory_parameters(), if_none_match()],
        response_headers=WEAK_ETAG,
        other_statuses=NOT_MODIFIED,
    )


def _events_operation() -> Operation:
    suffix = parameter("suffix", {"enum": list(EVENT_FORMATS)}, "The format of the rows.", location="path")
    return Operation(
        method="get",
        path="/api/v1/events.{suffix}",
        id="readEvents",
        summary="Read raw events in the reader's scope as rows. To move events between servers, use `embedsink export`",
        success=Success(200, "The events.", rows_content(EVENT_FORMATS)),
        error_reasons=(*SPOOL_REASONS, Reason.STORAGE_FAILED, Reason.NOT_FOUND),
        key_kinds=READERS,
        parameters=[suffix, *report_parameters(), *page_parameters(), if_none_match()],
        response_headers=PAGED_HEADERS | DELETED_HEADERS,
        other_statuses=NOT_MODIFIED,
    )


def _snapshot_operation() -> Operation:
    if_range = "The ETag of the partly downloaded file. If the file has changed, the response is the whole file."
    return Operation(
        method="get",
        path="/api/v1/analytics.duckdb",
        id="readSnapshot",
        summary="Download the snapshot of all deployments, for notebooks. The key must have no scope",
        success=Success(200, "A DuckDB database.", {SNAPSHOT_MEDIA_TYPE: {}}),
        error_reasons=(*SCOPE_REASONS, *AUDIT_REASONS, Reason.BAD_RANGE, Reason.OVERLOADED),
        key_kinds=READERS,
        parameters=[
            parameter("Range", TEXT, "One range of bytes (RFC 9110, section 14.2).", location="header"),
            parameter("If-Range", TEXT, if_range, location="header"),
            if_none_match(),
        ],
        response_headers={"ETag": "Strong. Send it in If-None-Match or If-Range."},
        other_statuses={206: "The range.", 304: "No newer snapshot was published."},
    )
