"""The public keys with which an issuer signs its tokens. They are fetched from its JWK Set (RFC 7517) regularly."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import Any
from urllib.parse import urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import Key, RSAKey, import_key

from embedsink.auth.identity import Issuer, check_url
from embedsink.errors import EmbedsinkError
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
# The minimum size of an RSA key (RFC 7518, section 3.3).
_RSA_BITS_MIN = 2_048


class SigningKeys:
    """The signing keys of one issuer.

    Args:
        issuer: the issuer.
        clock: returns the time in epoch seconds.
    """

    def __init__(self, issuer: Issuer, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        # The start of the last successful fetch, in epoch seconds; None before it.
        self.fetched_at: float | None = None
        self._clock = clock
        self._keys: dict[str, Key] = {}  # by thumbprint (RFC 7638)
        self._cool_down_ends_at = 0.0  # in monotonic seconds
        self._is_requested = asyncio.Event()
        self._is_cooling_down = asyncio.Event()

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Return the key with this id (`kid`) for an algorithm; without an id, the issuer's only key. Else None."""
        keys = [key for key in self._keys.values() if key_id is None or key.kid == key_id]
        if key_id is None and len(keys) > 1:
            return None
        return next((key for key in keys if key.get("alg") in (None, algorithm)), None)

    def contains(self, thumbprint: str) -> bool:
        """Return whether the issuer has a key with this thumbprint."""
        return thumbprint in self._keys

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
        # A proxy would send a request for this machine to its own loopback address.
        is_proxy_allowed = not is_loopback(urlsplit(self.issuer.issuer).hostname or "")
        # Compressed responses may be small and their content huge, so ask for none.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        trusted = ssl.create_default_context()  # the certificates of the system
        options: dict[str, Any] = {"verify": trusted, "trust_env": is_proxy_allowed, "headers": headers}
        async with httpx.AsyncClient(**options, timeout=FETCH_S_MAX) as client:
            while True:
                await self._fetch(client)
                self._is_requested.clear()
                self._cool_down_ends_at = time.monotonic() + COOL_DOWN_S
                self._is_cooling_down.set()
                await asyncio.sleep(COOL_DOWN_S)
                self._is_cooling_down.clear()
                if self.fetched_at is not None:  # Otherwise, try again at once.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FETCH_INTERVAL_S - COOL_DOWN_S):
                            await self._is_requested.wait()

    async def _fetch(self, client: httpx.AsyncClient) -> None:
        """Fetch the keys. After an error, keep the previous ones and log the error."""
        fetched_at = self._clock()
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                self._keys = await _fetch_keys(client, self.issuer)
        except (TimeoutError, httpx.TimeoutException):  # The timeouts of httpx limit each read, not the total time.
            self._log_failure(f"{self.issuer.issuer}: did not respond within {FETCH_S_MAX:g} s. Check the network.")
        except EmbedsinkError as error:
            self._log_failure(str(error))
        except Exception as error:
            log.error("bug", exc_info=error)
        else:
            self.fetched_at = fetched_at

    def _log_failure(self, detail: str) -> None:
        log.warning("issuer_unreachable", extra={"issuer": self.issuer.issuer, "detail": detail})


async def _fetch_keys(client: httpx.AsyncClient, issuer: Issuer) -> dict[str, Key]:
    """Fetch the signing keys of an issuer, by thumbprint. Raise EmbedsinkError if there are none."""
    url = issuer.jwks_url or await _discover(client, issuer)
    jwks = (await _fetch_object(client, url)).get("keys")
    if not isinstance(jwks, list):
        raise EmbedsinkError(f"{url}: is not a JWK Set (RFC 7517). Check jwks_url in identity.toml.")
    signing_keys = [key for jwk in jwks[:KEYS_MAX] if (key := _import_signing_key(jwk)) is not None]
    if not signing_keys:
        raise EmbedsinkError(f"{url}: has no public key for signatures. Check jwks_url in identity.toml.")
    return {key.thumbprint(): key for key in signing_keys}


async def _discover(client: httpx.AsyncClient, issuer: Issuer) -> str:
    """Return the URL of the issuer's JWK Set from its configuration (OpenID Connect Discovery 1.0, section 4)."""
    url = f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration"
    configuration = await _fetch_object(client, url)
    if configuration.get("issuer") != issuer.issuer:
        raise EmbedsinkError(f"{url}: describes another issuer. Check the issuer in identity.toml.")
    try:
        # Plain HTTP is allowed within this machine only.
        return check_url(configuration.get("jwks_uri"), allow_http=issuer.issuer.startswith("http:"))
    except ValueError:
        raise EmbedsinkError(f"{url}: has no jwks_uri with HTTPS. Set jwks_url in identity.toml.") from None


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


async def _fetch_object(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Return the JSON object at a URL. Raise EmbedsinkError if the response is another one, or too large."""
    content = b""
    try:
        async with client.stream("GET", url) as response:
            if response.status_code != httpx.codes.OK:  # Redirects are not followed.
                raise EmbedsinkError(f"{url}: has the status {response.status_code} instead of 200. Check the URL.")
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > FETCH_BYTES_MAX:
                    raise EmbedsinkError(f"{url}: is larger than {FETCH_BYTES_MAX:,} bytes. Check the URL.")
    except httpx.TimeoutException:
        raise
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        cause = str(error) or type(error).__name__
        raise EmbedsinkError(f"{url}: can't be fetched ({cause}). Check the URL and the network.") from None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise EmbedsinkError(f"{url}: is not JSON. Check the URL.") from None
    if not isinstance(value, dict):
        raise EmbedsinkError(f"{url}: is not a JSON object. Check the URL.")
    return value
