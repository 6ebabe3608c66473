"""`/docs`: the documentation pages, generated from the OpenAPI description and the report catalog."""

import asyncio
import gzip
from dataclasses import dataclass
from html import escape
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink import __version__
from embedsink.auth.keys import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, preview
from embedsink.http.base_url import base_url_of
from embedsink.http.cached_file import TaggedFile
from embedsink.http.cors import INGEST_PATH
from embedsink.http.etag import content_etag
from embedsink.http.openapi.builder import OpenApi
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import TEXT, Schema, html_page
from embedsink.http.pages.docs_content import messages_of, shown_reasons
from embedsink.http.pages.docs_examples import examples
from embedsink.http.pages.schema_text import type_text
from embedsink.http.pages.templating import STATIC_PAGE_HEADERS, render
from embedsink.http.security_headers import NO_CACHE
from embedsink.key_scope import EVERYTHING
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports
from embedsink.reports.format import REPORT_FORMATS
from embedsink.settings import Settings

# Clients choose the Host header, so the number of compressed pages in memory (about 5 kB each) is limited.
COMPRESSED_PAGES_MAX = 256
# Each response replaces this URL with the base URL of its request. No host can have this name (RFC 2606, section 2).
_PLACEHOLDER_URL = "https://this-server.invalid"
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Tab:
    """A page in the navigation bar.

    Args:
        path: the URL path.
        title: the label.
        template: the name of the template.
        anchor: the id of the section on the start page that links to this page.
    """

    path: str
    title: str
    template: str
    anchor: str = ""


TABS = (
    Tab("/docs", "Start", "docs/start.html"),
    Tab("/docs/sending", "Sending events", "docs/sending.html", "send"),
    Tab("/docs/messages", "Message types", "docs/messages.html", "messages"),
    Tab("/docs/api", "API reference", "docs/api.html", "operations"),
    Tab("/docs/reports", "Reports", "docs/reports.html", "reports"),
    Tab("/docs/errors", "Errors", "docs/errors.html", "reasons"),
)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of HTTP operations, and the URL path of its page."""

    name: str
    path: str
    description: str
    operations: list[Operation]


class Docs:
    """The documentation pages. They require no key.

    The pages are rendered once, with a placeholder for the base URL, and compressed once for each base URL.
    """

    def __init__(self, openapi: OpenApi) -> None:
        self._openapi = openapi
        self._render_lock = asyncio.Lock()
        self._html_by_path: dict[str, str] = {}
        self._compressed_pages: dict[tuple[str, str], TaggedFile] = {}  # by path and base URL

    async def show(self, request: Request) -> Response:
        """Return a page whose examples contain the base URL of the request, or 304 if the client has this page.

        Raises:
            Refused: the page does not exist (`not_found`).
            Unavailable: the store, which describes the reports, is unavailable (`not_ready`).
        """
        html_by_path = await self._rendered_pages(request.state.engine)
        path = "/".join(("/docs", *request.path_params.values()))  # such as `/docs/reports/views`
        if path not in html_by_path:
            raise Refused(Reason.NOT_FOUND, f"{preview(path)} does not exist. /docs lists all pages.")
        file = await self._with_base_url(path, html_by_path[path], base_url_of(request))
        return await file.answer(request, STATIC_PAGE_HEADERS | NO_CACHE)

    async def _with_base_url(self, path: str, html: str, base_url: str) -> TaggedFile:
        """Return a page with this base URL in the examples. Compress and cache it unless the cache is full."""
        cached = self._compressed_pages.get((path, base_url))
        if cached is not None:
            return cached
        body = html.replace(_PLACEHOLDER_URL, escape(base_url)).encode()
        tag = f"W/{content_etag(body)}"
        if len(self._compressed_pages) >= COMPRESSED_PAGES_MAX:
            # Without the cache, each request would compress the page again.
            return TaggedFile(_HTML, tag, body)
        file = TaggedFile(_HTML, tag, compressed=await run_in_threadpool(gzip.compress, body))
        self._compressed_pages[path, base_url] = file
        return file

    async def _rendered_pages(self, engine: Engine) -> dict[str, str]:
        """Return the HTML of all pages by URL path. The first call renders the pages, and later calls reuse them."""
        async with self._render_lock:
            if not self._html_by_path:
                self._html_by_path = await run_in_threadpool(self._render, engine)
            return self._html_by_path

    def _render(self, engine: Engine) -> dict[str, str]:
        """Return the HTML of all pages by URL path, with a placeholder for the base URL."""
        with engine.store.reader(EVERYTHING.variables(), is_short=True) as reader:
            reports = all_reports(reader)
        return docs_pages(self._openapi, reports, base_url=_PLACEHOLDER_URL)


def docs_pages(openapi: OpenApi, reports: list[Report], *, base_url: str) -> dict[str, str]:
    """Return the HTML of all documentation pages by URL path.

    Args:
        openapi: the description of the server, with its settings.
        reports: the report catalog.
        base_url: the scheme, host and port in the examples.
    """
    groups = [
        _Group(group.name, _group_path(group.name), group.description, list(group.operations))
        for group in openapi.groups
    ]
    shared_variables = _shared_variables(openapi, groups, reports, base_url)
    pages = {}

    def add_page(path: str, template: str, **variables: Any) -> None:
        pages[path] = render(template, path=path, **shared_variables, **variables)

    for tab in TABS:
        add_page(tab.path, tab.template, title="embedsink documentation" if tab.path == "/docs" else tab.title)
    for group in groups:
        add_page(group.path, "docs/operations.html", title=group.name, group=group)
    for report in reports:
        add_page(f"/docs/reports/{report.name}", "docs/report.html", title=report.title, report=report)
    return pages


def _group_path(group_name: str) -> str:
    """Return the URL path of a group's page: the name in lower case, with hyphens instead of spaces."""
    return f"/docs/api/{group_name.lower().replace(' ', '-')}"


def _shared_variables(openapi: OpenApi, groups: list[_Group], reports: list[Report], base_url: str) -> dict[str, Any]:
    """Return the variables that every template gets."""
    settings = openapi.settings
    return {
        "base_url": base_url,
        "examples": examples(settings.service_name),
        "formats": [str(format) for format in REPORT_FORMATS],
        "groups": groups,
        "ingest_path": INGEST_PATH,
        "key_kinds": [str(kind) for kind in KeyKind],
        "messages": messages_of(openapi.document["components"]["schemas"]),
        "operation_links": _operation_links(groups),
        "reasons": shown_reasons(),
        "reports": reports,
        "settings": settings,
        "tabs": TABS,
        "type_text": type_text,
        "version": __version__,
    }


def _operation_links(groups: list[_Group]) -> dict[str, str]:
    """Return a link to each operation in the documentation, by operation id."""
    return {operation.id: f"{group.path}#{operation.id}" for group in groups for operation in group.operations}


async def show_docs(request: Request) -> Response:
    """Show a page of the documentation."""
    docs: Docs = request.state.docs
    return await docs.show(request)


ROUTES = [
    Route("/docs", show_docs),
    Route("/docs/{section}", show_docs),
    Route("/docs/{section}/{page}", show_docs),
]


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operations of the routes."""
    section = parameter("section", TEXT, "The section, such as `sending`, `api` or `reports`.", location="path")
    page = parameter("page", TEXT, "The page of the section, such as the name of a report.", location="path")
    return [
        _page_operation("/docs", "showDocs", "Show the start page of the documentation"),
        _page_operation("/docs/{section}", "showDocsSection", "Show a section of the documentation", section),
        _page_operation(
            "/docs/{section}/{page}", "showDocsPage", "Show a group of operations, or a report", section, page
        ),
    ]


def _page_operation(path: str, operation_id: str, summary: str, *parameters: Schema) -> Operation:
    """Return the OpenAPI operation of a page. Only pages with a parameter in the path can be unknown."""
    reasons = [Reason.NOT_READY, *ANY_REQUEST_REASONS]
    if parameters:
        reasons.insert(0, Reason.NOT_FOUND)
    return Operation(
        method="get",
        path=path,
        id=operation_id,
        summary=summary,
        success=Success(200, "The page.", html_page()),
        error_reasons=tuple(reasons),
        parameters=[*parameters, if_none_match()],
        response_headers={"ETag": "Send it in If-None-Match."},
        other_statuses={304: "The page has not changed."},
    )
