"""`/docs`: the documentation pages, generated from the OpenAPI description and the report catalog."""

import asyncio
import gzip
from dataclasses import dataclass, replace
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
from embedsink.http.cached_file import TaggedFile
from embedsink.http.cors import INGEST_PATH
from embedsink.http.etag import content_etag
from embedsink.http.openapi.builder import OpenApi
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import TEXT, Schema, html_page
from embedsink.http.pages.base_url import base_url_of
from embedsink.http.pages.docs_content import messages_of, shown_reasons
from embedsink.http.pages.docs_examples import examples
from embedsink.http.pages.schema_text import type_text
from embedsink.http.pages.templating import HEADERS, render
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports
from embedsink.reports.format import REPORT_FORMATS
from embedsink.settings import Settings
from embedsink.store.reader import EVERYTHING

# Clients choose the Host header, so the number of compressed pages in memory (about 5 kB each) is limited.
COMPRESSED_PAGES_MAX = 256
# No host can have this name (RFC 2606, section 2), so replacing it can't change other text.
_PLACEHOLDER_URL = "https://this-server.invalid"


@dataclass(frozen=True, slots=True)
class Tab:
    """A page in the navigation bar.

    Args:
        path: its URL path.
        title: its label.
        template: the name of its template.
        anchor: its section on the start page.
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
    """A group of operations with the path of its page."""

    name: str
    path: str
    description: str
    operations: list[Operation]


class Docs:
    """The documentation pages. They require no key, so they are rendered once and compressed once for each base URL."""

    def __init__(self, openapi: OpenApi) -> None:
        self._openapi = openapi
        self._rendering = asyncio.Lock()
        self._pages: dict[str, str] = {}
        self._compressed: dict[tuple[str, str], TaggedFile] = {}

    async def show(self, request: Request) -> Response:
        """Return a page whose examples contain the base URL that the reader used, or 304 if it is unchanged.

        Raises:
            Refused: `not_found` for an unknown page.
            Unavailable: `not_ready` while the store, which describes the reports, is unavailable.
        """
        pages, base_url = await self._rendered(request.state.engine), base_url_of(request)
        path = "/".join(("/docs", *request.path_params.values()))
        if path not in pages:
            raise Refused(Reason.NOT_FOUND, f"{preview(path)} does not exist. /docs lists all pages.")
        file = self._compressed.get((path, base_url))
        if file is None:
            body = pages[path].replace(_PLACEHOLDER_URL, escape(base_url)).encode()
            file = TaggedFile("text/html; charset=utf-8", f"W/{content_etag(body)}", body)
            if len(self._compressed) < COMPRESSED_PAGES_MAX:
                file = replace(file, content=b"", compressed=await run_in_threadpool(gzip.compress, body))
                self._compressed[path, base_url] = file
        return await file.answer(request, HEADERS | NO_CACHE)

    async def _rendered(self, engine: Engine) -> dict[str, str]:
        async with self._rendering:
            if not self._pages:
                self._pages = await run_in_threadpool(self._render, engine)
            return self._pages

    def _render(self, engine: Engine) -> dict[str, str]:
        with engine.store.reader(EVERYTHING, uses_one_thread=True) as reader:
            reports = all_reports(reader)
        return docs_pages(self._openapi, reports, base_url=_PLACEHOLDER_URL)


def docs_pages(openapi: OpenApi, reports: list[Report], *, base_url: str) -> dict[str, str]:
    """Return the HTML of all documentation pages by URL path.

    Args:
        openapi: the description of the server, with its settings.
        reports: the report catalog.
        base_url: the scheme, host and port in the examples.
    """
    settings = openapi.settings
    groups = [
        _Group(
            group.name, f"/docs/api/{group.name.lower().replace(' ', '-')}", group.description, list(group.operations)
        )
        for group in openapi.groups
    ]
    content: dict[str, Any] = {
        "base_url": base_url,
        "examples": examples(settings.service_name),
        "formats": [str(format) for format in REPORT_FORMATS],
        "groups": groups,
        "ingest_path": INGEST_PATH,
        "key_kinds": [str(kind) for kind in KeyKind],
        "messages": messages_of(openapi.document["components"]["schemas"]),
        "operation_links": {one.id: f"{group.path}#{one.id}" for group in groups for one in group.operations},
        "reasons": shown_reasons(),
        "reports": reports,
        "settings": settings,
        "tabs": TABS,
        "type_text": type_text,
        "version": __version__,
    }
    pages: dict[str, tuple[str, dict[str, Any]]] = {tab.path: (tab.template, {"title": tab.title}) for tab in TABS}
    pages["/docs"][1]["title"] = "embedsink documentation"
    for group in groups:
        pages[group.path] = ("docs/operations.html", {"title": group.name, "group": group})
    for report in reports:
        pages[f"/docs/reports/{report.name}"] = ("docs/report.html", {"title": report.title, "report": report})
    return {path: render(template, path=path, **content, **own) for path, (template, own) in pages.items()}


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
    """Describe the routes."""
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
    return Operation(
        "get",
        path,
        operation_id,
        summary,
        (200, "The page.", html_page()),
        (*([Reason.NOT_FOUND] if parameters else []), Reason.NOT_READY, *ANY_REQUEST),
        parameters=[*parameters, if_none_match()],
        headers={"ETag": "Send it in If-None-Match."},
        others={304: "The page has not changed."},
    )
