"""The OpenAPI description as a page shows it: operations by group, messages of the protocol, reasons."""

from dataclasses import dataclass
from typing import Any

from embedsink.http.openapi import Schema
from embedsink.http.pages.words import type_in_words
from embedsink.http.problems import MEDIA_TYPE as PROBLEM
from embedsink.http.problems import advice_on
from embedsink.reasons import Reason


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a payload. `place` is path, query or header; a payload's has none."""

    name: str
    type: str
    is_required: bool
    description: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One status of an operation: what it means, and for a failure its reasons."""

    status: int
    meaning: str
    reasons: list[str]
    media_types: list[str]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class ShownOperation:
    """One method of one path. `keys` are the kinds that may call it; none means that everybody may."""

    id: str
    method: str
    path: str
    summary: str
    keys: list[str]
    parameters: list[Field]
    body_types: list[str]
    answers: list[Answer]


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that belong together: a tag of the description."""

    name: str
    description: str
    operations: list[ShownOperation]


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


def groups_of(description: Schema) -> list[Group]:
    """Every operation, in the order of the description."""
    shown: dict[str, list[ShownOperation]] = {tag["name"]: [] for tag in description["tags"]}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            shown[operation["tags"][0]].append(_operation(path, method, operation))
    return [Group(tag["name"], tag["description"], shown[tag["name"]]) for tag in description["tags"]]


def messages_of(description: Schema) -> list[Message]:
    """Every type of envelope, in the order of the protocol."""
    schemas = description["components"]["schemas"]
    mapping = schemas["Envelope"]["discriminator"]["mapping"]
    return [_message(type_, schemas[_last(address)], schemas) for type_, address in mapping.items()]


def shown_reasons() -> list[ShownReason]:
    """The whole closed list."""
    return [ShownReason(str(reason), reason.status, reason.sentence, advice_on(reason)) for reason in Reason]


def _operation(path: str, method: str, operation: Schema) -> ShownOperation:
    keys = [name.removesuffix("Key") for scheme in operation["security"] for name in scheme]
    return ShownOperation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        keys=keys,
        parameters=[_parameter(parameter) for parameter in operation["parameters"]],
        body_types=list(operation.get("requestBody", {}).get("content", {})),
        answers=[_answer(int(status), response) for status, response in operation["responses"].items()],
    )


def _parameter(parameter: Schema) -> Field:
    return Field(
        parameter["name"],
        type_in_words(parameter["schema"]),
        parameter["required"],
        parameter.get("description", ""),
        parameter["in"],
    )


def _answer(status: int, response: Schema) -> Answer:
    content: dict[str, Any] = response.get("content", {})
    headers = {name: header.get("description", "") for name, header in response.get("headers", {}).items()}
    if PROBLEM not in content:
        return Answer(status, response["description"], [], list(content), headers)
    _, of_this_status = content[PROBLEM]["schema"]["allOf"]
    reasons = of_this_status["properties"]["reason"]["enum"]
    # The reasons stand before the advice; here they are links of their own.
    advice = response["description"].removeprefix(f"{', '.join(reasons)}. ")
    told = {name: meaning for name, meaning in headers.items() if meaning}
    return Answer(status, advice, reasons, [], told)


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
