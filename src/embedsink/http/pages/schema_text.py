"""JSON Schema in words, as short as a cell of a table."""

import json
from typing import Any

Schema = dict[str, Any]

CHOICES_SHOWN_MAX = 12
# Bounds beyond are what JSON carries exactly, and no limit that anybody meets.
_EXACT_MAX = 2**53 - 1


def type_in_words(schema: Schema) -> str:
    """What a value may be: `integer, 1 to 1,000`, `one of csv, png`, `string or null`."""
    words = _kind(schema)
    if "default" in schema:
        words += f"; default {json.dumps(schema['default'])}"
    if "examples" in schema:
        words += f"; such as {schema['examples'][0]}"
    return words


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return _choice([str(value) for value in schema["enum"]])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[several]))
    if isinstance(schema.get("type"), list):
        return " or ".join(map(str, schema["type"]))
    return _plain(schema)


def _plain(schema: Schema) -> str:
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"array of {_kind(schema['items'])}"
    if kind == "string" and "format" in schema:
        return str(schema["format"])
    if kind == "string":
        return kind + _between(schema.get("minLength"), schema.get("maxLength"), " characters")
    return kind + _between(schema.get("minimum"), schema.get("maximum"), "")


def _choice(values: list[str]) -> str:
    if len(values) > CHOICES_SHOWN_MAX:
        return f"one of {len(values)}: {', '.join(values[:2])}, …"
    return values[0] if len(values) == 1 else f"one of {', '.join(values)}"


def _between(least: float | None, most: float | None, unit: str) -> str:
    least = None if least is None or abs(least) >= _EXACT_MAX else least
    most = None if most is None or abs(most) >= _EXACT_MAX else most
    if least is not None and most is not None:
        return f", {least:,} to {most:,}{unit}"
    if least is not None:
        return f", {least:,} or more{unit}"
    return "" if most is None else f", at most {most:,}{unit}"
