"""`/dashboards/`: the list, and each dashboard as a page whose charts are filled by its own scripts."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from embedsink.auth.key import Key, KeyKind
from embedsink.dashboards.files import INSPECTOR as INSPECTOR_NAME
from embedsink.dashboards.files import is_address
from embedsink.dashboards.labels import NOTHING
from embedsink.dashboards.model import Chart, Dashboard, Gauge, Section, Table, Tile
from embedsink.dashboards.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.dashboards.period import PERIODS
from embedsink.dashboards.theme import DARK, LIGHT, vega_config
from embedsink.dashboards.vega_spec import completed
from embedsink.engine import Engine
from embedsink.errors import Refused, nearest, without_keys
from embedsink.http.api.dashboards import NAME_PARAMETER, period_parameters
from embedsink.http.authentication import check_kind, find_key, session_key
from embedsink.http.dashboards import Dashboards
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import event_filter_parameters, scope_parameters
from embedsink.http.openapi.parts import Schema, html_page
from embedsink.http.pages.templating import page_headers, render
from embedsink.http.pages.vega_bundle import VegaBundle
from embedsink.http.query_params import EVENT_FILTERS, check_parameters
from embedsink.http.security_headers import NO_STORE
from embedsink.http.sessions import Sessions
from embedsink.http.transport import check_transport, is_loopback_host
from embedsink.protocol.messages import catalog_for
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report
from embedsink.reports.scope import SURFACES
from embedsink.settings import Settings

_UNITS = {"h": "hours", "d": "days"}
# Comparing a name takes up to 0.5 ms of the event loop.
UNKNOWN_NAMES_MAX = 16
# Percent-encoded it may take three times the room, and it has to fit into the limit of a query.
NEXT_QUERY_CHARACTERS_MAX = 2_048


class Link(NamedTuple):
    """A dashboard in the list."""

    name: str
    title: str
    description: str


INSPECTOR = Link(INSPECTOR_NAME, "Inspector", "What arrives, as it arrives: accepted and rejected, and why.")


class DashboardPages:
    """The pages. Who has no login is led to the form, and from there to where they wanted to go.

    Args:
        dashboards: the files.
        vega: what draws.
        settings: with the origins that may frame the pages.
        opened_with: a token that whoever is on this machine is logged in with; only the demo has one.
    """

    def __init__(
        self, dashboards: Dashboards, vega: VegaBundle, settings: Settings, *, opened_with: str | None
    ) -> None:
        self._dashboards = dashboards
        self._vega = vega
        self._headers = page_headers(frame_origins=settings.frame_origins)
        self._opened_with = opened_with
        self._types = sorted({name.rpartition(":")[2] for name in catalog_for(settings.service_name).kinds})

    async def lead_in(self, request: Request) -> Response:
        """From the server's bare address to the dashboards, where people want to go; programs have addresses."""
        return RedirectResponse("/dashboards/", 307, headers=self._headers | NO_STORE)

    async def show_list(self, request: Request) -> Response:
        """Which there are."""
        return self._first(request, ()) or await self._page(request, "dashboards.html", name="")

    async def show_dashboard(self, request: Request) -> Response:
        """One of them."""
        if other := self._first(request, PERIOD_PARAMETERS):
            return other
        name = request.path_params["name"]
        dashboard = self._dashboards.find(name)
        reports = await run_in_threadpool(self._dashboards.reports, request.state.engine, name)
        self._vega.prepare()
        return await self._page(
            request,
            "dashboard.html",
            name=name,
            dashboard=dashboard,
            periods={name: f"{name[:-1]} {_UNITS[name[-1]]}" for name in PERIODS},
            reports=reports,
            surfaces=SURFACES,
            nothing=NOTHING,
            told=_told(name, dashboard, reports, self._vega.path),
            vega=self._vega.path,
        )

    async def show_inspector(self, request: Request) -> Response:
        """The live list of what arrives (docs/inspector.md)."""
        if other := self._first(request, EVENT_FILTERS):
            return other
        return await self._page(request, "inspector.html", name=INSPECTOR.name, types=self._types)

    def _first(self, request: Request, known: Sequence[str]) -> Response | None:
        """Where to go before the page is shown: to the login, or to its address without what others added.

        The login comes first: names are compared for those who have one, and only for them.

        Raises:
            Refused: `bad_parameter` for a misspelt name: without it the page would show everything, as if asked to.
        """
        check_transport(request.scope)
        key = session_key(request, or_navigation=True) or self._opening_key(request)
        if key is None:
            return RedirectResponse(_login_before(request), 303, headers=self._headers)
        check_kind(key, [KeyKind.READ])
        asked = request.query_params.multi_items()
        added = _added_by_others([name for name, _ in asked], known)
        if added:
            kept = urlencode([(name, value) for name, value in asked if name not in added])
            return RedirectResponse(f"{request.url.path}?{kept}".rstrip("?"), 303, headers=self._headers)
        check_parameters(request.query_params, known)
        return None

    async def _page(self, request: Request, template: str, **words: Any) -> Response:
        # The longest takes 20 ms, and the first of all 100: in a thread, so that no sender waits for it.
        page = await run_in_threadpool(render, template, links=self._links(), **words)
        headers = self._headers | {"Cache-Control": "private, no-store"}
        sessions: Sessions = request.state.sessions
        if session_key(request, or_navigation=True) is None and (key := self._opening_key(request)):
            headers["Set-Cookie"] = sessions.cookie(key, request)
        return HTMLResponse(page, headers=headers)

    def _opening_key(self, request: Request) -> Key | None:
        """The demo's key, for this machine alone."""
        if self._opened_with is None or not is_loopback_host(request):
            return None
        engine: Engine = request.state.engine
        return find_key(self._opened_with, engine)

    def _links(self) -> list[Link]:
        links = [Link(name, one.title, one.description) for name, one in self._dashboards.by_name.items()]
        wrong = [Link(name, name, told) for name, told in sorted(self._dashboards.mistakes.items()) if is_address(name)]
        return [*links, *wrong, INSPECTOR]


def _login_before(request: Request) -> str:
    """The address of the login, which leads back: without a key, and without a query that would make it too long."""
    path, query = request.url.path, request.url.query
    there = f"{path}?{query}" if query and len(query) <= NEXT_QUERY_CHARACTERS_MAX else path
    return f"/login?next={quote_plus(without_keys(there))}"


def _added_by_others(names: Sequence[str], known: Sequence[str]) -> set[str]:
    """The names that a page does not have, and that no slip of the keyboard explains.

    Mails, chats and advertisements add names to links. And the tabs lead with what is chosen to pages that have no
    period, too.

    Raises:
        Refused: `bad_parameter` for more of them than are compared with the page's own.
    """
    unknown = set(names) - set(known)
    if len(unknown) > UNKNOWN_NAMES_MAX:
        limit = f"the limit is {UNKNOWN_NAMES_MAX}. Remove some."
        raise Refused(Reason.BAD_PARAMETER, f"address: has {len(unknown)} parameters of other pages; {limit}")
    return {name for name in unknown if name in PERIOD_PARAMETERS or nearest(name, known) is None}


def _told(name: str, dashboard: Dashboard, reports: dict[str, Report], vega: str) -> dict[str, Any]:
    """What the page's scripts know."""
    used = {tile.report for section in dashboard.sections for tile in section.charts if not isinstance(tile, Gauge)}
    return {
        "name": name,
        "sections": [_section_told(section) for section in dashboard.sections],
        "columns": {
            report: {column.name: [column.type, column.unit, column.description] for column in reports[report].columns}
            for report in sorted(used)
        },
        "themes": {"light": vega_config(LIGHT), "dark": vega_config(DARK)},
        "grounds": {"light": LIGHT.ground, "dark": DARK.ground},
        "vega": vega,
    }


def _section_told(section: Section) -> dict[str, Any]:
    return {"id": section.id, "tiles": [_tile_told(tile) for tile in section.charts]}


def _tile_told(tile: Tile) -> dict[str, Any]:
    told: dict[str, Any] = {"id": tile.id, "kind": tile.kind, "title": tile.title, "report": tile.report_asked}
    if isinstance(tile, Chart | Table):
        told["empty"] = tile.empty
    if isinstance(tile, Chart):
        spec = completed(tile)
        tips = list(_tips_of(spec))
        for tip in tips:
            if tip.get("type") == "temporal":
                tip["format"] = "%Q"  # The page writes it as the reader's locale does.
        return told | {
            "spec": spec,
            "height": tile.height,
            "select": tile.select,
            "compare": tile.compare and tile.compare.x,
            "columns": {tip["field"]: tip["title"] for tip in tips if "field" in tip and "title" in tip},
            "times": [tip.get("title") for tip in tips if tip.get("type") == "temporal"],
        }
    if isinstance(tile, Table):
        return told | {"columns": tile.columns, "select": tile.select}
    return told | {"format": tile.format}


def _tips_of(spec: Any) -> Iterator[dict[str, Any]]:
    """What each tooltip of a spec tells."""
    if isinstance(spec, dict):
        tooltip = spec.get("tooltip")
        if isinstance(tooltip, list):
            yield from tooltip
        for part in spec.values():
            yield from _tips_of(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _tips_of(part)


async def lead_in(request: Request) -> Response:
    """Redirect `/` to the dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    return await pages.lead_in(request)


async def show_list(request: Request) -> Response:
    """Show the list of dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    return await pages.show_list(request)


async def show_inspector(request: Request) -> Response:
    """Show the inspector."""
    pages: DashboardPages = request.state.dashboard_pages
    return await pages.show_inspector(request)


async def show_dashboard(request: Request) -> Response:
    """Show a dashboard."""
    pages: DashboardPages = request.state.dashboard_pages
    return await pages.show_dashboard(request)


ROUTES = [
    Route("/", lead_in),
    Route("/dashboards", show_list),
    Route("/dashboards/", show_list),
    Route("/dashboards/inspector", show_inspector),
    Route("/dashboards/{name}", show_dashboard),
]
_REASONS = (Reason.PLAIN_HTTP, Reason.WRONG_KIND, Reason.BAD_PARAMETER, Reason.NOT_READY, *ANY_REQUEST)


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    filters = [
        *event_filter_parameters(),
        *(parameter for parameter in scope_parameters() if parameter["name"] in EVENT_FILTERS),
    ]
    named = [NAME_PARAMETER, *period_parameters()]
    return [
        Operation("get", "/", "leadIn", "Redirect to the dashboards", (307, "Redirects to `/dashboards/`.", {})),
        _page_operation("/dashboards", "listDashboards", "Show the list of dashboards"),
        _page_operation("/dashboards/", "showDashboards", "Show the list of dashboards"),
        _page_operation("/dashboards/inspector", "showInspector", "Show events as they arrive", parameters=filters),
        _page_operation("/dashboards/{name}", "showDashboard", "Show a dashboard", Reason.NOT_FOUND, parameters=named),
    ]


def _page_operation(
    path: str, operation_id: str, summary: str, *reasons: Reason, parameters: Sequence[Schema] = ()
) -> Operation:
    return Operation(
        "get",
        path,
        operation_id,
        summary,
        (200, "The page.", html_page()),
        (*_REASONS, *reasons),
        parameters=parameters,
        others={303: "Redirects to the login form, or to the same page without unknown parameters."},
    )
