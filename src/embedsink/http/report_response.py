"""Responses with the rows of a view: parameters, entity tag, page and format."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.keys import Key
from embedsink.engine import Engine
from embedsink.http.audit_entries import record_file_export
from embedsink.http.etag import EtagCheck
from embedsink.http.execute import cancel_on_disconnect, run_short_query
from embedsink.http.openapi.operation import WEAK_ETAG
from embedsink.http.openapi.parts import TEXT, Schema, array
from embedsink.http.query_params import (
    CSV_PARAMETERS,
    PAGE_PARAMETERS,
    check_parameters,
    parse_csv_options,
    parse_page,
    parse_report_scope,
)
from embedsink.http.security_headers import NO_CACHE
from embedsink.http.spool import SpoolFile, spool_query
from embedsink.http.streaming import download_response
from embedsink.reports.catalog import read_day_marks, view_of
from embedsink.reports.day_marks import DELETED_HEADER, TOTALS_HEADER, DayMarks
from embedsink.reports.format import Format
from embedsink.reports.format_writers import write_rows
from embedsink.reports.pagination import Cursor, PageRequest
from embedsink.reports.scope import DIRECTORY_PARAMETERS, PARAMETERS, Scope
from embedsink.store.reader import Reader

MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.CSV: "text/csv; charset=utf-8; header=present",
    Format.NDJSON: "application/x-ndjson",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}
# The response headers of rows, for the API description.
PAGED_HEADERS = WEAK_ETAG | {
    "Link": 'The next page (RFC 8288, rel="next").',
    "X-Next-Cursor": "The cursor of the next page.",
}
DELETED_HEADERS = {
    DELETED_HEADER: (
        "The first and the last UTC day of the period whose events were deleted, such as `2026-08-01/2026-08-31`. Days "
        "with daily totals in the rows don't count."
    )
}
TOTALS_HEADERS = {
    TOTALS_HEADER: "The first and the last UTC day whose rows come from daily totals, such as `2026-08-01/2026-08-31`."
}


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A request for rows.

    Args:
        name: the name of the resource, also for the file name.
        view: the view to read.
        format: the format of the rows.
        depends_on_clock: whether the rows change with the current time.
        depends_on_directory: whether the rows change with the directory, even without a parameter for it.
    """

    name: str
    view: str
    format: Format
    depends_on_clock: bool = False
    depends_on_directory: bool = False


async def answer_rows(request: Request, key: Key, rows: RowsRequest) -> Response:
    """Answer with all rows, or with one page of rows; 304 if the client already has the response."""
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *DIRECTORY_PARAMETERS, *CSV_PARAMETERS, *PAGE_PARAMETERS))
    engine: Engine = request.state.engine
    # In a thread, because the data of a time zone is read from a file.
    scope = await run_in_threadpool(parse_report_scope, query, engine.privacy.stored_scope(key.scope))
    view = view_of(rows.view, scope)
    # The numbers in a cursor would reveal the activity of others, so encrypt them for a limited key.
    cipher = engine.number_cipher if key.scope.is_limited else None
    page = parse_page(query, rows.name, cipher)
    csv_options = parse_csv_options(query)
    etag = EtagCheck.of(
        request,
        key,
        depends_on_clock=rows.depends_on_clock or scope.is_relative,
        depends_on_directory=rows.depends_on_directory or scope.uses_directory,
    )
    if etag.is_not_modified:
        # A client may send `If-None-Match: *` without an earlier response, so check the requested columns nevertheless.
        if page.is_partial:
            await run_short_query(engine, key, partial(page.check, view=view))
        return etag.not_modified_response(NO_CACHE)

    def write(reader: Reader, file: SpoolFile) -> tuple[Cursor | None, DayMarks]:
        # One transaction covers both, so the headers and the rows have the same totals.
        marks = read_day_marks(reader, view)
        selection, next_cursor = page.select(reader, view)
        write_rows(reader, selection, file, rows.format, csv=csv_options, scratch=file.open_scratch)
        return next_cursor, marks

    file, (next_cursor, marks) = await cancel_on_disconnect(
        request, spool_query(engine, partial(engine.store.reader, scope.variables()), write, key_id=key.key_id)
    )
    file_name = None if rows.format is Format.JSON else f"{file_stem(rows.name, scope)}.{rows.format}"
    if rows.format is not Format.JSON:
        await record_file_export(request, key, f"{rows.name}.{rows.format}", file)
    return download_response(
        request,
        key,
        file,
        etag,
        media_type=MEDIA_TYPES[rows.format],
        file_name=file_name,
        headers=_next_page_headers(request, next_cursor, page) | marks.headers(),
    )


def file_stem(name: str, scope: Scope) -> str:
    """Return a file name without suffix, such as `views_2026-11-01_2026-11-30`. Dates are in the reader's time zone."""
    bounds = [bound for bound in (scope.since, scope.until) if bound is not None]
    dates = [scope.local_time(bound).strftime("%Y-%m-%d") for bound in bounds]
    return "_".join([name, *dates])


def rows_content(formats: Sequence[Format]) -> dict[str, Schema]:
    """Return the schema of rows by media type, for the API description."""
    # Binary formats have no schema (OpenAPI 3.1.0, section 4.8.14.3). OpenAPI 3.1 can't describe the lines of NDJSON.
    schemas = {Format.JSON: array({"type": "object"}), Format.CSV: TEXT}
    return {MEDIA_TYPES[format].partition(";")[0]: schemas.get(format, {}) for format in formats}


def _next_page_headers(request: Request, next_cursor: Cursor | None, page: PageRequest) -> dict[str, str]:
    """Return headers with the link (RFC 8288) and the cursor of the next page; none on the last page."""
    if next_cursor is None:
        return {}
    cursor = next_cursor.encode(page.query_id, page.cipher)
    other_params = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    query = urlencode([*other_params, ("cursor", cursor)])
    return {"Link": f'<{request.url.path}?{query}>; rel="next"', "X-Next-Cursor": cursor}
