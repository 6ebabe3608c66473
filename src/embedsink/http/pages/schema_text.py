"""JSON Schema as short text for table cells."""

import json
from typing import Any

Schema = dict[str, Any]

CHOICES_SHOWN_MAX = 12
# Larger bounds are the exact integers of JSON, not limits of a field.
EXACT_INTEGER_MAX = 2**53 - 1


def type_text(schema: Schema) -> str:
    """Return the type of a value: `integer, 1 to 1,000`, `one of csv, png`, `string or null`."""
    text = _kind(schema)
    if "default" in schema:
        text += f"; default {json.dumps(schema['default'])}"
    if "examples" in schema:
        text += f"; such as {schema['examples'][0]}"
    return text


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return _choice([str(value) for value in schema["enum"]])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join(dict.fromkeys(_kind(option) for option in schema[keyword]))
    if isinstance(schema.get("type"), list):
        return " or ".join(map(str, schema["type"]))
    return _typed(schema)


def _typed(schema: Schema) -> str:
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"array of {_kind(schema['items'])}"
    if kind == "string" and "format" in schema:
        return str(schema["format"])
    if kind == "string":
        return kind + _bounds(schema.get("minLength"), schema.get("maxLength"), " characters")
    return kind + _bounds(schema.get("minimum"), schema.get("maximum"), "")


def _choice(values: list[str]) -> str:
    if len(values) > CHOICES_SHOWN_MAX:
        return f"one of {len(values)}: {', '.join(values[:2])}, …"
    return values[0] if len(values) == 1 else f"one of {', '.join(values)}"


def _bounds(minimum: float | None, maximum: float | None, unit: str) -> str:
    minimum = None if minimum is None or abs(minimum) >= EXACT_INTEGER_MAX else minimum
    maximum = None if maximum is None or abs(maximum) >= EXACT_INTEGER_MAX else maximum
    if minimum is not None and maximum is not None:
        return f", {minimum:,} to {maximum:,}{unit}"
    if minimum is not None:
        return f", {minimum:,} or more{unit}"
    return "" if maximum is None else f", at most {maximum:,}{unit}"
