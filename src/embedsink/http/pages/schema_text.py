"""Short descriptions of the types in a JSON Schema, for table cells."""

import json
from typing import Any

from embedsink.protocol.messages import SAFE_INTEGER_MAX

Schema = dict[str, Any]

# A longer list of allowed values is shortened.
LISTED_VALUES_MAX = 12


def type_text(schema: Schema) -> str:
    """Return the type that a JSON Schema describes, with the default and an example if the schema has them.

    Examples of types are `integer, 1 to 1,000`, `one of csv, png` and `string or null`.
    """
    text = _type_without_default(schema)
    if "default" in schema:
        text += f"; default {json.dumps(schema['default'])}"
    if "examples" in schema:
        text += f"; such as {schema['examples'][0]}"
    return text


def _type_without_default(schema: Schema) -> str:
    """Return the type that a JSON Schema describes, without the default and the example."""
    if "$ref" in schema:
        return schema_name(schema["$ref"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return _enum_text([str(value) for value in schema["enum"]])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            distinct_texts = dict.fromkeys(_type_without_default(option) for option in schema[keyword])
            return " or ".join(distinct_texts)
    if isinstance(schema.get("type"), list):
        return " or ".join(str(type_) for type_ in schema["type"])
    return _single_type(schema)


def schema_name(reference: str) -> str:
    """Return the name in a reference, such as `View` in `#/components/schemas/View`."""
    return reference.rpartition("/")[2]


def _single_type(schema: Schema) -> str:
    """Return the type that a JSON Schema with a single type describes: an array, a format, or a type with bounds."""
    type_ = str(schema.get("type", "anything"))
    if type_ == "array":
        return f"array of {_type_without_default(schema['items'])}"
    if type_ == "string" and "format" in schema:
        return str(schema["format"])
    if type_ == "string":
        return type_ + _bounds_text(schema.get("minLength"), schema.get("maxLength"), " characters")
    return type_ + _bounds_text(schema.get("minimum"), schema.get("maximum"), "")


def _enum_text(values: list[str]) -> str:
    """Return all allowed values, such as `one of csv, png`. For a long list, return their number and two examples."""
    if len(values) > LISTED_VALUES_MAX:
        return f"one of {len(values)}: {', '.join(values[:2])}, …"
    return values[0] if len(values) == 1 else f"one of {', '.join(values)}"


def _bounds_text(minimum: float | None, maximum: float | None, unit: str) -> str:
    """Return the bounds of a number or a length, such as `, 1 to 1,000`, or an empty text if there are no bounds.

    A bound of `SAFE_INTEGER_MAX` or more is omitted: it applies to all integers in JSON.
    """
    has_minimum = minimum is not None and abs(minimum) < SAFE_INTEGER_MAX
    has_maximum = maximum is not None and abs(maximum) < SAFE_INTEGER_MAX
    if has_minimum and has_maximum:
        return f", {minimum:,} to {maximum:,}{unit}"
    if has_minimum:
        return f", {minimum:,} or more{unit}"
    if has_maximum:
        return f", at most {maximum:,}{unit}"
    return ""
