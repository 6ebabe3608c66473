"""The public keys with which an issuer signs its tokens. They are fetched from its JWK Set (RFC 7517) regularly."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from typing import Any
from urllib.parse import urlsplit

import httpx2
from joserfc.errors import JoseError
from joserfc.jwk import Key, RSAKey, import_key

from embedsink.auth.identity import CONFIGURATION_PATH, check_url
from embedsink.errors import EmbedsinkError, Misconfigured, preview, redact_keys
from embedsink.net import is_loopback

log = logging.getLogger(__name__)

# The interval of regular fetches.
FETCH_INTERVAL_S = 600.0
# The minimum pause between two fetches. A token with an unknown key causes a fetch, and anyone can invent tokens.
COOL_DOWN_S = 30.0
# The limits of a fetch: its total time, and the size of a response.
FETCH_S_MAX = 5.0
FETCH_BYTES_MAX = 262_144
KEYS_MAX = 100
_DESCRIPTION_CHARACTERS_MAX = 200
# The minimum size of an RSA key (RFC 7518, section 3.3).
_RSA_BITS_MIN = 2_048


class IssuerUnreachable(EmbedsinkError):
    """The issuer can't be reached, or its server has an error."""


class RefusedByIssuer(EmbedsinkError):
    """The issuer refuses a request."""


class SigningKeys:
    """The signing keys of one issuer.

    Args:
        issuer: the URL of the issuer.
        clock: returns the time in epoch seconds.
        jwks_url: the URL of the JWK Set; None to read it from the issuer's configuration.

    Raises:
        Misconfigured: an environment variable of the HTTP client is invalid.
    """

    def __init__(self, issuer: str, clock: Callable[[], float], *, jwks_url: str | None = None) -> None:
        self.issuer = issuer
        # The issuer's configuration, if it was needed (OpenID Connect Discovery 1.0, section 3).
        self.configuration: dict[str, Any] = {}
        # The start of the last successful fetch, in epoch seconds; None before it.
        self.fetched_at: float | None = None
        self._clock = clock
        self._jwks_url = jwks_url
        self._keys: list[Key] = []
        self._thumbprints: frozenset[str] = frozenset()  # of these keys (RFC 7638)
        # One client for all requests: opening one reads the certificates of all authorities, which takes 40 ms.
        try:
            self._client = provider_client(issuer)
        except (ValueError, OSError) as error:
            detail = f"{issuer}: can't be fetched ({error}). Correct HTTPS_PROXY and SSL_CERT_FILE."
            raise Misconfigured(detail) from None
        self._cool_down_ends_at = 0.0  # in monotonic seconds
        self._is_requested = asyncio.Event()
        self._is_cooling_down = asyncio.Event()

    def find(self, key_id: str | None, *, algorithm: str, key_type: str) -> list[Key]:
        """Return the keys that may have signed a token (RFC 7517, section 4). Several keys may have one id.

        Args:
            key_id: the id (`kid`) in the token's header. Without an id, only the issuer's only key is returned.
            algorithm: the algorithm in the header.
            key_type: the type of its keys (`kty`).
        """
        if key_id is None and len(self._thumbprints) > 1:
            return []
        return [
            key
            for key in self._keys
            if key_id in (None, key.kid) and key.key_type == key_type and key.get("alg") in (None, algorithm)
        ]

    def contains(self, thumbprint: str) -> bool:
        """Return whether the issuer has a key with this thumbprint."""
        return thumbprint in self._thumbprints

    async def post(self, url: str, form: Mapping[str, str], **options: Any) -> dict[str, Any]:
        """Send a form to the issuer, while `run` runs. Return the JSON object of the response.

        Raises:
            IssuerUnreachable: there is no response in time, or an error of the issuer's server.
            EmbedsinkError: the response is not a JSON object, is too large, or has another status than 200.
        """
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                return await fetch_object(self._client, url, form, **options)
        except (TimeoutError, httpx2.TimeoutException):
            raise IssuerUnreachable(f"{url}: did not respond within {FETCH_S_MAX:g} s.") from None

    def request_fetch(self) -> int:
        """Request a fetch as soon as the cool-down is over. Return the seconds after which it has probably ended."""
        self._is_requested.set()
        return max(1, ceil(self._cool_down_ends_at - time.monotonic()))

    async def wait_for_fetch(self) -> None:
        """Wait for the end of a requested or running fetch, at most `FETCH_S_MAX`. Don't wait during a cool-down."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FETCH_S_MAX):
                await self._is_cooling_down.wait()

    async def run(self) -> None:
        """Fetch the keys at once, regularly, and on request, until this task is cancelled."""
        async with self._client:
            while True:
                await self._fetch(self._client)
                self._is_requested.clear()
                self._cool_down_ends_at = time.monotonic() + COOL_DOWN_S
                self._is_cooling_down.set()
                await asyncio.sleep(COOL_DOWN_S)
                self._is_cooling_down.clear()
                if self.fetched_at is not None:  # Otherwise, try again at once.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FETCH_INTERVAL_S - COOL_DOWN_S):
                            await self._is_requested.wait()

    async def _fetch(self, client: httpx2.AsyncClient) -> None:
        """Fetch the keys. After an error, keep the previous ones and log the error."""
        fetched_at = self._clock()
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                await self._fetch_keys(client)
        except (TimeoutError, httpx2.TimeoutException):  # The timeouts of httpx2 limit each read, not the total time.
            self._log_failure(f"{self.issuer}: did not respond within {FETCH_S_MAX:g} s. Check the network.")
        except EmbedsinkError as error:
            self._log_failure(str(error))
        except Exception as error:
            log.error("bug", exc_info=error)
        else:
            self.fetched_at = fetched_at

    def _log_failure(self, detail: str) -> None:
        log.warning("issuer_unreachable", extra={"issuer": self.issuer, "detail": detail})

    async def _fetch_keys(self, client: httpx2.AsyncClient) -> None:
        """Fetch the signing keys, and the configuration if necessary. Raise EmbedsinkError if there are none."""
        url = self._jwks_url or await self._discover(client)
        jwks = (await fetch_object(client, url)).get("keys")
        if not isinstance(jwks, list):
            raise EmbedsinkError(f"{url}: is not a JWK Set (RFC 7517). {self._jwks_advice}")
        signing_keys = [key for jwk in jwks[:KEYS_MAX] if (key := _import_signing_key(jwk)) is not None]
        if not signing_keys:
            raise EmbedsinkError(f"{url}: has no public key for signatures. {self._jwks_advice}")
        self._keys = signing_keys
        self._thumbprints = frozenset(key.thumbprint() for key in signing_keys)

    @property
    def _jwks_advice(self) -> str:
        """What to check if the JWK Set is wrong."""
        return f"Check {'the issuer' if self._jwks_url is None else 'jwks_url'} in identity.toml."

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        """Fetch the configuration (OpenID Connect Discovery 1.0, section 4). Return the URL of the JWK Set in it."""
        url = f"{self.issuer.rstrip('/')}{CONFIGURATION_PATH}"
        configuration = await fetch_object(client, url)
        named = configuration.get("issuer")
        if named != self.issuer:
            raise EmbedsinkError(
                f"{url}: describes the issuer {preview(named)}, and identity.toml has {preview(self.issuer)}. "
                "Both must be equal."
            )
        self.configuration = configuration
        return self.endpoint("jwks_uri")

    def endpoint(self, name: str) -> str:
        """Return a URL of the configuration. Raise EmbedsinkError if it is missing or not encrypted."""
        try:
            # Plain HTTP is allowed within this machine only.
            is_local = self.issuer.startswith("http:")
            return check_url(self.configuration.get(name), allow_http=is_local, allow_query=True)
        except ValueError:
            message = f"{self.issuer}: its OpenID configuration has no {name} with HTTPS. Check the issuer."
            raise EmbedsinkError(message) from None


def _import_signing_key(jwk: Any) -> Key | None:
    """Return a public key for signatures; None for other keys, and for keys that are invalid or too short."""
    is_asymmetric = isinstance(jwk, dict) and jwk.get("kty") in ("RSA", "EC", "OKP")
    if not is_asymmetric or jwk.get("use") not in (None, "sig"):
        return None
    try:
        key = import_key(jwk)
        is_too_short = isinstance(key, RSAKey) and key.public_key.key_size < _RSA_BITS_MIN
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return None if is_too_short else key


def provider_client(issuer: str) -> httpx2.AsyncClient:
    """Return a client for requests to an issuer. Its timeouts limit each read; the caller limits the total time."""
    # A proxy would send a request for this machine to its own loopback address.
    is_proxy_allowed = not is_loopback(urlsplit(issuer).hostname or "")
    # Compressed responses may be small and their content huge, so ask for none.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(trust_env=is_proxy_allowed, headers=headers, timeout=FETCH_S_MAX)


async def fetch_object(
    client: httpx2.AsyncClient, url: str, form: Mapping[str, str] | None = None, **options: Any
) -> dict[str, Any]:
    """Return the JSON object at a URL. With a form, send a POST.

    Raises:
        IssuerUnreachable: there is no response, or an error of the server (5xx, 429).
        RefusedByIssuer: the response is an error of the request (4xx).
        EmbedsinkError: the response is not a JSON object, is too large, or has another status than 200.
        TimeoutException: a read took too long.
    """
    content = b""
    try:
        async with client.stream("GET" if form is None else "POST", url, data=form, **options) as response:
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > FETCH_BYTES_MAX:
                    raise EmbedsinkError(f"{url}: is larger than {FETCH_BYTES_MAX:,} bytes. Check the URL.")
    except httpx2.TimeoutException:
        raise
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        cause = str(error) or type(error).__name__
        raise IssuerUnreachable(f"{url}: can't be fetched ({cause}). Check the URL and the network.") from None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if response.status_code != httpx2.codes.OK:  # Redirects are not followed.
        # The error of a token endpoint (RFC 6749, section 5.2).
        description = value.get("error_description", value.get("error")) if isinstance(value, dict) else None
        cause = f" {_shortened(description)}" if isinstance(description, str) else ""
        error_class: type[EmbedsinkError] = EmbedsinkError
        if response.is_server_error or response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            error_class = IssuerUnreachable
        elif response.is_client_error:
            error_class = RefusedByIssuer
        raise error_class(f"{url}: has the status {response.status_code} instead of 200.{cause}")
    if value is None:
        raise EmbedsinkError(f"{url}: is not JSON. Check the URL.")
    if not isinstance(value, dict):
        raise EmbedsinkError(f"{url}: is not a JSON object. Check the URL.")
    return value


def _shortened(description: str) -> str:
    """Return the beginning of an issuer's error description as a sentence, without characters that can't be printed."""
    printable = "".join(character for character in description if character.isprintable())
    text = redact_keys(printable)[:_DESCRIPTION_CHARACTERS_MAX]
    return text if text.endswith(".") else f"{text}."
