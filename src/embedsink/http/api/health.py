"""Whether the server lives, whether it can keep a promise, and what it did so far."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.metrics import exposition
from embedsink.http.problems import unavailable_response
from embedsink.reasons import Reason


async def healthz(request: Request) -> Response:
    """The process answers; that is all it says."""
    return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})


async def readyz(request: Request) -> Response:
    """Whether an event would be kept now: proven by a write that reaches the disk. 503 with the reasons if not."""
    engine: Engine = request.state.engine
    troubles = list(engine.loader.status.damaged)
    journal_trouble = await _journal_trouble(engine)
    if journal_trouble:
        troubles.append(journal_trouble)
    if not engine.store.is_open:
        troubles.append("store.duckdb: is being reopened. Ingest goes on.")
    if engine.loader.status.trouble:
        troubles.append(engine.loader.status.trouble)
    if troubles:
        refusal = Unavailable(Reason.NOT_READY, " ".join(troubles), retry_after_s=5)
        return unavailable_response(request, refusal, members={"ready": False, "troubles": troubles})
    return JSONResponse({"ready": True, "troubles": []}, headers={"Cache-Control": "no-store"})


async def metrics(request: Request) -> Response:
    """Prometheus text exposition format 0.0.4."""
    engine: Engine = request.state.engine
    return Response(exposition(engine), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _journal_trouble(engine: Engine) -> str | None:
    started_at = time.monotonic()
    try:
        await asyncio.wait_for(engine.journal.append(b""), engine.settings.journal_timeout_s)
    except TimeoutError:
        return f"journal: a write takes more than {time.monotonic() - started_at:.0f} s. Look at the disk."
    except Unavailable as error:
        return str(error)
    return None
