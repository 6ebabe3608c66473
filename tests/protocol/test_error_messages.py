"""Details contain the path, the value (up to 64 characters) and what is allowed."""

from collections.abc import Callable
from typing import Any

import pytest

from embedsink.protocol.error_messages import field_path
from tests.support.envelopes import KEY, KEY_CUT, event_or_action, parse_body, view


def detail_for(body: Any) -> str:
    rejected = parse_body(body).rejected
    assert len(rejected) == 1
    return rejected[0].detail


@pytest.mark.parametrize(
    ("location", "written"),
    [
        (("timestamp",), "timestamp"),
        (("payload", "format"), "payload.format"),
        (("events", 3, "id"), "events[3].id"),
        (("lost", "queue overflow"), 'lost["queue overflow"]'),
        (("a.b",), '["a.b"]'),
        (("",), '[""]'),
        (("context", "ü\r\n\x1b[31m"), 'context["\\u00fc\\r\\n\\u001b[31m"]'),
    ],
)
def test_a_path_is_written_as_in_javascript(location: tuple[int | str, ...], written: str) -> None:
    assert field_path(location) == written


def test_a_path_quotes_at_most_64_characters_of_a_name() -> None:
    assert field_path(("lost", "x" * 64)) == "lost." + "x" * 64
    assert field_path(("lost", "x" * 65)) == 'lost["' + "x" * 61 + '…"]'


def test_a_path_never_contains_a_key() -> None:
    assert field_path((KEY,)) == f'["{KEY_CUT}"]'


@pytest.mark.parametrize(
    ("envelope", "detail"),
    [
        (
            event_or_action("event:error", {"fatal": "yes"}),
            'payload.fatal: "yes" is not true or false. Send true or false.',
        ),
        (
            event_or_action("event:ready", {"deploymentId": "12"}),
            'payload.deploymentId: "12" is not an integer. Send an integer.',
        ),
        (
            event_or_action("event:ready", {"deploymentId": 1.0}),
            "payload.deploymentId: 1.0 is not an integer. Send an integer.",
        ),
        (
            event_or_action("event:download", {"rowCount": []}),
            "payload.rowCount: [] is not a number. Send a number.",
        ),
        (
            event_or_action("action:set-locale", {"locale": 1}),
            "payload.locale: 1 is not a string. Send a string.",
        ),
        (
            event_or_action("action:set-theme", {"embedTheme": 1}),
            "payload.embedTheme: 1 is not an object. Send an object.",
        ),
        (view(payload=None) | {"payload": 1}, "payload: 1 is not an object. Send an object."),
        (view(seq=-1), "seq: -1 is below 0. Send at least 0."),
        (view(seq=2**53), "seq: 9007199254740992 is above 9,007,199,254,740,991. Send at most 9,007,199,254,740,991."),
        (view(seq=2**64), "seq: 1.8446744073709552e+19 is not an integer. Send an integer."),
        (view(timestamp=1e300), "timestamp: 1e+300 is above 253,402,300,799,999. Send at most 253,402,300,799,999."),
        (view(timestamp=-1e300), "timestamp: -1e+300 is below -62,135,596,800,000. Send at least -62,135,596,800,000."),
        (view(surface="page"), 'surface: "page" is not one of app, chat, dashboard.'),
        (
            {"events": [1], "context": {"vendor": "Looker"}},
            'context.vendor: "Looker" is not 1 to 32 of the characters a-z, 0-9 and -, such as looker.',
        ),
        (view(id=""), 'id: "" is not a UUID such as 0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b.'),
        (
            {"events": [1], "lost": {"x" * 65: 1}},
            f'lost["{"x" * 61}…"]: "{"x" * 61}…" is longer than 64 characters. Shorten it.',
        ),
        ({"events": [1], "lost": dict.fromkeys("abcdefghijklmnopqrstuvwxyz0123456789", 1)}, None),
    ],
)
def test_a_detail_contains_the_value_and_the_allowed_values(envelope: Any, detail: str | None) -> None:
    if detail is not None:
        assert detail_for(envelope) == detail
    else:
        assert detail_for(envelope).endswith("has more than 32 members. Send fewer.")


# Bodies with an invalid value at each path whose message quotes it.
QUOTING: dict[str, Callable[[str], Any]] = {
    "envelope": lambda invalid: invalid,
    "source": lambda invalid: view(source=invalid),
    "direction": lambda invalid: view(direction=invalid),
    "type": lambda invalid: view(type=invalid),
    "surface": lambda invalid: view(surface=invalid),
    "surface of an action": lambda invalid: event_or_action("action:refresh", surface=invalid),
    "id": lambda invalid: view(id=invalid),
    "seq": lambda invalid: view(seq=invalid),
    "timestamp": lambda invalid: view(timestamp=invalid),
    "a word": lambda invalid: event_or_action("event:download", {"format": invalid}),
    "no string": lambda invalid: view({"path": [invalid]}),
    "no boolean": lambda invalid: event_or_action("event:error", {"fatal": invalid}),
    "no object": lambda invalid: event_or_action("action:set-theme", {"embedTheme": invalid}),
    "a pattern": lambda invalid: event_or_action("action:set-filter", {"filterUrlParameter": invalid}),
    "sentAt": lambda invalid: {"events": [view()], "sentAt": invalid},
    "context": lambda invalid: {"events": [view()], "context": invalid},
    "in the context": lambda invalid: {"events": [view()], "context": {"deployment": invalid}},
    "a vendor": lambda invalid: {"events": [view()], "context": {"vendor": f"{invalid}ABC"}},
    "a name in the context": lambda invalid: {"events": [view()], "context": {invalid: 1}},
    "a reason of loss": lambda invalid: {"events": [view()], "lost": {invalid: -1}},
    "key": lambda invalid: {"events": [view()], "key": [invalid]},
    "a name in the delivery": lambda invalid: {"events": [view()], invalid: 1},
    "events": lambda invalid: {"events": invalid},
}


@pytest.mark.parametrize("body_with", QUOTING.values(), ids=QUOTING)
def test_a_detail_quotes_at_most_64_characters(body_with: Callable[[str], Any]) -> None:
    assert "x" * 60 in detail_for(body_with("x" * 1000))
    assert "x" * 65 not in detail_for(body_with("x" * 1000))


@pytest.mark.parametrize("body_with", QUOTING.values(), ids=QUOTING)
def test_a_detail_is_one_printable_line_for_any_value(body_with: Callable[[str], Any]) -> None:
    assert detail_for(body_with("a\r\n\x1b[31m\u2028é")).isprintable()


@pytest.mark.parametrize("body_with", QUOTING.values(), ids=QUOTING)
@pytest.mark.parametrize("around", ["{}", "Bearer {}", "é{}", "x" * 40 + "{}", '"{}"', "key={}&a=1"])
def test_a_detail_never_contains_a_key(body_with: Callable[[str], Any], around: str) -> None:
    body = body_with(around.format(KEY))

    assert KEY[:20] not in detail_for(body)
    assert KEY[:20] not in str(parse_body(body).rejected[0].response_entry())
