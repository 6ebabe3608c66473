"""`/pages/{name}`: style sheets, scripts and images of the pages."""

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from embedsink.errors import Refused, preview
from embedsink.http.cached_file import SHARED_AND_ASKED_ABOUT, TaggedFile
from embedsink.http.etag import tag_of
from embedsink.reasons import Reason

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def page_files() -> dict[str, TaggedFile]:
    """Return the files of all pages by name."""
    return _read(FOLDER) | _read(FOLDER / "dashboards")


async def show_file(request: Request) -> Response:
    """Return a file, or 304 if the client has it."""
    name = request.path_params["name"]
    file = page_files().get(name)
    if file is None:
        raise Refused(Reason.NOT_FOUND, f"{preview(name)} does not exist. The files are {', '.join(page_files())}.")
    return await file.answer(request, {"Cache-Control": SHARED_AND_ASKED_ABOUT})


def _read(folder: Path) -> dict[str, TaggedFile]:
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in MEDIA_TYPES}
    return {
        path.name: TaggedFile(MEDIA_TYPES[path.suffix], tag_of(content), content) for path, content in contents.items()
    }
