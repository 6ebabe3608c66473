"""What is wrong with a file of `dashboards/`: where: what was seen, what is allowed. What to do."""

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
from embedsink.errors import instead, nearest, quote
from embedsink.protocol.error_messages import TYPES, alternatives, place

Location = tuple[int | str, ...]
Limits = Mapping[str, Any]

_TYPES = TYPES | {"model_type": "an object", "model_attributes_type": "an object"}
_SCALAR = "a string, an integer, or true or false"
_CALLED: dict[type[BaseModel], str] = {
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
    NAME: "an id: small letters, digits and hyphens, a letter first",
    COLUMN: "the name of a column: small letters, digits and underscores, a letter first",
    SIGNED_COLUMN: "the name of a column, or a minus and one",
}
# By pydantic's types of errors; each is given the wrong value, quoted, and the limits that the type has.
_LIMITED: dict[str, Callable[[str, Limits], str]] = {
    "string_pattern_mismatch": lambda seen, limits: f"{seen} is not {_PATTERNS[limits['pattern']]}. Correct it.",
    "string_too_short": lambda seen, limits: "is empty. Say something there.",
    "string_too_long": lambda seen, limits: f"{seen} is longer than {limits['max_length']} characters. Shorten it.",
    "string_unicode": lambda seen, limits: f"{seen} has a lone surrogate. Remove it.",
    "too_short": lambda seen, limits: "is empty. Name at least one.",
    "too_long": lambda seen, limits: (
        f"has {limits['actual_length']} members; the limit is {limits['max_length']}. Move some elsewhere."
    ),
    "greater_than_equal": lambda seen, limits: f"{seen} is below {limits['ge']:,}. Write at least {limits['ge']:,}.",
    "less_than_equal": lambda seen, limits: f"{seen} is above {limits['le']:,}. Write at most {limits['le']:,}.",
}


def first_error(error: ValidationError, content: Any) -> str:
    """The place of what is wrong in a file's content, and a sentence on it.

    Of several it is a misspelt name, rather than what is missing for that.
    """
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    location, value = first["loc"], first["input"]
    match location, first["type"]:
        case (*_, name), "extra_forbidden":
            return f"{_where(location)}: {_no_field(str(name), _owner(location), _at(location[:-1], content))}"
        case _, "union_tag_invalid":
            return f"{_where(location)}.kind: {_one_of(value['kind'], TILES)}"
        case _, "union_tag_not_found":
            return f"{_where(location)}.kind: is missing. There are {', '.join(TILES)}."
        case (*_, "parameters", name, "[key]"), _:
            told = instead(str(name), sorted(get_args(OwnParameter)))
            return f"{_where(location)}: is no parameter that a dashboard has of its own. {told}"
        case (*_, "where", _, "str"), _:  # Of a union each member says that it is not this.
            return f"{_where(location[:-1])}: {quote(value)} is not {_SCALAR}. Write one of these."
    return f"{_where(location)}: {_sentence(location, first)}"


def _sentence(location: Location, error: Mapping[str, Any]) -> str:
    kind, seen, limits = error["type"], quote(error["input"]), error.get("ctx", {})
    if kind == "missing":
        return f"is missing; {_CALLED[_owner(location)]} has to have it. Add it."
    if kind == "literal_error":
        return _one_of(error["input"], alternatives(limits["expected"]))
    if kind in _TYPES:
        return f"{seen} is not {_TYPES[kind]}. Write {_TYPES[kind]}."
    if kind in _LIMITED:
        return _LIMITED[kind](seen, limits)
    return f"{seen} is not what may stand here. Compare it with docs/dashboards.md."


def _no_field(name: str, owner: type[BaseModel], there: Mapping[str, Any]) -> str:
    others = [called for tile, called in _CALLED.items() if tile in TILES.values() and name in tile.model_fields]
    if owner in TILES.values() and others:
        return f"is no field of {_CALLED[owner]}, but of {' and '.join(others)}. Remove it, or change the kind."
    near = nearest(name, owner.model_fields.keys() - there.keys())  # What is there already was not meant.
    instead = f'Did you mean "{near}"?' if near else f"There are {', '.join(owner.model_fields)}."
    return f"is no field of {_CALLED[owner]}. {instead}"


def _one_of(value: object, known: Mapping[str, Any] | list[str]) -> str:
    near = nearest(value, known) if isinstance(value, str) and value not in known else None
    instead = f'Did you mean "{near}"?' if near else "Write one of these."
    return f"{quote(value)} is not one of {', '.join(known)}. {instead}"


def _owner(location: Location) -> type[BaseModel]:
    """What the field at a place is a field of, or would be."""
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
    return place(_without_kind(location)) or "file"


def _at(location: Location, content: Any) -> Any:
    for step in _without_kind(location):
        content = content[step]
    return content


def _without_kind(location: Location) -> Location:
    """A place as it is in the file: pydantic puts the kind of a tile behind its number."""
    match location:
        case ("sections", number, "charts", tile, _, *rest):
            return ("sections", number, "charts", tile, *rest)
    return location
