"""The messages of the protocol and the reasons, as a page shows them."""

from dataclasses import dataclass

from embedsink.http.openapi.parts import Schema
from embedsink.http.pages.schema_text import type_in_words
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
    """A type of envelope: an event or an action, where it may happen, and what its payload holds."""

    type: str
    direction: str
    description: str
    surfaces: str
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class ShownReason:
    """A reason of the closed list. Those without a status concern one envelope."""

    name: str
    status: int | None
    sentence: str
    advice: str


def messages_of(schemas: dict[str, Schema]) -> list[Message]:
    """Every type of envelope, in the order of the protocol, from the description's schemas."""
    mapping = schemas["Envelope"]["discriminator"]["mapping"]
    return [_message(type_, schemas[_last(address)], schemas) for type_, address in mapping.items()]


def shown_reasons() -> list[ShownReason]:
    """The whole closed list."""
    return [ShownReason(str(reason), reason.status, reason.sentence, advice_on(reason)) for reason in Reason]


def _message(type_: str, envelope: Schema, schemas: dict[str, Schema]) -> Message:
    fields = envelope["properties"]
    payload = schemas[_last(fields["payload"]["$ref"])]
    surface = fields["surface"]
    properties, required = payload.get("properties", {}), payload.get("required", ())
    return Message(
        type=type_,
        direction=fields["direction"]["const"],
        description=payload["description"],
        surfaces=", ".join(surface.get("enum", [surface["const"]] if "const" in surface else [])),
        fields=[Field(name, type_in_words(part), name in required) for name, part in properties.items()],
    )


def _last(reference: str) -> str:
    return reference.rpartition("/")[2]
