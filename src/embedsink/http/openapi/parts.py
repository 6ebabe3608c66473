"""The small parts that schemas, parameters and operations are put together from."""

from collections.abc import Iterable, Sequence
from typing import Any

from embedsink.reasons import Reason

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """One of `components.schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    """An array of these."""
    return {"type": "array", "items": items}


def object_of(properties: dict[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """An object that has all of these but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def one_of(reasons: Iterable[Reason]) -> Schema:
    """One of these reasons."""
    return {"enum": [str(reason) for reason in reasons]}


def plain_text() -> dict[str, Schema]:
    """Content that is text."""
    return {"text/plain": {"type": "string"}}


def content(schemas: dict[str, Schema]) -> Schema:
    """Schemas by media type, as OpenAPI nests them."""
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def headers_of(meanings: dict[str, str]) -> Schema:
    """Headers with what each means."""
    return {name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in meanings.items()}
