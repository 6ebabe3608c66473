"""Error messages for dashboard files: where: what is wrong (value). What is allowed. What to do."""

from collections.abc import Iterable
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
from embedsink.errors import preview, suggestion
from embedsink.protocol.error_messages import alternatives, describe_error, field_path

Location = tuple[int | str, ...]

# Each kind of tile.
TILES: dict[str, type[BaseModel]] = {
    get_args(tile.model_fields["kind"].annotation)[0]: tile for tile in (Figure, Chart, Table, Gauge)
}
_PATTERNS = {
    NAME: "an id: lowercase letters, digits and hyphens, starting with a letter",
    COLUMN: "a column name: lowercase letters, digits and underscores, starting with a letter",
    SIGNED_COLUMN: "a column name, optionally with a minus sign before it",
}


def first_error(error: ValidationError, content: Any) -> str:
    """Return the path and the message of the first error in a file's content.

    A misspelt name comes before the field that is missing because of it.
    """
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    location, value, limits = first["loc"], first["input"], first.get("ctx", {})
    match location, first["type"]:
        case (*_, name), "extra_forbidden":
            message = _unknown_field(str(name), _owner(location), _at(location[:-1], content))
        case _, "missing":
            message = "is missing. Add it."
        case _, "union_tag_invalid":
            message = _one_of(value["kind"], TILES)
        case _, "union_tag_not_found":
            message = f"is missing. Write one of {', '.join(TILES)}."
        case (*_, "parameters", name, "[key]"), _:
            advice = suggestion(str(name), sorted(get_args(OwnParameter)))
            message = f"is not a parameter that a tile can set. {advice}"
        case (*_, "where", _, "str"), _:  # pydantic reports one error per member of a union.
            location = location[:-1]
            message = f"{preview(value)} is not a string, an integer, or true or false. Write one of these."
        case _, "literal_error":
            message = _one_of(value, alternatives(limits["expected"]))
        case _, "string_pattern_mismatch":
            message = f"{preview(value)} is not {_PATTERNS[limits['pattern']]}. Correct it."
        case _:
            message = describe_error(first, verb="Write")
    path = field_path(_without_kind(location)) or "file"
    return f"{path}{'.kind' * first['type'].startswith('union_tag')}: {message}"


def _unknown_field(name: str, owner: type[BaseModel], present: dict[str, Any]) -> str:
    kinds = [kind for kind, tile in TILES.items() if name in tile.model_fields]
    if kinds and owner in TILES.values():
        return f"is a field of the kind {' or '.join(kinds)}. Remove it, or change the kind."
    otherwise = f"The fields are {', '.join(owner.model_fields)}."
    missing = [field for field in owner.model_fields if field not in present]
    return f"is not a field. {suggestion(name, missing, otherwise)}"


def _one_of(value: object, known: Iterable[str]) -> str:
    names = list(known)
    advice = "Write one of these."
    if isinstance(value, str) and value not in names:
        advice = suggestion(value, names, advice)
    return f"{preview(value)} is not one of {', '.join(names)}. {advice}"


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
