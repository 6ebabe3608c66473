"""Whatever is sent is accepted or gets a reason: there is no third way, and never an exception.

`pytest --hypothesis-profile ci` tries many more examples.
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
from tests.envelope.sending import ID, PAYLOADS, RECEIVED_AT, event_or_action, parse_body, view

Way = tuple[int | str, ...]

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

# Everything that text can do to us, lone surrogates and NUL included.
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


# JSON text that no value gives: keys twice, odd numbers, both spellings of a letter, too much depth, slips.
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
    """A valid delivery with a few places deleted, replaced, moved or added to."""
    delivery: dict[str, Any] = deepcopy(DELIVERY)
    for _ in range(draw(st.integers(0, 3))):
        places = [path for path in paths(delivery) if path]
        if places:
            change(delivery, draw(st.sampled_from(places)), draw)
    return delivery


def paths(value: Any, path: Way = ()) -> list[Way]:
    """The way to each part of a value."""
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [inner for step, part in members for inner in paths(part, (*path, step))]


def change(value: Any, path: Way, draw: st.DrawFn) -> None:
    *way, last = path
    for step in way:
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


def spelled_out(value: Any) -> str:
    """JSON with every character of every string escaped, which the careful reader has to read."""
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass")
        return '"' + "".join(f"\\u{high:02x}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True)) + '"'
    if isinstance(value, list):
        return "[" + ",".join(map(spelled_out, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{spelled_out(name)}:{spelled_out(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)


def found_outcome(body: bytes, *, ndjson: bool = False) -> Refused | ParsedDelivery:
    """What became of a body, after a check that nothing is missing and that it can be journaled."""
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
    assert_lines(body_rejection_line(rejection, received_at=RECEIVED_AT, key_id="k_1", new_id=object), count=1)
    return refusal


def assert_adds_up(parsed: ParsedDelivery) -> None:
    indexes = [rejection.index or 0 for rejection in parsed.rejected]
    assert indexes == sorted(set(indexes))
    assert set(indexes) <= set(range(parsed.received_count))
    for rejection in parsed.rejected:
        assert_printable(rejection.detail)
    lines = delivery_lines(parsed, key_id="k_1", new_id=object)
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


def comparable(found: Refused | ParsedDelivery) -> object:
    return found.reason if isinstance(found, Refused) else found


class NotStrict(Exception):
    """The oracle's only word: this is not strict JSON of a bearable depth."""


def strict(body: bytes, depth_max: int) -> Any:
    """The value of a body by the standard library alone: an independent opinion on what is strict JSON."""

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


def assert_judged_as_by_the_oracle(body: bytes) -> None:
    found = found_outcome(body)
    refused = isinstance(found, Refused) and found.reason not in {Reason.EMPTY, Reason.TOO_MANY_EVENTS}
    try:
        strict(body, RULES.depth_max)
    except NotStrict:
        assert isinstance(found, Refused)
    else:
        assert not refused


@given(st.binary(max_size=60))
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe[\0]\0")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
def test_any_bytes_meet_a_fate(body: bytes) -> None:
    assert_judged_as_by_the_oracle(body)
    found_outcome(body, ndjson=True)


@given(json_texts() | st.text('{}[]",:01eE-+. \\u', max_size=20))
@example('{"a": "\\u0022", "a": 1}')
@example('[{"events": 1, "events": []}]')
def test_any_text_that_looks_like_json_is_read_as_strictly_as_by_the_standard_library(text: str) -> None:
    assert_judged_as_by_the_oracle(text.encode())
    found_outcome(text.encode(), ndjson=True)


@given(JSON)
def test_any_json_value_meets_a_fate(value: Any) -> None:
    found = found_outcome(json.dumps(value).encode())

    assert comparable(found_outcome(spelled_out(value).encode())) == comparable(found)


@given(changed_deliveries())
@example({"events": [view()] * 31})
@example({"events": None, "key": "\ud800"})
@example({"events": [view()], "context": 3, "key": "\0"})
def test_any_change_to_a_delivery_meets_the_same_fate_read_fast_or_carefully(
    delivery: dict[str, Any],
) -> None:
    found = found_outcome(json.dumps(delivery).encode())

    assert comparable(found_outcome(spelled_out(delivery).encode())) == comparable(found)


@given(changed_deliveries())
def test_each_envelope_meets_the_same_fate_in_every_kind_of_body(delivery: dict[str, Any]) -> None:
    events = delivery.get("events")
    if not isinstance(events, list) or not events:
        return
    in_array = found_outcome(json.dumps(events).encode())
    in_lines = found_outcome("\n".join(map(json.dumps, events)).encode(), ndjson=True)

    if isinstance(in_array, ParsedDelivery) and isinstance(in_lines, ParsedDelivery):
        assert in_array == in_lines


@given(changed_deliveries(), st.data())
def test_any_damage_to_the_bytes_of_a_delivery_meets_a_fate(delivery: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(delivery).encode()
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(start + 4, len(body))))
    damaged = body[:start] + data.draw(st.binary(max_size=4)) + body[end:]

    assert_judged_as_by_the_oracle(damaged)
    assert_judged_as_by_the_oracle(body[:start])
