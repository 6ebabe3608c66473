"""A strict JSON parser: RFC 8259, no duplicate keys, finite numbers, bounded depth.

orjson parses the body. If orjson refuses the body, the slower parser of the standard library finds the reason. It also
runs if orjson may have dropped a duplicate key.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import orjson

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason

# `_has_unique_keys` counts quotation marks. This escape of a quotation mark makes the counts differ.
_ESCAPED_QUOTATION_MARK = b"\\u0022"
# Escapes of NUL and of surrogates. SQL text can't store a NUL or a lone surrogate.
_BAD_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")

# The range of integers that orjson parses as integers.
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1
_INTEGER_CHARACTERS_MAX = len(str(_INTEGER_MAX))


class Document(NamedTuple):
    """A JSON text, its value, and the size of the text without white space."""

    body: bytes
    value: Any
    compact_bytes: int


def decode(body: bytes, *, depth_max: int) -> Document:
    """Parse a body. The caller has to check the depth of the value, because only the slower parser checks it.

    Raises:
        Refused: the body is not strict JSON (reason `not_utf8`, `not_json`, `duplicate_key` or `not_finite`), or is
            nested too deeply (reason `too_deep`).
    """
    document = decode_fast(body)
    if document is not None:
        return document
    value = _decode_with_reasons(body, depth_max=depth_max)
    return Document(body, value, len(encode(value)))


def decode_fast(body: bytes) -> Document | None:
    """Parse a body with orjson alone. Return None if the body needs the slower parser.

    The slower parser finds the reason for a refusal. It also accepts lone surrogates and more depth than orjson.
    """
    try:
        value = orjson.loads(body)
        compact = orjson.dumps(value)
    except (ValueError, TypeError):
        return None
    # If the bytes are equal, orjson has dropped no duplicate key.
    if compact != body and not _has_unique_keys(compact, body):
        return None
    return Document(body, value, len(compact))


def encode(value: Any) -> bytes:
    """Return JSON without white space. Lone surrogates and huge integers, which orjson refuses, are supported."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def is_shallow(body: bytes, *, flat_brackets: int, depth_max: int) -> bool:
    """Return whether a body has too few opening brackets to exceed the maximum depth.

    False does not mean that the body is too deep. `check_depth` measures the depth, but takes longer.

    Args:
        body: the JSON text.
        flat_brackets: the number of brackets that add no depth, such as those of each envelope after the first.
        depth_max: the maximum depth.
    """
    opening_brackets = _count_byte(body, b"{") + _count_byte(body, b"[")
    return opening_brackets - flat_brackets <= depth_max


def _count_byte(body: bytes, byte: bytes) -> int:
    """Return how often a byte occurs in a body. `replace` is eight times as fast as `count`."""
    return len(body) - len(body.replace(byte, b""))


def check_depth(value: Any, *, depth_max: int) -> None:
    """Check the depth of a parsed body, level by level.

    Raises:
        Refused: arrays and objects are nested deeper than `depth_max` levels (reason `too_deep`).
    """
    level = _containers([value])  # the arrays and objects of one level
    for _ in range(depth_max):
        level = [child for parent in level for child in _containers(_members(parent))]
        if not level:
            return
    raise _too_deep_error(depth_max)


def may_contain_bad_text(body: bytes) -> bool:
    """Return whether a body has an escape of NUL or of a surrogate. If not, `has_bad_text` is false."""
    return _contains_escape(b"\\u", body) and _BAD_ESCAPE.search(body) is not None


def has_bad_text(value: Any) -> bool:
    """Return whether a string in a value contains a NUL or a lone surrogate, which SQL text can't store."""
    if isinstance(value, str):
        return "\0" in value or not _is_encodable(value)
    if isinstance(value, dict):
        return any(has_bad_text(key) or has_bad_text(child) for key, child in value.items())
    return isinstance(value, list) and any(has_bad_text(child) for child in value)


def _members(container: Any) -> Iterable[Any]:
    """Return the values of an object, or the items of an array."""
    return container.values() if isinstance(container, dict) else container


def _containers(values: Iterable[Any]) -> list[Any]:
    """Return the objects and arrays among JSON values."""
    return [value for value in values if isinstance(value, dict | list)]


def _contains_escape(escape: bytes, body: bytes) -> bool:
    """Return whether a body contains an escape sequence.

    Most bodies have no backslash, and searching for this byte first is ten times as fast.
    """
    return b"\\" in body and escape in body


def _has_unique_keys(compact: bytes, body: bytes) -> bool:
    """Return whether no object in a body has duplicate keys; False if this can't be decided.

    orjson drops duplicate keys with their quotation marks, so its output `compact` has fewer of these marks. But it
    also decodes `_ESCAPED_QUOTATION_MARK`, which adds a mark. In a body with this escape, equal numbers prove nothing.
    """
    if _contains_escape(_ESCAPED_QUOTATION_MARK, body):
        return False
    return compact.count(b'"') == body.count(b'"')


def _decode_with_reasons(body: bytes, *, depth_max: int) -> Any:
    """Parse a body with the standard library. Raise Refused with the exact reason if the body is invalid."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Refused(Reason.NOT_UTF8, f"body: byte {error.start} is not UTF-8. Encode it as UTF-8.") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_to_object,
            parse_constant=_refuse_not_finite,
            parse_float=_to_float,
            parse_int=_to_integer,
        )
    except RecursionError:
        raise _too_deep_error(depth_max) from None
    except ValueError as error:
        raise Refused(Reason.NOT_JSON, f"body: {error}. Send JSON.") from None
    check_depth(value, depth_max=depth_max)
    return value


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert pairs of key and value to an object. Raise Refused if a key occurs twice (reason `duplicate_key`)."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
        detail = f"body: the key {preview(duplicate)} occurs twice in one object. Send it once."
        raise Refused(Reason.DUPLICATE_KEY, detail)
    return members


def _too_deep_error(depth_max: int) -> Refused:
    limit = f"{depth_max} levels (EMBEDSINK_DEPTH_MAX)"
    return Refused(Reason.TOO_DEEP, f"body: is nested deeper than {limit}. Flatten it.")


def _refuse_not_finite(literal: str) -> NoReturn:
    raise Refused(Reason.NOT_FINITE, f"body: {preview(literal)} is not a finite number. Send null instead.")


def _to_float(literal: str) -> float:
    """Convert a literal to a float. Raise Refused if it is too large for a float (reason `not_finite`)."""
    number = float(literal)
    if math.isinf(number):
        _refuse_not_finite(literal)
    return number


def _to_integer(literal: str) -> int | float:
    """Convert a literal to an integer; beyond 64 bits to a float, as orjson and browsers do."""
    # `int` refuses very long literals. They are beyond 64 bits.
    if len(literal) > _INTEGER_CHARACTERS_MAX:
        return _to_float(literal)
    integer = int(literal)
    return integer if _INTEGER_MIN <= integer <= _INTEGER_MAX else float(integer)


def _is_encodable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
