"""`GET /openapi.json`: the description of the HTTP API."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.http.openapi.builder import OpenApi
from embedsink.http.openapi.operation import Operation, Success
from embedsink.settings import Settings


async def show_description(request: Request) -> Response:
    """Answer with the description, which contains the limits and the service name of this server."""
    openapi: OpenApi = request.state.openapi
    # The first use builds the document, which takes a tenth of a second, so it runs in a thread.
    document = await asyncio.to_thread(lambda: openapi.json)
    return Response(document, media_type="application/json")


ROUTES = [Route("/openapi.json", show_description)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    success = Success(200, "The OpenAPI 3.1.0 document.", {"application/json": {"type": "object"}})
    return [
        Operation(
            method="get",
            path="/openapi.json",
            id="describe",
            summary="Read the OpenAPI description of this server",
            success=success,
        )
    ]
