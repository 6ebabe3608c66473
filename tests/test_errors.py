"""Error messages: a short, escaped preview of a wrong value, and no key."""

import json
import re
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.auth.keys import KeyKind
from embedsink.errors import Refused, Unavailable, nearest, preview, redact_keys, suggestion
from embedsink.reasons import Reason

KEY = "es_read_" + "0123456789abcdefghijABCDEFGHIJ0123456789abcdefghi"
CUT = f"es_read_…{sha256(KEY.encode()).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("doc", '"doc"'),
        ("", '""'),
        (None, "null"),
        (True, "true"),
        (12.0, "12.0"),
        ([1, {"a": None}], '[1, {"a": null}]'),
        ("é\n\x1b[31m\0", '"\\u00e9\\n\\u001b[31m\\u0000"'),
        ("\ud800", '"\\ud800"'),
        ("x" * 62, '"' + "x" * 62 + '"'),
        ("x" * 63, '"' + "x" * 61 + '…"'),
        (["x" * 63], '["' + "x" * 61 + "…"),
        (f"Bearer {KEY}", f'"Bearer {CUT}"'),
        ("x" * 40 + KEY, '"' + "x" * 40 + f'{CUT}"'),
        ({KEY: KEY}, f'{{"{CUT}": "{CUT}"}}'),
    ],
)
def test_a_preview_is_escaped_json_and_short(value: Any, quoted: str) -> None:
    assert preview(value) == quoted


def test_a_value_that_cannot_be_encoded_is_previewed_by_its_type() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert preview(endless) == "a list"


def test_a_preview_encodes_no_more_than_it_shows() -> None:
    class Late:
        def __str__(self) -> str:
            raise AssertionError("this value is far beyond the quoted part")

    assert preview([1] * 100 + [Late()]).endswith("1, 1,…")
    assert preview({"a": [1] * 100, "b": Late()}).endswith("1,…")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
)


@given(JSON)
def test_any_preview_has_at_most_64_printable_characters(value: Any) -> None:
    assert len(preview(value)) <= 64
    assert preview(value).isprintable()


@pytest.mark.parametrize("kind", list(KeyKind))
@pytest.mark.parametrize("text", ["{}", "?key={}&a=1", "key%3D{}", "{} {}", "é{}é", json.dumps({"key": "{}"})])
def test_a_key_anywhere_in_a_text_is_redacted_to_its_kind(kind: str, text: str) -> None:
    key = KEY.replace("read", kind)

    digest = sha256(key.encode()).hexdigest()

    assert redact_keys(text.replace("{}", key)) == text.replace("{}", f"es_{kind}_…{digest[:8]}")


def test_two_redacted_keys_stay_distinct() -> None:
    assert re.fullmatch(r"(es_\w+_…\w{8}){2}", redact_keys(KEY + KEY))
    assert redact_keys(KEY) != redact_keys(KEY[:-1] + "0")
    assert redact_keys(redact_keys(KEY)) == redact_keys(KEY)


@pytest.mark.parametrize("text", ["{}", "Bearer {}", '{"token":"{}"}', "https://example.com/?t={}&x=1"])
def test_a_jwt_is_redacted(text: str) -> None:
    jwt = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c2VyLTEifQ.{'x-_9' * 64}"
    digest = sha256(jwt.encode()).hexdigest()
    assert redact_keys(text.replace("{}", jwt)) == text.replace("{}", f"jwt_…{digest[:8]}")


def jwt(header: str) -> str:
    """Return a signed JWT with this header."""
    return f"{urlsafe_b64encode(header.encode()).decode().rstrip('=')}.eyJzdWIiOiIxIn0.c2ln"


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"
OTHER_JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIn0.YWJj"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"x-{JWT}, {OTHER_JWT}", r"x-jwt_…\w{8}, jwt_…\w{8}"),
        (f"{JWT}.{OTHER_JWT}", r"jwt_…\w{8}\.jwt_…\w{8}"),
        (f"eyJ.a.{JWT}.b", r"eyJ\.a\.jwt_…\w{8}\.b"),
        (f"HarleyJames{JWT}", r"HarleyJamesjwt_…\w{8}"),
        (f"{'eyJ' * 2_000}{JWT}", r"(eyJ){2000}jwt_…\w{8}"),
        (jwt('{"x5t#S256":"a","alg":"RS256"}'), r"jwt_…\w{8}"),
        (jwt('{"trust_chain":[],"alg":"RS256"}'), r"jwt_…\w{8}"),
        (jwt('{ "alg":"RS256"}'), r"jwt_…\w{8}"),
        (jwt('{\n  "typ": "JWT",\n  "alg": "RS256"\n}'), r"jwt_…\w{8}"),
        (jwt('{"1":2,"\\u0061lg":"RS256"}'), r"jwt_…\w{8}"),
        (json.dumps(f"line\n{JWT}"), r'"line\\njwt_…\w{8}"'),
        (json.dumps(f"\\u000{JWT}"), r'"\\\\u000jwt_…\w{8}"'),
        (f"u000{JWT}", r"u000jwt_…\w{8}"),
    ],
    ids=[
        *("two", "joined", "after parts", "in a word", "after marks"),
        *("thumbprint", "trust chain", "space", "line breaks", "escaped name", "escaped"),
        *("after an escaped backslash", "after digits"),
    ],
)
def test_jwts_are_redacted_wherever_they_are(text: str, expected: str) -> None:
    assert re.fullmatch(expected, redact_keys(text)), redact_keys(text)


@pytest.mark.parametrize(
    "text",
    [
        *("HarleyJames.van.Dyke@example.com", "RileyJ-Smith.sales.emea", "eyJ.a.b", "eyJhIjoxfQ.a.b", f"{JWT[:-5]}."),
        jwt('{"alg":' + "[" * 5_500),
        # Escapes in JSON, whose last digit is not the beginning of a JWT.
        *(json.dumps(f"{character}{JWT[1:]}") for character in "\x0e\x1eî"),
        json.dumps(f"\x0e{JWT[1:]}").replace("\\u000e", "\\u000E"),
        json.dumps(f"\\\x0e{JWT[1:]}"),
    ],
    ids=[
        *("name", "group", "mark", "no algorithm", "no signature", "deep"),
        *("escape", "another escape", "escaped letter", "capital escape", "backslash and escape"),
    ],
)
def test_what_is_no_jwt_stays(text: str) -> None:
    assert redact_keys(text) == text


@pytest.mark.parametrize(
    "text", ["eyJ", "eyJ.", "eyJ.a.", "es_read_", "es_read_a", "-eyJ_", "eyJhbGciOiJ", f"{'eyJhbGciOiJ' * 700}.a.b."]
)
def test_redaction_takes_linear_time(text: str) -> None:
    began_at = time.thread_time()
    redact_keys(text * (300_000 // len(text)))
    assert time.thread_time() - began_at < 5  # With quadratic time, this takes an hour.


@pytest.mark.parametrize("text", ["sales_admin_total", "es_read_", "es_ingest_abc", "es_write_" + "a" * 49, ""])
def test_other_text_is_not_redacted(text: str) -> None:
    assert redact_keys(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("view", "views"),
        ("VIEWS", "views"),
        ("Download-Audit", "download_audit"),
        ("querys", "ai_query"),
        ("ai_querie", "ai_queries"),
        ("audit", "download_audit"),
        ("download", "downloads"),
        ("zzz", None),
        ("", None),
        ("views" * 20, None),
    ],
)
def test_the_nearest_name_is_similar_as_a_whole_or_in_one_word(name: str, expected: str | None) -> None:
    assert nearest(name, ["ai_query", "ai_queries", "download_audit", "downloads", "views"]) == expected
    assert nearest(name, []) is None


def test_an_error_without_a_detail_uses_its_reasons_sentence() -> None:
    assert str(Refused(Reason.EMPTY)) == Reason.EMPTY.sentence
    assert str(Refused(Reason.EMPTY, "body: is empty.")) == "body: is empty."
    assert str(Unavailable(Reason.OVERLOADED)) == Reason.OVERLOADED.sentence


@pytest.mark.parametrize(
    ("name", "known", "otherwise", "advice"),
    [
        ("vew", ["view_count", "surface"], "", 'Did you mean "view_count"?'),
        ("overvew", ["content", "overview"], "Look at the list.", 'Did you mean "overview"?'),
        ("KEY_1F3C", ["key_1f3d"], "", 'Did you mean "key_1f3d"?'),
        ("zzz", ["content", "overview"], "", "Valid names: content, overview."),
        ("zzz", ["content", "overview"], "Look at the list.", "Look at the list."),
        ("zzz", [], "", "There are no valid names."),
    ],
)
def test_a_suggestion_names_the_nearest_or_all_known_names(
    name: str, known: list[str], otherwise: str, advice: str
) -> None:
    assert suggestion(name, known, otherwise) == advice
