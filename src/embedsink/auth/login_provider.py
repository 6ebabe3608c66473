"""The login of people at an OpenID provider (OpenID Connect Core 1.0): the authorization code flow with PKCE."""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx2

from embedsink.auth.claims import entries_of, scope_of, subject_id, subject_of
from embedsink.auth.identity import Login
from embedsink.auth.keys import Key
from embedsink.auth.parsing import LABEL_CHARACTERS_MAX
from embedsink.auth.sessions import Person
from embedsink.auth.signed_tokens import InvalidToken, SignedToken, SigningKeysNotFetched
from embedsink.auth.signing_keys import IssuerUnreachable, RefusedByIssuer, SigningKeys
from embedsink.errors import EmbedsinkError

# The member of `events` in a logout token (OpenID Connect Back-Channel Logout 1.0, section 2.4).
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# The claims that may have the name of a person, the best first.
_NAME_CLAIMS = ("email", "preferred_username", "name", "sub")
DENIED = "The identity provider did not log you in. Try again."
_ADVICE = "Try again, or tell the operator, who finds the cause in the log."

_INVALID_RESPONSE = f"The identity provider sent an invalid response. {_ADVICE}"


class LoginFailed(EmbedsinkError):
    """A login failed. The message is for the person.

    Args:
        message: what the person can do.
        detail: the cause, for the log.
        status: the status of the response.
    """

    def __init__(self, message: str, detail: str, *, status: int = 401) -> None:
        super().__init__(message)
        self.detail = detail
        self.status = status


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login that has begun. The browser has it in a signed cookie until the provider sends the person back.

    Args:
        next_path: the page to open after the login.
        state: the value that the provider returns. It proves that this browser began the login.
        nonce: the value that the ID token must contain.
        code_verifier: the secret whose SHA-256 the provider knows (RFC 7636).
    """

    next_path: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    code_verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def code_challenge(self) -> str:
        """The SHA-256 of the code verifier in base64url (RFC 7636, section 4.2)."""
        return urlsafe_b64encode(sha256(self.code_verifier.encode()).digest()).rstrip(b"=").decode()


class LoginProvider:
    """The OpenID provider of `identity.toml`.

    Args:
        login: the table `[login]`.
        client_secret: the secret of this server at the provider; None for a public client.
        clock: returns the time in epoch seconds.
    """

    def __init__(self, login: Login, client_secret: str | None, clock: Callable[[], float]) -> None:
        self.login = login
        self._client_secret = client_secret
        self._clock = clock
        # They include the provider's configuration, and are refreshed with it.
        self._signing_keys = SigningKeys(login.issuer, clock)

    async def run(self) -> None:
        """Keep the provider's configuration and signing keys up to date, until this task is cancelled."""
        await self._signing_keys.run()

    async def authorization_url(self, pending: PendingLogin) -> str:
        """Return the URL of the provider's login page (OpenID Connect Core 1.0, section 3.1.2.1).

        Raises:
            LoginFailed: the provider can't be reached, or its configuration has no such page.
        """
        parameters = {
            "response_type": "code",
            "client_id": self.login.client_id,
            "redirect_uri": self.login.redirect_uri,
            "scope": " ".join(self.login.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": pending.code_challenge,
            "code_challenge_method": "S256",
        }
        url = await self._endpoint("authorization_endpoint")
        return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"

    def check_response(self, issuer: str | None) -> None:
        """Raise LoginFailed if a response has another issuer (RFC 9207, section 2.4), or lacks an announced one.

        Args:
            issuer: the parameter `iss` of the response.
        """
        is_announced = self._signing_keys.configuration.get("authorization_response_iss_parameter_supported") is True
        if issuer is None and not is_announced:
            return
        if issuer != self.login.issuer:
            raise LoginFailed(DENIED, "the response has another issuer (iss), or none.")

    async def log_in(self, code: str, pending: PendingLogin) -> tuple[Key, Person]:
        """Exchange the code for an ID token. Return what the person may do, and who it is.

        Raises:
            LoginFailed: the provider can't be reached or refuses the code, the ID token is not valid, or the person may
                not log in.
        """
        id_token = await self._fetch_id_token(code, pending)
        try:
            signed = await self._verify(id_token)
            _check_id_token(signed, self.login.client_id, pending.nonce)
            roles = entries_of(signed.claims, self.login.role_claim)
            subject = subject_of(signed.claims)
            scope = scope_of(signed.claims, self.login, shows_names=self.login.shows_names(roles))
        except SigningKeysNotFetched:
            raise _unreachable_error("the signing key of the ID token can't be fetched yet.") from None
        except InvalidToken as error:
            raise LoginFailed(_INVALID_RESPONSE, f"the ID token {error}") from None
        kinds = self.login.kinds(roles)
        name = _name_of(signed.claims)
        if not kinds:
            raise LoginFailed(
                f"{name} may not read the dashboards. Ask the operator for access.",
                f"{name} has no group of readers or admins in its claim {self.login.role_claim}.",
                status=403,
            )
        key = Key(
            key_id=subject_id("p", self.login.issuer, subject, scope),
            kinds=kinds,
            label=name,
            scope=scope,
            origins=None,
            created_at=self._clock(),
            expires_at=None,
            revoked_at=None,
            digest="",
        )
        session_id = signed.claims.get("sid")
        session_id = session_id if isinstance(session_id, str) and session_id else None
        return key, Person(self.login.issuer, subject, session_id, issued_at=float(signed.claims["iat"]))

    async def parse_logout_token(self, token: str) -> Person:
        """Return the person whom a logout token names (OpenID Connect Back-Channel Logout 1.0, section 2.6).

        Raises:
            InvalidToken: the token is not a valid logout token of the provider.
            SigningKeysNotFetched: the token can't be verified now.
        """
        signed = await self._verify(token)
        claims = signed.claims
        if signed.type not in ("logout+jwt", "jwt", "none"):
            raise InvalidToken("has another type (typ) than logout+jwt")
        events = claims.get("events")
        if not isinstance(events, dict) or not isinstance(events.get(_LOGOUT_EVENT), dict) or "nonce" in claims:
            raise InvalidToken("is not a logout token")
        if not isinstance(claims.get("jti"), str):
            raise InvalidToken("has no id (jti)")
        subject, session_id = claims.get("sub", ""), claims.get("sid")
        if not isinstance(subject, str) or not isinstance(session_id, str | None) or not (subject or session_id):
            raise InvalidToken("names neither a person (sub) nor a session (sid)")
        return Person(self.login.issuer, subject, session_id or None, issued_at=float(claims["iat"]))

    async def _endpoint(self, name: str) -> str:
        """Return a URL of the provider's configuration. Wait for the configuration. Raise LoginFailed without it."""
        if self._signing_keys.fetched_at is None:
            self._signing_keys.request_fetch()
            await self._signing_keys.wait_for_fetch()
        try:
            return self._signing_keys.endpoint(name)
        except EmbedsinkError as error:
            raise _unreachable_error(str(error)) from None

    async def _fetch_id_token(self, code: str, pending: PendingLogin) -> str:
        """Exchange the code at the provider (OpenID Connect Core 1.0, section 3.1.3). Raise LoginFailed."""
        url = await self._endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.login.redirect_uri,
            "code_verifier": pending.code_verifier,
        }
        credentials, options = self._client_credentials()
        try:
            response = await self._signing_keys.post(url, form | credentials, **options)
        except IssuerUnreachable as error:
            raise _unreachable_error(str(error)) from None
        except RefusedByIssuer as error:
            detail = (
                f"{error} At the provider, check client_id, its secret and the redirect URI {self.login.redirect_uri}."
            )
            raise LoginFailed(f"The identity provider refused the login. {_ADVICE}", detail) from None
        except EmbedsinkError as error:
            raise LoginFailed(_INVALID_RESPONSE, str(error)) from None
        id_token = response.get("id_token")
        if not isinstance(id_token, str):
            raise LoginFailed(_INVALID_RESPONSE, f"{url}: its response has no id_token.")
        return id_token

    def _client_credentials(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the form fields and the request options that authenticate this server (RFC 6749, section 2.3)."""
        client_id, secret = self.login.client_id, self._client_secret
        if secret is None:
            return {"client_id": client_id}, {}
        methods = self._signing_keys.configuration.get("token_endpoint_auth_methods_supported")
        if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
            return {"client_id": client_id, "client_secret": secret}, {}
        return {}, {"auth": httpx2.BasicAuth(quote_plus(client_id), quote_plus(secret))}

    async def _verify(self, token: str) -> SignedToken:
        """Verify a token of the provider for this server. Raise InvalidToken or SigningKeysNotFetched."""
        signed = SignedToken.parse(token)
        signed.check_claims(issuer=self.login.issuer, audience=self.login.client_id, now=self._clock())
        try:
            signed.verify(self._signing_keys, self.login.algorithms)
        except SigningKeysNotFetched as error:
            await error.signing_keys.wait_for_fetch()
            signed.verify(self._signing_keys, self.login.algorithms)
        return signed


def _check_id_token(token: SignedToken, client_id: str, nonce: str) -> None:
    """Raise InvalidToken unless the token is the ID token of this login (OpenID Connect Core 1.0, section 3.1.3.7)."""
    if token.type not in ("jwt", "none"):
        raise InvalidToken("has another type (typ) than JWT")
    claimed_nonce = token.claims.get("nonce")
    if not isinstance(claimed_nonce, str) or not secrets.compare_digest(claimed_nonce.encode(), nonce.encode()):
        raise InvalidToken("has another nonce than the request")
    audiences = token.claims["aud"]
    has_other_audiences = isinstance(audiences, list) and len(audiences) > 1
    if token.claims.get("azp", None if has_other_audiences else client_id) != client_id:
        raise InvalidToken("was issued to another client (azp)")


def _name_of(claims: Mapping[str, Any]) -> str:
    """Return the name of a person, for messages and logs."""
    values = [claims.get(name) for name in _NAME_CLAIMS]
    # Text with a lone surrogate is not printable either.
    names = [value for value in values if isinstance(value, str) and value and value.isprintable()]
    return names[0][:LABEL_CHARACTERS_MAX] if names else "This person"


def _unreachable_error(detail: str) -> LoginFailed:
    message = "The identity provider can't be reached. Try again in a minute, or log in with a key."
    return LoginFailed(message, detail, status=503)
