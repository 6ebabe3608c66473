"""Error messages for dashboard files: where: what is wrong (value). What is allowed. What to do."""

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from embedsink.dashboards.model import (
    COLUMN_PATTERN,
    ID_PATTERN,
    SIGNED_COLUMN_PATTERN,
    Chart,
    Comparison,
    Dashboard,
    Gauge,
    Group,
    Marks,
    NumberTile,
    Section,
    Table,
    TileParameter,
    TopValues,
)
from embedsink.errors import preview, suggestion
from embedsink.protocol.error_messages import alternatives, describe_error, field_path

Location = tuple[int | str, ...]

TILES_BY_KIND: dict[str, type[BaseModel]] = {
    "number": NumberTile,
    "chart": Chart,
    "table": Table,
    "server": Gauge,
}
_PATTERNS = {
    ID_PATTERN: "an id: lowercase letters, digits and hyphens, starting with a letter",
    COLUMN_PATTERN: "a column name: lowercase letters, digits and underscores, starting with a letter",
    SIGNED_COLUMN_PATTERN: "a column name, optionally with a minus sign before it",
}


def first_error(error: ValidationError, content: Any) -> str:
    """Return the path and the message of the first error in a file's content.

    Unknown fields come first: a misspelt name also causes the error that the correct field is missing.
    """
    errors = error.errors(include_url=False)
    unknown_fields = [details for details in errors if details["type"] == "extra_forbidden"]
    first = (unknown_fields or errors)[0]
    location, value, context = first["loc"], first["input"], first.get("ctx", {})
    match location, first["type"]:
        case (*_, name), "extra_forbidden":
            message = _unknown_field_message(str(name), _owner_model(location), _value_at(location[:-1], content))
        case _, "missing":
            message = "is missing. Add it."
        # Pydantic reports an unknown or a missing `kind` as an error of the tile.
        case _, "union_tag_invalid":
            location = (*location, "kind")
            message = _unknown_value_message(value["kind"], TILES_BY_KIND)
        case _, "union_tag_not_found":
            location = (*location, "kind")
            message = f"is missing. Write one of {', '.join(TILES_BY_KIND)}."
        case (*_, "parameters", name, "[key]"), _:  # Pydantic appends `[key]` for an error in the name of a member.
            advice = suggestion(str(name), sorted(get_args(TileParameter)))
            message = f"is not a parameter that a tile can set. {advice}"
        case (*_, "where", _, "str"), _:  # Pydantic reports an error for each type of a union, and appends the type.
            location = location[:-1]
            message = f"{preview(value)} is not a string, an integer, or true or false. Write one of these."
        case _, "literal_error":
            message = _unknown_value_message(value, alternatives(context["expected"]))
        case _, "string_pattern_mismatch":
            message = f"{preview(value)} is not {_PATTERNS[context['pattern']]}. Correct it."
        case _:
            message = describe_error(first, verb="Write")  # The operator writes a value; a client would send it.
    path = field_path(_location_in_file(location)) or "file"
    return f"{path}: {message}"


def _unknown_field_message(name: str, owner: type[BaseModel], present: dict[str, Any]) -> str:
    """Return the message for a field that the model `owner` lacks, in an object with the fields `present`."""
    kinds = [kind for kind, tile in TILES_BY_KIND.items() if name in tile.model_fields]
    if kinds and owner in TILES_BY_KIND.values():
        return f"is allowed only in tiles of the kind {' or '.join(kinds)}. Remove it, or change the kind."
    fields = [definition.alias or field for field, definition in owner.model_fields.items()]
    missing = [field for field in fields if field not in present]
    advice = suggestion(name, missing, f"The fields are {', '.join(fields)}.")
    return f"is not a field. {advice}"


def _unknown_value_message(value: object, known: Iterable[str]) -> str:
    """Return the message for a value that is not one of the `known` names."""
    names = list(known)
    advice = "Write one of these."
    # Never suggest the value itself: the text "2" is invalid where the number 2 is allowed.
    if isinstance(value, str) and value not in names:
        advice = suggestion(value, names, advice)
    return f"{preview(value)} is not one of {', '.join(names)}. {advice}"


def _owner_model(location: Location) -> type[BaseModel]:
    """Return the model of the object that has the field at a location."""
    match location[:-1]:
        case (*_, "group"):
            return Group
        case (*_, "compare"):
            return Comparison
        case (*_, "leading"):
            return TopValues
        case (*_, "marks"):
            return Marks
        case ("sections", _, "charts", _, kind):  # Pydantic inserts the kind of a tile after the index.
            return TILES_BY_KIND[str(kind)]
        case ("sections", _):
            return Section
    return Dashboard


def _value_at(location: Location, content: Any) -> Any:
    """Return the value at a location in the content of a file."""
    value = content
    for step in _location_in_file(location):
        value = value[step]
    return value


def _location_in_file(location: Location) -> Location:
    """Return a location as in the file, without the kind of a tile that Pydantic inserts after the tile's index."""
    match location:
        case ("sections", section, "charts", tile, kind, *rest) if kind in TILES_BY_KIND:
            return ("sections", section, "charts", tile, *rest)
    return location
