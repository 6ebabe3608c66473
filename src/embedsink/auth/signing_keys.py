"""The public keys with which an issuer signs its tokens. They are fetched from its JWK Set (RFC 7517) regularly."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet, import_key

from embedsink.auth.identity import Issuer
from embedsink.errors import EmbedsinkError
from embedsink.net import url_opener

log = logging.getLogger(__name__)

# The interval of regular refreshes.
REFRESH_INTERVAL_S = 600.0
# The minimum pause between two refreshes. A token with an unknown key causes a refresh, and anyone can invent tokens.
COOL_DOWN_S = 30.0
# The limits of a response: its total time, and its size.
FETCH_S_MAX = 5.0
FETCH_BYTES_MAX = 262_144
KEYS_MAX = 100
# The base64url digits of the modulus of an RSA key with 2,048 bits, the minimum (RFC 7518, section 3.3).
_RSA_DIGITS_MIN = 342
_CHUNK_BYTES = 65_536


class SigningKeys:
    """The signing keys of one issuer.

    Args:
        issuer: the issuer.
        on_change: called in the event loop after each successful refresh.
    """

    def __init__(self, issuer: Issuer, *, on_change: Callable[[], None]) -> None:
        self.issuer = issuer
        self.key_set: KeySet | None = None  # None until the first successful refresh
        self._on_change = on_change
        self.refreshing: asyncio.Task[None] | None = None  # the running refresh
        self._next_refresh_at = 0.0  # in monotonic seconds

    def refresh_when_due(self) -> asyncio.Task[None] | None:
        """Return the task of the running refresh. Without one, start one if the cool-down is over; else return None."""
        if self.refreshing is None and time.monotonic() >= self._next_refresh_at:
            self.refreshing = asyncio.create_task(self._refresh())
        return self.refreshing

    async def run(self) -> None:
        """Refresh the keys regularly, until this task is cancelled."""
        while True:
            refreshing = self.refresh_when_due()
            if refreshing is not None:
                await asyncio.wait({refreshing})
            await asyncio.sleep(COOL_DOWN_S if self.key_set is None else REFRESH_INTERVAL_S)

    async def _refresh(self) -> None:
        """Fetch the keys. After an error, keep the previous ones and log it."""
        try:
            key_set = await asyncio.to_thread(_fetch_keys, self.issuer)
        except EmbedsinkError as error:
            log.warning("issuer_unreachable", extra={"issuer": self.issuer.issuer, "detail": str(error)})
        else:
            self.key_set = key_set
            self._on_change()
        finally:
            self._next_refresh_at = time.monotonic() + COOL_DOWN_S
            self.refreshing = None


def _fetch_keys(issuer: Issuer) -> KeySet:
    """Fetch the signing keys of an issuer. Raise EmbedsinkError if there are none."""
    url = issuer.jwks_url or _discover(issuer)
    keys = _fetch_object(url).get("keys")
    if not isinstance(keys, list):
        raise EmbedsinkError(f"{url}: is not a JWK Set (RFC 7517). Check jwks_url in identity.toml.")
    signing_keys = [key for jwk in keys[:KEYS_MAX] if (key := _import_signing_key(jwk)) is not None]
    if not signing_keys:
        raise EmbedsinkError(f"{url}: has no public key for signatures. Check jwks_url in identity.toml.")
    return KeySet(signing_keys)


def _discover(issuer: Issuer) -> str:
    """Return the URL of the issuer's JWK Set from its configuration (OpenID Connect Discovery 1.0, section 4)."""
    url = f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration"
    configuration = _fetch_object(url)
    if configuration.get("issuer") != issuer.issuer:
        raise EmbedsinkError(f"{url}: describes another issuer. Check the issuer in identity.toml.")
    try:
        return Issuer(issuer=issuer.issuer, audience=issuer.audience, jwks_url=configuration["jwks_uri"]).jwks_url or ""
    except (KeyError, ValueError):
        raise EmbedsinkError(f"{url}: has no jwks_uri with HTTPS. Set jwks_url in identity.toml.") from None


def _import_signing_key(jwk: Any) -> Key | None:
    """Return a public key for signatures; None for other keys, and for keys that are invalid or too short."""
    is_asymmetric = isinstance(jwk, dict) and jwk.get("kty") in ("RSA", "EC", "OKP")
    if not is_asymmetric or jwk.get("use") not in (None, "sig"):
        return None
    if jwk["kty"] == "RSA" and len(str(jwk.get("n"))) < _RSA_DIGITS_MIN:
        return None
    with suppress(JoseError, ValueError, TypeError, KeyError):
        return import_key(jwk)
    return None


def _fetch_object(url: str) -> dict[str, Any]:
    """Return the JSON object at a URL. Raise EmbedsinkError if the response is not one, too large, or too slow."""
    give_up_at = time.monotonic() + FETCH_S_MAX
    content = b""
    try:
        with url_opener(url).open(url, timeout=FETCH_S_MAX) as response:
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > FETCH_BYTES_MAX:
                    raise EmbedsinkError(f"{url}: is larger than {FETCH_BYTES_MAX:,} bytes. Check the URL.")
                if time.monotonic() > give_up_at:
                    raise TimeoutError("timed out")
        value = json.loads(content)
    except (OSError, HTTPException) as error:  # OSError includes URLError, HTTPError and TimeoutError.
        raise EmbedsinkError(f"{url}: can't be fetched ({error}). Check the URL and the network.") from None
    except (ValueError, RecursionError):
        raise EmbedsinkError(f"{url}: is not JSON. Check the URL.") from None
    if not isinstance(value, dict):
        raise EmbedsinkError(f"{url}: is not a JSON object. Check the URL.")
    return value
