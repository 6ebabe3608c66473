"""Routes for the static pages of `embedsink demo`.

Their Content-Security-Policy forbids inline scripts and other servers. `embedsink serve` has no such pages.
"""

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
    """A file to send."""

    content: bytes
    media_type: str


def read_pages(*folders: Path) -> dict[str, Page]:
    """Return the files directly in these folders, by name."""
    return {
        path.name: Page(path.read_bytes(), _MEDIA_TYPES[path.suffix])
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix in _MEDIA_TYPES
    }


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
        loopback_only: whether the page contains keys, and is therefore shown at loopback names only.
    """
    paths = {base_path if name == "index.html" else f"{base_path}{name}": page for name, page in pages.items()}
    routes = [_route(path, page, headers, loopback_only=loopback_only) for path, page in paths.items()]
    return [*routes, *(_redirect(path, base_path) for path in ("/", base_path.removesuffix("/")))]


def _route(path: str, page: Page, headers: Mapping[str, str], *, loopback_only: bool) -> BaseRoute:
    file = TaggedFile(page.media_type, content_etag(page.content), page.content)

    async def show(request: Request) -> Response:
        if loopback_only:
            _check_host(request)
        return await file.answer(request, headers)

    return Route(path, show)


def _check_host(request: Request) -> None:
    if not is_loopback_host(request):
        host = preview(request.headers.get("host", ""))
        raise Refused(
            Reason.NOT_FOUND,
            f"host: {host} is not 127.0.0.1 or localhost. Open the page by these names, on the machine of the server.",
        )


def _redirect(path: str, to: str) -> BaseRoute:
    async def redirect(request: Request) -> Response:
        return RedirectResponse(to)

    return Route(path, redirect)
