"""Any input is accepted or rejected with a reason; it never raises another exception.

`scripts/test --hypothesis-profile thorough` tries many more examples.
"""

import json
import math
from copy import deepcopy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from embedsink.errors import Refused
from embedsink.ingest.records import body_rejection_line, delivery_lines
from embedsink.protocol.delivery import ParsedDelivery, Rejection, Rules
from embedsink.reasons import Reason
from tests.support.envelopes import ID, PAYLOADS, RECEIVED_AT, event_or_action, parse_body, view
from tests.support.redaction import storable, storable_rejection

Path = tuple[int | str, ...]

BODY_REASONS = {reason for reason in Reason if reason.status == 400} | {Reason.TOO_MANY_EVENTS}
RULES = Rules(depth_max=6, events_max=30, envelope_bytes_max=2_000, context_bytes_max=500)
DELIVERY = {
    "sentAt": 1_763_596_801_500,
    "context": {
        "deployment": 12,
        "session": "s_9f3c",
        "viewer": "u_42",
        "tenant": "acme",
        "page": 'https://a/"',
    },
    "events": [event_or_action(type_, id=ID, seq=7) for type_ in PAYLOADS],
    "lost": {"queue_overflow": 3},
    "key": "es_ingest_example",
}

# Text with names from the protocol, any characters, lone surrogates and NUL.
WORDS = [
    "",
    "id",
    "source",
    "events",
    "payload",
    "svc-embed",
    "event",
    "svc:event:view",
    "dashboard",
    "csv",
    ID,
    "\0",
]
TEXTS = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=[]), max_size=8)
NUMBERS = st.integers() | st.sampled_from([2**53, 2**63, 2**64, -(2**63) - 1]) | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=12,
)


# JSON text that no Python encoder writes: duplicate keys, odd numbers, escaped letters, excessive depth, errors.
LITERALS = [
    "0",
    "-0.0",
    "1e400",
    "9" * 400,
    "NaN",
    "-Infinity",
    "01",
    "null",
    '"a"',
    '"\\u0022"',
    '"\\ud800"',
]
NAMES = ['"a"', '"\\u0061"', '"b"', '""', '"\\""', '"\\ud800"', '"é"', '"\\u00e9"', '"events"']


@st.composite
def json_texts(draw: st.DrawFn, levels: int = 4) -> str:
    if levels == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LITERALS))
    parts = draw(st.lists(json_texts(levels - 1), max_size=3))
    if draw(st.booleans()):
        levels_more = draw(st.integers(1, RULES.depth_max + 1))
        return "[" * levels_more + ",".join(parts) + "]" * levels_more
    return "{" + ",".join(f"{draw(st.sampled_from(NAMES))}: {part}" for part in parts) + "}"


@st.composite
def changed_deliveries(draw: st.DrawFn) -> dict[str, Any]:
    """Return a valid delivery with some values deleted, replaced, nested or inserted."""
    delivery: dict[str, Any] = deepcopy(DELIVERY)
    for _ in range(draw(st.integers(0, 3))):
        targets = [path for path in paths(delivery) if path]
        if targets:
            change(delivery, draw(st.sampled_from(targets)), draw)
    return delivery


def paths(value: Any, path: Path = ()) -> list[Path]:
    """Return the paths of all parts of a value."""
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [inner for step, part in members for inner in paths(part, (*path, step))]


def change(value: Any, path: Path, draw: st.DrawFn) -> None:
    *parents, last = path
    for step in parents:
        value = value[step]
    action = draw(st.sampled_from(["delete", "replace", "insert", "nest"]))
    if action == "delete":
        del value[last]
    elif action == "replace":
        value[last] = draw(JSON)
    elif action == "nest":
        value[last] = [value[last]]
    elif isinstance(value, list):
        value.insert(int(last), draw(JSON))
    else:
        value[draw(TEXTS)] = draw(JSON)


def escaped(value: Any) -> str:
    """Return JSON with every character of every string escaped, which needs the slower parser."""
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass")
        return '"' + "".join(f"\\u{high:02x}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True)) + '"'
    if isinstance(value, list):
        return "[" + ",".join(map(escaped, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{escaped(name)}:{escaped(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)


def outcome_of(body: bytes, *, ndjson: bool = False) -> Refused | ParsedDelivery:
    """Parse a body, and check that each envelope has an outcome and that it can be journaled."""
    try:
        parsed = parse_body(body, RULES, ndjson=ndjson)
    except Refused as refused:
        refusal = refused
    else:
        assert_adds_up(parsed)
        return parsed
    assert refusal.reason in BODY_REASONS
    assert_printable(str(refusal))
    rejection = Rejection(None, refusal.reason, str(refusal), body)
    assert_lines(
        body_rejection_line(storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=object),
        count=1,
    )
    return refusal


def assert_adds_up(parsed: ParsedDelivery) -> None:
    indexes = [rejection.index or 0 for rejection in parsed.rejected]
    assert indexes == sorted(set(indexes))
    assert set(indexes) <= set(range(parsed.received_count))
    for rejection in parsed.rejected:
        assert_printable(rejection.detail)
    lines = delivery_lines(storable(parsed), key_id="k_1", new_id=object)
    assert_lines(lines, count=parsed.received_count + len(parsed.lost))
    assert parsed.received_count or parsed.lost


def assert_printable(detail: str) -> None:
    assert detail.isprintable()
    assert len(detail) <= 300
    assert ": " in detail


def assert_lines(lines: bytes, *, count: int) -> None:
    parts = lines.decode().split("\n")
    assert parts.pop() == ""
    assert len(parts) == count
    for part in parts:
        assert isinstance(json.loads(part), dict)


def comparable(outcome: Refused | ParsedDelivery) -> object:
    return outcome.reason if isinstance(outcome, Refused) else outcome


class NotStrict(Exception):
    """The text is not strict JSON, or is too deep."""


def strict(body: bytes, depth_max: int) -> Any:
    """Return the value of a body, parsed strictly with the standard library alone, as an independent reference."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise NotStrict
        return dict(pairs)

    def finite(literal: str) -> float:
        if not math.isfinite(float(literal)):
            raise NotStrict
        return float(literal)

    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=once,
            parse_constant=finite,
            parse_float=finite,
            parse_int=finite,
        )
    except (ValueError, RecursionError):
        raise NotStrict from None
    if depth(value) > depth_max:
        raise NotStrict
    return value


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def assert_agrees_with_the_standard_library(body: bytes) -> None:
    outcome = outcome_of(body)
    refused = isinstance(outcome, Refused) and outcome.reason not in {Reason.EMPTY, Reason.TOO_MANY_EVENTS}
    try:
        strict(body, RULES.depth_max)
    except NotStrict:
        assert isinstance(outcome, Refused)
    else:
        assert not refused


@given(st.binary(max_size=60))
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe[\0]\0")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
def test_any_bytes_have_an_outcome(body: bytes) -> None:
    assert_agrees_with_the_standard_library(body)
    outcome_of(body, ndjson=True)


@given(json_texts() | st.text('{}[]",:01eE-+. \\u', max_size=20))
@example('{"a": "\\u0022", "a": 1}')
@example('[{"events": 1, "events": []}]')
def test_text_that_resembles_json_is_parsed_as_strictly_as_by_the_standard_library(text: str) -> None:
    assert_agrees_with_the_standard_library(text.encode())
    outcome_of(text.encode(), ndjson=True)


@given(JSON)
def test_any_json_value_has_an_outcome(value: Any) -> None:
    outcome = outcome_of(json.dumps(value).encode())

    assert comparable(outcome_of(escaped(value).encode())) == comparable(outcome)


@given(changed_deliveries())
@example({"events": [view()] * 31})
@example({"events": None, "key": "\ud800"})
@example({"events": [view()], "context": 3, "key": "\0"})
def test_both_parsers_give_a_changed_delivery_the_same_outcome(
    delivery: dict[str, Any],
) -> None:
    outcome = outcome_of(json.dumps(delivery).encode())

    assert comparable(outcome_of(escaped(delivery).encode())) == comparable(outcome)


@given(changed_deliveries())
def test_an_envelope_has_the_same_outcome_in_an_array_and_in_ndjson(delivery: dict[str, Any]) -> None:
    events = delivery.get("events")
    if not isinstance(events, list) or not events:
        return
    in_array = outcome_of(json.dumps(events).encode())
    in_lines = outcome_of("\n".join(map(json.dumps, events)).encode(), ndjson=True)

    if isinstance(in_array, ParsedDelivery) and isinstance(in_lines, ParsedDelivery):
        assert in_array == in_lines


@given(changed_deliveries(), st.data())
def test_a_delivery_with_damaged_bytes_has_an_outcome(delivery: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(delivery).encode()
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(start + 4, len(body))))
    damaged = body[:start] + data.draw(st.binary(max_size=4)) + body[end:]

    assert_agrees_with_the_standard_library(damaged)
    assert_agrees_with_the_standard_library(body[:start])
