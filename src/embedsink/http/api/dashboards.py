"""`/api/v1/dashboards`: the list of dashboards, the definition of each, and the data of a section's charts, as JSON.

`http/pages/dashboards.py` has the HTML pages, and `http/dashboard_registry.py` the dashboards of the server.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.dashboards.model import Gauge, Section
from embedsink.dashboards.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.dashboards.period import PERIODS, Period, period_of
from embedsink.dashboards.query import query_section
from embedsink.dashboards.time_axis import span_of
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.http.authentication import require_key
from embedsink.http.dashboard_registry import DashboardRegistry
from embedsink.http.etag import EtagCheck, representation_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.gauges import read_gauges
from embedsink.http.openapi.errors import ACCESS_REASONS, SCOPE_REASONS
from embedsink.http.openapi.operation import NOT_MODIFIED, READERS, Operation, Success
from embedsink.http.openapi.parameters import (
    SWITCH,
    directory_filter_parameters,
    if_none_match,
    parameter,
    scope_parameters,
    surface_parameter,
    timezone_parameter,
)
from embedsink.http.openapi.parts import TEXT, Schema, array, object_of
from embedsink.http.query_params import check_parameters
from embedsink.http.section_cache import SectionCache
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import depends_on_directory
from embedsink.reports.scope import DIRECTORY_PARAMETERS
from embedsink.settings import Settings
from embedsink.store.reader import Reader

PATH = "/api/v1/dashboards"
DASHBOARD_PATH = f"{PATH}/{{name}}"
SECTION_PATH = f"{DASHBOARD_PATH}/sections/{{section}}"
_LISTED_FIELDS = {"title", "description"}


async def list_dashboards(request: Request) -> Response:
    """Answer with the name, the title and the description of each valid dashboard."""
    require_key(request, KeyKind.READ)
    check_parameters(request.query_params, allowed=())
    dashboards: DashboardRegistry = request.state.dashboards
    listed_dashboards = [
        {"name": name} | dashboard.model_dump(include=_LISTED_FIELDS) for name, dashboard in dashboards.by_name.items()
    ]
    return Response(orjson.dumps(listed_dashboards), media_type="application/json", headers=NO_CACHE)


async def show_dashboard(request: Request) -> Response:
    """Answer with the definition of a dashboard: the JSON of its file."""
    require_key(request, KeyKind.READ)
    check_parameters(request.query_params, allowed=())
    dashboards: DashboardRegistry = request.state.dashboards
    definition = dashboards.find(request.path_params["name"]).model_dump_json(exclude_unset=True)
    return Response(definition, media_type="application/json", headers=NO_CACHE)


async def show_section(request: Request) -> Response:
    """Answer with the data of a section in the reader's scope; 304 if the client already has the data."""
    key = require_key(request, KeyKind.READ)
    section = _find_section(request)
    # In a thread: checking a `timezone` loads the list of all time zones once, and compares a misspelt one with all.
    period = await run_in_threadpool(parse_period, request, key)
    etag = _section_etag_check(request, key, section)
    if etag.is_not_modified:
        return etag.not_modified_response(NO_CACHE)
    if all(isinstance(tile, Gauge) for tile in section.tiles):
        # All tiles are current values of the server, so the response needs no query and must not be cached.
        gauges = _visible_gauges(request, key, section)
        # In a thread: the first request for a time zone reads the file of the zone.
        content = await run_in_threadpool(_section_content, period, now=datetime.now(UTC), charts=gauges)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(orjson.dumps(content), media_type="application/json", headers=headers)
    if etag.is_hidden:
        # Loads of other tenants replace a cached response, so its age would show when they load.
        query = partial(_query_section, request, key, section)
        throttle = request.state.engine.limiters.dashboards
        body = await cancel_on_disconnect(request, throttle.run(query, key_id=key.key_id))
        return Response(body, media_type="application/json", headers=NO_CACHE)
    tag, body = await cancel_on_disconnect(request, _cached_section(request, key, section))
    return Response(body, media_type="application/json", headers=NO_CACHE | {"ETag": tag})


def parse_period(request: Request, key: Key) -> Period:
    """Return the requested period, within the key's scope.

    Raises:
        Refused: a parameter is unknown or invalid (`bad_parameter`), or a deployment or a tenant is outside the
            key's scope (`out_of_scope`).
    """
    query = request.query_params
    check_parameters(query, PERIOD_PARAMETERS)
    params = {name: query.get(name) for name in PERIOD_PARAMETERS}
    allowed = request.state.engine.privacy.stored_scope(key.scope)
    return period_of(params, deployments=query.getlist("deployment"), allowed=allowed, now=datetime.now(UTC))


def _section_etag_check(request: Request, key: Key, section: Section) -> EtagCheck:
    """Return the entity tag of the requested section, and whether the client has the section with this tag."""
    # Even without new events, a period such as 7d moves on, and a pending AI query becomes abandoned.
    reads_directory = any(tile.report_name and depends_on_directory(tile.report_name) for tile in section.tiles)
    has_filter = not request.query_params.keys().isdisjoint(DIRECTORY_PARAMETERS)
    return EtagCheck.of(request, key, depends_on_clock=True, depends_on_directory=reads_directory or has_filter)


def _find_section(request: Request) -> Section:
    """Return the section in the URL.

    Raises:
        Refused: the dashboard or the section does not exist (`not_found`).
        Unavailable: the dashboard is invalid (`not_ready`).
    """
    dashboards: DashboardRegistry = request.state.dashboards
    name, section_id = request.path_params["name"], request.path_params["section"]
    dashboard = dashboards.find(name)
    section = dashboard.section(section_id)
    if section is None:
        sections = ", ".join(section.id for section in dashboard.sections)
        raise Refused(
            Reason.NOT_FOUND, f"section {preview(section_id)} does not exist in {name}. Sections: {sections}."
        )
    return section


async def _cached_section(request: Request, key: Key, section: Section) -> tuple[str, bytes]:
    """Return the entity tag and the JSON of a section, from the cache or from a throttled query."""
    engine: Engine = request.state.engine
    cache: SectionCache = request.state.section_cache
    return await cache.get(
        representation_key(request, key),
        # The cache calls this again after the wait for a slot: events loaded meanwhile have changed the tag.
        current_tag=lambda: _section_etag_check(request, key, section).tag,
        query=lambda: _query_section(request, key, section),
        throttle=engine.limiters.dashboards,
        key_id=key.key_id,
    )


async def _query_section(request: Request, key: Key, section: Section) -> bytes:
    """Run the query of a section in a thread. Return the body of the response."""
    engine: Engine = request.state.engine
    # Parse the period again: the request may have waited, and a relative period must end when the query starts.
    period = await run_in_threadpool(parse_period, request, key)
    read = partial(_read_section, request=request, key=key, section=section, period=period)
    open_reader = partial(engine.store.reader, period.scope.variables())
    return await run_query(engine, engine.limiters.reports.slot(key.key_id), open_reader, read)


def _read_section(reader: Reader, *, request: Request, key: Key, section: Section, period: Period) -> bytes:
    """Return the body of the response for a section. This function runs in a thread."""
    dashboards: DashboardRegistry = request.state.dashboards
    reports = dashboards.reports_for(request.state.engine, request.path_params["name"])
    now = datetime.now(UTC)
    charts = query_section(reader, section, period, reports=reports, now=now) | _visible_gauges(request, key, section)
    return orjson.dumps(_section_content(period, now=now, charts=charts))


def _visible_gauges(request: Request, key: Key, section: Section) -> dict[str, Any]:
    """Return the value of each gauge in a section, by tile id; None if the key must not see it."""
    # Gauges are totals over everything, so a limited key must not see them.
    return read_gauges(request.state.engine, section, is_hidden=key.scope.is_limited)


def _section_content(period: Period, *, now: datetime, charts: dict[str, Any]) -> dict[str, Any]:
    """Return the response: the period, whether a previous period is included, and the data of each tile by its id."""
    return {
        "span": span_of(period.scope, now=now),
        "interval": period.scope.interval,
        "compared": period.before is not None,
        "charts": charts,
    }


ROUTES = [
    Route(PATH, list_dashboards),
    Route(DASHBOARD_PATH, show_dashboard),
    Route(SECTION_PATH, show_section),
]
NAME_PARAMETER = parameter("name", {"type": "string", "examples": ["overview"]}, "The dashboard.", location="path")


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [_list_operation(), _dashboard_operation(), _section_operation()]


def period_parameters() -> list[Schema]:
    """Return the parameters of a dashboard's period and scope."""
    period = "The length of the period up to now. Use `since` and `until` for other periods. Default: 7d."
    return [
        parameter("period", {"enum": list(PERIODS)}, period),
        parameter("compare", SWITCH, "Whether to include the previous period. Default: on."),
        surface_parameter(),
        timezone_parameter(),
        *scope_parameters(),
        *directory_filter_parameters(),
    ]


def _list_operation() -> Operation:
    return Operation(
        method="get",
        path=PATH,
        id="readDashboards",
        summary="List all dashboards with their titles",
        success=Success(
            200,
            "The dashboards.",
            {"application/json": array(object_of({"name": TEXT, "title": TEXT, "description": TEXT}))},
        ),
        error_reasons=ACCESS_REASONS,
        key_kinds=READERS,
    )


def _dashboard_operation() -> Operation:
    definition = {"type": "object", "required": ["title", "description", "sections"]}
    return Operation(
        method="get",
        path=DASHBOARD_PATH,
        id="readDashboard",
        summary="Read the definition of a dashboard: its sections, their charts, and the report of each chart",
        success=Success(200, "The dashboard.", {"application/json": definition}),
        error_reasons=(*ACCESS_REASONS, Reason.NOT_FOUND),
        key_kinds=READERS,
        parameters=[NAME_PARAMETER],
    )


def _section_operation() -> Operation:
    span = array({"type": "integer"}) | {"minItems": 2, "maxItems": 2}
    content = object_of({"span": span, "interval": TEXT, "compared": {"type": "boolean"}, "charts": {"type": "object"}})
    section = parameter("section", {"type": "string", "examples": ["quality"]}, "The section.", location="path")
    return Operation(
        method="get",
        path=SECTION_PATH,
        id="readSection",
        summary="Read the data of a section: the rows and numbers of each chart, by the id of the chart",
        success=Success(
            200,
            "The section's data. Times are local times, encoded as if they were UTC, in epoch milliseconds.",
            {"application/json": content},
        ),
        error_reasons=(*SCOPE_REASONS, Reason.NOT_FOUND, Reason.OVERLOADED, Reason.STORAGE_LOW),
        key_kinds=READERS,
        parameters=[NAME_PARAMETER, section, *period_parameters(), if_none_match()],
        response_headers={"ETag": "Send it in If-None-Match."},
        other_statuses=NOT_MODIFIED,
    )
