"""An issuer of access tokens: an HTTP server on this machine with a JWK Set, and functions that sign tokens.

with running_issuer() as issuer:
    (data / "identity.toml").write_text(issuer.toml())
    token = issuer.token(scope="embedsink:read")
"""

import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc.jwk import ECKey, Key, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64encode

AUDIENCE = "https://events.example.com"
JWKS_PATH = "/jwks"
CONFIGURATION_PATH = "/.well-known/openid-configuration"
Respond = Callable[[BaseHTTPRequestHandler], None]


class Issuer:
    """An issuer. `paths` lists the paths of all requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: list[str] = []
        self.signing_key: Key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        self.jwks: list[dict[str, Any]] = []
        self.respond: Respond = self.send_jwks
        self.publish(self.signing_key)

    def publish(self, *keys: Key) -> None:
        """Set the keys of the JWK Set."""
        self.jwks = [dict(key.as_dict(private=False)) for key in keys]

    def rotate(self, kid: str, *, keep: bool = True) -> None:
        """Sign with a new key from now on. Keep the old one in the JWK Set, or remove it."""
        old = self.signing_key
        self.signing_key = ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})
        self.publish(*([old] if keep else []), self.signing_key)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token with changes; None removes a claim."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "user-1",
            "client_id": "notebook",
            "iat": now,
            "exp": now + 600,
            "jti": "1",
            "scope": "openid embedsink:read",
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(self, *, header: dict[str, Any] | None = None, key: Key | None = None, **changes: Any) -> str:
        """Return a signed token: valid, but for the changes of its header, key and claims."""
        signing_key = self.signing_key if key is None else key
        algorithm = {"RSA": "RS256", "EC": "ES256", "oct": "HS256", "OKP": "Ed25519"}[signing_key.key_type]
        all_headers = {"alg": algorithm, "typ": "at+jwt", "kid": signing_key.kid, **(header or {})}
        all_headers = {name: value for name, value in all_headers.items() if value is not None}
        # The functions of joserfc would refuse invalid headers.
        content = f"{encode_part(all_headers)}.{encode_part(self.claims(**changes))}"
        signature = JWSRegistry.algorithms[all_headers["alg"]].sign(content.encode(), signing_key)
        return f"{content}.{urlsafe_b64encode(signature).decode()}"

    def token_with_public_key_as_secret(self) -> str:
        """Return a token that an attacker signed, with a public key of this issuer as the symmetric secret."""
        assert isinstance(self.signing_key, RSAKey)
        header = {"alg": "HS256", "typ": "at+jwt", "kid": self.signing_key.kid}
        content = f"{encode_part(header)}.{encode_part(self.claims())}"
        signature = hmac.digest(self.signing_key.as_pem(private=False), content.encode(), "sha256")
        return f"{content}.{urlsafe_b64encode(signature).decode()}"

    def toml(self, **fields: Any) -> str:
        """Return an `identity.toml` that trusts this issuer."""
        entries = {"issuer": self.url, "audience": AUDIENCE, **fields}
        return "[[issuers]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in entries.items())

    def send_jwks(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer the configuration and the JWK Set."""
        if handler.path == CONFIGURATION_PATH:
            send(handler, {"issuer": self.url, "jwks_uri": f"{self.url}{JWKS_PATH}"})
        else:
            send(handler, {"keys": self.jwks})

    def fail(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer 500."""
        handler.send_error(500)


def encode_part(value: dict[str, Any]) -> str:
    """Return a header or claims as a part of a token."""
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


def send(handler: BaseHTTPRequestHandler, value: Any) -> None:
    """Answer a value as JSON, or bytes unchanged."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Run an issuer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            issuer.paths.append(self.path)
            with suppress(OSError):  # The client has given up.
                issuer.respond(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
