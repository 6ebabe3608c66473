"""`/pages/{name}`: the style sheets that all pages share. `base.css` is every page's, each other is one page's."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from embedsink.errors import Refused, quote
from embedsink.http.freshness import is_known, tag_of
from embedsink.http.parameters import check_parameters
from embedsink.reasons import Reason

FOLDER = Path(__file__).parent / "static"


@dataclass(frozen=True, slots=True)
class Stylesheet:
    """A style sheet as it lies in the package, and its entity tag."""

    content: bytes
    tag: str


@cache
def stylesheets() -> dict[str, Stylesheet]:
    """Every style sheet by the name in its address."""
    contents = {path.name: path.read_bytes() for path in sorted(FOLDER.glob("*.css"))}
    return {name: Stylesheet(content, tag_of(content)) for name, content in contents.items()}


async def show_stylesheet(request: Request) -> Response:
    """One of them, or 304 where the reader has it."""
    check_parameters(request.query_params, ())
    name = request.path_params["name"]
    found = stylesheets().get(name)
    if found is None:
        raise Refused(Reason.NOT_FOUND, f"{quote(name)} does not exist. There are {', '.join(stylesheets())}.")
    # Asked about each time, so that a page and its style are always of the same version.
    headers = {"Cache-Control": "no-cache", "ETag": found.tag, "X-Content-Type-Options": "nosniff"}
    if is_known(request.headers.getlist("if-none-match"), found.tag):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type="text/css", headers=headers)
