"""The baseline: a Starlette handler that reads the body and answers 202. It does nothing else.

It runs in uvicorn with the options of `embedsink serve`, so the difference is the work of embedsink: keys, validation,
journal, fsync and loading.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.http.cors import INGEST_PATH
from embedsink.http.server import CONNECTIONS_WAITING_MAX

COMMAND = [
    *("uvicorn", "bench.baseline:app", "--loop", "uvloop", "--http", "httptools", "--log-level", "critical"),
    *("--no-access-log", "--no-server-header", "--no-proxy-headers", "--backlog", str(CONNECTIONS_WAITING_MAX)),
]


async def accept(request: Request) -> Response:
    """Read the body and drop it."""
    await request.body()
    return Response(status_code=202)


async def ready(_: Request) -> Response:
    """Answer 200."""
    return Response()


app = Starlette(routes=[Route(INGEST_PATH, accept, methods=["POST"]), Route("/healthz", ready)])
