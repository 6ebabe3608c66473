"""`/api/v1/deployments`: which there are, as far as keys, events, actions and dbt syncs tell (spec 4.2)."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import KeyKind
from embedsink.auth.parsing import parse_deployment
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Refused, quote
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.query_params import check_parameters, parse_limit
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.store.reader import Reader

PARAMETERS = ("limit", "cursor")
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
VIEW = "deployment_in_scope"
# The view's columns, in order, as they are named on the wire.
FIELDS = ("deploymentId", "firstSeenAt", "lastSeenAt", "eventCount", "actionCount", "syncCount", "keyCount")


async def list_deployments(request: Request) -> Response:
    """A page of the deployments in the reader's scope, in the order of their numbers."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    limit = parse_limit("limit", query.get("limit"), default=LIMIT_DEFAULT, most=LIMIT_MAX)
    engine: Engine = request.state.engine
    variables: dict[str, object] = {
        "deployments": None if key.deployments is None else sorted(key.deployments),
        "key_deployments": engine.keys.deployments(),
        "after": _place_of(query.get("cursor")),
        "row_limit": limit + 1,  # The one beyond says whether there is another page.
    }
    rows = await cancel_on_disconnect(
        request, run_query(engine, engine.report_slots.place(key.key_id), variables, _read)
    )
    page = [dict(zip(FIELDS, row, strict=True)) for row in rows[:limit]]
    answer = {"deployments": page, "nextCursor": str(page[-1]["deploymentId"]) if len(rows) > limit else None}
    body = orjson.dumps(answer, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    return Response(body, media_type="application/json", headers=NO_STORE)


def _read(reader: Reader) -> list[tuple[Any, ...]]:
    return [row for rows in reader.rows(VIEW) for row in rows]


def _place_of(cursor: str | None) -> int | None:
    try:
        return None if cursor is None else parse_deployment(cursor)
    except Misconfigured:
        unknown = f"cursor: {quote(cursor)} is none. Send the `nextCursor` of the page before."
        raise Refused(Reason.BAD_PARAMETER, unknown) from None
