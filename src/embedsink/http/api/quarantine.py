"""`/api/v1/quarantine`: kept rejections, and trying them again."""

from dataclasses import asdict
from functools import partial
from uuid import UUID

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.auth.key import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, quote
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.query_params import check_parameters, parse_limit
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.reports.scope import parse_scope
from embedsink.store.reader import Reader
from embedsink.transfer.replay import purge as purge_quarantine
from embedsink.transfer.replay import purge_filter, rows
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
    limit = parse_limit("limit", query.get("limit"), default=LIMIT_DEFAULT, most=LIMIT_MAX)
    quarantine_id = _id_of(query.get("id"))
    engine: Engine = request.state.engine
    read = partial(_read, limit=limit, quarantine_id=quarantine_id)
    body = await cancel_on_disconnect(
        request, run_query(engine, engine.report_slots.place(key.key_id), scope.variables(), read)
    )
    return Response(body, media_type="application/json", headers=NO_STORE)


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


def _read(reader: Reader, *, limit: int, quarantine_id: UUID | None) -> bytes:
    """The answer, in a thread: a thousand rejections may be tens of megabytes of JSON."""
    found = rows(reader, limit=limit, quarantine_id=quarantine_id)
    return orjson.dumps(found, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)


def _id_of(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise Refused(Reason.BAD_PARAMETER, f"id: {quote(text)} is no UUID. Copy one from the list.") from None
