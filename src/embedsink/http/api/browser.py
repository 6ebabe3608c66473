"""`GET /forwarder.js` and its kin: modules that pages of any origin load (docs/browser.md)."""

from starlette.requests import Request
from starlette.responses import Response

from embedsink.browser.modules import BrowserFile, browser_files, plain_name, versioned_files
from embedsink.errors import Refused, quote
from embedsink.http.cached_file import IMMUTABLE, REVALIDATED, TaggedFile
from embedsink.reasons import Reason

# Minutes, so that an upgrade arrives.
PLAIN_MAX_AGE_S = 300


async def show_file(request: Request) -> Response:
    """A module or its types, by the plain name or by a versioned one."""
    name = request.url.path[1:]
    if file := browser_files().get(name):
        return await _answer(request, file, f"public, max-age={PLAIN_MAX_AGE_S}")
    if file := versioned_files().get(name):
        return await _answer(request, file, IMMUTABLE)
    if file := browser_files().get(plain_name(name)):
        # The version of a newer server, after a downgrade or during a rolling upgrade. A 404 would lose events.
        return await _answer(request, file, REVALIDATED)
    known = ", ".join(f"/{name}" for name in browser_files())
    raise Refused(
        Reason.NOT_FOUND, f"{quote(name)} does not exist here. There are {known}, and these by their versions."
    )


async def _answer(request: Request, file: BrowserFile, caching: str) -> Response:
    headers = {
        "Cache-Control": caching,
        # A page loads a module script by CORS; these files are everybody's.
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    tagged = TaggedFile(file.media_type, f'W/"{file.version}"', file.content, file.compressed)
    return await tagged.answer(request, headers)
