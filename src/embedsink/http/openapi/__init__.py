"""`/openapi.json`: the HTTP surface as OpenAPI 3.1.0, made from the types, settings and reasons that enforce it.

One module a group of operations (`ingestion`, `reading`, `quarantine`, `deployments`, `upkeep`); what they are made of
stands in `operation`, `parameters`, `failures` and `schemas`.
"""

from functools import lru_cache

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink import __version__
from embedsink.http.openapi import deployments, ingestion, quarantine, reading, upkeep
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parts import Schema
from embedsink.http.openapi.schemas import schemas, security_schemes
from embedsink.settings import Settings
from embedsink.sink import Sink

__all__ = ["Schema", "describe", "description"]


async def describe(request: Request) -> Response:
    """The description of this server: its limits and service name are in it."""
    sink: Sink = request.state.sink
    return JSONResponse(description(sink.settings))


@lru_cache(maxsize=4)
def description(settings: Settings) -> Schema:
    """The OpenAPI document."""
    paths: dict[str, Schema] = {}
    for operation in _operations(settings):
        paths.setdefault(operation.path, {})[operation.method] = operation.described()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "embedsink",
            "version": __version__,
            "summary": "Keeps every event of embedded analytics, and answers questions about them.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas(settings), "securitySchemes": security_schemes()},
    }


def _operations(settings: Settings) -> list[Operation]:
    return [
        *ingestion.operations(settings),
        *reading.operations(),
        *quarantine.operations(),
        *deployments.operations(),
        *upkeep.operations(),
    ]
