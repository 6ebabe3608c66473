"""The baseline: a Starlette handler that reads the body and answers 202. It does nothing else.

It runs in uvicorn with the options of `embedsink serve`, so the difference is the work of embedsink: keys, validation,
journal, fsync and loading.
"""

import argparse
import signal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.http.server import CONNECTIONS_WAITING_MAX


async def accept(request: Request) -> Response:
    """Read the body and drop it."""
    await request.body()
    return Response(status_code=202)


async def ready(request: Request) -> Response:
    """Answer 200."""
    return Response()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    config = uvicorn.Config(
        Starlette(routes=[Route("/api/v1/events", accept, methods=["POST"]), Route("/healthz", ready)]),
        host="127.0.0.1",
        port=parser.parse_args().port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=CONNECTIONS_WAITING_MAX,
    )
    # uvicorn raises the signal again after a clean end.
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
