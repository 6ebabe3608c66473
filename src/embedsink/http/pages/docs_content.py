"""The message types and the error reasons of the documentation pages."""

from dataclasses import dataclass

from embedsink.http.openapi.parts import Schema
from embedsink.http.pages.schema_text import type_text
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
    """An error reason. A reason without a status concerns one envelope."""

    name: str
    status: int | None
    sentence: str
    advice: str


def messages_of(schemas: dict[str, Schema]) -> list[Message]:
    """Return every message type in protocol order, from the schemas of the API description."""
    mapping = schemas["Envelope"]["discriminator"]["mapping"]
    return [_message(type_, schemas[_schema_name(reference)], schemas) for type_, reference in mapping.items()]


def shown_reasons() -> list[ShownReason]:
    """Return all error reasons."""
    return [ShownReason(str(reason), reason.status, reason.sentence, advice_on(reason)) for reason in Reason]


def _message(type_: str, envelope: Schema, schemas: dict[str, Schema]) -> Message:
    fields = envelope["properties"]
    payload = schemas[_schema_name(fields["payload"]["$ref"])]
    surface = fields["surface"]
    properties, required = payload.get("properties", {}), payload.get("required", ())
    return Message(
        type=type_,
        direction=fields["direction"]["const"],
        description=payload["description"],
        surfaces=", ".join(surface.get("enum", [surface["const"]] if "const" in surface else [])),
        fields=[Field(name, type_text(part), name in required) for name, part in properties.items()],
    )


def _schema_name(reference: str) -> str:
    return reference.rpartition("/")[2]
