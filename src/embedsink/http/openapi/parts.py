"""Building blocks of schemas, parameters and operations."""

from collections.abc import Iterable, Sequence
from typing import Any

from embedsink.reasons import Reason

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}


def ref(name: str) -> Schema:
    """Return a reference to a schema in `components.schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def object_of(properties: dict[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """Return the schema of an object. All properties are required, except the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def reason_schema(reasons: Iterable[Reason]) -> Schema:
    """Return the schema of a value that is one of these reasons."""
    return {"enum": [str(reason) for reason in reasons]}


def plain_text() -> dict[str, Schema]:
    """Return the schema of a text response, by its media type."""
    return {"text/plain": TEXT}


def html_page() -> dict[str, Schema]:
    """Return the schema of an HTML response, by its media type."""
    return {"text/html": TEXT}


def content(schemas: dict[str, Schema]) -> Schema:
    """Return the OpenAPI `content` object for schemas by media type."""
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def headers_of(descriptions: dict[str, str]) -> Schema:
    """Return the OpenAPI `headers` object for descriptions by header name."""
    return {name: {"description": text, "schema": TEXT} for name, text in descriptions.items()}
