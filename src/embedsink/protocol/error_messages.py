"""Pydantic's errors as messages: `path: what is wrong (value). What is allowed.`"""

import re
from collections.abc import Mapping
from typing import Any

from embedsink.errors import preview, redact_keys

# The expected JSON type, by the type of pydantic's error.
EXPECTED_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "list_type": "an array",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# The expected form of a string with a pattern, by the field's name.
_EXPECTED_FORMS = {
    "id": "a UUID such as 0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
    "vendor": "1 to 32 of the characters a-z, 0-9 and -, such as looker",
    "filterUrlParameter": "of the form f_<view>.<dimension>=<JSON>",
}


def field_path(location: tuple[int | str, ...]) -> str:
    """Return the path of a field as in JavaScript: `payload.format`, `lost["a b"]`."""
    # Pydantic appends "[key]" to the path of an error about a member's name.
    return "".join(_path_part(part) for part in location if part != "[key]").removeprefix(".")


def _path_part(part: int | str) -> str:
    """Return `.name` for an identifier, else the quoted name or the index in brackets."""
    name = redact_keys(str(part))
    return f".{name}" if _IDENTIFIER.fullmatch(name) else f"[{preview(part)}]"


def describe_error(error: Mapping[str, Any], *, verb: str = "Send") -> str:
    """Describe an error of pydantic in sentences: what is wrong, and what is allowed.

    Args:
        error: an item of `ValidationError.errors()`.
        verb: the verb of the advice, such as `Send` for a request and `Write` for a file.
    """
    error_type = error["type"]
    value = preview(error.get("input"))
    if error_type in EXPECTED_TYPES:
        expected = EXPECTED_TYPES[error_type]
        return f"{value} is not {expected}. {verb} {expected}."
    allowed = error.get("ctx", {})  # the limits or the allowed values
    match error_type:
        case "missing":
            return "is missing. The protocol requires it."
        case "extra_forbidden":
            return "is not a field of a delivery or its context. Check its spelling (docs/wire.md)."
        case "not_an_instant":
            return f"{value} is not an ISO 8601 timestamp of the years 1 to 9999. Example: 2026-11-21T09:30:00Z."
        case "none_required":
            return f"{value} is not null. Leave it out."
        case "literal_error":
            return f"{value} is not one of {', '.join(alternatives(allowed['expected']))}."
        case "string_pattern_mismatch":
            field_name = str(error["loc"][-1])
            return f"{value} is not {_EXPECTED_FORMS[field_name]}."
        case "greater_than_equal":
            return f"{value} is below {int(allowed['ge']):,}. {verb} at least {int(allowed['ge']):,}."
        case "less_than_equal":
            return f"{value} is above {int(allowed['le']):,}. {verb} at most {int(allowed['le']):,}."
        case "string_too_long":
            return f"{value} is longer than {allowed['max_length']} characters. Shorten it."
        case "too_long":
            return f"has more than {allowed['max_length']} members. {verb} fewer."
        case "string_unicode":
            return f"{value} has a lone surrogate. Remove it."
        case "string_too_short" | "too_short":
            return "is empty. Set a value."
    return f"{value} is not allowed here. See the documentation."


def alternatives(expected: str) -> list[str]:
    """Return the allowed values as a list, from pydantic's text `'csv', 'xlsx' or 'png'`."""
    return [value.strip("'") for value in re.split(", | or ", expected)]
