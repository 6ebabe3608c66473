"""Error messages for dashboard files: where: what is wrong (value). What is allowed. What to do."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from embedsink.dashboards.model import (
    COLUMN,
    NAME,
    SIGNED_COLUMN,
    Chart,
    Comparison,
    Dashboard,
    Figure,
    Gauge,
    Group,
    OwnParameter,
    Section,
    Table,
)
from embedsink.errors import nearest, preview, suggestion
from embedsink.protocol.error_messages import TYPES, alternatives, field_path

Location = tuple[int | str, ...]
Limits = Mapping[str, Any]

_TYPES = TYPES | {"model_type": "an object", "model_attributes_type": "an object"}
_SCALAR = "a string, an integer, or true or false"
_MODEL_NAMES: dict[type[BaseModel], str] = {
    Dashboard: "a dashboard",
    Section: "a section",
    Figure: "a number",
    Chart: "a chart",
    Table: "a table",
    Gauge: "a number of the server",
    Group: "a group",
    Comparison: "a comparison",
}
# Each kind of tile.
TILES: dict[str, type[BaseModel]] = {
    get_args(tile.model_fields["kind"].annotation)[0]: tile for tile in (Figure, Chart, Table, Gauge)
}
_PATTERNS = {
    NAME: "an id: lowercase letters, digits and hyphens, starting with a letter",
    COLUMN: "a column name: lowercase letters, digits and underscores, starting with a letter",
    SIGNED_COLUMN: "a column name, optionally with a minus sign before it",
}
# Messages by pydantic's error type, from the quoted value and the limits of the type.
_LIMITED: dict[str, Callable[[str, Limits], str]] = {
    "string_pattern_mismatch": lambda value, limits: f"{value} is not {_PATTERNS[limits['pattern']]}. Correct it.",
    "string_too_short": lambda value, limits: "is empty. Write a text.",
    "string_too_long": lambda value, limits: f"{value} is longer than {limits['max_length']} characters. Shorten it.",
    "string_unicode": lambda value, limits: f"{value} has a lone surrogate. Remove it.",
    "too_short": lambda value, limits: "is empty. Name at least one.",
    "too_long": lambda value, limits: (
        f"has {limits['actual_length']} members; the limit is {limits['max_length']}. Remove some."
    ),
    "greater_than_equal": lambda value, limits: f"{value} is below {limits['ge']:,}. Write at least {limits['ge']:,}.",
    "less_than_equal": lambda value, limits: f"{value} is above {limits['le']:,}. Write at most {limits['le']:,}.",
}


def first_error(error: ValidationError, content: Any) -> str:
    """Return the path and the message of the first error in a file's content.

    A misspelt name comes before the field that is missing because of it.
    """
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    location, value = first["loc"], first["input"]
    match location, first["type"]:
        case (*_, name), "extra_forbidden":
            return f"{_where(location)}: {_unknown_field(str(name), _owner(location), _at(location[:-1], content))}"
        case _, "union_tag_invalid":
            return f"{_where(location)}.kind: {_one_of(value['kind'], TILES)}"
        case _, "union_tag_not_found":
            return f"{_where(location)}.kind: is missing. Write one of {', '.join(TILES)}."
        case (*_, "parameters", name, "[key]"), _:
            message = suggestion(str(name), sorted(get_args(OwnParameter)))
            return f"{_where(location)}: is not a parameter that a tile can set. {message}"
        case (*_, "where", _, "str"), _:  # pydantic reports one error per member of a union.
            return f"{_where(location[:-1])}: {preview(value)} is not {_SCALAR}. Write one of these."
    return f"{_where(location)}: {_sentence(location, first)}"


def _sentence(location: Location, error: Mapping[str, Any]) -> str:
    kind, value, limits = error["type"], preview(error["input"]), error.get("ctx", {})
    if kind == "missing":
        return f"is missing; {_MODEL_NAMES[_owner(location)]} requires it. Add it."
    if kind == "literal_error":
        return _one_of(error["input"], alternatives(limits["expected"]))
    if kind in _TYPES:
        return f"{value} is not {_TYPES[kind]}. Write {_TYPES[kind]}."
    if kind in _LIMITED:
        return _LIMITED[kind](value, limits)
    return f"{value} is not allowed here. See docs/dashboards.md."


def _unknown_field(name: str, owner: type[BaseModel], present: Mapping[str, Any]) -> str:
    others = [
        name_of_model
        for tile, name_of_model in _MODEL_NAMES.items()
        if tile in TILES.values() and name in tile.model_fields
    ]
    if owner in TILES.values() and others:
        return f"is not a field of {_MODEL_NAMES[owner]}, but of {' and '.join(others)}. Remove it, or change the kind."
    near = nearest(
        name, owner.model_fields.keys() - present.keys()
    )  # Fields that are already present are not suggested.
    instead = f'Did you mean "{near}"?' if near else f"The fields are {', '.join(owner.model_fields)}."
    return f"is not a field of {_MODEL_NAMES[owner]}. {instead}"


def _one_of(value: object, known: Mapping[str, Any] | list[str]) -> str:
    near = nearest(value, known) if isinstance(value, str) and value not in known else None
    instead = f'Did you mean "{near}"?' if near else "Write one of these."
    return f"{preview(value)} is not one of {', '.join(known)}. {instead}"


def _owner(location: Location) -> type[BaseModel]:
    """Return the model that the field at a location belongs to."""
    match location[:-1]:
        case (*_, "group"):
            return Group
        case (*_, "compare"):
            return Comparison
        case ("sections", _, "charts", _, kind):
            return TILES[str(kind)]
        case ("sections", _):
            return Section
    return Dashboard


def _where(location: Location) -> str:
    return field_path(_without_kind(location)) or "file"


def _at(location: Location, content: Any) -> Any:
    for step in _without_kind(location):
        content = content[step]
    return content


def _without_kind(location: Location) -> Location:
    """Return a location as in the file: pydantic adds the kind of a tile after its index."""
    match location:
        case ("sections", number, "charts", tile, _, *rest):
            return ("sections", number, "charts", tile, *rest)
    return location
