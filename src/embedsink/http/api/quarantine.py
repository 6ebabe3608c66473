"""`/api/v1/quarantine`: kept rejections, and trying them again."""

from dataclasses import asdict
from functools import partial
from uuid import UUID

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.http.authentication import require_key
from embedsink.http.execute import ask_store, while_awaited
from embedsink.http.query_params import check_parameters, limit_of
from embedsink.http.security_headers import NEVER_KEPT
from embedsink.reasons import Reason
from embedsink.reports.scope import parse_scope
from embedsink.transfer.replay import purge as purge_quarantine
from embedsink.transfer.replay import purge_filter, rows_json
from embedsink.transfer.replay import replay as try_again

PARAMETERS = ("since", "until", "deployment", "tenant", "limit", "id")
PURGE_PARAMETERS = ("before", "reason", "key")
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000


async def quarantine(request: Request) -> Response:
    """GET lists, DELETE purges."""
    return await (purge if request.method == "DELETE" else list_quarantine)(request)


async def purge(request: Request) -> Response:
    """Take kept rejections out of the quarantine; needs an admin key for all deployments."""
    key = require_key(request, KeyKind.ADMIN)
    query = request.query_params
    check_parameters(query, PURGE_PARAMETERS)
    _check_all_deployments(key)
    which = purge_filter(before=query.get("before"), reason=query.get("reason"), key_id=query.get("key"))
    return JSONResponse({"purged": await purge_quarantine(request.state.engine, which)})


async def list_quarantine(request: Request) -> Response:
    """The newest kept rejections in the reader's scope, as JSON: an array of row objects."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    scope = parse_scope(
        {name: query.get(name) for name in ("since", "until", "tenant")},
        deployments=query.getlist("deployment"),
        allowed=key.deployments,
    )
    limit = limit_of("limit", query.get("limit"), default=LIMIT_DEFAULT, most=LIMIT_MAX)
    quarantine_id = _id_of(query.get("id"))
    engine: Engine = request.state.engine
    # In a thread: a thousand rejections may be tens of megabytes of JSON.
    read = partial(rows_json, limit=limit, quarantine_id=quarantine_id)
    body = await while_awaited(
        request, ask_store(engine, engine.limiters.reports.slot(key.key_id), scope.variables(), read)
    )
    return Response(body, media_type="application/json", headers=NEVER_KEPT)


async def replay(request: Request) -> Response:
    """Try everything in quarantine again, or one input; needs an admin key for all deployments."""
    key = require_key(request, KeyKind.ADMIN)
    check_parameters(request.query_params, ("id",))
    quarantine_id = _id_of(request.query_params.get("id"))
    _check_all_deployments(key)
    return JSONResponse(asdict(await try_again(request.state.engine, quarantine_id)))


def _check_all_deployments(key: Key) -> None:
    if key.deployments is not None:
        raise Refused(Reason.OUT_OF_SCOPE, "quarantine: is of all deployments. Use an admin key without a scope.")


def _id_of(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise Refused(Reason.BAD_PARAMETER, f"id: {preview(text)} is no UUID. Copy one from the list.") from None
