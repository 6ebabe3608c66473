"""`/openapi.json`: the HTTP surface as OpenAPI 3.1.0, made from the types, settings and reasons that enforce it.

One module a group of operations (`ingestion`, `reading`, `dashboards`, `quarantine`, `deployments`, `upkeep`); what
they are made of stands in `operation`, `parameters`, `failures` and `schemas`.
"""

import asyncio
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from embedsink import __version__
from embedsink.engine import Engine
from embedsink.http.openapi import browser, dashboards, deployments, ingestion, quarantine, reading, upkeep
from embedsink.http.openapi.operation import Group
from embedsink.http.openapi.parts import Schema
from embedsink.http.openapi.schemas import schemas, security_schemes
from embedsink.settings import Settings

__all__ = ["Schema", "describe", "description", "groups_of"]


async def describe(request: Request) -> Response:
    """The description of this server: its limits and service name are in it."""
    engine: Engine = request.state.engine
    # In a thread: the first time it takes a tenth of a second, in which senders would wait.
    return Response(await asyncio.to_thread(_written, engine.settings), media_type="application/json")


@lru_cache(maxsize=4)
def _written(settings: Settings) -> bytes:
    return bytes(JSONResponse(description(settings)).body)


@lru_cache(maxsize=4)
def description(settings: Settings) -> Schema:
    """The OpenAPI document."""
    paths: dict[str, Schema] = {}
    groups = groups_of(settings)
    for group in groups:
        for operation in group.operations:
            paths.setdefault(operation.path, {})[operation.method] = operation.described() | {"tags": [group.name]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "embedsink",
            "version": __version__,
            "summary": "Keeps every event of embedded analytics, and answers questions about them.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": group.name, "description": group.description} for group in groups],
        "paths": paths,
        "components": {"schemas": schemas(settings), "securitySchemes": security_schemes()},
    }


def groups_of(settings: Settings) -> list[Group]:
    """Every operation, by what it belongs to."""
    return [
        Group("Sending", "What pages and pipelines send: events.", ingestion.operations(settings)),
        Group("Reading", "What readers take away, in the scope of their key.", reading.operations()),
        Group("Dashboards", "Pages for people. A login stands for a read key.", dashboards.operations()),
        Group("Quarantine", "What was rejected, kept with its reason, and tried again.", quarantine.operations()),
        Group("Deployments", "Which there are, and what their dbt syncs came to.", deployments.operations()),
        Group("Upkeep", "Whether the server does what it should, and what it says about itself.", upkeep.operations()),
        Group("Browser", "What pages of any origin load.", browser.operations()),
    ]
