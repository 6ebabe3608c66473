"""The application: its routes, and what is opened when it starts."""

import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.errors import EmbedsinkError
from embedsink.http.anonymous_limits import AnonymousLimitMiddleware
from embedsink.http.api import (
    browser,
    dashboards,
    dbt_syncs,
    deployments,
    exports,
    health,
    inspection,
    live,
    quarantine,
    reports,
)
from embedsink.http.api.dashboards import Dashboards
from embedsink.http.api.events import IngestEndpoint
from embedsink.http.cors import INGEST_PATH
from embedsink.http.openapi.builder import describe
from embedsink.http.pages.assets import show_file
from embedsink.http.pages.dashboards import DashboardPages
from embedsink.http.pages.docs import Docs
from embedsink.http.pages.error_page import for_people
from embedsink.http.pages.login import LoginPage
from embedsink.http.pages.vega_bundle import VegaBundle
from embedsink.http.problems import answer_bug, answer_http_error, answer_refusal, explain_problem, ignore_disconnect
from embedsink.http.query_params import QueryLimits
from embedsink.http.rate_limiter import RateLimiter
from embedsink.http.sessions import Sessions
from embedsink.http.transport import Transport
from embedsink.http.wire.request_body import BodyReader
from embedsink.settings import Settings


class State(TypedDict):
    """What every request finds in `request.state`, and the connections in their `app_state`."""

    engine: Engine
    events: IngestEndpoint
    bodies: BodyReader
    rates: RateLimiter
    transport: Transport
    sessions: Sessions


@dataclass(frozen=True, slots=True)
class Demo:
    """What only a demo has beside the server's own.

    Args:
        routes: of its page.
        opened_with: the token of a read key, which dashboards open with for everybody on this machine.
    """

    routes: Sequence[BaseRoute]
    opened_with: str


# A server that is told to end does not load a long backlog first: the next start does.
CLOSING_S_MAX = 3.0

# Starlette's own type for this wants handlers of any exception; these are only ever called with their own.
HANDLERS: Mapping[Any, Any] = {
    EmbedsinkError: for_people(answer_refusal),
    HTTPException: for_people(answer_http_error),
    ClientDisconnect: ignore_disconnect,
    Exception: for_people(answer_bug),
}


def create_app(
    folder: DataFolder,
    settings: Settings,
    *,
    transport: Transport = Transport.ANYTHING,
    on_failed: Callable[[], None] = lambda: None,
    demo: Demo | None = None,
) -> Starlette:
    """The ASGI application on a data folder.

    Args:
        folder: opened when the application starts, and closed when it ends.
        settings: the limits.
        transport: what keys may travel over.
        on_failed: called, in another thread, once the disk has failed and the program should end.
        demo: what only a demo has.

    Raises:
        Misconfigured: a dashboard that embedsink brings along is none.
    """
    events = IngestEndpoint(settings)
    sessions = Sessions(settings.login_timeout_s, is_framed=settings.frame_origins != "none")
    boards, vega = Dashboards(folder.dashboards), VegaBundle(folder)
    shown = DashboardPages(boards, vega, settings, opened_with=demo.opened_with if demo else None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[State]:
        opened = Engine(folder, settings, on_failed=on_failed, closing_s_max=CLOSING_S_MAX, has_senders=True)
        async with opened as engine, aclosing(vega), aclosing(events.pool):
            if engine.store.is_open:
                boards.check(engine)
            if demo is not None:
                vega.prepare()
            _calm_the_garbage_collector()
            yield _state(engine, events, transport, sessions)

    app = Starlette(
        routes=[
            *_routes_of_events(events),
            *_routes_of_reports(boards),
            *_routes_of_pages(shown, LoginPage(settings), Docs(settings), vega),
            *_routes_of_upkeep(),
            # First a demo's own pages: its bare address leads to them.
            *(demo.routes if demo else ()),
            Route("/", shown.lead_in),
        ],
        middleware=[
            Middleware(AnonymousLimitMiddleware, limits=events.anonymous_limits),
            Middleware(QueryLimits, refuse=HANDLERS[EmbedsinkError]),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # An address is right or it is not: a redirected POST may lose its body.
    return app


def _state(engine: Engine, events: IngestEndpoint, transport: Transport, sessions: Sessions) -> State:
    return {
        "engine": engine,
        "events": events,
        "bodies": events.bodies,
        "rates": events.rates,
        "transport": transport,
        "sessions": sessions,
    }


def _routes_of_events(events: IngestEndpoint) -> list[BaseRoute]:
    """What comes in, and how it is watched and tried again."""
    return [
        Route(INGEST_PATH, events, methods=["POST", "OPTIONS"]),
        Route(dbt_syncs.ROUTE, dbt_syncs.sync_result, methods=["GET", "PUT"]),
        Route("/api/v1/events/live", live.show_live),
        Route("/api/v1/inspect", inspection.inspect),
        Route("/api/v1/quarantine", quarantine.quarantine, methods=["GET", "DELETE"]),
        Route("/api/v1/quarantine/replay", quarantine.replay, methods=["POST"]),
    ]


def _routes_of_reports(boards: Dashboards) -> list[BaseRoute]:
    """What readers take away."""
    return [
        Route("/api/v1/reports", reports.list_reports),
        Route("/api/v1/reports/{name}", reports.show_report),
        Route("/api/v1/reports/{name}/schema", reports.show_schema),
        Route("/api/v1/summary.zip", exports.show_summary),
        Route("/api/v1/events.{suffix}", exports.show_events),
        Route("/api/v1/analytics.duckdb", exports.show_snapshot),
        Route("/api/v1/deployments", deployments.list_deployments),
        Route(dashboards.PATH, boards.list_dashboards),
        Route(dashboards.DASHBOARD_ROUTE, boards.show_dashboard),
        Route(dashboards.ROUTE, boards.show_section),
    ]


def _routes_of_pages(shown: DashboardPages, login: LoginPage, docs: Docs, vega: VegaBundle) -> list[BaseRoute]:
    """What people open, and what pages load."""
    return [
        Route("/dashboards", shown.show_list),
        Route("/dashboards/", shown.show_list),
        Route("/dashboards/inspector", shown.show_inspector),
        Route("/dashboards/{name}", shown.show_dashboard),
        Route("/login", login.login, methods=["GET", "POST"]),
        Route("/logout", login.logout, methods=["POST"]),
        Route("/docs", docs.show),
        Route("/pages/vega/{version}.js", vega.show),
        Route("/pages/{name}", show_file),
        Route("/{module}.js", browser.show_file),
        Route("/{module}.d.ts", browser.show_file),
    ]


def _routes_of_upkeep() -> list[BaseRoute]:
    """Whether the server does what it should, and what it says about itself."""
    return [
        Route("/healthz", health.healthz),
        Route("/readyz", health.readyz),
        Route("/metrics", health.metrics),
        Route("/openapi.json", describe),
        Route("/problems/{reason}", explain_problem),
    ]


def _calm_the_garbage_collector() -> None:
    # Full collections of a heap that only ever grew at the start cost 10 ms each: p99 falls from 14 to 4 ms without.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
