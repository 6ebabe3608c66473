"""The ASGI application, and the objects that it opens at start."""

import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.errors import EmbedsinkError
from embedsink.http.anonymous_limits import AnonymousLimitMiddleware
from embedsink.http.api.events import IngestEndpoint
from embedsink.http.dashboards import Dashboards
from embedsink.http.ingest_admission import Admission
from embedsink.http.openapi.builder import OpenApi
from embedsink.http.pages.dashboards import DashboardPages
from embedsink.http.pages.docs import Docs
from embedsink.http.pages.error_page import with_error_page
from embedsink.http.pages.login import LoginPage
from embedsink.http.pages.vega_bundle import VegaBundle
from embedsink.http.problems import answer_bug, answer_http_error, answer_refusal, ignore_disconnect
from embedsink.http.query_params import QueryLimits
from embedsink.http.resources import all_routes, describe_api
from embedsink.http.section_cache import SectionCache
from embedsink.http.sessions import Sessions
from embedsink.http.transport import Transport
from embedsink.settings import Settings


class _Parts(TypedDict):
    """The parts of the server above the engine."""

    events: IngestEndpoint
    admission: Admission
    transport: Transport
    sessions: Sessions
    dashboards: Dashboards
    section_cache: SectionCache
    dashboard_pages: DashboardPages
    login_page: LoginPage
    docs: Docs
    vega: VegaBundle
    openapi: OpenApi


class State(_Parts):
    """The `request.state` of every request, and the `app_state` of connections."""

    engine: Engine


@dataclass(frozen=True, slots=True)
class Demo:
    """The additions of `embedsink demo`.

    Args:
        routes: the routes of its pages.
        dashboard_token: the token of a read key, with which dashboards open without a login on this machine.
    """

    routes: Sequence[BaseRoute]
    dashboard_token: str


# A stopping server leaves the rest of a long backlog to the next start.
CLOSING_S_MAX = 3.0

# Any, because each handler accepts one type of exception, and Starlette's type requires that it accepts all.
HANDLERS: Mapping[Any, Any] = {
    EmbedsinkError: with_error_page(answer_refusal),
    HTTPException: with_error_page(answer_http_error),
    ClientDisconnect: ignore_disconnect,
    Exception: with_error_page(answer_bug),
}


def create_app(
    folder: DataFolder,
    settings: Settings,
    *,
    transport: Transport = Transport.ANYTHING,
    on_failed: Callable[[], None] = lambda: None,
    demo: Demo | None = None,
) -> Starlette:
    """Return the ASGI application of a data folder.

    Args:
        folder: the data folder, which is open between start and end of the application.
        settings: the limits.
        transport: the connections over which keys are accepted.
        on_failed: called in another thread when the disk has failed and the program should end.
        demo: the additions of `embedsink demo`.

    Raises:
        Misconfigured: a built-in dashboard is invalid.
    """
    parts = _create_parts(folder, settings, transport, demo)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[State]:
        opening = Engine(folder, settings, on_journal_failure=on_failed, closing_s_max=CLOSING_S_MAX)
        async with opening as engine, aclosing(parts["vega"]), aclosing(parts["events"].pool):
            if engine.store.is_open:
                parts["dashboards"].check(engine)
            if demo is not None:
                parts["vega"].prepare()
            _tune_garbage_collector()
            yield State(engine=engine, **parts)

    app = Starlette(
        # The demo comes first, because it replaces `/`.
        routes=[*(demo.routes if demo else ()), *all_routes()],
        middleware=[
            Middleware(AnonymousLimitMiddleware, limits=parts["admission"].anonymous_limits),
            Middleware(QueryLimits, refuse=HANDLERS[EmbedsinkError]),
        ],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # A redirected POST may lose its body.
    return app


def _create_parts(folder: DataFolder, settings: Settings, transport: Transport, demo: Demo | None) -> _Parts:
    endpoint, dashboards, vega = IngestEndpoint(settings), Dashboards(folder.dashboards), VegaBundle(folder)
    openapi = describe_api(settings)
    return _Parts(
        events=endpoint,
        admission=endpoint.admission,
        transport=transport,
        sessions=Sessions(settings.login_timeout_s, is_framed=settings.frame_origins != "none"),
        dashboards=dashboards,
        section_cache=SectionCache(),
        dashboard_pages=DashboardPages(dashboards, vega, settings, demo_token=demo.dashboard_token if demo else None),
        login_page=LoginPage(settings),
        docs=Docs(openapi),
        vega=vega,
        openapi=openapi,
    )


def _tune_garbage_collector() -> None:
    # Each full collection of the objects created at the start takes 10 ms. Without these, p99 falls from 14 to 4 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
