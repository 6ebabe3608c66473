"""CORS: which origins may send, and that pages can read errors (Fetch standard, section 3.2)."""

from collections.abc import Iterator

import pytest

import embedsink.http.api.events
from tests.support.app import EVENTS, PAGE, Server, open_server, problem
from tests.support.envelopes import view

ALLOW = "access-control-allow-origin"
STRANGERS = [
    "null",
    "https://app.example.com.evil.com",
    "https://evil-app.example.com",
    "https://example.com",
    "http://app.example.com",
    "https://app.example.com:8443",
    "https://APP.example.com",
    "https://app.example.com/",
    "",
]


@pytest.fixture(scope="module")
def one_origin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server whose only ingest keys belong to one origin."""
    with open_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def key(one_origin_server: Server) -> str:
    return one_origin_server.key(origins=[PAGE])


def test_the_preflight_of_an_allowed_origin_needs_no_key(one_origin_server: Server, key: str) -> None:
    response = one_origin_server.request("OPTIONS", EVENTS, headers={"origin": PAGE})
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers[ALLOW] == PAGE
    assert response.headers["access-control-allow-methods"] == "POST"
    assert response.headers["access-control-allow-headers"] == "Authorization, Content-Type, Content-Encoding"
    assert response.headers["access-control-max-age"] == "7200"
    assert response.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", STRANGERS)
def test_unknown_origins_get_no_cors_headers(one_origin_server: Server, key: str, origin: str) -> None:
    before = len(one_origin_server.journaled())
    for response in (
        one_origin_server.request("OPTIONS", EVENTS, headers={"origin": origin}),
        one_origin_server.post(view(), key=key, origin=origin),
        one_origin_server.post({"events": [view()], "key": key}, type_="text/plain", origin=origin),
    ):
        assert (response.status_code, problem(response)) == (403, "wrong_origin")
        assert ALLOW not in response.headers
        assert response.headers["vary"] == "Origin"
    assert len(one_origin_server.journaled()) == before


def test_a_refused_preflight_quotes_the_origin(one_origin_server: Server, key: str) -> None:
    stranger = one_origin_server.request("OPTIONS", EVENTS, headers={"origin": "https://evil.example.com"}).json()[
        "detail"
    ]
    assert stranger == (
        'origin: "https://evil.example.com" is not an origin of any ingest key. Create a key with --origin.'
    )
    nobody = one_origin_server.request("OPTIONS", EVENTS)
    assert (nobody.status_code, problem(nobody)) == (403, "wrong_origin")
    assert (
        nobody.json()["detail"]
        == "origin: is missing. A preflight contains the origin of its page. Programs can POST without a preflight."
    )


def test_a_program_sends_no_origin(one_origin_server: Server, key: str) -> None:
    response = one_origin_server.post(view(), key=key)
    assert response.status_code == 202
    assert ALLOW not in response.headers


def test_a_page_can_read_every_answer(one_origin_server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    responses = [
        one_origin_server.post(view(), key=key, origin=PAGE),
        one_origin_server.post([view(), 1], key=key, origin=PAGE),
        one_origin_server.post([1], key=key, origin=PAGE),
        one_origin_server.post(b"{", key=key, origin=PAGE),
        one_origin_server.post(view(), origin=PAGE),
        one_origin_server.post(view(), key="es_ingest_wrong", origin=PAGE),
        one_origin_server.post(view(), key=one_origin_server.key("read"), origin=PAGE),
        one_origin_server.post(b" " * 1_048_577, key=key, origin=PAGE),
        one_origin_server.post(view(), key=key, type_="image/png", origin=PAGE),
        one_origin_server.request("PUT", EVENTS, headers={"origin": PAGE}),
    ]
    monkeypatch.setattr(embedsink.http.api.events, "parse_fast", lambda *_, **__: 1 / 0)
    responses.append(one_origin_server.post(view(), key=key, origin=PAGE))
    assert [response.status_code for response in responses] == [202, 202, 422, 400, 401, 401, 403, 413, 415, 405, 500]
    for response in responses:
        assert response.headers[ALLOW] == PAGE
        assert response.headers["access-control-expose-headers"] == "Retry-After, WWW-Authenticate, X-Request-Id"
        assert response.headers["vary"] == "Origin"


def test_no_other_path_has_cors_headers(one_origin_server: Server, key: str) -> None:
    reader = one_origin_server.key("read")
    for path in ("/api/v1/reports", "/api/v1/reports/views", "/api/v1/nothing", "/metrics", "/readyz"):
        assert ALLOW not in one_origin_server.get(path, key=reader, headers={"origin": PAGE}).headers
    assert one_origin_server.request("OPTIONS", "/api/v1/reports", headers={"origin": PAGE}).status_code == 405


def test_an_origin_is_unknown_again_after_its_key_is_revoked(one_origin_server: Server) -> None:
    other = "https://other.example.com"
    token = one_origin_server.key(origins=[other])
    assert one_origin_server.request("OPTIONS", EVENTS, headers={"origin": other}).status_code == 204
    one_origin_server.revoke(token)
    assert one_origin_server.request("OPTIONS", EVENTS, headers={"origin": other}).status_code == 403


def test_a_key_without_origins_allows_every_origin(server: Server) -> None:
    token = server.key()
    response = server.post(view(), key=token, origin="https://anywhere.example.org")
    assert response.headers[ALLOW] == "https://anywhere.example.org"
    assert server.request("OPTIONS", EVENTS, headers={"origin": "https://anywhere.example.org"}).status_code == 204


def test_without_an_ingest_key_no_origin_is_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_server(tmp_path_factory.mktemp("empty")) as server:
        server.key("read")
        assert server.request("OPTIONS", EVENTS, headers={"origin": PAGE}).status_code == 403
