"""Whether the server does what it should, and what it says about itself. None of it asks for a key."""

from collections.abc import Sequence

from embedsink.http.openapi import pages
from embedsink.http.openapi.failures import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import parameter
from embedsink.http.openapi.parts import one_of, plain_text, ref
from embedsink.reasons import Reason


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
        *pages.operations(),
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
