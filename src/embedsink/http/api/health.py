"""`/healthz`, `/readyz` and `/metrics`. They need no key."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from embedsink.engine import Engine
from embedsink.erasure.erasures import DELAY_IN_LOG
from embedsink.errors import Unavailable
from embedsink.http.metrics import metrics_text
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parts import plain_text, ref
from embedsink.http.problems import unavailable_response
from embedsink.reasons import Reason
from embedsink.settings import Settings


async def healthz(request: Request) -> Response:
    """Answer 200, because the process is running."""
    return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})


async def readyz(request: Request) -> Response:
    """Answer 200 if nothing needs attention, otherwise 503 with the list of problems.

    Problems are a failed test write to the journal, a store that is not open, a damaged file, and an error of the
    loader. The server may still accept events. Delayed erasures are listed, but need no attention at once.
    """
    engine: Engine = request.state.engine
    problems = list(engine.loader.status.damaged)
    if error := await _test_journal_write(engine):
        problems.append(error)
    if not engine.store.is_open:
        problems.append("store.duckdb: is being reopened. The server still accepts events.")
    if engine.loader.status.error:
        problems.append(engine.loader.status.error)
    delays = [DELAY_IN_LOG] if engine.erasures.delay else []
    if problems:
        not_ready = Unavailable(Reason.NOT_READY, " ".join(problems), retry_after_s=5)
        return unavailable_response(
            request, not_ready, extra_members={"ready": False, "problems": problems, "delays": delays}
        )
    return JSONResponse({"ready": True, "problems": [], "delays": delays}, headers={"Cache-Control": "no-store"})


async def metrics(request: Request) -> Response:
    """Answer with all metrics in the Prometheus text format 0.0.4."""
    engine: Engine = request.state.engine
    return Response(metrics_text(engine), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _test_journal_write(engine: Engine) -> str | None:
    """Write an empty group to the journal and sync it to the disk. Return the error message; None after a success."""
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
        Operation(
            method="get",
            path="/healthz",
            id="healthz",
            summary="Check that the process is running",
            success=Success(200, "The process is running.", plain_text()),
        ),
        Operation(
            method="get",
            path="/readyz",
            id="readyz",
            summary="Check that nothing needs attention, with a test write to the disk",
            success=Success(200, "Nothing needs attention.", {"application/json": ref("Readiness")}),
            error_reasons=(Reason.NOT_READY, *ANY_REQUEST_REASONS),
        ),
        Operation(
            method="get",
            path="/metrics",
            id="metrics",
            summary="Read the metrics for Prometheus",
            success=Success(200, "The metrics.", plain_text()),
        ),
    ]
