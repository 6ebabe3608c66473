"""Static pages as routes, under a Content-Security-Policy that allows no inline script and no other server.

Only `embedsink demo` has any; `serve` answers 404 there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from embedsink.errors import Refused, quote
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
    """One file, as it goes out."""

    content: bytes
    media_type: str


def read_pages(*folders: Path) -> dict[str, Page]:
    """The files of some folders by their names. Nothing below them, and nothing outside of them, can be asked for."""
    return {
        path.name: Page(path.read_bytes(), _MEDIA_TYPES[path.suffix])
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix in _MEDIA_TYPES
    }


def demo_headers(*, frames: str, framed_by: str) -> dict[str, str]:
    """What every page of the demo is answered with.

    Args:
        frames: the origin that may be shown in frames of the page, or `'none'`.
        framed_by: the origins whose pages may frame this one, or `'none'`.
    """
    allowed = SCRIPTED_PAGE | {
        "frame-src": frames,
        "frame-ancestors": framed_by,
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    # The embed learns from it which page to talk to: the origin, and nothing else of the address.
    return policy_headers(allowed, referrer="strict-origin") | {"Cache-Control": REVALIDATED}


def page_routes(
    at: str, pages: Mapping[str, Page], headers: Mapping[str, str], *, only_here: bool = False
) -> list[BaseRoute]:
    """A route for each page below `at`, which ends with a slash; `index.html` is `at` itself.

    Whoever leaves out the slash, or all of the path, is sent there.

    Args:
        at: where they are.
        pages: by name.
        headers: of each answer.
        only_here: for browsers that came by a name of this machine alone, since the pages hold keys.
    """
    paths = {at if name == "index.html" else f"{at}{name}": page for name, page in pages.items()}
    shown = [_route(path, page, headers, only_here=only_here) for path, page in paths.items()]
    return [*shown, *(_redirect(path, at) for path in ("/", at.removesuffix("/")))]


def _route(path: str, page: Page, headers: Mapping[str, str], *, only_here: bool) -> BaseRoute:
    file = TaggedFile(page.media_type, content_etag(page.content), page.content)

    async def show(request: Request) -> Response:
        if only_here:
            _check_host(request)
        return await file.answer(request, headers)

    return Route(path, show)


def _check_host(request: Request) -> None:
    if not is_loopback_host(request):
        host = quote(request.headers.get("host", ""))
        raise Refused(
            Reason.NOT_FOUND,
            f"host: {host} is not 127.0.0.1 or localhost. Open it by these, where the server runs.",
        )


def _redirect(path: str, to: str) -> BaseRoute:
    async def redirect(request: Request) -> Response:
        return RedirectResponse(to)

    return Route(path, redirect)
