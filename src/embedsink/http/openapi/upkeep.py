"""Whether the server does what it should, and what it says about itself. None of it asks for a key."""

from collections.abc import Sequence

from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import known_tag, parameter
from embedsink.http.openapi.parts import one_of, plain_text, ref
from embedsink.http.pages.files import MEDIA_TYPES, page_files
from embedsink.reasons import Reason

_TAGGED = {"ETag": "Send it back in If-None-Match."}
_CACHED = {304: "It has not changed."}


def operations() -> Sequence[Operation]:
    """Health, counters, and this description."""
    return [
        Operation("get", "/healthz", "healthz", "Whether the process answers", (200, "It does.", plain_text())),
        Operation(
            "get",
            "/readyz",
            "readyz",
            "Whether an event would be kept now, proven by a write",
            (200, "It would.", {"application/json": ref("Readiness")}),
            (Reason.NOT_READY, *ANY_REQUEST),
        ),
        Operation(
            "get", "/metrics", "metrics", "What happened so far, for Prometheus", (200, "Counters.", plain_text())
        ),
        Operation(
            "get",
            "/openapi.json",
            "describe",
            "This description",
            (200, "OpenAPI 3.1.0.", {"application/json": {"type": "object"}}),
        ),
        Operation(
            "get",
            "/docs",
            "showDocs",
            "The same for people, with examples and every report's columns",
            (200, "The page.", {"text/html": {"type": "string"}}),
            (Reason.NOT_READY, *ANY_REQUEST),
            parameters=[known_tag()],
            headers=_TAGGED,
            others=_CACHED,
        ),
        Operation(
            "get",
            "/pages/{name}",
            "showPageFile",
            "Style sheets, scripts and pictures of the pages",
            (200, "The file.", {media_type: {"type": "string"} for media_type in MEDIA_TYPES.values()}),
            (Reason.NOT_FOUND, *ANY_REQUEST),
            parameters=[parameter("name", {"enum": list(page_files())}, "Which one.", place="path"), known_tag()],
            headers=_TAGGED,
            others=_CACHED,
        ),
        Operation(
            "get",
            "/pages/vega/{version}.js",
            "showVega",
            "What draws the charts of the pages",
            (200, "Vega, Vega-Lite and vega-embed, for ever the same.", {"text/javascript": {"type": "string"}}),
            (Reason.NOT_FOUND, Reason.NOT_READY, *ANY_REQUEST),
            parameters=[
                parameter("version", {"type": "string"}, "The one that a page names.", place="path"),
                known_tag(),
            ],
            headers=_TAGGED,
            others=_CACHED,
        ),
        Operation(
            "get",
            "/problems/{reason}",
            "explainProblem",
            "What the type of a problem means",
            (200, "The reason.", {"application/json": ref("Explanation")}),
            (Reason.NOT_FOUND, *ANY_REQUEST),
            parameters=[parameter("reason", one_of(Reason), place="path")],
        ),
    ]
