"""Pages of other origins: who may send, and that they can read what went wrong (Fetch standard, section 3.2)."""

from collections.abc import Iterator

import pytest

import embedsink.http.api.events
from tests.envelope.sending import view
from tests.http.asking import EVENTS, PAGE, Server, open_server, problem

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
    """A server whose only ingest keys belong to one page."""
    with open_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def key(tied: Server) -> str:
    return tied.key(origins=[PAGE])


def test_the_preflight_of_an_allowed_page_needs_no_key(tied: Server, key: str) -> None:
    answer = tied.ask("OPTIONS", EVENTS, headers={"origin": PAGE})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[ALLOW] == PAGE
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type, Content-Encoding"
    assert answer.headers["access-control-max-age"] == "7200"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", STRANGERS)
def test_strangers_are_refused_and_allowed_nothing(tied: Server, key: str, origin: str) -> None:
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


def test_a_refused_preflight_says_what_was_seen(tied: Server, key: str) -> None:
    stranger = tied.ask("OPTIONS", EVENTS, headers={"origin": "https://evil.example.com"}).json()["detail"]
    assert stranger == 'origin: "https://evil.example.com" belongs to no ingest key. Create one with --origin.'
    nobody = tied.ask("OPTIONS", EVENTS)
    assert (nobody.status_code, problem(nobody)) == (403, "wrong_origin")
    assert nobody.json()["detail"] == "origin: is missing; a preflight names its page. A program can POST at once."


def test_a_program_that_is_no_page_sends_no_origin(tied: Server, key: str) -> None:
    answer = tied.post(view(), key=key)
    assert answer.status_code == 202
    assert ALLOW not in answer.headers


def test_the_page_can_read_every_answer(tied: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(embedsink.http.api.events, "parse_plain", lambda *_, **__: 1 / 0)
    answers.append(tied.post(view(), key=key, origin=PAGE))
    assert [answer.status_code for answer in answers] == [202, 202, 422, 400, 401, 401, 403, 413, 415, 405, 500]
    for answer in answers:
        assert answer.headers[ALLOW] == PAGE
        assert answer.headers["access-control-expose-headers"] == "Retry-After, WWW-Authenticate, X-Request-Id"
        assert answer.headers["vary"] == "Origin"


def test_no_other_address_answers_pages(tied: Server, key: str) -> None:
    reader = tied.key("read")
    for path in ("/api/v1/reports", "/api/v1/reports/views", "/api/v1/nothing", "/metrics", "/readyz"):
        assert ALLOW not in tied.get(path, key=reader, headers={"origin": PAGE}).headers
    assert tied.ask("OPTIONS", "/api/v1/reports", headers={"origin": PAGE}).status_code == 405


def test_a_revoked_keys_page_is_a_stranger_again(tied: Server) -> None:
    other = "https://other.example.com"
    token = tied.key(origins=[other])
    assert tied.ask("OPTIONS", EVENTS, headers={"origin": other}).status_code == 204
    tied.revoke(token)
    assert tied.ask("OPTIONS", EVENTS, headers={"origin": other}).status_code == 403


def test_a_key_without_origins_lets_every_page_in(server: Server) -> None:
    token = server.key()
    answer = server.post(view(), key=token, origin="https://anywhere.example.org")
    assert answer.headers[ALLOW] == "https://anywhere.example.org"
    assert server.ask("OPTIONS", EVENTS, headers={"origin": "https://anywhere.example.org"}).status_code == 204


def test_without_any_ingest_key_no_page_may_send(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_server(tmp_path_factory.mktemp("empty")) as server:
        server.key("read")
        assert server.ask("OPTIONS", EVENTS, headers={"origin": PAGE}).status_code == 403
