"""`/api/v1/quarantine`: kept rejections, and trying them again."""

from dataclasses import asdict
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.errors import Refused
from embedsink.http.access import require_key
from embedsink.http.parameters import check_parameters, limit_of
from embedsink.keys import KeyKind
from embedsink.quarantine import replay_all, rows
from embedsink.reasons import Reason
from embedsink.reports import parse_scope
from embedsink.sink import Sink

PARAMETERS = ("since", "until", "deployment", "tenant", "limit")
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000


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
    limit = limit_of(query.get("limit"), default=LIMIT_DEFAULT, most=LIMIT_MAX)
    sink: Sink = request.state.sink
    async with sink.report_slots:
        found = await run_in_threadpool(_read, sink, scope.variables(), limit)
    body = orjson.dumps(found, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    headers = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
    return Response(body, media_type="application/json", headers=headers)


async def replay(request: Request) -> Response:
    """Try everything in quarantine again; needs an admin key for all deployments."""
    key = require_key(request, KeyKind.ADMIN)
    if key.deployments is not None:
        raise Refused(Reason.OUT_OF_SCOPE, "quarantine: is of all deployments. Use an admin key without a scope.")
    return JSONResponse(asdict(await replay_all(request.state.sink)))


def _read(sink: Sink, variables: dict[str, object], limit: int) -> list[dict[str, Any]]:
    with sink.store.reader(variables) as reader:
        return rows(reader, limit=limit)
