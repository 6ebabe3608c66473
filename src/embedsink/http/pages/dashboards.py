"""`/dashboards/`: HTML pages with the list of dashboards, each dashboard, and the inspector."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.dashboards.files import AUDIT as AUDIT_NAME
from embedsink.dashboards.files import INSPECTOR as INSPECTOR_NAME
from embedsink.dashboards.files import is_page_name
from embedsink.dashboards.labels import NO_DATA
from embedsink.dashboards.model import Chart, Dashboard, Gauge, Section, Table, Tile
from embedsink.dashboards.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.dashboards.period import PERIODS
from embedsink.dashboards.theme import DARK, LIGHT, vega_config
from embedsink.dashboards.vega_spec import complete_spec
from embedsink.errors import Refused, nearest, redact_keys
from embedsink.http.api.dashboards import NAME_PARAMETER, period_parameters
from embedsink.http.authentication import check_kind, find_key, session_key
from embedsink.http.dashboard_registry import DashboardRegistry
from embedsink.http.execute import run_short_query
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import deployment_parameters, event_filter_parameters
from embedsink.http.openapi.parts import Schema, html_page
from embedsink.http.pages.templating import page_headers, render
from embedsink.http.pages.vega_bundle import VegaBundle
from embedsink.http.query_params import EVENT_FILTERS, check_parameters
from embedsink.http.security_headers import NO_STORE
from embedsink.http.session_cookie import cookie_header
from embedsink.http.transport import check_transport, is_loopback_host
from embedsink.protocol.messages import catalog_for
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report
from embedsink.reports.directory import has_directory
from embedsink.reports.scope import SURFACES
from embedsink.settings import Settings

_PERIOD_UNITS = {"h": "hours", "d": "days"}
# Comparing one unknown name with the known names blocks the event loop for up to 0.5 ms.
UNKNOWN_NAMES_MAX = 16
# The login URL contains this query percent-encoded, which can triple its length, and the length of URLs is limited.
NEXT_QUERY_CHARACTERS_MAX = 2_048


class Link(NamedTuple):
    """A link to a dashboard, the inspector or the audit trail, in the navigation bar and in the list of dashboards."""

    name: str
    title: str
    description: str


INSPECTOR = Link(INSPECTOR_NAME, "Inspector", "Live list of accepted and rejected envelopes.")
AUDIT = Link(AUDIT_NAME, "Audit", "Who did what: logins, keys, settings and exports.")


class DashboardPages:
    """The dashboard pages. They require a login, except in the demo.

    Args:
        dashboards: the dashboard files.
        vega: the chart library.
        settings: contains the service name and the origins that may embed the pages.
        demo_token: the demo's read key, which logs in every reader on this machine; None for other servers.
    """

    def __init__(
        self, dashboards: DashboardRegistry, vega: VegaBundle, settings: Settings, *, demo_token: str | None
    ) -> None:
        self.dashboards = dashboards
        self.vega = vega
        self.headers = page_headers(frame_origins=settings.frame_origins)
        self._demo_token = demo_token
        self._session_s = settings.login_timeout_s
        full_types = catalog_for(settings.service_name).types
        # Only the last part, such as `view` of `svc:event:view`.
        self.short_types = sorted({full_type.rpartition(":")[2] for full_type in full_types})

    def required_redirect(self, request: Request, *, known_names: Sequence[str]) -> Response | None:
        """Return a redirect to the login, or to the same page without foreign parameters. Return None to show the page.

        A foreign parameter, such as `utm_source`, resembles no known name, and is dropped. A misspelt parameter
        resembles a known name, and is refused. On a page without a period, the parameters of the period are foreign
        too.

        The login is checked before the names: comparing names is slow, so strangers must not be able to start it.

        Raises:
            Refused: the connection is unencrypted (`plain_http`), or the key is not a read key (`wrong_kind`).
            Refused: a parameter is misspelt, and ignoring a misspelt filter would show all data (`bad_parameter`).
        """
        check_transport(request.scope)
        key = self.reader_key(request)
        if key is None:
            return RedirectResponse(_login_url(request), 303, headers=self.headers)
        check_kind(key, [KeyKind.READ])
        params = request.query_params.multi_items()
        foreign_names = _foreign_parameters([name for name, _ in params], known_names)
        if foreign_names:
            kept_params = [(name, value) for name, value in params if name not in foreign_names]
            url = f"{request.url.path}?{urlencode(kept_params)}" if kept_params else request.url.path
            return RedirectResponse(url, 303, headers=self.headers)
        check_parameters(request.query_params, known_names)
        return None

    def reader_key(self, request: Request) -> Key | None:
        """Return the key of the reader's session, or that of the demo; None without a login."""
        # Pages of other sites may link to a dashboard, because showing a page changes nothing.
        return session_key(request, allow_cross_site_navigation=True) or self._demo_key(request)

    async def page(self, request: Request, template: str, **variables: Any) -> Response:
        """Return a page, rendered from a template. In the demo, the page also logs in a reader without a session."""
        key = session_key(request, allow_cross_site_navigation=True)
        links = self._links(is_admin=key is not None and is_unlimited_admin(key))
        # Rendering takes up to 20 ms, and 100 ms the first time, so it runs in a thread.
        html = await run_in_threadpool(render, template, links=links, **variables)
        headers = self.headers | {"Cache-Control": "private, no-store"}
        if key is None:
            demo_key = self._demo_key(request)
            if demo_key is not None:
                token = request.state.credentials.sessions.start(demo_key)
                headers["Set-Cookie"] = cookie_header(request, token, self._session_s)
        return HTMLResponse(html, headers=headers)

    def _demo_key(self, request: Request) -> Key | None:
        """Return the read key of the demo, or None if this is another server or the reader is on another machine."""
        if self._demo_token is None or not is_loopback_host(request):
            return None
        return find_key(self._demo_token, request.state.credentials)

    def _links(self, *, is_admin: bool) -> list[Link]:
        """Return a link to each dashboard, to the inspector, and for admins to the audit trail.

        The link to an invalid dashboard has the error as its description. A name that can't be in a URL has no link.
        """
        valid = [
            Link(name, dashboard.title, dashboard.description) for name, dashboard in self.dashboards.by_name.items()
        ]
        invalid = [
            Link(name, name, message) for name, message in sorted(self.dashboards.errors.items()) if is_page_name(name)
        ]
        return [*valid, *invalid, INSPECTOR, *([AUDIT] if is_admin else [])]


def is_unlimited_admin(key: Key) -> bool:
    """Return whether a key has the permission of an admin, for all deployments and tenants."""
    return KeyKind.ADMIN in key.kinds and not key.scope.is_limited


def _login_url(request: Request) -> str:
    """Return the URL of the login form, with the requested page as the page to show after the login.

    A key in the path or query is redacted. A query that is too long for the URL is omitted.
    """
    path, query = request.url.path, request.url.query
    is_query_retained = 0 < len(query) <= NEXT_QUERY_CHARACTERS_MAX
    next_page = f"{path}?{query}" if is_query_retained else path
    return f"/login?next={quote_plus(redact_keys(next_page))}"


def _foreign_parameters(names: Sequence[str], known_names: Sequence[str]) -> set[str]:
    """Return the foreign parameters: the unknown names that other programs or pages have added to a link.

    Mail programs, chats and advertisements add parameters. The navigation bar adds the period, also for pages without
    a period. Any other name that resembles a known name is probably misspelt, and is not returned.

    Raises:
        Refused: there are too many unknown names to compare (`bad_parameter`).
    """
    unknown_names = set(names) - set(known_names)
    if len(unknown_names) > UNKNOWN_NAMES_MAX:
        advice = f"at most {UNKNOWN_NAMES_MAX} are allowed. Remove some."
        raise Refused(Reason.BAD_PARAMETER, f"query: has {len(unknown_names)} unknown parameters; {advice}")
    return {name for name in unknown_names if name in PERIOD_PARAMETERS or nearest(name, known_names) is None}


def _period_label(period: str) -> str:
    """Return a period in words, such as `7 days` for `7d`."""
    count, unit = period[:-1], period[-1]
    return f"{count} {_PERIOD_UNITS[unit]}"


def _page_config(name: str, dashboard: Dashboard, reports: dict[str, Report], vega_path: str) -> dict[str, Any]:
    """Return the configuration of a page's scripts: the tiles, the columns of the reports, and the themes."""
    tiles = [tile for section in dashboard.sections for tile in section.tiles]
    report_names = sorted({tile.report for tile in tiles if not isinstance(tile, Gauge)})
    return {
        "name": name,
        "sections": [_section_config(section) for section in dashboard.sections],
        "columns": {report_name: _columns_config(reports[report_name]) for report_name in report_names},
        "themes": {"light": vega_config(LIGHT), "dark": vega_config(DARK)},
        "backgrounds": {"light": LIGHT.card, "dark": DARK.card},
        "vega": vega_path,
    }


def _columns_config(report: Report) -> dict[str, list[str]]:
    """Return the type, unit and description of each column of a report."""
    return {column.name: [column.type, column.unit, column.description] for column in report.columns}


def _section_config(section: Section) -> dict[str, Any]:
    """Return the configuration of a section for the page's scripts."""
    return {"id": section.id, "tiles": [_tile_config(tile) for tile in section.tiles]}


def _tile_config(tile: Tile) -> dict[str, Any]:
    """Return the configuration of a tile for the page's scripts: a chart, a table or a number."""
    config: dict[str, Any] = {"id": tile.id, "kind": tile.kind, "title": tile.title, "report": tile.report_name}
    if isinstance(tile, Chart):
        return config | _chart_config(tile)
    if isinstance(tile, Table):
        return config | {"empty": tile.empty, "columns": tile.columns, "select": tile.select}
    return config | {"format": tile.format}


def _chart_config(chart: Chart) -> dict[str, Any]:
    """Return the configuration of a chart for the page's scripts, such as the Vega-Lite specification.

    `compare` is the x column of the dashed line of the previous period. `columns` has the titles of the tooltip fields
    by column, and `times` has the titles of the tooltip fields that contain times.
    """
    spec = complete_spec(chart)
    fields = list(_tooltip_fields(spec))
    time_fields = [field for field in fields if field.get("type") == "temporal"]
    for field in time_fields:
        # This changes `spec`, which contains the field. The tooltip then has epoch milliseconds, and the page formats
        # them in the reader's locale.
        field["format"] = "%Q"
    return {
        "empty": chart.empty,
        "spec": spec,
        "height": chart.height,
        "select": chart.select,
        "compare": chart.compare.x if chart.compare else None,
        "columns": {
            field["field"]: field["title"]
            for field in fields
            if isinstance(field.get("field"), str) and "title" in field
        },
        "times": [field.get("title") for field in time_fields],
    }


def _tooltip_fields(spec: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of all tooltips in a Vega-Lite specification, or in a part of one."""
    if isinstance(spec, dict):
        tooltip = spec.get("tooltip")
        if isinstance(tooltip, list):
            yield from (field for field in tooltip if isinstance(field, dict))
        for part in spec.values():
            yield from _tooltip_fields(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _tooltip_fields(part)


async def redirect_to_dashboards(request: Request) -> Response:
    """Redirect `/` to the dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    return RedirectResponse("/dashboards/", 307, headers=pages.headers | NO_STORE)


async def show_list(request: Request) -> Response:
    """Show the list of dashboards."""
    pages: DashboardPages = request.state.dashboard_pages
    redirect = pages.required_redirect(request, known_names=())  # The list has no parameters.
    if redirect is not None:
        return redirect
    return await pages.page(request, "dashboards.html", name="")  # No link is the current page.


async def show_dashboard(request: Request) -> Response:
    """Show the dashboard with the name in the path."""
    pages: DashboardPages = request.state.dashboard_pages
    redirect = pages.required_redirect(request, known_names=PERIOD_PARAMETERS)
    if redirect is not None:
        return redirect
    name = request.path_params["name"]
    dashboard = pages.dashboards.find(name)
    reports = await run_in_threadpool(pages.dashboards.reports_for, request.state.engine, name)
    key = pages.reader_key(request)
    has_filters = key is not None and await run_short_query(request.state.engine, key, has_directory, scope=key.scope)
    pages.vega.prepare()  # Starts to load the chart library, which the page requests next.
    return await pages.page(
        request,
        "dashboard.html",
        name=name,
        dashboard=dashboard,
        periods={period: _period_label(period) for period in PERIODS},
        reports=reports,
        surfaces=SURFACES,
        has_directory=has_filters,
        has_internal=not request.state.engine.privacy.internal.is_empty,
        no_data=NO_DATA,
        config=_page_config(name, dashboard, reports, pages.vega.path),
        vega=pages.vega.path,
    )


async def show_inspector(request: Request) -> Response:
    """Show the live list of envelopes (docs/inspector.md)."""
    pages: DashboardPages = request.state.dashboard_pages
    redirect = pages.required_redirect(request, known_names=EVENT_FILTERS)
    if redirect is not None:
        return redirect
    return await pages.page(request, "inspector.html", name=INSPECTOR.name, types=pages.short_types)


ROUTES = [
    Route("/", redirect_to_dashboards),
    Route("/dashboards", show_list),
    Route("/dashboards/", show_list),
    Route("/dashboards/inspector", show_inspector),
    Route("/dashboards/{name}", show_dashboard),
]
_REASONS = (Reason.PLAIN_HTTP, Reason.WRONG_KIND, Reason.NOT_READY, *ANY_REQUEST_REASONS)


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operations of the routes."""
    inspector_parameters = [*event_filter_parameters(), *deployment_parameters()]
    dashboard_parameters = [NAME_PARAMETER, *period_parameters()]
    return [
        Operation(
            method="get",
            path="/",
            id="leadIn",
            summary="Redirect to the dashboards",
            success=Success(307, "Redirects to `/dashboards/`.", {}),
        ),
        page_operation("/dashboards", "listDashboards", "Show the list of dashboards"),
        page_operation("/dashboards/", "showDashboards", "Show the list of dashboards"),
        page_operation(
            "/dashboards/inspector", "showInspector", "Show events as they arrive", parameters=inspector_parameters
        ),
        page_operation(
            "/dashboards/{name}",
            "showDashboard",
            "Show a dashboard",
            Reason.NOT_FOUND,
            parameters=dashboard_parameters,
        ),
    ]


def page_operation(
    path: str, operation_id: str, summary: str, *extra_reasons: Reason, parameters: Sequence[Schema] = ()
) -> Operation:
    """Return the OpenAPI operation of a page. `extra_reasons` are error reasons that other pages don't have."""
    return Operation(
        method="get",
        path=path,
        id=operation_id,
        summary=summary,
        success=Success(200, "The page.", html_page()),
        error_reasons=(*_REASONS, *extra_reasons),
        parameters=parameters,
        other_statuses={303: "Redirects to the login form, or to the same page without unknown parameters."},
    )
