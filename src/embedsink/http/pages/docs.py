"""`/docs`: the OpenAPI description and the reports' catalog, for people."""

import asyncio
import gzip
from dataclasses import replace
from html import escape

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink import __version__
from embedsink.auth.key import KeyKind
from embedsink.engine import Engine
from embedsink.http.cached_file import TaggedFile
from embedsink.http.cors import INGEST_PATH
from embedsink.http.etag import content_etag
from embedsink.http.openapi.builder import OpenApi
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import if_none_match
from embedsink.http.openapi.parts import html_page
from embedsink.http.pages.assets import page_files
from embedsink.http.pages.base_url import address_of
from embedsink.http.pages.docs_content import messages_of, shown_reasons
from embedsink.http.pages.docs_examples import examples
from embedsink.http.pages.schema_text import type_in_words
from embedsink.http.pages.templating import HEADERS, render
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports
from embedsink.reports.format import REPORT_FORMATS
from embedsink.settings import Settings
from embedsink.store.reader import EVERYTHING

# Under so many the page is kept and compressed. A client may name any number of them.
ADDRESSES_MAX = 8
# No host can have this name (RFC 2606, section 2), so it stands nowhere else on the page.
_ADDRESS = "https://this-server.invalid"


class Docs:
    """The page. It asks for no key, so it is made once, and compressed once for each of a few addresses."""

    def __init__(self, openapi: OpenApi) -> None:
        self._openapi = openapi
        self._making = asyncio.Lock()
        self._page: str | None = None
        self._files: dict[str, TaggedFile] = {}

    async def show(self, request: Request) -> Response:
        """The page with the address that its reader came to, or 304 where the reader has it.

        Raises:
            Unavailable: `not_ready` while the store, which describes the reports, is away.
        """
        page, address = await self._made(request.state.engine), address_of(request)
        file = self._files.get(address)
        if file is None:
            body = page.replace(_ADDRESS, escape(address)).encode()
            file = TaggedFile("text/html; charset=utf-8", f"W/{content_etag(body)}", body)
            if len(self._files) < ADDRESSES_MAX:
                file = replace(file, compressed=await run_in_threadpool(gzip.compress, body))
                self._files[address] = file
        return await file.answer(request, HEADERS | NO_CACHE)

    async def _made(self, engine: Engine) -> str:
        async with self._making:
            if self._page is None:
                self._page = await run_in_threadpool(self._make, engine)
            return self._page

    def _make(self, engine: Engine) -> str:
        with engine.store.reader(EVERYTHING, is_brief=True) as reader:
            reports = all_reports(reader)
        return docs_page(self._openapi, reports, address=_ADDRESS)


def docs_page(openapi: OpenApi, reports: list[Report], *, address: str) -> str:
    """The page of a server with these settings and reports, reached at this address."""
    settings = openapi.settings
    return render(
        "docs.html",
        address=address,
        ingest_path=INGEST_PATH,
        examples=examples(settings.service_name),
        formats=[str(format) for format in REPORT_FORMATS],
        groups=openapi.groups,
        mark=page_files()["mark.svg"].content.decode(),  # in the page, which loads no picture
        key_kinds=[str(kind) for kind in KeyKind],
        messages=messages_of(openapi.document["components"]["schemas"]),
        reasons=shown_reasons(),
        reports=reports,
        settings=settings,
        type_in_words=type_in_words,
        version=__version__,
    )


async def show_docs(request: Request) -> Response:
    """Answer with the page."""
    docs: Docs = request.state.docs
    return await docs.show(request)


ROUTES = [Route("/docs", show_docs)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            "get",
            "/docs",
            "showDocs",
            "Read this description as a page, with examples and the columns of all reports",
            (200, "The page.", html_page()),
            (Reason.NOT_READY, *ANY_REQUEST),
            parameters=[if_none_match()],
            headers={"ETag": "Send it in If-None-Match."},
            others={304: "The page has not changed."},
        )
    ]
