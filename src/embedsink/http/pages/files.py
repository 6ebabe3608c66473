"""`/pages/{name}`: style sheets, scripts and pictures of pages. `base.css` and `mark.svg` are every page's."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from embedsink.errors import Refused, quote
from embedsink.http.freshness import is_known, tag_of
from embedsink.reasons import Reason

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it lies in the package, and its entity tag."""

    content: bytes
    tag: str
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    """Every file of a page: those of all pages, and those of the dashboards."""
    return _read(FOLDER) | _read(FOLDER / "dashboards")


async def show_file(request: Request) -> Response:
    """One of them, or 304 where the reader has it."""
    name = request.path_params["name"]
    found = page_files().get(name)
    if found is None:
        raise Refused(Reason.NOT_FOUND, f"{quote(name)} does not exist. There are {', '.join(page_files())}.")
    # Asked about each time, so that a page and its style are always of the same version.
    headers = {"Cache-Control": "no-cache", "ETag": found.tag, "X-Content-Type-Options": "nosniff"}
    if is_known(request, found.tag):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


def _read(folder: Path) -> dict[str, PageFile]:
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in MEDIA_TYPES}
    return {path.name: PageFile(one, tag_of(one), MEDIA_TYPES[path.suffix]) for path, one in contents.items()}
