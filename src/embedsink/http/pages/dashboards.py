"""`/dashboards/`: the list of dashboards, each dashboard, and the inspector as HTML pages."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.dashboards.files import INSPECTOR as INSPECTOR_NAME
from embedsink.dashboards.files import is_page_name
from embedsink.dashboards.labels import NO_DATA
from embedsink.dashboards.model import Chart, Dashboard, Gauge, Section, Table, Tile
from embedsink.dashboards.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.dashboards.period import PERIODS
from embedsink.dashboards.theme import DARK, LIGHT, vega_config
from embedsink.dashboards.vega_spec import complete_spec
from embedsink.engine import Engine
from embedsink.errors import Refused, nearest, redact_keys
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
# Comparing one unknown name takes up to 0.5 ms of the event loop.
UNKNOWN_NAMES_MAX = 16
# Percent-encoding can triple the length, which has to stay within the limit of a query.
NEXT_QUERY_CHARACTERS_MAX = 2_048


class Link(NamedTuple):
    """A dashboard or the inspector in the navigation bar and in the list."""

    name: str
    title: str
    description: str


INSPECTOR = Link(INSPECTOR_NAME, "Inspector", "Live list of accepted and rejected envelopes.")


class DashboardPages:
    """The dashboard pages. Without a login they redirect to the login form, which returns to the page.

    Args:
        dashboards: the dashboard files.
        vega: the chart library.
        settings: with the service name and the origins that may embed the pages.
        token: the demo's token, which logs in every reader on this machine; None for other servers.
    """

    def __init__(self, dashboards: Dashboards, vega: VegaBundle, settings: Settings, *, token: str | None) -> None:
        self.dashboards = dashboards
        self.vega = vega
        self.headers = page_headers(frame_origins=settings.frame_origins)
        self._token = token
        self.types = sorted({name.rpartition(":")[2] for name in catalog_for(settings.service_name).types})

    def redirect(self, request: Request, known: Sequence[str]) -> Response | None:
        """Return a redirect to the login or to the URL without foreign parameters, or None to show the page.

        The login is checked first, so that only authenticated readers cause comparisons of names.

        Raises:
            Refused: `bad_parameter` for a misspelt name, because ignoring a filter would show unfiltered data.
        """
        check_transport(request.scope)
        key = session_key(request, allow_cross_site_navigation=True) or self._demo_key(request)
        if key is None:
            return RedirectResponse(_login_url(request), 303, headers=self.headers)
        check_kind(key, [KeyKind.READ])
        params = request.query_params.multi_items()
        foreign = _foreign_parameters([name for name, _ in params], known)
        if foreign:
            query = urlencode([(name, value) for name, value in params if name not in foreign])
            return RedirectResponse(f"{request.url.path}?{query}".rstrip("?"), 303, headers=self.headers)
        check_parameters(request.query_params, known)
        return None

    async def page(self, request: Request, template: str, **variables: Any) -> Response:
        """Return a page. The demo's pages also log the reader in."""
        # Rendering takes up to 20 ms, and 100 ms the first time: a thread keeps the event loop free.
        page = await run_in_threadpool(render, template, links=self._links(), **variables)
        headers = self.headers | {"Cache-Control": "private, no-store"}
        sessions: Sessions = request.state.sessions
        if session_key(request, allow_cross_site_navigation=True) is None and (key := self._demo_key(request)):
            headers["Set-Cookie"] = sessions.cookie(key, request)
        return HTMLResponse(page, headers=headers)

    def _demo_key(self, request: Request) -> Key | None:
        """Return the demo's key if the reader is on this machine."""
        if self._token is None or not is_loopback_host(request):
            return None
        engine: Engine = request.state.engine
        return find_key(self._token, engine)

    def _links(self) -> list[Link]:
        links = [Link(name, one.title, one.description) for name, one in self.dashboards.by_name.items()]
        invalid = [
            Link(name, name, message) for name, message in sorted(self.dashboards.errors.items()) if is_page_name(name)
        ]
        return [*links, *invalid, INSPECTOR]


def _login_url(request: Request) -> str:
    """Return the URL of the login with the page to return to, without keys and without an overlong query."""
    path, query = request.url.path, request.url.query
    page = f"{path}?{query}" if query and len(query) <= NEXT_QUERY_CHARACTERS_MAX else path
    return f"/login?next={quote_plus(redact_keys(page))}"


def _foreign_parameters(names: Sequence[str], known: Sequence[str]) -> set[str]:
    """Return the unknown parameters that are not misspelt parameters of the page.

    Mail programs, chats and advertisements add parameters to links. The tabs add the period, also for pages that have
    none.

    Raises:
        Refused: `bad_parameter` for more unknown names than are compared.
    """
    unknown = set(names) - set(known)
    if len(unknown) > UNKNOWN_NAMES_MAX:
        limit = f"at most {UNKNOWN_NAMES_MAX} are allowed. Remove some."
        raise Refused(Reason.BAD_PARAMETER, f"query: has {len(unknown)} unknown parameters; {limit}")
    return {name for name in unknown if name in PERIOD_PARAMETERS or nearest(name, known) is None}


def _page_config(name: str, dashboard: Dashboard, reports: dict[str, Report], vega_path: str) -> dict[str, Any]:
    """Return the configuration of the page's scripts."""
    used = {tile.report for section in dashboard.sections for tile in section.tiles if not isinstance(tile, Gauge)}
    return {
        "name": name,
        "sections": [_section_config(section) for section in dashboard.sections],
        # The values of a column are its type, unit and description.
        "columns": {
            report: {column.name: [column.type, column.unit, column.description] for column in reports[report].columns}
            for report in sorted(used)
        },
        "themes": {"light": vega_config(LIGHT), "dark": vega_config(DARK)},
        "backgrounds": {"light": LIGHT.card, "dark": DARK.card},
        "vega": vega_path,
    }


def _section_config(section: Section) -> dict[str, Any]:
    return {"id": section.id, "tiles": [_tile_config(tile) for tile in section.tiles]}


def _tile_config(tile: Tile) -> dict[str, Any]:
    config: dict[str, Any] = {"id": tile.id, "kind": tile.kind, "title": tile.title, "report": tile.report_name}
    if isinstance(tile, Chart | Table):
        config["empty"] = tile.empty
    if isinstance(tile, Chart):
        spec = complete_spec(tile)
        tooltips = list(_tooltips_of(spec))
        for tooltip in tooltips:
            if tooltip.get("type") == "temporal":
                tooltip["format"] = "%Q"  # The page formats it in the reader's locale.
        return config | {
            "spec": spec,
            "height": tile.height,
            "select": tile.select,
            "compare": tile.compare and tile.compare.x,
            "columns": {
                tooltip["field"]: tooltip["title"] for tooltip in tooltips if "field" in tooltip and "title" in tooltip
            },
            "times": [tooltip.get("title") for tooltip in tooltips if tooltip.get("type") == "temporal"],
        }
    if isinstance(tile, Table):
        return config | {"columns": tile.columns, "select": tile.select}
    return config | {"format": tile.format}


def _tooltips_of(spec: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of each tooltip of a spec."""
    if isinstance(spec, dict):
        tooltip = spec.get("tooltip")
        if isinstance(tooltip, list):
            yield from tooltip
        for part in spec.values():
            yield from _tooltips_of(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _tooltips_of(part)


async def redirect_to_dashboards(request: Request) -> Response:
    """Redirect `/` to the dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    return RedirectResponse("/dashboards/", 307, headers=pages.headers | NO_STORE)


async def show_list(request: Request) -> Response:
    """Show the list of dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    return pages.redirect(request, ()) or await pages.page(request, "dashboards.html", name="")


async def show_dashboard(request: Request) -> Response:
    """Show one dashboard."""
    pages: DashboardPages = request.state.dashboard_pages
    if other := pages.redirect(request, PERIOD_PARAMETERS):
        return other
    name = request.path_params["name"]
    dashboard = pages.dashboards.find(name)
    reports = await run_in_threadpool(pages.dashboards.reports, request.state.engine, name)
    pages.vega.prepare()
    return await pages.page(
        request,
        "dashboard.html",
        name=name,
        dashboard=dashboard,
        periods={name: f"{name[:-1]} {_UNITS[name[-1]]}" for name in PERIODS},
        reports=reports,
        surfaces=SURFACES,
        nothing=NO_DATA,
        config=_page_config(name, dashboard, reports, pages.vega.path),
        vega=pages.vega.path,
    )


async def show_inspector(request: Request) -> Response:
    """Show the live list of envelopes (docs/inspector.md)."""
    pages: DashboardPages = request.state.dashboard_pages
    if other := pages.redirect(request, EVENT_FILTERS):
        return other
    return await pages.page(request, "inspector.html", name=INSPECTOR.name, types=pages.types)


ROUTES = [
    Route("/", redirect_to_dashboards),
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
