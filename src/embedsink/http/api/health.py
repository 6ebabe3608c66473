"""`/healthz`, `/readyz` and `/metrics`. They need no key."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.metrics import exposition
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parts import plain_text, ref
from embedsink.http.problems import unavailable_response
from embedsink.reasons import Reason
from embedsink.settings import Settings


async def healthz(request: Request) -> Response:
    """Answer that the process runs."""
    return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})


async def readyz(request: Request) -> Response:
    """Answer 200 if nothing needs attention: the journal accepts a test write, the store is open, nothing is damaged.

    Otherwise answer 503 with the reasons. The server may accept events nevertheless.
    """
    engine: Engine = request.state.engine
    troubles = list(engine.loader.status.damaged)
    if error := await _test_journal_write(engine):
        troubles.append(error)
    if not engine.store.is_open:
        troubles.append("store.duckdb: is being reopened. The server still accepts events.")
    if engine.loader.status.error:
        troubles.append(engine.loader.status.error)
    if troubles:
        not_ready = Unavailable(Reason.NOT_READY, " ".join(troubles), retry_after_s=5)
        return unavailable_response(request, not_ready, members={"ready": False, "troubles": troubles})
    return JSONResponse({"ready": True, "troubles": []}, headers={"Cache-Control": "no-store"})


async def metrics(request: Request) -> Response:
    """Answer with all metrics in the Prometheus text format 0.0.4."""
    engine: Engine = request.state.engine
    return Response(exposition(engine), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _test_journal_write(engine: Engine) -> str | None:
    """Write and sync an empty group. Return the error, or None."""
    started_at = time.monotonic()
    try:
        await asyncio.wait_for(engine.journal.append(b""), engine.settings.journal_timeout_s)
    except TimeoutError:
        return f"journal: a write takes more than {time.monotonic() - started_at:.0f} s. Check the disk."
    except Unavailable as error:
        return str(error)
    return None


ROUTES = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [
        Operation("get", "/healthz", "healthz", "Check that the process runs", (200, "It runs.", plain_text())),
        Operation(
            "get",
            "/readyz",
            "readyz",
            "Check that nothing needs attention, with a test write to the disk",
            (200, "Nothing needs attention.", {"application/json": ref("Readiness")}),
            (Reason.NOT_READY, *ANY_REQUEST),
        ),
        Operation("get", "/metrics", "metrics", "Read the metrics for Prometheus", (200, "The metrics.", plain_text())),
    ]
