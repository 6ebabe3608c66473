"""The strict JSON parser."""

import json
from typing import Any

import pytest

from embedsink.errors import Refused
from embedsink.protocol.strict_json import check_depth, decode, encode, has_bad_text, is_shallow, may_contain_bad_text
from embedsink.reasons import Reason

# A body with this escape needs the slower parser, because it breaks the count of quotation marks.
FOR_SLOW_PARSER = b'["\\u0022", %b]'


def read(body: bytes) -> Any:
    return decode(body, depth_max=32).value


def reason_for(body: bytes) -> Reason:
    with pytest.raises(Refused) as refusal:
        read(body)
    return refusal.value.reason


def nested(levels: int, innermost: Any = None) -> Any:
    """Return nested arrays with this many levels."""
    value = [] if innermost is None else [innermost]
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "literal",
    [
        *("0", "-0", "-0.0", "0.1", "1E5", "1e-400", "5e-324", "1.7976931348623157e308", "9007199254740993"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
        *("18446744073709551615", "18446744073709551616", "18446744073709551617", "123456789012345678901"),
        *("-99999999999999999999", "1" * 300, "0.30000000000000004", "123456789.123456789"),
    ],
)
def test_both_parsers_agree_on_numbers(literal: str) -> None:
    fast = read(f"[{literal}]".encode())[0]
    slow = read(FOR_SLOW_PARSER % literal.encode())[1]

    assert repr(fast) == repr(slow)


@pytest.mark.parametrize("literal", ["9" * 400, "-" + "9" * 400, "9" * 5000, "1e400", "-1e400", "1" + "0" * 309])
def test_a_number_beyond_the_range_of_floats_is_not_finite(literal: str) -> None:
    assert reason_for(literal.encode()) == Reason.NOT_FINITE
    assert reason_for(FOR_SLOW_PARSER % literal.encode()) == Reason.NOT_FINITE


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a": 1, "a": 1}', Reason.DUPLICATE_KEY),
        (b'[[{"b": {"a": 1, "c": 2, "a": 3}}]]', Reason.DUPLICATE_KEY),
        (b'{"a": "\\"", "a": "\\"\\""}', Reason.DUPLICATE_KEY),
        (b'{"\\u0061": 1, "a": 1}', Reason.DUPLICATE_KEY),
        (b'{"\\u0151": 1, "\xc5\x91": 1}', Reason.DUPLICATE_KEY),
        (b'{"a": "\\u0022", "a": 1}', Reason.DUPLICATE_KEY),
        (b'{"a": 1, "a": "\\u0022\\u0022"}', Reason.DUPLICATE_KEY),
        (b'{"\\ud800": 1, "\\ud800": 1}', Reason.DUPLICATE_KEY),
        (b"NaN", Reason.NOT_FINITE),
        (b'{"a": [-Infinity]}', Reason.NOT_FINITE),
        (b"[1,]", Reason.NOT_JSON),
        (b"[01]", Reason.NOT_JSON),
        (b"[+1]", Reason.NOT_JSON),
        (b"[.5]", Reason.NOT_JSON),
        (b"[\x0c1]", Reason.NOT_JSON),
        (b"[\xc2\xa01]", Reason.NOT_JSON),
        (b"tru", Reason.NOT_JSON),
        (b'"\t"', Reason.NOT_JSON),
        (b'"\\ud80"', Reason.NOT_JSON),
        (b"[1] [2]", Reason.NOT_JSON),
        (b"\xef\xbb\xbf[]", Reason.NOT_JSON),
        (b'"\xff"', Reason.NOT_UTF8),
        (b'"\xed\xa0\x80"', Reason.NOT_UTF8),
        (b"[" * 1000 + b"]" * 1000, Reason.TOO_DEEP),
        (b"[" * 100_000, Reason.TOO_DEEP),
    ],
)
def test_invalid_json_is_refused_with_its_reason(body: bytes, reason: Reason) -> None:
    assert reason_for(body) == reason


def test_two_objects_may_have_the_same_key() -> None:
    assert read(b'[{"a": 1}, {"a": 1}]') == [{"a": 1}, {"a": 1}]
    assert read(b'{"a": {"a": 1}}') == {"a": {"a": 1}}


def test_a_lone_surrogate_is_parsed_so_that_its_envelope_can_be_stored() -> None:
    assert read(b'{"title": "\\ud800"}') == {"title": "\ud800"}


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["a\ud800b"], {"a": ["é\ud800"]}])
def test_encoded_values_with_lone_surrogates_are_parsed_unchanged(value: Any) -> None:
    encoded = encode(value)

    assert encoded.isascii()
    assert b"\n" not in encoded
    assert json.loads(encoded) == value


@pytest.mark.parametrize("innermost", [None, 1, "[[["])
def test_an_empty_array_counts_as_a_level(innermost: Any) -> None:
    check_depth(nested(32, innermost), depth_max=32)
    with pytest.raises(Refused) as refusal:
        check_depth(nested(33, innermost), depth_max=32)
    assert refusal.value.reason == Reason.TOO_DEEP


def test_objects_and_arrays_count_as_levels() -> None:
    check_depth({"a": [{"b": 1}]}, depth_max=3)
    with pytest.raises(Refused):
        check_depth({"a": [{"b": {}}]}, depth_max=3)


def test_a_scalar_has_no_depth() -> None:
    check_depth("[[", depth_max=1)


@pytest.mark.parametrize("value", [nested(5), {"a": {"b": [1]}}, [[], [], [[]]], "[[[[", {"{": "["}])
def test_a_shallow_body_never_exceeds_the_maximum_depth(value: Any) -> None:
    body = json.dumps(value).encode()

    for depth_max in range(10):
        if is_shallow(body, flat_brackets=0, depth_max=depth_max):
            check_depth(value, depth_max=depth_max)


@pytest.mark.parametrize(
    ("value", "is_bad"),
    [
        ("", False),
        ("text\n\x01\x7f\ufeff\uffff📊", False),
        (None, False),
        ([1, 2.5, True, {"a": {}}], False),
        ("\0", True),
        ("a\ud800", True),
        ("\udfff", True),
        ({"a": [{"b": "\0"}]}, True),
        ({"a": {"\0": 1}}, True),
    ],
)
def test_bad_text_is_detected_in_every_string_and_name(value: Any, is_bad: bool) -> None:
    assert has_bad_text(value) is is_bad
    # A false suspicion costs only time.
    assert may_contain_bad_text(encode(value)) or not is_bad


def test_harmless_escapes_are_not_suspected() -> None:
    assert not may_contain_bad_text(b'"\\n \\" \\u00e9 \\u2028 \\uE000"')
