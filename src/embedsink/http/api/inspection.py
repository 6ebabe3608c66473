"""`GET /api/v1/inspect`: what arrived of one session, for the tests of a host page (docs/inspector.md)."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink.auth.key import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.query_params import EVENT_FILTERS, check_parameters, parse_event_filter, parse_limit
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.reports.recent_events import Counts, count_arrivals, rejected_arrivals
from embedsink.store.reader import Reader

PARAMETERS = ("since", "until", *EVENT_FILTERS, "wait")
WAIT_S_DEFAULT = 5
WAIT_S_MAX = 30


async def inspect(request: Request) -> Response:
    """Counts by type and rejections, when all is loaded that was acknowledged before, or the reader's time is over."""
    key = require_key(request, KeyKind.READ)
    query = request.query_params
    check_parameters(query, PARAMETERS)
    if "session" not in query and "since" not in query:
        raise Refused(Reason.BAD_PARAMETER, "session: is missing. Say of which session, or since when.")
    if query.get("session") == "":
        raise Refused(Reason.BAD_PARAMETER, "session: is empty. Say of which session.")
    variables = parse_event_filter(query, key)
    wait_s = parse_limit("wait", query.get("wait"), default=WAIT_S_DEFAULT, least=0, most=WAIT_S_MAX)
    engine: Engine = request.state.engine
    is_complete = await cancel_on_disconnect(
        request, engine.load_notifier.catch_up(wait_s, key_id=key.key_id, deployments=key.deployments)
    )
    require_key(request, KeyKind.READ)  # It may have been revoked meanwhile.
    counts, rejected = await cancel_on_disconnect(
        request, run_query(engine, engine.report_slots.place(key.key_id), variables, _read)
    )
    return JSONResponse(_told(counts, rejected, is_complete=is_complete), headers=NO_STORE)


def _read(reader: Reader) -> tuple[Counts, list[dict[str, Any]]]:
    with reader.consistent():
        return count_arrivals(reader), rejected_arrivals(reader)


def _told(counts: Counts, rejected: list[dict[str, Any]], *, is_complete: bool) -> dict[str, Any]:
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
