"""`/openapi.json`: the HTTP surface as OpenAPI 3.1.0, made from the types, settings and reasons that enforce it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink import __version__
from embedsink.envelope import REJECTIONS_LISTED_MAX
from embedsink.envelope.catalog import Catalog, Delivery, catalog_for
from embedsink.http import deployments, exports, problems, quarantine, reports, syncs
from embedsink.http.rows import MEDIA_TYPES
from embedsink.keys import DEPLOYMENT_MAX, KeyKind
from embedsink.reasons import Reason
from embedsink.reports import INTERVALS, LIMIT_MAX, SURFACES, Format, report_names
from embedsink.settings import Settings
from embedsink.sink import Sink
from embedsink.web import BrowserFile, browser_files

Schema = dict[str, Any]

_ANY_REQUEST = (Reason.INTERNAL_ERROR,)
_ACCESS = (
    Reason.TWO_CREDENTIALS,
    Reason.NO_CREDENTIAL,
    Reason.BAD_CREDENTIAL,
    Reason.WRONG_KIND,
    Reason.PLAIN_HTTP,
    Reason.NOT_READY,
    *_ANY_REQUEST,
)
_INGEST = (
    *(reason for reason in _ACCESS if reason is not Reason.NOT_READY),
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.EMPTY,
    Reason.OUT_OF_SCOPE,
    Reason.WRONG_ORIGIN,
    Reason.BODY_TOO_SLOW,
    Reason.BODY_TOO_LARGE,
    Reason.TOO_MANY_EVENTS,
    Reason.MEDIA_TYPE,
    Reason.ENCODING,
    Reason.NOTHING_ACCEPTED,
    Reason.RATE_LIMITED,
    Reason.OVERLOADED,
    Reason.STORAGE_LOW,
    Reason.STORAGE_FAILED,
)
_SCOPED = (*_ACCESS, Reason.BAD_PARAMETER, Reason.OUT_OF_SCOPE)
# What is written whole before it is sent needs a place to run, and room on the disk.
_SPOOLED = (*_SCOPED, Reason.OVERLOADED, Reason.STORAGE_LOW)
_REPLAY = (*_ACCESS, Reason.OUT_OF_SCOPE, Reason.OVERLOADED, Reason.STORAGE_LOW, Reason.STORAGE_FAILED)
_SYNC = (*_ACCESS, Reason.BAD_PARAMETER, Reason.OUT_OF_SCOPE, Reason.WRONG_ORIGIN)
_RECORD = (
    *_SYNC,
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.BODY_TOO_SLOW,
    Reason.BODY_TOO_LARGE,
    Reason.MEDIA_TYPE,
    Reason.ENCODING,
    Reason.CONFLICT,
    Reason.INVALID_BODY,
    Reason.RATE_LIMITED,
    Reason.OVERLOADED,
    Reason.STORAGE_LOW,
    Reason.STORAGE_FAILED,
)
# The problems that have members of their own.
_PROBLEMS = {Reason.NOTHING_ACCEPTED: "NothingAccepted", Reason.INVALID_BODY: "InvalidBody"}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "The challenge of RFC 6750, section 3."},
    429: {"Retry-After": "Seconds to wait, jittered."},
    503: {"Retry-After": "Seconds to wait, jittered."},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `success` is its status with its content by media type; `reasons` why it may fail.

    `others` are further answers that are no failures, `headers` those of the success.
    """

    method: str
    path: str
    id: str
    summary: str
    success: tuple[int, str, dict[str, Schema]]
    reasons: Sequence[Reason] = _ANY_REQUEST
    kinds: Sequence[KeyKind] = ()
    is_key_optional: bool = False
    parameters: Sequence[Schema] = ()
    body: dict[str, Schema] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


async def describe(request: Request) -> Response:
    """The description of this server: its limits and service name are in it."""
    sink: Sink = request.state.sink
    return JSONResponse(description(sink.settings))


@lru_cache(maxsize=4)
def description(settings: Settings) -> Schema:
    """The OpenAPI document."""
    paths: dict[str, Schema] = {}
    for operation in _operations(settings):
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "embedsink",
            "version": __version__,
            "summary": "Keeps every event of embedded analytics, and answers questions about them.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _schemas(settings), "securitySchemes": _security_schemes()},
    }


def _operations(settings: Settings) -> list[Operation]:
    return [
        Operation(
            "post",
            "/api/v1/events",
            "sendEvents",
            "Make events durable: one envelope, an array of them, NDJSON or a delivery",
            (202, "Durable. Forget these events.", {"application/json": _ref("Receipt")}),
            _INGEST,
            (KeyKind.INGEST, KeyKind.ADMIN),
            is_key_optional=True,
            parameters=[_parameter("Content-Encoding", {"enum": ["gzip", "identity"]}, place="header")],
            body=_event_bodies(settings),
        ),
        Operation(
            "options",
            "/api/v1/events",
            "preflightEvents",
            "The CORS preflight; it needs no key",
            (204, "Pages of this origin may send.", {}),
            (Reason.WRONG_ORIGIN, *_ANY_REQUEST),
            parameters=[_parameter("Origin", {"type": "string"}, place="header")],
        ),
        Operation(
            "get",
            "/api/v1/reports",
            "listReports",
            "Every report with its question, its grain and its columns",
            (200, "The reports.", {"application/json": _array(_ref("Report"))}),
            _ACCESS,
            (KeyKind.READ, KeyKind.ADMIN),
        ),
        *_read_operations(),
        Operation(
            "get",
            "/api/v1/quarantine",
            "listQuarantine",
            "The newest kept rejections in the reader's scope",
            (200, "The rejections.", {"application/json": _array({"type": "object"})}),
            _SCOPED,
            (KeyKind.READ, KeyKind.ADMIN),
            parameters=[
                *_scope_parameters(),
                _limit_parameter("Most rejections in the answer.", quarantine.LIMIT_DEFAULT, quarantine.LIMIT_MAX),
                _id_parameter(),
            ],
        ),
        Operation(
            "post",
            "/api/v1/quarantine/replay",
            "replayQuarantine",
            "Try everything in quarantine again",
            (200, "How many were accepted, and how many are still wrong.", {"application/json": _ref("Replay")}),
            _REPLAY,
            (KeyKind.ADMIN,),
        ),
        Operation(
            "get",
            "/api/v1/deployments",
            "listDeployments",
            "The deployments that keys, events, actions and dbt syncs name, in the reader's scope",
            (200, "A page of them.", {"application/json": _ref("Deployments")}),
            (*_SYNC, Reason.OVERLOADED),
            (KeyKind.READ, KeyKind.ADMIN),
            parameters=[
                _limit_parameter("Most deployments in the answer.", deployments.LIMIT_DEFAULT, deployments.LIMIT_MAX),
                _parameter("cursor", {"type": "string"}, "`nextCursor` of the page before; the first page has none."),
            ],
        ),
        Operation(
            "get",
            syncs.PATH,
            "readSyncResult",
            "The result of a completed dbt sync",
            (200, "The result.", {"application/json": _ref("DbtSyncResult")}),
            (*_SYNC, Reason.NOT_FOUND, Reason.OVERLOADED),
            (KeyKind.READ, KeyKind.ADMIN),
            parameters=_sync_parameters(),
        ),
        Operation(
            "put",
            syncs.PATH,
            "recordSyncResult",
            "Make the result of a completed dbt sync durable; the same again changes nothing",
            (200, "Durable, and readable at once.", {"application/json": _ref("DbtSyncResult")}),
            _RECORD,
            (KeyKind.INGEST, KeyKind.ADMIN),
            parameters=[
                *_sync_parameters(),
                _parameter("Content-Encoding", {"enum": ["gzip", "identity"]}, place="header"),
            ],
            body={"application/json": _ref("DbtSyncResult")},
        ),
        Operation("get", "/healthz", "healthz", "Whether the process answers", (200, "It does.", _text())),
        Operation(
            "get",
            "/readyz",
            "readyz",
            "Whether an event would be kept now, proven by a write",
            (200, "It would.", {"application/json": _ref("Readiness")}),
            (Reason.NOT_READY, *_ANY_REQUEST),
        ),
        Operation("get", "/metrics", "metrics", "What happened so far, for Prometheus", (200, "Counters.", _text())),
        Operation(
            "get",
            "/openapi.json",
            "describe",
            "This description",
            (200, "OpenAPI 3.1.0.", {"application/json": {"type": "object"}}),
        ),
        Operation(
            "get",
            "/problems/{reason}",
            "explainProblem",
            "What the type of a problem means",
            (200, "The reason.", {"application/json": _ref("Explanation")}),
            (Reason.NOT_FOUND, *_ANY_REQUEST),
            parameters=[_parameter("reason", {"enum": [str(reason) for reason in Reason]}, place="path")],
        ),
        _browser_operation("/{module}.js", "readModule", "A module for pages: the forwarder, or the actions", ".js"),
        _browser_operation("/{module}.d.ts", "readTypes", "The types of a module, for TypeScript", ".d.ts"),
    ]


def _browser_operation(path: str, id_: str, summary: str, suffix: str) -> Operation:
    files = [file for name, file in browser_files().items() if name.endswith(suffix)]
    names = [name.removesuffix(suffix) for file in files for name in (file.name, file.versioned_name)]
    return Operation(
        "get",
        path,
        id_,
        summary,
        (200, "The file. Under its plain name it may change; with its version it never does.", _files(files)),
        (Reason.NOT_FOUND, *_ANY_REQUEST),
        parameters=[_parameter("module", {"enum": names}, place="path"), _known_tag()],
        others={304: "It has not changed."},
        headers={"ETag": "Weak; send it back in If-None-Match."},
    )


def _files(files: Sequence[BrowserFile]) -> dict[str, Schema]:
    return {file.media_type: {} for file in files}


def _read_operations() -> list[Operation]:
    """Reports, raw events, the summary and the snapshot."""
    keys = (KeyKind.READ, KeyKind.ADMIN)
    cached: dict[str, Any] = {"others": {304: "Nothing was loaded since."}}
    tagged = {"ETag": "Weak; send it back in If-None-Match."}
    paged = {"Link": 'The next page (RFC 8288, rel="next").', "X-Next-Cursor": "The cursor of the next page."}
    return [
        Operation(
            "get",
            "/api/v1/reports/{name}",
            "readReport",
            "The rows of a report, in the reader's scope; as JSON, or with a suffix as CSV, Parquet or Arrow",
            (200, "The rows.", _media_types(reports.FORMATS)),
            (*_SPOOLED, Reason.NOT_FOUND),
            keys,
            parameters=[_report_name(reports.FORMATS), *_report_parameters(), *_rows_parameters(), _known_tag()],
            headers=tagged | paged,
            **cached,
        ),
        Operation(
            "get",
            "/api/v1/reports/{name}/schema",
            "describeReport",
            "One report with its question, its grain and its columns, and a row of its JSON as JSON Schema",
            (200, "The report.", {"application/json": _ref("ReportSchema")}),
            (*_ACCESS, Reason.NOT_FOUND),
            keys,
            parameters=[_report_name(())],
        ),
        Operation(
            "get",
            "/api/v1/summary.zip",
            "readSummary",
            "Every report for a period as CSV, all of one moment, with a manifest",
            (200, "The ZIP.", {"application/zip": {}}),
            _SPOOLED,
            keys,
            parameters=[*_report_parameters(), _known_tag()],
            headers=tagged,
            **cached,
        ),
        Operation(
            "get",
            "/api/v1/events.{suffix}",
            "readEvents",
            "Raw events, in the reader's scope",
            (200, "The events.", _media_types(exports.EVENT_FORMATS)),
            (*_SPOOLED, Reason.NOT_FOUND),
            keys,
            parameters=[
                _parameter("suffix", {"enum": list(exports.EVENT_FORMATS)}, "How they are written.", place="path"),
                *_report_parameters(),
                *_rows_parameters(),
                _known_tag(),
            ],
            headers=tagged | paged,
            **cached,
        ),
        Operation(
            "get",
            "/api/v1/analytics.duckdb",
            "readSnapshot",
            "The snapshot that notebooks open, every deployment in it; only for a key without a scope",
            (200, "A DuckDB database.", {exports.SNAPSHOT_MEDIA_TYPE: {}}),
            _SCOPED,
            keys,
            parameters=[
                _parameter("Range", {"type": "string"}, "One part of it (RFC 9110, section 14.2).", place="header")
            ],
            others={206: "The part."},
        ),
    ]


def _described(operation: Operation) -> Schema:
    status, description, content = operation.success
    responses: Schema = {
        str(status): {"description": description} | ({"content": _content(content)} if content else {})
    }
    if operation.headers:
        text = {"type": "string"}
        told = {name: {"description": meaning, "schema": text} for name, meaning in operation.headers.items()}
        responses[str(status)]["headers"] = told
    for other, meaning in operation.others.items():
        part = {"content": _content(content)} if other == 206 else {}
        responses[str(other)] = {"description": meaning} | part
    for failure in sorted({reason.status for reason in operation.reasons if reason.status}):
        same = [reason for reason in operation.reasons if reason.status == failure]
        responses[str(failure)] = _problem_response(failure, same)
    described: Schema = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": list(operation.parameters),
        "security": [{f"{kind}Key": []} for kind in operation.kinds] + [{}] * operation.is_key_optional,
        "responses": responses,
    }
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    return described


def _problem_response(status: int, reasons: Sequence[Reason]) -> Schema:
    names = sorted(str(reason) for reason in reasons)
    of_this_status = {"properties": {"status": {"const": status}, "reason": {"enum": names}}}
    base = next((_PROBLEMS[reason] for reason in reasons if reason in _PROBLEMS), "Problem")
    advice = " ".join(dict.fromkeys(problems.advice_on(reason) for reason in reasons))
    text = {"type": "string"}
    headers = {name: {"description": meaning, "schema": text} for name, meaning in _HEADERS.get(status, {}).items()}
    return {
        "description": f"{', '.join(names)}. {advice}",
        "headers": {"X-Request-Id": {"schema": text}} | headers,
        "content": {problems.MEDIA_TYPE: {"schema": {"allOf": [_ref(base), of_this_status]}}},
    }


def _event_bodies(settings: Settings) -> dict[str, Schema]:
    envelopes = _array(_ref("Envelope")) | {"minItems": 1, "maxItems": settings.events_max}
    return {
        "application/json": {"anyOf": [_ref("Envelope"), envelopes, _ref("Delivery")]},
        "text/plain": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "The same JSON: for beacons, which can't set another content type.",
        },
        "application/x-ndjson": {"type": "string", "description": "One envelope a line."},
    }


def _schemas(settings: Settings) -> dict[str, Schema]:
    catalog = catalog_for(settings.service_name)
    schemas = _wire_types(catalog, syncs.result_type(settings.service_name))
    schemas["Delivery"]["properties"]["events"] |= {"items": _ref("Envelope"), "maxItems": settings.events_max}
    mapping = {name: _ref(envelope.__name__)["$ref"] for name, envelope in catalog.envelope_types.items()}
    schemas["Envelope"] = {
        "description": f"One protocol message, as JSON at most {settings.envelope_bytes_max:,} bytes long.",
        "oneOf": [{"$ref": address} for address in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    return dict(sorted((schemas | _answers()).items()))


def _wire_types(catalog: Catalog, sync_result: Any) -> dict[str, Schema]:
    types = [*catalog.envelope_types.values(), Delivery, sync_result]
    adapters = [(type_.__name__, "validation", TypeAdapter(type_)) for type_ in types]
    _, together = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    found: dict[str, Schema] = together["$defs"]
    return found


def _answers() -> dict[str, Schema]:
    text, number, count = {"type": "string"}, {"type": "integer"}, {"type": "integer", "minimum": 0}
    rejections = _array(_ref("Rejection")) | {"maxItems": REJECTIONS_LISTED_MAX}
    listing = {"accepted": count, "rejected": rejections, "rejectedCount": count}
    problem = {"type": text, "title": text, "status": number, "reason": _reasons(Reason), "detail": text}
    column = dict.fromkeys(("name", "type", "unit", "description"), text)
    report = dict.fromkeys(("name", "title", "question", "grain"), text)
    return {
        "Problem": _object(problem) | {"description": "RFC 9457 problem details."},
        "NothingAccepted": {"allOf": [_ref("Problem"), _object(listing, optional=("rejectedCount",))]},
        "InvalidBody": {
            "allOf": [_ref("Problem"), _object({"errors": _array(_object({"field": text, "detail": text}))})]
        },
        "Deployments": _object({"deployments": _array(_ref("Deployment")), "nextCursor": {"type": ["string", "null"]}}),
        "Deployment": _object(
            {"deploymentId": number}
            | {name: {"type": ["string", "null"], "format": "date-time"} for name in ("firstSeenAt", "lastSeenAt")}
            | dict.fromkeys(("eventCount", "actionCount", "syncCount", "keyCount"), count)
        ),
        "Receipt": _object(listing, optional=("rejectedCount",)),
        "Rejection": _object(
            {
                "index": count,
                "id": {"type": ["string", "null"]},
                "reason": _reasons(Reason),
                "detail": text,
            }
        ),
        "Report": _object(report | {"columns": _array(_object(column))}),
        "ReportSchema": {"allOf": [_ref("Report"), _object({"row": {"type": "object"}})]},
        "Replay": _object({"replayed": count, "rejected": count}),
        "Readiness": _object({"ready": {"type": "boolean"}, "troubles": _array(text)}),
        "Explanation": _object(
            {"reason": _reasons(Reason), "title": text, "status": {"type": ["integer", "null"]}, "advice": text}
        ),
    }


def _security_schemes() -> dict[str, Schema]:
    return {
        f"{kind}Key": {"type": "http", "scheme": "bearer", "description": f"A key of the kind {kind}: es_{kind}_…"}
        for kind in KeyKind
    }


def _scope_parameters() -> list[Schema]:
    instant = "A date, an instant (ISO 8601) or a span back from now such as 7d."
    deployment = {"type": "integer", "minimum": -DEPLOYMENT_MAX, "maximum": DEPLOYMENT_MAX}
    return [
        _parameter("since", {"type": "string"}, f"Only what happened then or later. {instant}"),
        _parameter("until", {"type": "string"}, f"Only what happened before. {instant}"),
        _parameter("deployment", _array(deployment), "Only these; repeat it for several."),
        _parameter("tenant", {"type": "string"}, "Only this one."),
    ]


def _report_name(formats: Sequence[Format]) -> Schema:
    names = "|".join(report_names())
    suffix = rf"(\.({'|'.join(formats)}))?" if formats else ""
    pattern = {"type": "string", "pattern": f"^({names}){suffix}$"}
    return _parameter("name", pattern, "The report, and how its rows are written.", place="path")


def _report_parameters() -> list[Schema]:
    switch = {"enum": ["on", "off"]}
    zone = "Where days begin at midnight, and by whose clocks times without a zone are (IANA). Default: UTC."
    return [
        *_scope_parameters(),
        _parameter("surface", {"enum": list(SURFACES)}, "Only this one."),
        _parameter("interval", {"enum": list(INTERVALS)}, "The length of a period. Default: day."),
        _parameter("timezone", {"type": "string", "examples": ["Europe/Berlin"]}, zone),
        _parameter("guard", switch, "CSV: whether text that looks like a formula is disarmed. Default: on."),
        _parameter("bom", switch, "CSV: whether it begins with a byte-order mark, as Excel needs it. Default: off."),
    ]


def _rows_parameters() -> list[Schema]:
    bounds = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}
    return [
        _parameter("columns", {"type": "string", "examples": ["surface,view_count"]}, "Only these, with commas."),
        _parameter("limit", bounds, "Most rows in the answer. Rows with an arrival then come in its order."),
        _parameter("cursor", {"type": "string"}, "The next page, where rows have an arrival: from X-Next-Cursor."),
    ]


def _known_tag() -> Schema:
    tag = {"type": "string", "pattern": '^(W/)?"[!#-~]*"$'}
    return _parameter("If-None-Match", tag, "The ETag of the answer that you have.", place="header")


def _media_types(formats: Sequence[Format]) -> dict[str, Schema]:
    # Of what is no JSON there is nothing to say but its media type (OpenAPI 3.1.0, section 4.8.14.3).
    rows = {Format.JSON: _array({"type": "object"}), Format.CSV: {"type": "string"}}
    return {MEDIA_TYPES[format].partition(";")[0]: rows.get(format, {}) for format in formats}


def _id_parameter() -> Schema:
    return _parameter("id", {"type": "string", "format": "uuid"}, "One rejection alone, with all of its `raw`.")


def _limit_parameter(description: str, default: int, most: int) -> Schema:
    return _parameter("limit", {"type": "integer", "minimum": 1, "maximum": most, "default": default}, description)


def _sync_parameters() -> list[Schema]:
    deployment = {"type": "integer", "minimum": -DEPLOYMENT_MAX, "maximum": DEPLOYMENT_MAX}
    job = {"type": "string", "minLength": 1, "maxLength": syncs.JOB_ID_CHARACTERS_MAX}
    return [
        _parameter("deploymentId", deployment, "The deployment that was synced.", place="path"),
        _parameter("syncJobId", job, "The job; as in the body.", place="path"),
    ]


def _parameter(name: str, schema: Schema, description: str = "", *, place: str = "query") -> Schema:
    described = {"name": name, "in": place, "schema": schema, "required": place == "path"}
    return described | ({"description": description} if description else {})


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _reasons(reasons: Iterable[Reason]) -> Schema:
    return {"enum": [str(reason) for reason in reasons]}


def _text() -> dict[str, Schema]:
    return {"text/plain": {"type": "string"}}


def _content(schemas: dict[str, Schema]) -> Schema:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}
