"""The allowed values of a schema, in words."""

from typing import Any

import pytest

from embedsink.http.pages.schema_text import type_text
from embedsink.http.resources import describe_api
from embedsink.settings import Settings


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({"type": "string", "minLength": 1, "maxLength": 256}, "string, 1 to 256 characters"),
        ({"type": "string", "maxLength": 1}, "string, at most 1 characters"),
        ({"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100}, "integer, 1 to 1,000; default 100"),
        ({"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, "integer, 0 or more"),
        ({"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1}, "integer"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"anyOf": [{"type": "string"}, {"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["on", "off"]}, "one of on, off"),
        ({"enum": ["only"]}, "only"),
        ({"enum": [f"r{number}" for number in range(40)]}, "one of 40: r0, r1, …"),
        ({"const": "svc-embed"}, "svc-embed"),
        ({"type": "array", "items": {"type": "integer"}}, "array of integer"),
        ({"$ref": "#/components/schemas/Envelope"}, "Envelope"),
        ({"type": "string", "examples": ["Europe/Berlin"]}, "string; such as Europe/Berlin"),
        ({}, "anything"),
    ],
)
def test_the_text_lists_the_allowed_values(schema: dict[str, Any], words: str) -> None:
    assert type_text(schema) == words


def test_every_parameter_schema_is_described_in_text() -> None:
    items = [operation for item in describe_api(Settings()).document["paths"].values() for operation in item.values()]
    schemas = [parameter["schema"] for operation in items for parameter in operation["parameters"]]
    assert schemas
    assert not [schema for schema in schemas if type_text(schema).startswith("anything")]
