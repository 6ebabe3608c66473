"""`GET /forwarder.js` and its kin: modules that pages of any origin load (docs/browser.md)."""

import re

from starlette.requests import Request
from starlette.responses import Response

from embedsink.errors import Refused, quote
from embedsink.http.freshness import is_known
from embedsink.reasons import Reason
from embedsink.web import BrowserFile, browser_files

# Minutes, so that an upgrade arrives; what has its version in its name never changes.
PLAIN_MAX_AGE_S = 300
_IMMUTABLE = "public, max-age=31536000, immutable"
# One of the encodings that a reader takes, with how much it likes it (RFC 9110, 12.5.3).
_ENCODING = re.compile(r"\s*(?P<name>[^\s;,]+)\s*(?:;\s*q=(?P<quality>[^\s;,]*))?\s*", re.IGNORECASE)
_NOT_AT_ALL = re.compile(r"0(?:\.0*)?")


async def show_file(request: Request) -> Response:
    """A module or its types, by the plain name or by the versioned one."""
    name = request.url.path[1:]
    file = browser_files().get(name)
    if file is not None:
        return _answer(request, file, f"public, max-age={PLAIN_MAX_AGE_S}")
    file = next((file for file in browser_files().values() if file.versioned_name == name), None)
    if file is not None:
        return _answer(request, file, _IMMUTABLE)
    known = ", ".join(f"/{name}" for name in browser_files())
    raise Refused(
        Reason.NOT_FOUND, f"{quote(name)} does not exist here. There are {known}, and these by their versions."
    )


def _answer(request: Request, file: BrowserFile, caching: str) -> Response:
    headers = {
        "Cache-Control": caching,
        # Weak: the same for the compressed form.
        "ETag": f'W/"{file.version}"',
        "Vary": "Accept-Encoding",
        # A page loads a module script by CORS; these files are everybody's.
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "X-Content-Type-Options": "nosniff",
    }
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    """Whether an `Accept-Encoding` allows gzip: what it says of gzip comes before what it says of all others (`*`)."""
    takes = {}
    for part in accepted.split(","):
        if said := _ENCODING.fullmatch(part):
            takes[said["name"].lower()] = not _NOT_AT_ALL.fullmatch(said["quality"] or "1")
    return takes.get("gzip", takes.get("*", False))
