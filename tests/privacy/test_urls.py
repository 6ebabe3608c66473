"""URLs and paths without queries, passwords and ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.privacy.urls import fold_ids, strip_query


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://ann:secret@a.example/x?q=1#f", "https://a.example/x"),
        ("/a/b?c", "/a/b"),
        ("//a.example/b?c", "/a.example/b"),
        ("", ""),
        ("https://[x/", "https://[x/"),
        ("HTTPS:ann:secret@a.example/x", "https://a.example/x"),
        ("https:///ann:secret@a.example", "https://a.example"),
        ("https:\\\\ann:secret@a.example\\x", "https://a.example\\x"),
        ("////ann:secret@a.example/x", "/a.example/x"),
        ("/a#b?c", "/a"),
        (" https://ann:secret@a.example/x", "https://a.example/x"),
        ("wss://ann:secret@a.example/x", "wss://a.example/x"),
        ("blob:https://ann:secret@a.example/x", "blob:https://a.example/x"),
        ("View-Source: https://ann:secret@a.example/x?q", "view-source: https://a.example/x"),
        ("ht\ttps://ann:secret@a.example/x", "https://a.example/x"),
        ("\x01https://ann:secret@a.example/x", "https://a.example/x"),
        ("/\t/ann:secret@a.example/x", "/a.example/x"),
        ("/a;jsessionid=1F2E/b;x=1;y?c", "/a/b"),
        ("https://ann;x:secret@a.example/a;jsessionid=1F2E", "https://a.example/a"),
        ("/;x//ann:secret@a.example/x", "/a.example/x"),
        ("\\a;x\\b", "\\a\\b"),
        ("/\\@/", "/"),
        ("/\\@" * 20_000, ""),
    ],
)
def test_a_query_is_stripped(url: str, expected: str) -> None:
    assert strip_query(url) == expected
    assert strip_query(expected) == expected


@given(st.text(alphabet="/\\@:;?#ab\t htpsx", max_size=20))
def test_a_path_that_is_redacted_again_stays(url: str) -> None:
    assert strip_query(strip_query(url)) == strip_query(url)
    assert fold_ids(fold_ids(url)) == fold_ids(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/dashboards/sales-overview/edit", "/dashboards/sales-overview/edit"),
        ("/v2/orders/8731", "/v2/orders/:id"),
        ("/users/ann@example.com/", "/users/:id/"),
        ("/d/0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b?tab=2", "/d/:id"),
        ("/q3-report", "/:id"),
        (f"/{'a' * 33}", "/:id"),
        ("/caf%C3%A9", "/:id"),
        ("https://a.example:8443/x/1#y", "https://a.example:8443/x/:id"),
        ("/d/:id", "/d/:id"),
        ("//u_48151623/profile", "/:id/profile"),
        ("/orders;jsessionid=1F2E/8731;x", "/orders/:id"),
        ("u4711:profile", ":id"),
        ("ann.smith:1", ":id"),
    ],
)
def test_ids_are_folded(url: str, expected: str) -> None:
    assert fold_ids(url) == expected
    assert fold_ids(expected) == expected
