"""`GET /api/v1/inspect`: the received events of a session, for automated tests of a host page (docs/inspector.md)."""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embedsink.auth.keys import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.openapi.errors import SCOPE_REASONS
from embedsink.http.openapi.operation import READERS, Operation, Success
from embedsink.http.openapi.parameters import event_filter_parameters, parameter, scope_parameters
from embedsink.http.openapi.parts import ref
from embedsink.http.query_params import EVENT_FILTERS, check_parameters, parse_bounded_integer, parse_event_filter
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.reports.recent_events import IngestedCounts, count_ingested, first_rejections
from embedsink.settings import Settings
from embedsink.store.reader import Reader

PATH = "/api/v1/inspect"
PARAMETERS = ("since", "until", *EVENT_FILTERS, "wait")
WAIT_S_DEFAULT = 5
WAIT_S_MAX = 30


async def inspect(request: Request) -> Response:
    """Answer with counts by type and the rejections, when all acknowledged events are loaded or the wait has ended."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    if "session" not in query and "since" not in query:
        raise Refused(Reason.BAD_PARAMETER, "session: is missing. Give a session, or a time in `since`.")
    if query.get("session") == "":
        raise Refused(Reason.BAD_PARAMETER, "session: is empty. Give a session.")
    engine: Engine = request.state.engine
    variables = parse_event_filter(query, engine.privacy.stored_scope(key.scope))
    wait_s = parse_bounded_integer("wait", query.get("wait"), default=WAIT_S_DEFAULT, minimum=0, maximum=WAIT_S_MAX)
    is_complete = await cancel_on_disconnect(
        request, engine.load_notifier.wait_until_loaded(wait_s, key_id=key.key_id, scope=key.scope)
    )
    require_key(request, KeyKind.READ)  # The key may have been revoked during the wait.
    counts, rejected = await cancel_on_disconnect(
        request,
        run_query(
            engine, engine.limiters.reports.slot(key.key_id), partial(engine.store.reader, variables), _read_ingested
        ),
    )
    return JSONResponse(_inspection(counts, rejected, is_complete=is_complete), headers=NO_STORE)


def _read_ingested(reader: Reader) -> tuple[IngestedCounts, list[dict[str, Any]]]:
    """Return the counts and the first rejections, read in one transaction."""
    with reader.consistent():
        return count_ingested(reader), first_rejections(reader)


def _inspection(counts: IngestedCounts, rejected: list[dict[str, Any]], *, is_complete: bool) -> dict[str, Any]:
    """Return the response. It is complete if all events that were acknowledged before the request are loaded."""
    return {
        "isComplete": is_complete,
        "acceptedCount": counts.outcomes["accepted"],
        "quarantinedCount": counts.outcomes["quarantined"],
        "lostCount": counts.outcomes["lost"],
        "events": counts.events,
        "actions": counts.actions,
        "rejected": [
            {
                "id": row["quarantine_id"],
                "receivedAt": f"{row['received_at'].isoformat(timespec='milliseconds')}Z",
                "reason": row["reason"],
                "path": row["path"],
                "detail": row["detail"],
                "direction": row["direction"],
                "type": row["type"],
                "session": row["session"],
                "deployment": row["deployment"],
                "isReplayed": row["replayed_at"] is not None,
            }
            for row in rejected
        ],
    }


ROUTES = [Route(PATH, inspect)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    wait = {"type": "integer", "minimum": 0, "maximum": WAIT_S_MAX, "default": WAIT_S_DEFAULT}
    return [
        Operation(
            method="get",
            path=PATH,
            id="inspect",
            summary=(
                "Count the events and actions of a session, or since a given time, by type, "
                "and list the rejections, for tests of a host page"
            ),
            success=Success(200, "The counts and the rejections.", {"application/json": ref("Inspection")}),
            error_reasons=(*SCOPE_REASONS, Reason.OVERLOADED),
            key_kinds=READERS,
            parameters=[
                *scope_parameters(),
                *event_filter_parameters(),
                parameter("wait", wait, "Maximum number of seconds to wait until all acknowledged events are loaded."),
            ],
        )
    ]
