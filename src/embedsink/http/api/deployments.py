"""`GET /api/v1/deployments`: the deployments that keys, events, actions and dbt syncs name (spec 4.2)."""

from functools import partial
from itertools import chain
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import KeyKind
from embedsink.auth.parsing import parse_deployment
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Refused, preview
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.openapi.errors import SCOPE_REASONS
from embedsink.http.openapi.operation import READERS, Operation, Success
from embedsink.http.openapi.parameters import limit_parameter, parameter
from embedsink.http.openapi.parts import TEXT, ref
from embedsink.http.query_params import check_parameters, parse_bounded_integer
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.store.reader import Reader

PATH = "/api/v1/deployments"
PARAMETERS = ("limit", "cursor")
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
VIEW = "deployment_in_scope"
# The JSON names of the view's columns, in their order.
FIELDS = ("deploymentId", "firstSeenAt", "lastSeenAt", "eventCount", "actionCount", "syncCount", "keyCount")


async def list_deployments(request: Request) -> Response:
    """Answer with a page of the deployments in the reader's scope, ordered by id."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    limit = parse_bounded_integer("limit", query.get("limit"), default=LIMIT_DEFAULT, maximum=LIMIT_MAX)
    engine: Engine = request.state.engine
    variables: dict[str, object] = {
        **key.scope.variables(),
        "internal": "include",
        "key_deployments": engine.keys.deployments(),  # counted by the view, for each deployment in scope
        "after": _parse_cursor(query.get("cursor")),
        "row_limit": limit + 1,  # One more row shows whether there is a next page.
    }
    rows = await cancel_on_disconnect(
        request,
        run_query(
            engine, engine.limiters.reports.slot(key.key_id), partial(engine.store.reader, variables), _read_rows
        ),
    )
    page = [dict(zip(FIELDS, row, strict=True)) for row in rows[:limit]]
    has_next_page = len(rows) > limit
    content = {"deployments": page, "nextCursor": str(page[-1]["deploymentId"]) if has_next_page else None}
    # The times in the store are in UTC, without a zone.
    body = orjson.dumps(content, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    return Response(body, media_type="application/json", headers=NO_STORE)


def _read_rows(reader: Reader) -> list[tuple[Any, ...]]:
    """Return all rows of the view. The reader yields them in batches."""
    return list(chain.from_iterable(reader.rows(VIEW)))


def _parse_cursor(cursor: str | None) -> int | None:
    """Return the deployment id after which the page begins; None for the first page.

    Raises:
        Refused: the cursor is not the id of a deployment (`bad_parameter`).
    """
    if cursor is None:
        return None
    try:
        return parse_deployment(cursor)
    except Misconfigured:
        detail = f"cursor: {preview(cursor)} is not a cursor. Send the `nextCursor` of the previous page."
        raise Refused(Reason.BAD_PARAMETER, detail) from None


ROUTES = [Route(PATH, list_deployments)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    limit = limit_parameter("The maximum number of deployments.", LIMIT_DEFAULT, LIMIT_MAX)
    cursor = parameter("cursor", TEXT, "The `nextCursor` of the previous page. Leave it out for the first page.")
    return [
        Operation(
            method="get",
            path=PATH,
            id="listDeployments",
            summary="List the deployments that appear in keys, events, actions or dbt syncs, within the reader's scope",
            success=Success(200, "A page of deployments.", {"application/json": ref("Deployments")}),
            error_reasons=(*SCOPE_REASONS, Reason.OVERLOADED),
            key_kinds=READERS,
            parameters=[limit, cursor],
        )
    ]
