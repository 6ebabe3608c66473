"""The login at an OpenID provider: a real provider process, and every way in which a provider can fail."""

import base64
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey

from tests.support.envelopes import view
from tests.support.issuer import send
from tests.support.login_provider import (
    CLIENT_ID,
    ScriptedProvider,
    error_of,
    log_in_at_provider,
    login_toml,
    running_provider,
    scripted_provider,
)
from tests.support.servers import RunningServer, free_port, running_server, wait_until
from tests.support.stores import make_folder

PAGE = "/dashboards/overview"
VIEWS = "/api/v1/reports/views.json"
INJECTED = "from embedsink.auth import signing_keys as s; s.COOL_DOWN_S = 0.05; s.FETCH_S_MAX = 2.0"

SECRET = "s3cret:ü"

pytestmark = pytest.mark.server


@contextmanager
def server_with(
    folder: Path, issuer: str, *, secret: str | None = SECRET, settings: dict[str, Any] | None = None, **fields: Any
) -> Iterator[RunningServer]:
    """Run a server that trusts a provider for logins. `settings` are environment variables."""
    data, port = folder / "data", free_port()
    make_folder(data)
    (data / "identity.toml").write_text(login_toml(issuer, f"http://127.0.0.1:{port}", **fields))
    env = (settings or {}) | ({} if secret is None else {"EMBEDSINK_LOGIN_CLIENT_SECRET": secret})
    with running_server(data, port=port, injected=INJECTED, **env) as server:
        yield server


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with running_provider() as url:
        yield url


@pytest.fixture(scope="module")
def server(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with server_with(tmp_path_factory.mktemp("login"), provider) as server:
        yield server


@pytest.fixture
def browser() -> Iterator[httpx2.Client]:
    with httpx2.Client() as client:
        yield client


def test_a_reader_logs_in_and_out(provider: str, server: RunningServer, browser: httpx2.Client) -> None:
    form = browser.get(f"{server.url}/login", params={"next": PAGE})
    assert f'href="{server.url}/login/start?next={PAGE}"' in form.text
    response = log_in_at_provider(browser, server.url, "ann", next_path=f"{PAGE}?period=7d")
    assert (response.status_code, response.headers["location"]) == (303, f"{PAGE}?period=7d")
    assert browser.get(f"{server.url}{PAGE}").status_code == 200
    assert browser.get(f"{server.url}{VIEWS}").status_code == 200
    assert browser.post(f"{server.url}/api/v1/events", json=view()).status_code == 401
    copied = dict(browser.cookies)
    assert browser.post(f"{server.url}/logout").headers["location"] == "/login"
    assert httpx2.get(f"{server.url}{VIEWS}", cookies=copied).status_code == 401
    assert browser.get(f"{server.url}{PAGE}").status_code == 303


def test_groups_are_roles(server: RunningServer, browser: httpx2.Client) -> None:
    quarantine = "/api/v1/quarantine"
    log_in_at_provider(browser, server.url, "root")
    assert {browser.get(f"{server.url}{path}").status_code for path in (VIEWS, quarantine, PAGE)} == {200}
    refused = log_in_at_provider(browser, server.url, "guest")
    assert refused.status_code == 403
    assert error_of(refused) == "guest@example.com may not read the dashboards. Ask the operator for access."
    assert "guest@example.com has no group of readers or admins" in server.log.read_text()


def test_claims_limit_a_person(provider: str, tmp_path: Path, browser: httpx2.Client) -> None:
    with server_with(tmp_path, provider, deployments_claim="deployments", tenants_claim="tenants") as server:
        key = server.key("ingest")
        for deployment, tenant in ((7, "acme"), (7, "globex"), (8, "acme")):
            delivery = {"context": {"deployment": deployment, "tenant": tenant}, "events": [view()]}
            assert server.post(delivery, key=key).status == 202
        reader = server.key("read")
        wait_until(
            lambda: server.get("/api/v1/inspect?since=1h", key=reader).json()["isComplete"], description="loaded"
        )
        assert log_in_at_provider(browser, server.url, "acme").status_code == 303
        assert sum(row["view_count"] for row in browser.get(f"{server.url}{VIEWS}").json()) == 1
        assert browser.get(f"{server.url}{VIEWS}?deployment=8").status_code == 403
        # A person without the claims gets nothing, not everything.
        with httpx2.Client() as other:
            refused = log_in_at_provider(other, server.url, "ann")
            assert (refused.status_code, other.get(f"{server.url}{VIEWS}").status_code) == (401, 401)


def test_an_unknown_path_is_not_followed(server: RunningServer, browser: httpx2.Client) -> None:
    response = log_in_at_provider(browser, server.url, "ann", next_path="https://evil.example/")
    assert response.headers["location"] == "/dashboards/"


def test_a_login_begins_at_the_configured_host(server: RunningServer, browser: httpx2.Client) -> None:
    port = server.url.rpartition(":")[2]
    form = browser.get(f"http://localhost:{port}/login", params={"next": PAGE})
    assert f'href="{server.url}/login/start?next={PAGE}"' in form.text


def test_a_denied_login_is_explained(provider: str, server: RunningServer, browser: httpx2.Client) -> None:
    started = browser.get(f"{server.url}/login/start")
    denied = browser.post(started.headers["location"], data={"action": "deny"})
    response = browser.get(denied.headers["location"])
    assert response.status_code == 401
    assert error_of(response)


def test_a_server_without_a_provider_has_no_such_login(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        assert "/login/start" not in httpx2.get(f"{server.url}/login").text
        for response in (
            httpx2.get(f"{server.url}/login/start"),
            httpx2.get(f"{server.url}/login/callback?code=a&state=b"),
            httpx2.post(f"{server.url}/login/backchannel", data={"logout_token": "x"}),
        ):
            assert response.status_code == 404
            assert "has no identity provider" in response.text


@pytest.fixture(scope="module")
def shared_script() -> Iterator[ScriptedProvider]:
    with scripted_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def scripted_server(
    shared_script: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with server_with(tmp_path_factory.mktemp("scripted"), shared_script.issuer.url) as server:
        yield server


@pytest.fixture
def script(shared_script: ScriptedProvider) -> Iterator[ScriptedProvider]:
    """Return the provider, whose responses are valid."""
    yield shared_script
    shared_script.claims, shared_script.header, shared_script.token_response = {}, {}, None


def test_the_request_follows_the_specification(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    parameters = script.start(browser, scripted_server)
    assert parameters["response_type"] == "code"
    assert parameters["client_id"] == CLIENT_ID
    assert parameters["scope"] == "openid profile email"
    assert parameters["redirect_uri"] == f"{scripted_server.url}/login/callback"
    assert parameters["code_challenge_method"] == "S256"
    other = script.start(browser, scripted_server)
    for name in ("state", "nonce", "code_challenge"):
        assert len(parameters[name]) == 43
        assert other[name] != parameters[name]
    callback = f"{scripted_server.url}/login/callback"
    query = {"code": "abc", "state": other["state"], "iss": script.issuer.url, "session_state": "x"}
    assert browser.get(callback, params=query).status_code == 303
    sent = script.requests[-1]
    challenge = base64.urlsafe_b64encode(sha256(sent.pop("code_verifier").encode()).digest()).rstrip(b"=").decode()
    assert challenge == other["code_challenge"]
    assert sent == {"grant_type": "authorization_code", "code": "abc", "redirect_uri": parameters["redirect_uri"]}
    authorization = script.authorizations[-1] or ""
    assert base64.b64decode(authorization.removeprefix("Basic ")) == f"{CLIENT_ID}:s3cret%3A%C3%BC".encode()
    # The code was used. A second callback has no pending login.
    assert browser.get(callback, params=query).status_code == 401


def test_the_secret_is_in_the_form_if_the_provider_wants_it_there(tmp_path: Path, browser: httpx2.Client) -> None:
    with scripted_provider() as script:
        script.configuration = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        with server_with(tmp_path, script.issuer.url) as server:
            assert script.log_in(browser, server).status_code == 303
            assert SECRET not in server.log.read_text()
        assert (script.requests[0]["client_id"], script.requests[0]["client_secret"]) == (CLIENT_ID, SECRET)


def test_a_public_client_has_no_secret(tmp_path: Path, browser: httpx2.Client) -> None:
    with scripted_provider() as script, server_with(tmp_path, script.issuer.url, secret=None) as server:
        assert script.log_in(browser, server).status_code == 303
        assert (script.authorizations, script.requests[0]["client_id"]) == ([None], CLIENT_ID)
        assert "client_secret" not in script.requests[0]


def test_a_login_is_finished_once_and_survives_a_wrong_state(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    began = script.start(browser, scripted_server)
    cookies = dict(browser.cookies)
    callback = f"{scripted_server.url}/login/callback"
    # Another tab of the browser finishes an earlier login.
    assert browser.get(callback, params={"code": "c", "state": "earlier"}).status_code == 401
    assert dict(browser.cookies) == cookies
    query = {"code": "c", "state": began["state"]}
    assert browser.get(callback, params=query).status_code == 303
    request_count = len(script.requests)
    for _ in range(3):
        assert httpx2.get(callback, params=query, cookies=cookies).status_code == 401
    assert len(script.requests) == request_count


def test_a_head_request_has_no_effect(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    query = {"code": "c", "state": script.start(browser, scripted_server)["state"]}
    callback = f"{scripted_server.url}/login/callback"
    request_count = len(script.requests)
    response = browser.head(callback, params=query)
    assert (response.status_code, "set-cookie" in response.headers) == (200, False)
    assert browser.get(f"{callback}?code=c&code=d&state={query['state']}").status_code == 401
    assert len(script.requests) == request_count
    assert browser.get(callback, params=query).status_code == 303


def test_a_path_that_is_too_long_for_a_cookie_is_left_out(
    script: ScriptedProvider, scripted_server: RunningServer
) -> None:
    for length, is_kept in ((1_000, True), (2_500, True), (4_000, False), (7_000, False)):
        with httpx2.Client() as browser:
            path = f"{PAGE}?tenant={secrets.token_urlsafe(length)}"[:length]
            began = browser.get(f"{scripted_server.url}/login/start", params={"next": path})
            assert len(began.headers["set-cookie"]) <= 4_096
            query = dict(parse_qsl(urlsplit(began.headers["location"]).query))
            script.claims = {"nonce": query["nonce"]}
            callback = f"{scripted_server.url}/login/callback"
            answered = browser.get(callback, params={"code": "c", "state": query["state"]})
            assert answered.status_code == 303, (length, error_of(answered))
            location = answered.headers["location"]
            assert location == (path if is_kept else "/dashboards/")


def test_a_token_in_an_error_of_the_provider_is_not_logged(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    began = script.start(browser, scripted_server)
    jwt = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c2VyLTEifQ.{'x' * 400}"
    query = {"error": "access_denied", "error_description": f"token {jwt}", "state": began["state"]}
    assert browser.get(f"{scripted_server.url}/login/callback", params=query).status_code == 401
    written = [path.read_text() for path in [scripted_server.log, *scripted_server.data.glob("audit/*.ndjson")]]
    assert all("token jwt_…" in text or "token jwt_\\u2026" in text for text in written)
    assert not any("eyJzdWIiOiJ1c2VyLTEifQ" in text for text in written)


def test_one_address_can_not_flood_the_provider(
    tmp_path: Path, script: ScriptedProvider, browser: httpx2.Client
) -> None:
    request_count = len(script.requests)
    settings = {"EMBEDSINK_RATE_ANONYMOUS_PER_S": "5"}
    with server_with(tmp_path, script.issuer.url, settings=settings) as server:
        assert script.log_in(browser, server).status_code == 303
        refused = script.log_in(browser, server)
        assert (refused.status_code, error_of(refused)) == (
            503,
            "The server can&#39;t log you in now. Try again in a minute.",
        )
    assert len(script.requests) == request_count + 1


def test_a_second_login_ends_the_first_session_of_the_browser(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    assert script.log_in(browser, scripted_server).status_code == 303
    first = dict(browser.cookies)
    script.claims = {"sub": "user-2"}
    assert script.log_in(browser, scripted_server).status_code == 303
    assert httpx2.get(f"{scripted_server.url}{VIEWS}", cookies=first).status_code == 401
    assert browser.get(f"{scripted_server.url}{VIEWS}").status_code == 200


def test_a_name_that_can_not_be_shown_is_not_used(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    script.claims = {"email": "a\ud800", "name": "Ann", "groups": ["visitors"]}
    refused = script.log_in(browser, scripted_server)
    assert (refused.status_code, error_of(refused)[:27]) == (403, "Ann may not read the dashbo")


def test_an_announced_issuer_is_required(tmp_path: Path, browser: httpx2.Client) -> None:
    with scripted_provider() as script:
        script.configuration = {"authorization_response_iss_parameter_supported": True}
        with server_with(tmp_path, script.issuer.url) as server:
            assert script.log_in(browser, server).status_code == 401
            assert script.log_in(browser, server, iss="https://evil.example").status_code == 401
            assert script.log_in(browser, server, iss=script.issuer.url).status_code == 303


@pytest.mark.parametrize("state", ["", "wrong", "é"])
def test_only_the_browser_that_began_a_login_can_finish_it(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client, state: str
) -> None:
    assert script.log_in(browser, scripted_server, state=state).status_code == 401
    began = script.start(browser, scripted_server)
    with httpx2.Client() as other:
        query = {"code": "c", "state": began["state"]}
        response = other.get(f"{scripted_server.url}/login/callback", params=query)
    assert response.status_code == 401
    assert "began in another browser" in error_of(response)
    assert "embedsink_login" not in response.cookies


@pytest.mark.parametrize(
    ("claims", "detail"),
    [
        ({"iss": "https://evil.example"}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "azp"),
        ({"aud": [CLIENT_ID, "other"]}, "azp"),
        ({"exp": 1_700_000_000}, "has expired"),
        ({"iat": None}, "iat"),
        ({"nonce": "other"}, "has another nonce"),
        ({"nonce": None}, "has another nonce"),
        ({"nonce": 7}, "has another nonce"),
        ({"sub": None}, "has no subject"),
    ],
    ids=["iss", "aud", "azp", "no azp", "exp", "iat", "other nonce", "no nonce", "nonce of another type", "sub"],
)
def test_an_invalid_id_token_is_refused(
    script: ScriptedProvider,
    scripted_server: RunningServer,
    browser: httpx2.Client,
    claims: dict[str, Any],
    detail: str,
) -> None:
    script.claims = claims
    assert_failed(script.log_in(browser, scripted_server), scripted_server, 401, "sent an invalid response", detail)


@pytest.mark.parametrize("token_type", ["at+jwt", "logout+jwt"])
def test_a_token_of_another_type_is_no_id_token(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client, token_type: str
) -> None:
    script.header = {"typ": token_type}
    assert_failed(script.log_in(browser, scripted_server), scripted_server, 401, "invalid response", "another type")


def test_an_id_token_with_a_foreign_signature_is_refused(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    own_key = script.issuer.signing_key
    script.issuer.signing_key = RSAKey.generate_key(2048, {"kid": "first"})
    response = script.log_in(browser, scripted_server)
    script.issuer.signing_key = own_key
    assert_failed(response, scripted_server, 401, "sent an invalid response", "has a wrong signature")


def test_a_rotated_key_of_the_provider_is_fetched(
    script: ScriptedProvider, scripted_server: RunningServer, browser: httpx2.Client
) -> None:
    time.sleep(0.2)  # The cool-down of this server is 0.05 s.
    script.issuer.rotate("second")
    assert script.log_in(browser, scripted_server).status_code == 303


def hang(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(5)


def send_forever(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65_536)


def fail(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(503)
    handler.end_headers()


def limit(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(429)
    handler.end_headers()


def disconnect(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def refuse_code(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(400)
    handler.end_headers()
    handler.wfile.write(b'{"error": "invalid_grant"}')


@pytest.mark.parametrize(
    ("response", "status", "detail"),
    [
        (refuse_code, 401, "invalid_grant. At the provider, check client_id, its secret and the redirect URI http"),
        (fail, 503, "has the status 503"),
        (limit, 503, "has the status 429"),
        (disconnect, 503, "can't be fetched"),
        (hang, 503, "did not respond within 2 s"),
        (send_forever, 401, "is larger than"),
        ({}, 401, "has no id_token"),
        ({"id_token": 7}, 401, "has no id_token"),
        ({"id_token": "a.b.c"}, 401, "the ID token is not"),
        ([], 401, "is not a JSON object"),
        (b"<html>", 401, "is not JSON"),
    ],
    ids=["refused", "error", "limited", "closed", "silent", "huge", "empty", "number", "garbage", "array", "html"],
)
def test_a_wrong_response_of_the_token_endpoint_is_explained(
    script: ScriptedProvider,
    scripted_server: RunningServer,
    browser: httpx2.Client,
    response: Any,
    status: int,
    detail: str,
) -> None:
    script.token_response = (lambda handler: send(handler, response)) if isinstance(response, bytes) else response
    answered = script.log_in(browser, scripted_server)
    message = "can&#39;t be reached" if status == 503 else "refused" if response is refuse_code else "sent an invalid"
    assert_failed(answered, scripted_server, status, f"The identity provider {message}", detail)


def assert_failed(response: httpx2.Response, server: RunningServer, status: int, message: str, detail: str) -> None:
    """Assert that a login failed with a message for the person, and its cause in the log."""
    assert response.status_code == status
    assert message in error_of(response)
    assert not any(name.startswith("embedsink_login") for name in response.cookies)
    assert any("login_failed" in line and detail in line for line in server.log.read_text().splitlines())


def test_a_provider_that_is_down_delays_no_other_login(tmp_path: Path, browser: httpx2.Client) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with server_with(tmp_path, url) as server:
        response = browser.get(f"{server.url}/login/start")
        assert_failed(response, server, 503, "can&#39;t be reached. Try again in a minute, or log in with a key.", url)
        assert browser.post(f"{server.url}/login", data={"key": server.key("read")}).status_code == 303


def log_out_at_provider(server: RunningServer, token: str) -> httpx2.Response:
    return httpx2.post(f"{server.url}/login/backchannel", data={"logout_token": token})


def test_a_logout_at_the_provider_ends_the_sessions_of_the_person(
    script: ScriptedProvider, scripted_server: RunningServer
) -> None:
    with httpx2.Client() as first, httpx2.Client() as second, httpx2.Client() as other:
        for browser, claims in (
            (first, {"sub": "user-9", "sid": "s9a"}),
            (second, {"sub": "user-9", "sid": "s9b"}),
            (other, {"sub": "user-2", "sid": "s3"}),
        ):
            script.claims = claims
            assert script.log_in(browser, scripted_server).status_code == 303

        def states() -> list[int]:
            return [browser.get(f"{scripted_server.url}{VIEWS}").status_code for browser in (first, second, other)]

        assert states() == [200, 200, 200]
        with first.stream("GET", f"{scripted_server.url}/api/v1/events/live") as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()
            next(lines)
            response = log_out_at_provider(scripted_server, script.logout_token(sub=None, sid="s9a"))
            assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
            assert states() == [401, 200, 200]
            with pytest.raises(httpx2.ReadError):  # The stream ends.
                list(lines)
        assert log_out_at_provider(scripted_server, script.logout_token(sub="user-9", sid=None)).status_code == 200
        assert states() == [401, 401, 200]
    written = [line for path in scripted_server.data.glob("audit/*.ndjson") for line in path.read_text().splitlines()]
    ended = [entry for entry in map(json.loads, written) if entry["action"] == "session_ended"]
    assert [(entry["actor"], entry["via"]) for entry in ended] == [("provider", "provider")] * 2
    assert all(entry["detail"]["sessions"] >= 1 for entry in ended)


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({}, {"events": None}),
        ({}, {"events": {"other": {}}}),
        ({}, {"events": "backchannel-logout"}),
        ({}, {"nonce": "n"}),
        ({}, {"sub": None, "sid": None}),
        ({}, {"jti": None}),
        ({}, {"iat": 1_700_000_000, "sid": None}),
        ({"crit": 7}, {}),
        ({}, {"aud": "other"}),
        ({}, {"iss": "https://evil.example"}),
        ({}, {"exp": 1_700_000_000}),
        ({"typ": "at+jwt"}, {}),
    ],
    ids=[
        "no events",
        "other",
        "text",
        "nonce",
        "no person",
        "no id",
        "replayed",
        "crit",
        "audience",
        "issuer",
        "expired",
        "type",
    ],
)
def test_an_invalid_logout_token_ends_nothing(
    script: ScriptedProvider,
    scripted_server: RunningServer,
    browser: httpx2.Client,
    header: dict[str, Any],
    claims: dict[str, Any],
) -> None:
    assert script.log_in(browser, scripted_server).status_code == 303
    response = log_out_at_provider(scripted_server, script.logout_token(header=header, **claims))
    if "iat" in claims:  # An old token is valid, but does not end later logins.
        assert response.status_code == 200
    else:
        assert (response.status_code, response.json()["reason"]) == (400, "bad_parameter")
    assert log_out_at_provider(scripted_server, script.id_token()).status_code == 400
    assert browser.get(f"{scripted_server.url}{VIEWS}").status_code == 200


def test_tokens_of_the_provider_are_no_credentials(script: ScriptedProvider, scripted_server: RunningServer) -> None:
    for token in (script.id_token(), script.logout_token(), script.issuer.token()):
        assert scripted_server.get(VIEWS, key=token).status == 401
