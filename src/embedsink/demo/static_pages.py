"""Routes for the static pages of `embedsink demo`. Their security policy forbids inline scripts and other servers."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from embedsink.errors import Refused, preview
from embedsink.http.cached_file import REVALIDATED, TaggedFile
from embedsink.http.etag import content_etag
from embedsink.http.security_headers import SCRIPTED_PAGE, policy_headers
from embedsink.http.transport import is_loopback_host
from embedsink.reasons import Reason

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


class Page(NamedTuple):
    """A file of a page: HTML, style sheet, script, data or image."""

    content: bytes
    media_type: str


def read_pages(*folders: Path) -> dict[str, Page]:
    """Return the files in these folders by name. Skip subfolders, and files whose suffix is not in `_MEDIA_TYPES`."""
    pages: dict[str, Page] = {}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.suffix in _MEDIA_TYPES:
                pages[path.name] = Page(path.read_bytes(), _MEDIA_TYPES[path.suffix])
    return pages


def demo_headers(*, frames: str, framed_by: str) -> dict[str, str]:
    """Return the headers of all pages of the demo.

    Args:
        frames: the origin that the page may frame, or `'none'`.
        framed_by: the origins that may frame the page, or `'none'`.
    """
    allowed = SCRIPTED_PAGE | {
        "frame-src": frames,
        "frame-ancestors": framed_by,
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    # The embed needs the origin of the host page for its messages, and nothing else of the URL.
    return policy_headers(allowed, referrer="strict-origin") | {"Cache-Control": REVALIDATED}


def page_routes(
    base_path: str, pages: Mapping[str, Page], headers: Mapping[str, str], *, loopback_only: bool = False
) -> list[BaseRoute]:
    """Return a route for each page, and redirects from `/` and from the base path without its slash.

    Args:
        base_path: the path of `index.html`, with a slash at the end.
        pages: the pages by name.
        headers: the headers of all responses.
        loopback_only: whether to refuse URLs whose host is not a loopback host, because the pages contain keys.
    """
    routes: list[BaseRoute] = []
    for name, page in pages.items():
        path = base_path if name == "index.html" else f"{base_path}{name}"
        routes.append(_page_route(path, page, headers, loopback_only=loopback_only))
    redirected_paths = ("/", base_path.removesuffix("/"))
    return [*routes, *(_redirect_route(path, base_path) for path in redirected_paths)]


def _page_route(path: str, page: Page, headers: Mapping[str, str], *, loopback_only: bool) -> BaseRoute:
    """Return the route of a page, with an entity tag."""
    file = TaggedFile(page.media_type, content_etag(page.content), page.content)

    async def show_page(request: Request) -> Response:
        if loopback_only:
            _check_loopback_host(request)
        return await file.answer(request, headers)

    return Route(path, show_page)


def _check_loopback_host(request: Request) -> None:
    """Raise Refused (`not_found`) if the host in the URL is not a loopback host.

    By DNS rebinding, a page of another site could otherwise read the keys in the demo's pages.
    """
    if not is_loopback_host(request):
        host = preview(request.headers.get("host", ""))
        raise Refused(
            Reason.NOT_FOUND,
            f"host: {host} is not 127.0.0.1 or localhost. Open the page at one of these host names, on the "
            "machine of the server.",
        )


def _redirect_route(path: str, target: str) -> BaseRoute:
    async def redirect(request: Request) -> Response:
        return RedirectResponse(target)

    return Route(path, redirect)
