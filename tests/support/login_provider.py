"""OpenID providers for login tests: a real one in a process, and one whose responses a test chooses."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.support.issuer import CONFIGURATION_PATH, JWKS_PATH, Issuer, running_issuer, send
from tests.support.servers import RunningServer, free_port, wait_until

CLIENT_ID = "embedsink-test"
PEOPLE = (
    {"sub": "ann", "email": "ann@example.com", "groups": ["analysts", "staff"]},
    {"sub": "root", "email": "root@example.com", "groups": ["operators"]},
    {"sub": "guest", "email": "guest@example.com", "groups": ["visitors"]},
    {"sub": "acme", "email": "reader@acme.example", "groups": ["analysts"], "tenants": ["acme"], "deployments": [7]},
)


@contextmanager
def running_provider() -> Iterator[str]:
    """Run `oidc-provider-mock` with `PEOPLE`. Yield its URL."""
    port = free_port()
    people = [word for person in PEOPLE for word in ("--user-claims", json.dumps(person))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), *people]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _answers(f"{url}{CONFIGURATION_PATH}"), description="the provider is ready")
            yield url
        finally:
            process.kill()


def login_toml(issuer: str, server_url: str, **fields: Any) -> str:
    """Return an `identity.toml` with the table `[login]`."""
    entries = {
        "issuer": issuer,
        "client_id": CLIENT_ID,
        "server_url": server_url,
        "readers": ["analysts"],
        "admins": ["operators"],
        **fields,
    }
    return "[login]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in entries.items())


def log_in_at_provider(browser: httpx2.Client, server_url: str, person: str, *, next_path: str = "") -> httpx2.Response:
    """Log in as a person at the real provider. Return the response of the server to the callback."""
    started = browser.get(f"{server_url}/login/start", params={"next": next_path})
    assert started.status_code == 303, started.text
    answered = browser.post(started.headers["location"], data={"sub": person})
    assert answered.status_code == 302, answered.text
    return browser.get(answered.headers["location"])


class ScriptedProvider:
    """A provider whose ID tokens and token responses a test chooses.

    Attributes:
        requests: the forms that the server sent to the token endpoint.
        claims: changes to the claims of the next ID tokens; None removes a claim.
        header: changes to their header.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.requests: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.configuration: dict[str, Any] = {}
        self.token_response: Any = None
        self.nonce = ""
        issuer.respond = self.respond

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer the configuration, the JWK Set, and the token endpoint."""
        if handler.path == CONFIGURATION_PATH:
            send(handler, self._configuration())
        elif handler.path == JWKS_PATH:
            send(handler, {"keys": self.issuer.jwks})
        else:
            body = handler.rfile.read(int(handler.headers["content-length"])).decode()
            self.requests.append({name: values[0] for name, values in parse_qs(body).items()})
            self.authorizations.append(handler.headers["authorization"])
            if callable(self.token_response):
                self.token_response(handler)
            else:
                response = {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token()}
                send(handler, self.token_response if self.token_response is not None else response)

    def id_token(self) -> str:
        """Return an ID token for the pending login, with the changes."""
        claims = {"aud": CLIENT_ID, "nonce": self.nonce, "groups": ["analysts"], "sid": "s1", "scope": None}
        return self.issuer.token(header={"typ": "JWT"} | self.header, **(claims | self.claims))

    def logout_token(self, *, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
        """Return a logout token with changes to its claims."""
        events: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
        claims = {"aud": CLIENT_ID, "events": events, "sub": "user-1", "sid": "s1", "scope": None}
        return self.issuer.token(header={"typ": "logout+jwt"} | dict(header or {}), **(claims | changes))

    def start(self, browser: httpx2.Client, server: RunningServer, *, next_path: str = "") -> dict[str, str]:
        """Begin a login. Return the parameters that the server sent to the provider."""
        response = browser.get(f"{server.url}/login/start", params={"next": next_path})
        assert response.status_code == 303, response.text
        location = urlsplit(response.headers["location"])
        assert location.path == "/authorize"
        parameters = {name: values[0] for name, values in parse_qs(location.query).items()}
        self.nonce = parameters["nonce"]
        return parameters

    def log_in(self, browser: httpx2.Client, server: RunningServer, **query: str) -> httpx2.Response:
        """Begin a login, and send the browser back. Return the response to the callback."""
        state = self.start(browser, server)["state"]
        return browser.get(f"{server.url}/login/callback", params={"code": "c", "state": state} | query)

    def _configuration(self) -> dict[str, Any]:
        url = self.issuer.url
        configuration = {
            "issuer": url,
            "jwks_uri": f"{url}{JWKS_PATH}",
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
        }
        return {name: value for name, value in (configuration | self.configuration).items() if value is not None}


@contextmanager
def scripted_provider() -> Iterator[ScriptedProvider]:
    """Run a provider whose responses a test chooses."""
    with running_issuer() as issuer:
        yield ScriptedProvider(issuer)


def error_of(page: httpx2.Response) -> str:
    """Return the error message of the login page."""
    match = re.search(r'<p class="error" role="alert" id="error">(.*?)</p>', page.text, re.DOTALL)
    return "" if match is None else match[1]


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.HTTPError:
        return False
