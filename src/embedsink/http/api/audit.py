"""`/api/v1/audit`: the entries of the audit trail, for admins without a scope (docs/audit.md)."""

from functools import partial
from typing import IO, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.audit.entry import Action
from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.http.audit_entries import record_file_export
from embedsink.http.authentication import check_unlimited, require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.openapi.errors import SCOPE_REASONS, SPOOL_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import SWITCH, limit_parameter, parameter
from embedsink.http.openapi.parts import TEXT, Schema, ref
from embedsink.http.query_params import CSV_PARAMETERS, check_parameters, parse_bounded_integer, parse_csv_options
from embedsink.http.report_response import MEDIA_TYPES, rows_content
from embedsink.http.security_headers import NO_STORE
from embedsink.http.spool import spool_query
from embedsink.http.streaming import download_response
from embedsink.reasons import Reason
from embedsink.reports.audit_entries import (
    EXPORT,
    EXPORT_FORMATS,
    PARAMETERS,
    AuditCursor,
    AuditFilter,
    newest_entries,
)
from embedsink.reports.format import Format
from embedsink.reports.format_writers import write_rows
from embedsink.settings import Settings
from embedsink.store.audit_reader import open_audit_reader
from embedsink.store.reader import Reader

PATH = "/api/v1/audit"
CONTENT = "audit: contains the entries of all deployments and tenants"
EXPORT_PATH = f"{PATH}.{{suffix}}"
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000


async def list_entries(request: Request) -> Response:
    """Answer with a page of entries, the newest first."""
    key = _require_admin(request)
    query = request.query_params
    check_parameters(query, (*PARAMETERS, "limit", "cursor"))
    limit = parse_bounded_integer("limit", query.get("limit"), default=LIMIT_DEFAULT, maximum=LIMIT_MAX)
    selected = AuditFilter.parse({name: query.get(name) for name in PARAMETERS})
    cursor = AuditCursor.parse(query.get("cursor"))
    rows, next_cursor = await read_entries(request, key, selected, limit=limit, cursor=cursor)
    content = {
        "entries": [_entry_json(row) for row in rows],
        "nextCursor": str(next_cursor) if next_cursor is not None else None,
    }
    body = orjson.dumps(content, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    return Response(body, media_type="application/json", headers=NO_STORE)


async def export_entries(request: Request) -> Response:
    """Answer with all entries as a file, in the order of the trail."""
    key = _require_admin(request)
    suffix = request.path_params["suffix"]
    if suffix not in EXPORT_FORMATS:
        raise Refused(Reason.NOT_FOUND, f"{preview(f'audit.{suffix}')} does not exist. Formats: .csv and .ndjson.")
    query = request.query_params
    check_parameters(query, (*PARAMETERS, *CSV_PARAMETERS))
    selected = AuditFilter.parse({name: query.get(name) for name in PARAMETERS})
    csv_options = parse_csv_options(query)
    engine: Engine = request.state.engine

    def write(reader: Reader, file: IO[bytes]) -> None:
        write_rows(reader, EXPORT, file, Format(suffix), csv=csv_options)

    files = selected.files(engine.folder.audit)
    open_reader = partial(open_audit_reader, files, selected.variables())
    file, _ = await cancel_on_disconnect(request, spool_query(engine, open_reader, write, key_id=key.key_id))
    name = f"audit.{suffix}"
    await record_file_export(request, key, name, file)
    return download_response(
        request, key, file, headers=NO_STORE, media_type=MEDIA_TYPES[Format(suffix)], file_name=name
    )


async def read_entries(
    request: Request, key: Key, selected: AuditFilter, *, limit: int, cursor: AuditCursor | None
) -> tuple[list[dict[str, Any]], AuditCursor | None]:
    """Return a page of entries for an admin, and the cursor of the next page.

    Raises:
        Unavailable: too many queries wait, or the query exceeds the time limit (`overloaded`).
    """
    engine: Engine = request.state.engine
    files = selected.files(engine.folder.audit)
    return await cancel_on_disconnect(
        request,
        run_query(
            engine,
            engine.limiters.reports.slot(key.key_id),
            partial(open_audit_reader, files, selected.variables()),
            partial(newest_entries, files=files, limit=limit, cursor=cursor),
        ),
    )


def _require_admin(request: Request) -> Key:
    """Return the key of an admin without a scope. Raise Refused for any other key."""
    key = require_key(request, KeyKind.ADMIN)
    check_unlimited(key, CONTENT)
    return key


def _entry_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return an entry for a response."""
    return {
        "number": row["number"],
        "recordedAt": row["recorded_at"],
        "action": row["action"],
        "actor": row["actor"],
        "actorLabel": row["actor_label"],
        "via": row["via"],
        "clientAddress": row["client_address"],
        "target": row["target"],
        "outcome": row["outcome"],
        "count": row["action_count"],
        "detail": orjson.Fragment(row["detail"] or "{}"),
    }


ROUTES = [Route(PATH, list_entries), Route(EXPORT_PATH, export_entries)]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    limit = limit_parameter("The maximum number of entries.", LIMIT_DEFAULT, LIMIT_MAX)
    cursor = parameter("cursor", TEXT, "The `nextCursor` of the previous page. Leave it out for the first page.")
    suffix = parameter("suffix", {"enum": list(EXPORT_FORMATS)}, "The format of the entries.", location="path")
    guard = parameter("guard", SWITCH, "CSV: whether to escape text that looks like a formula. Default: on.")
    bom = parameter("bom", SWITCH, "CSV: whether to begin with a byte-order mark. Default: off.")
    return [
        Operation(
            method="get",
            path=PATH,
            id="listAuditEntries",
            summary="List the entries of the audit trail, the newest first. The key must have no scope",
            success=Success(200, "A page of entries.", {"application/json": ref("AuditEntries")}),
            error_reasons=(*SCOPE_REASONS, Reason.OVERLOADED),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[*filter_parameters(), limit, cursor],
        ),
        Operation(
            method="get",
            path=EXPORT_PATH,
            id="exportAuditEntries",
            summary="Download the audit trail, the oldest entry first. The key must have no scope",
            success=Success(200, "The entries.", rows_content(EXPORT_FORMATS)),
            error_reasons=(*SPOOL_REASONS, Reason.STORAGE_FAILED, Reason.NOT_FOUND),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[suffix, *filter_parameters(), guard, bom],
        ),
    ]


def filter_parameters() -> list[Schema]:
    """Return the parameters that filter entries."""
    instant = "A date, an ISO 8601 time, or a time span before now such as 7d."
    return [
        parameter("since", TEXT, f"The start of the period, inclusive. {instant}"),
        parameter("until", TEXT, f"The end of the period, exclusive. {instant}"),
        parameter("action", {"enum": list(Action)}, "Only this action."),
        parameter("actor", TEXT, "Only the actor with this id or label."),
    ]
