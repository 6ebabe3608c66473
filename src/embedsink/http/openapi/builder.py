"""The OpenAPI description, built from the operations of all resources."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import orjson
from starlette.routing import BaseRoute

from embedsink.http.openapi.operation import Group, Operation
from embedsink.http.openapi.parts import Schema
from embedsink.http.openapi.schemas import schemas, security_schemes
from embedsink.settings import Settings

# The version of the management API (spec 9), which does not change with embedsink.
API_VERSION = "1.0.0"


class Resource(Protocol):
    """The members of a resource's module that the builder reads. The modules themselves satisfy this protocol."""

    @property
    def ROUTES(self) -> Sequence[BaseRoute]:  # noqa: N802  a constant of the module
        """The routes of the module."""

    def operations(self, settings: Settings) -> Sequence[Operation]:
        """Return one operation for each method of each route."""


class Tag(NamedTuple):
    """A tag of the description, and its resources."""

    name: str
    description: str
    resources: Sequence[Resource]


class OpenApi:
    """The description of a server. Each part is built at its first use, which takes up to 0.1 s.

    Args:
        settings: the limits and the service name.
        tags: all resources.
    """

    def __init__(self, settings: Settings, tags: Sequence[Tag]) -> None:
        self.settings = settings
        self._tags = tags

    @cached_property
    def groups(self) -> list[Group]:
        """All operations, grouped by tag."""
        return [Group(tag.name, tag.description, self._operations(tag)) for tag in self._tags]

    def _operations(self, tag: Tag) -> list[Operation]:
        """Return the operations of all resources with this tag."""
        operations: list[Operation] = []
        for resource in tag.resources:
            operations += resource.operations(self.settings)
        return operations

    @cached_property
    def document(self) -> Schema:
        """The OpenAPI document."""
        paths: dict[str, Schema] = {}
        for group in self.groups:
            for operation in group.operations:
                path_item = paths.setdefault(operation.path, {})
                path_item[operation.method] = operation.as_openapi() | {"tags": [group.name]}
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "embedsink",
                "version": API_VERSION,
                "summary": "Stores the events of embedded analytics, and reports on them.",
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": group.name, "description": group.description} for group in self.groups],
            "paths": paths,
            "components": {"schemas": schemas(self.settings), "securitySchemes": security_schemes()},
        }

    @cached_property
    def json(self) -> bytes:
        """The document as JSON."""
        return orjson.dumps(self.document)
