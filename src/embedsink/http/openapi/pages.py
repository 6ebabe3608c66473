"""The page of the description, and what all pages are made with. None of it asks for a key."""

from collections.abc import Sequence

from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import known_tag, parameter
from embedsink.http.openapi.parts import Schema
from embedsink.http.pages.assets import MEDIA_TYPES, page_files
from embedsink.reasons import Reason

_TEXT: Schema = {"type": "string"}
_NAME = parameter("name", {"enum": list(page_files())}, "Which one.", place="path")
_SECTION = parameter("section", _TEXT, "The section, such as `sending`, `api` or `reports`.", place="path")
_PAGE = parameter("page", _TEXT, "The page of the section, such as the name of a report.", place="path")
_VERSION = parameter("version", _TEXT, "The one that a page names.", place="path")


def operations() -> Sequence[Operation]:
    """`/docs`, and the files that pages load from this server."""
    files = dict.fromkeys(MEDIA_TYPES.values(), _TEXT)
    vega = (200, "Vega, Vega-Lite and vega-embed, for ever the same.", {"text/javascript": _TEXT})
    return [
        _operation(
            "/docs",
            "showDocs",
            "Show the start page of the documentation",
            (200, "The page.", {"text/html": _TEXT}),
            Reason.NOT_READY,
        ),
        _operation(
            "/docs/{section}",
            "showDocsSection",
            "Show a section of the documentation",
            (200, "The page.", {"text/html": _TEXT}),
            Reason.NOT_FOUND,
            Reason.NOT_READY,
            parameters=[_SECTION],
        ),
        _operation(
            "/docs/{section}/{page}",
            "showDocsPage",
            "Show the operations of a group, or one report with its columns",
            (200, "The page.", {"text/html": _TEXT}),
            Reason.NOT_FOUND,
            Reason.NOT_READY,
            parameters=[_SECTION, _PAGE],
        ),
        _operation(
            "/pages/{name}",
            "showPageFile",
            "Style sheets, scripts and pictures of the pages",
            (200, "The file.", files),
            Reason.NOT_FOUND,
            parameters=[_NAME],
        ),
        _operation(
            "/pages/vega/{version}.js",
            "showVega",
            "What draws the charts of the pages",
            vega,
            Reason.NOT_FOUND,
            Reason.NOT_READY,
            parameters=[_VERSION],
        ),
    ]


def _operation(
    path: str,
    id: str,
    summary: str,
    success: tuple[int, str, dict[str, Schema]],
    *reasons: Reason,
    parameters: Sequence[Schema] = (),
) -> Operation:
    return Operation(
        "get",
        path,
        id,
        summary,
        success,
        (*reasons, *ANY_REQUEST),
        parameters=[*parameters, known_tag()],
        headers={"ETag": "Send it back in If-None-Match."},
        others={304: "It has not changed."},
    )
