"""The search for the key in a body."""

import json

import pytest

from embedsink.http.wire.body_tokens import find_body_tokens
from tests.support.envelopes import KEY, view


@pytest.mark.parametrize(
    "body",
    [
        {"key": KEY, "events": [view()]},
        {"events": [view()], "key": KEY},
        {"context": {"page": '"key"'}, "key": KEY, "events": []},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_the_key_of_a_delivery_is_found_at_any_position(body: object, indent: int | None) -> None:
    assert list(find_body_tokens(json.dumps(body, indent=indent).encode())) == [KEY]


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b"", []),
        (b'{"key":', []),
        (b'{"key": null}', []),
        (b'{"key":"es_\\u0069ngest_x"}', []),
        (b'{"key":"no key"}', ["no key"]),
        (b'{"key":"a"},{"key" : "b"}', ["a", "b"]),
        (b'{"key":"\xff"}', ["\ufffd"]),
    ],
)
def test_other_forms_are_not_keys(body: bytes, tokens: list[str]) -> None:
    assert list(find_body_tokens(body)) == tokens


def test_the_search_stops_after_a_few_candidates() -> None:
    assert list(find_body_tokens(b'"key" ' * 10_000 + b'"key":"late"')) == []
    assert len(list(find_body_tokens(b'"key":"x",' * 10_000))) == 8
