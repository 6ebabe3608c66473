"""`/pages/{name}`: style sheets, scripts and images of the pages."""

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.errors import Refused, preview
from embedsink.http.cached_file import REVALIDATED, TaggedFile
from embedsink.http.etag import content_etag
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import TEXT
from embedsink.reasons import Reason
from embedsink.settings import Settings

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def page_files() -> dict[str, TaggedFile]:
    """Return the style sheets, scripts and images of all pages, by name."""
    return _read_files(FOLDER) | _read_files(FOLDER / "dashboards")


async def show_file(request: Request) -> Response:
    """Return the file with the name in the path, or status 304 if the client has the current version.

    Raises:
        Refused: the file does not exist (`not_found`).
    """
    name = request.path_params["name"]
    file = page_files().get(name)
    if file is None:
        raise Refused(Reason.NOT_FOUND, f"{preview(name)} does not exist. The files are {', '.join(page_files())}.")
    return await file.answer(request, {"Cache-Control": REVALIDATED})


def _read_files(folder: Path) -> dict[str, TaggedFile]:
    """Return the style sheets, scripts and images of a folder, by name."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in MEDIA_TYPES:
            content = path.read_bytes()
            files[path.name] = TaggedFile(MEDIA_TYPES[path.suffix], content_etag(content), content)
    return files


ROUTES = [Route("/pages/{name}", show_file)]


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operation of the route."""
    name = parameter("name", {"enum": list(page_files())}, "The file.", location="path")
    return [
        Operation(
            method="get",
            path="/pages/{name}",
            id="showPageFile",
            summary="Read a style sheet, script or image of a page",
            success=Success(200, "The file.", dict.fromkeys(MEDIA_TYPES.values(), TEXT)),
            error_reasons=(Reason.NOT_FOUND, *ANY_REQUEST_REASONS),
            parameters=[name, if_none_match()],
            response_headers={"ETag": "Send it in If-None-Match."},
            other_statuses={304: "The file has not changed."},
        )
    ]
