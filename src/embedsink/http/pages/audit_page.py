"""`/dashboards/audit`: the page with the entries of the audit trail, for admins (docs/audit.md)."""

from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.audit.entry import Action, Outcome
from embedsink.auth.keys import Key, KeyKind
from embedsink.errors import Refused
from embedsink.http.api.audit import CONTENT, filter_parameters, read_entries
from embedsink.http.authentication import check_unlimited, session_key
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import parameter
from embedsink.http.openapi.parts import TEXT
from embedsink.http.pages.dashboards import AUDIT, DashboardPages, page_operation
from embedsink.reasons import Reason
from embedsink.reports.audit_entries import PARAMETERS, AuditCursor, AuditFilter
from embedsink.settings import Settings

PATH = f"/dashboards/{AUDIT.name}"
ENTRIES_PER_PAGE = 100
# The form sends empty fields, which select everything.
_NO_FILTER = dict.fromkeys(PARAMETERS, "")


async def show_audit(request: Request) -> Response:
    """Show a page of entries. An invalid filter gets a message above the form."""
    pages: DashboardPages = request.state.dashboard_pages
    redirect = pages.required_redirect(request, known_names=(*PARAMETERS, "cursor"))
    if redirect is not None:
        return redirect
    key = _require_admin(request)
    values = {name: request.query_params.get(name, "").strip() for name in PARAMETERS}
    error = ""
    rows: list[dict[str, Any]] = []
    next_cursor = cursor = None
    try:
        selected = AuditFilter.parse({name: value or None for name, value in values.items()})
        cursor = AuditCursor.parse(request.query_params.get("cursor"))
        rows, next_cursor = await read_entries(request, key, selected, limit=ENTRIES_PER_PAGE, cursor=cursor)
    except Refused as refusal:
        error = str(refusal)
    filters = {name: value for name, value in values.items() if value}
    response = await pages.page(
        request,
        "audit.html",
        name=AUDIT.name,
        actions=[(str(action), action_label(action)) for action in Action],
        values=values,
        error=error,
        entries=[_shown_entry(row) for row in rows],
        download=_url("/api/v1/audit.csv", filters),
        newest=_url(PATH, filters) if cursor is not None else None,
        older=_url(PATH, filters | {"cursor": str(next_cursor)}) if next_cursor is not None else None,
        is_filtered=filters != {},
    )
    response.status_code = 400 if error else 200
    return response


def action_label(action: str) -> str:
    """Return an action in words, such as `Login failed`."""
    return action.replace("_", " ").capitalize()


def _require_admin(request: Request) -> Key:
    """Return the key of the session of an admin. Raise Refused for any other reader, also for that of the demo."""
    key = session_key(request, allow_cross_site_navigation=True)
    if key is None or KeyKind.ADMIN not in key.kinds:
        detail = "audit: is for admins. Log out, and log in as an admin or with an admin key."
        raise Refused(Reason.WRONG_KIND, detail)
    check_unlimited(key, CONTENT)
    return key


def _shown_entry(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of an entry."""
    detail = orjson.loads(row["detail"] or "{}")
    return {
        "number": row["number"],
        "time": f"{row['recorded_at']:%Y-%m-%d %H:%M:%S}",
        "iso_time": f"{row['recorded_at'].isoformat(timespec='milliseconds')}Z",
        "action": action_label(row["action"]),
        "count": row["action_count"],
        "actor": row["actor"],
        "actor_label": row["actor_label"],
        "target": row["target"] or "",
        "outcome": row["outcome"],
        "is_done": row["outcome"] == Outcome.DONE,
        "via": row["via"],
        "client_address": row["client_address"],
        "detail": [(name, _text_of(value)) for name, value in detail.items()],
    }


def _text_of(value: Any) -> str:
    """Return a value of the detail as text: a list of texts separated by commas, and anything but texts as JSON."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _url(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


ROUTES = [Route(PATH, show_audit)]


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operation of the route."""
    cursor = parameter("cursor", TEXT, "The position of a page, from a link of the page.")
    return [
        page_operation(
            PATH,
            "showAudit",
            "Show the audit trail to admins without a scope",
            Reason.OUT_OF_SCOPE,
            Reason.OVERLOADED,
            parameters=[*filter_parameters(), cursor],
        )
    ]
