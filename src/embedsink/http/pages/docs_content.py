"""The message types and the error reasons of the documentation pages."""

from dataclasses import dataclass

from embedsink.http.openapi.parts import Schema
from embedsink.http.pages.schema_text import schema_name, type_text
from embedsink.http.problems import advice_on
from embedsink.reasons import Reason


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a payload."""

    name: str
    type: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class Message:
    """An event or action type with its surfaces and the fields of its payload."""

    type: str
    direction: str
    description: str
    surfaces: str
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class ShownReason:
    """An error reason with its documentation. A reason without a status is about one envelope."""

    name: str
    status: int | None
    sentence: str
    advice: str


def messages_of(schemas: dict[str, Schema]) -> list[Message]:
    """Return the documentation of all message types, in the order of the protocol.

    Args:
        schemas: the JSON Schemas in the OpenAPI description, by name.
    """
    reference_by_type = schemas["Envelope"]["discriminator"]["mapping"]
    return [_message(type_, schemas[schema_name(reference)], schemas) for type_, reference in reference_by_type.items()]


def shown_reasons() -> list[ShownReason]:
    """Return the documentation of all error reasons, in the order of their declaration."""
    return [ShownReason(str(reason), reason.status, reason.sentence, advice_on(reason)) for reason in Reason]


def _message(type_: str, envelope_schema: Schema, schemas: dict[str, Schema]) -> Message:
    """Return the documentation of a message type. `envelope_schema` is the JSON Schema of envelopes of this type."""
    properties = envelope_schema["properties"]
    payload_schema = schemas[schema_name(properties["payload"]["$ref"])]
    required_names = payload_schema.get("required", ())
    return Message(
        type=type_,
        direction=properties["direction"]["const"],
        description=payload_schema["description"],
        surfaces=", ".join(_allowed_values(properties["surface"])),
        fields=[
            Field(name, type_text(schema), name in required_names)
            for name, schema in payload_schema.get("properties", {}).items()
        ],
    )


def _allowed_values(schema: Schema) -> list[str]:
    """Return the values that a JSON Schema allows, or an empty list if the schema does not list the values."""
    if "const" in schema:
        return [schema["const"]]
    values: list[str] = schema.get("enum", [])
    return values
