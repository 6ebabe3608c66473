"""`/api/v1/quarantine`: list, purge and replay stored rejections."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from uuid import UUID

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embedsink.audit.entry import Action, Outcome, failure_text
from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.http.audit_entries import entry_of, record_export
from embedsink.http.authentication import check_unlimited, require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.openapi.errors import AUDIT_REASONS, JOURNAL_REASONS, SCOPE_REASONS
from embedsink.http.openapi.operation import READERS, Operation, Success
from embedsink.http.openapi.parameters import limit_parameter, parameter, scope_parameters
from embedsink.http.openapi.parts import TEXT, Schema, array, ref
from embedsink.http.query_params import check_parameters, parse_bounded_integer, parse_report_scope
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.transfer.quarantine import purge as purge_quarantine
from embedsink.transfer.quarantine import purge_filter, rejections_json
from embedsink.transfer.quarantine import replay as replay_quarantine

PATH = "/api/v1/quarantine"
REPLAY_PATH = f"{PATH}/replay"
PARAMETERS = ("since", "until", "deployment", "tenant", "limit", "id")
PURGE_PARAMETERS = ("before", "reason", "key")
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000


async def quarantine(request: Request) -> Response:
    """Dispatch by method: GET lists the rejections, DELETE purges them."""
    if request.method == "DELETE":
        return await purge(request)
    return await list_quarantine(request)


async def list_quarantine(request: Request) -> Response:
    """Answer with the newest rejections in the reader's scope, as a JSON array of rows."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    scope = parse_report_scope(query, request.state.engine.privacy.stored_scope(key.scope))
    limit = parse_bounded_integer("limit", query.get("limit"), default=LIMIT_DEFAULT, maximum=LIMIT_MAX)
    quarantine_id = _parse_id(query.get("id"))
    engine: Engine = request.state.engine
    # The thread of the query also builds the JSON, because it may be tens of megabytes long.
    read = partial(rejections_json, limit=limit, quarantine_id=quarantine_id)
    open_reader = partial(engine.store.reader, scope.variables())
    body = await cancel_on_disconnect(
        request, run_query(engine, engine.limiters.reports.slot(key.key_id), open_reader, read)
    )
    await record_export(request, key, "quarantine", byte_count=len(body))
    return Response(body, media_type="application/json", headers=NO_STORE)


async def purge(request: Request) -> Response:
    """Delete rejections from the quarantine. This needs an admin key without a scope."""
    key = require_key(request, KeyKind.ADMIN)
    query = request.query_params
    check_parameters(query, PURGE_PARAMETERS)
    check_unlimited(key, "quarantine: contains the rejections of all deployments and tenants")
    filter = purge_filter(before=query.get("before"), reason=query.get("reason"), key_id=query.get("key"))
    async with _recorded(request, key, Action.PURGE, dict(query)):
        purged_count = await purge_quarantine(request.state.engine, filter)
    return JSONResponse({"purged": purged_count})


async def replay(request: Request) -> Response:
    """Replay one rejection or the whole quarantine. This needs an admin key without a scope."""
    key = require_key(request, KeyKind.ADMIN)
    check_parameters(request.query_params, ("id",))
    quarantine_id = _parse_id(request.query_params.get("id"))
    check_unlimited(key, "quarantine: contains the rejections of all deployments and tenants")
    async with _recorded(request, key, Action.REPLAY, dict(request.query_params)):
        counts = await replay_quarantine(request.state.engine, quarantine_id)
    return JSONResponse(asdict(counts))


@contextlib.asynccontextmanager
async def _recorded(request: Request, key: Key, action: Action, detail: dict[str, str]) -> AsyncIterator[None]:
    """Record an action, then run the block. If the block fails, record that too.

    Raises:
        Unavailable: the action can't be recorded (`storage_low`, `storage_failed`). The block does not run.
    """
    engine: Engine = request.state.engine
    entry = entry_of(request, key, action, target="quarantine", detail=detail)
    await engine.audit.record(entry)
    try:
        yield
    except BaseException as error:
        failure = entry_of(
            request, key, action, target="quarantine", detail={"error": failure_text(error)}, outcome=Outcome.FAILED
        )
        await engine.audit.record_or_log(failure)
        raise


def _parse_id(text: str | None) -> UUID | None:
    """Return the UUID in a text; None for None. Raise Refused (`bad_parameter`) if the text is not a UUID."""
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise Refused(Reason.BAD_PARAMETER, f"id: {preview(text)} is not a UUID. Copy one from the list.") from None


# One route for both methods: the `Allow` header of a 405 lists the methods of one route.
ROUTES = [
    Route(PATH, quarantine, methods=["GET", "DELETE"]),
    Route(REPLAY_PATH, replay, methods=["POST"]),
]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    id_description = "Only this rejection. In a list of one rejection, `raw` is not shortened."
    id_parameter = parameter("id", {"type": "string", "format": "uuid"}, id_description)
    limit = limit_parameter("The maximum number of rejections.", LIMIT_DEFAULT, LIMIT_MAX)
    return [
        Operation(
            method="get",
            path=PATH,
            id="listQuarantine",
            summary="List the newest rejections in the reader's scope",
            success=Success(200, "The rejections.", {"application/json": array({"type": "object"})}),
            error_reasons=(*SCOPE_REASONS, *AUDIT_REASONS, Reason.OVERLOADED),
            key_kinds=READERS,
            parameters=[*scope_parameters(), limit, id_parameter],
        ),
        Operation(
            method="delete",
            path=PATH,
            id="purgeQuarantine",
            summary="Delete rejections from the quarantine, and keep their counts",
            success=Success(200, "The number of deleted rejections.", {"application/json": ref("Purge")}),
            error_reasons=(*SCOPE_REASONS, *AUDIT_REASONS),
            key_kinds=(KeyKind.ADMIN,),
            parameters=_purge_parameters(),
        ),
        Operation(
            method="post",
            path=REPLAY_PATH,
            id="replayQuarantine",
            summary="Replay one rejection or the whole quarantine",
            success=Success(
                200,
                "The numbers of rejections that were accepted, that were rejected again, and that were not tried.",
                {"application/json": ref("Replay")},
            ),
            error_reasons=(*SCOPE_REASONS, *JOURNAL_REASONS),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[id_parameter],
        ),
    ]


def _purge_parameters() -> list[Schema]:
    reasons = {"type": "string", "enum": [str(reason) for reason in Reason]}
    return [
        parameter("before", TEXT, "Only rejections received before this time, or older than this age, such as `7d`."),
        parameter("reason", reasons, "Only rejections with this reason."),
        parameter("key", TEXT, "Only rejections of requests that were sent with the key that has this id."),
    ]
