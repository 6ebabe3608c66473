"""What pydantic found, as a sentence in the house's form: where: what was seen, what is allowed."""

import re
from collections.abc import Mapping
from typing import Any

from embedsink.errors import preview, redact_keys

# The types of JSON, by pydantic's words for a value that is of another.
TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "list_type": "an array",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PATTERNS = {
    "id": "a UUID such as 0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
    "filterUrlParameter": "of the form f_<view>.<dimension>=<JSON>",
}


def place(location: tuple[int | str, ...]) -> str:
    """A path as in JavaScript: `payload.format`, `lost["a b"]`. A strange name is the sender's, so it is quoted."""
    # Pydantic marks so that an error is about an object's key, which is the part before.
    return "".join(_step(part) for part in location if part != "[key]").removeprefix(".")


def _step(part: int | str) -> str:
    name = redact_keys(str(part))
    return f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{preview(part)}]"


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's `errors()` as a sentence that says what was seen and what is allowed."""
    kind, seen = error["type"], preview(error.get("input"))
    if kind == "missing":
        return "is missing; the protocol requires it. Send it."
    if kind == "extra_forbidden":
        return "is not a field of a delivery or its context. Check its spelling (docs/wire.md)."
    if kind in TYPES:
        return f"{seen} is not {TYPES[kind]}. Types are strict: send {TYPES[kind]}."
    if kind == "not_an_instant":
        return f"{seen} is not an ISO 8601 timestamp of the years 1 to 9999. Write it like 2026-11-21T09:30:00Z."
    if kind == "none_required":
        return f"{seen} is not null. Leave it out."
    if kind == "literal_error":
        return f"{seen} is not one of {', '.join(alternatives(error['ctx']['expected']))}."
    if kind == "string_pattern_mismatch":
        return f"{seen} is not {_PATTERNS[str(error['loc'][-1])]}."
    if kind == "greater_than_equal":
        least = f"{int(error['ctx']['ge']):,}"
        return f"{seen} is below {least}. Send at least {least}."
    if kind == "less_than_equal":
        most = f"{int(error['ctx']['le']):,}"
        return f"{seen} is above {most}. Send at most {most}."
    if kind == "string_too_long":
        return f"{seen} is longer than {error['ctx']['max_length']} characters. Shorten it."
    if kind == "too_long":
        return f"{seen} has more than {error['ctx']['max_length']} members. Send fewer."
    return f"{seen} is not what the protocol allows here. Compare it with docs/wire.md."


def alternatives(expected: str) -> list[str]:
    """What pydantic expected of a literal: `'csv', 'xlsx' or 'png'`."""
    return [one.strip("'") for one in re.split(", | or ", expected)]
