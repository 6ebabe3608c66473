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
def tied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server whose only ingest keys belong to one origin."""
    with open_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def key(tied: Server) -> str:
    return tied.key(origins=[PAGE])


def test_the_preflight_of_an_allowed_origin_needs_no_key(tied: Server, key: str) -> None:
    answer = tied.ask("OPTIONS", EVENTS, headers={"origin": PAGE})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[ALLOW] == PAGE
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type, Content-Encoding"
    assert answer.headers["access-control-max-age"] == "7200"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", STRANGERS)
def test_unknown_origins_get_no_cors_headers(tied: Server, key: str, origin: str) -> None:
    before = len(tied.journaled())
    for answer in (
        tied.ask("OPTIONS", EVENTS, headers={"origin": origin}),
        tied.post(view(), key=key, origin=origin),
        tied.post({"events": [view()], "key": key}, type_="text/plain", origin=origin),
    ):
        assert (answer.status_code, problem(answer)) == (403, "wrong_origin")
        assert ALLOW not in answer.headers
        assert answer.headers["vary"] == "Origin"
    assert len(tied.journaled()) == before


def test_a_refused_preflight_quotes_the_origin(tied: Server, key: str) -> None:
    stranger = tied.ask("OPTIONS", EVENTS, headers={"origin": "https://evil.example.com"}).json()["detail"]
    assert stranger == 'origin: "https://evil.example.com" belongs to no ingest key. Create a key with --origin.'
    nobody = tied.ask("OPTIONS", EVENTS)
    assert (nobody.status_code, problem(nobody)) == (403, "wrong_origin")
    assert (
        nobody.json()["detail"]
        == "origin: is missing. A preflight contains the origin of its page. Programs can POST without a preflight."
    )


def test_a_program_sends_no_origin(tied: Server, key: str) -> None:
    answer = tied.post(view(), key=key)
    assert answer.status_code == 202
    assert ALLOW not in answer.headers


def test_a_page_can_read_every_answer(tied: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        tied.post(view(), key=key, origin=PAGE),
        tied.post([view(), 1], key=key, origin=PAGE),
        tied.post([1], key=key, origin=PAGE),
        tied.post(b"{", key=key, origin=PAGE),
        tied.post(view(), origin=PAGE),
        tied.post(view(), key="es_ingest_wrong", origin=PAGE),
        tied.post(view(), key=tied.key("read"), origin=PAGE),
        tied.post(b" " * 1_048_577, key=key, origin=PAGE),
        tied.post(view(), key=key, type_="image/png", origin=PAGE),
        tied.ask("PUT", EVENTS, headers={"origin": PAGE}),
    ]
    monkeypatch.setattr(embedsink.http.api.events, "parse_fast", lambda *_, **__: 1 / 0)
    answers.append(tied.post(view(), key=key, origin=PAGE))
    assert [answer.status_code for answer in answers] == [202, 202, 422, 400, 401, 401, 403, 413, 415, 405, 500]
    for answer in answers:
        assert answer.headers[ALLOW] == PAGE
        assert answer.headers["access-control-expose-headers"] == "Retry-After, WWW-Authenticate, X-Request-Id"
        assert answer.headers["vary"] == "Origin"


def test_no_other_path_has_cors_headers(tied: Server, key: str) -> None:
    reader = tied.key("read")
    for path in ("/api/v1/reports", "/api/v1/reports/views", "/api/v1/nothing", "/metrics", "/readyz"):
        assert ALLOW not in tied.get(path, key=reader, headers={"origin": PAGE}).headers
    assert tied.ask("OPTIONS", "/api/v1/reports", headers={"origin": PAGE}).status_code == 405


def test_an_origin_is_unknown_again_after_its_key_is_revoked(tied: Server) -> None:
    other = "https://other.example.com"
    token = tied.key(origins=[other])
    assert tied.ask("OPTIONS", EVENTS, headers={"origin": other}).status_code == 204
    tied.revoke(token)
    assert tied.ask("OPTIONS", EVENTS, headers={"origin": other}).status_code == 403


def test_a_key_without_origins_allows_every_origin(server: Server) -> None:
    token = server.key()
    answer = server.post(view(), key=token, origin="https://anywhere.example.org")
    assert answer.headers[ALLOW] == "https://anywhere.example.org"
    assert server.ask("OPTIONS", EVENTS, headers={"origin": "https://anywhere.example.org"}).status_code == 204


def test_without_an_ingest_key_no_origin_is_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_server(tmp_path_factory.mktemp("empty")) as server:
        server.key("read")
        assert server.ask("OPTIONS", EVENTS, headers={"origin": PAGE}).status_code == 403
