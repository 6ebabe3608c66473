"""Verification of OAuth 2.0 access tokens (RFC 9068).

A valid token becomes a `Key`, as an API key does, so all later checks are the same.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import Key as SigningKey
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact

from embedsink.auth.claims import LEEWAY_S, TokenKey, check_claims, invalid_error, to_key
from embedsink.auth.identity import Issuer
from embedsink.auth.keys import Key
from embedsink.auth.signing_keys import SigningKeys
from embedsink.auth.tokens import digest_of, looks_like_jwt
from embedsink.errors import Unavailable, preview
from embedsink.reasons import Reason

TOKEN_CHARACTERS_MAX = 16_384
# The encoded header. An issuer may include the chain of its certificates (x5c).
HEADER_CHARACTERS_MAX = 8_192
# Verified tokens are remembered, because a verification takes much longer. Beyond this number, forget the oldest.
REMEMBERED_MAX = 10_000


class SigningKeysNotFetched(Unavailable):
    """A token can't be verified until the keys of its issuer are fetched. The fetch is requested."""

    def __init__(self, signing_keys: SigningKeys) -> None:
        super().__init__(
            Reason.NOT_READY,
            "authorization: the signing key of the access token must be fetched from its issuer first. Retry later.",
            retry_after_s=signing_keys.request_fetch(),
        )
        self.signing_keys = signing_keys


class AccessTokens:
    """Verifies access tokens, and remembers those that it has verified.

    Args:
        issuers: the trusted issuers.
        clock: returns the time in epoch seconds.
    """

    def __init__(self, issuers: Sequence[Issuer], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._remembered: dict[str, TokenKey] = {}  # by the digest of the token, the oldest first
        self._signing_keys = {issuer.issuer: SigningKeys(issuer, clock) for issuer in issuers}

    def find(self, token: str) -> Key | None:
        """Return the key of a valid access token; None if the text is not a signed JWT.

        Raises:
            Refused: the token is not valid (`bad_credential`). The message names the cause, which the token's holder
                can read in the token.
            SigningKeysNotFetched: the issuer may have a new signing key (`not_ready`).
        """
        if not looks_like_jwt(token) or len(token) > TOKEN_CHARACTERS_MAX:
            return None
        digest = digest_of(token)
        key = self._remembered.get(digest)
        if key is None or not self.is_live(key):
            key = self._verify(token, digest)
            self._remember(key)
        return key

    async def find_when_ready(self, token: str) -> Key | None:
        """Return what `find` returns. If the signing keys must be fetched first, wait for them for a few seconds.

        Raises the exceptions of `find`.
        """
        try:
            return self.find(token)
        except SigningKeysNotFetched as error:
            await error.signing_keys.wait_for_fetch()
            return self.find(token)

    def is_live(self, key: Key) -> bool:
        """Return whether a key that `find` returned has not expired, and its issuer still has the signing key."""
        if not isinstance(key, TokenKey) or not key.is_live(self._clock()):
            return False
        return self._signing_keys[key.issuer].contains(key.thumbprint)

    def origins(self) -> frozenset[str]:
        """Return the origins whose pages may use tokens."""
        return frozenset(chain.from_iterable(keys.issuer.origins for keys in self._signing_keys.values()))

    async def run(self) -> None:
        """Keep the signing keys of all issuers up to date, until this task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for signing_keys in self._signing_keys.values():
                tasks.create_task(signing_keys.run())

    def _verify(self, token: str, digest: str) -> TokenKey:
        """Verify a token. Raises the exceptions of `find`."""
        registry = _registry(algorithms=None)
        try:
            signature = extract_compact(token.encode(), registry=registry)
            claims = json.loads(signature.payload.decode())
            header = signature.headers()
        except JoseError as error:
            raise invalid_error(f"is not valid: {preview(error.description or error.error)}") from None
        except (ValueError, RecursionError):
            raise invalid_error("is not a JWT") from None
        if not isinstance(claims, dict):
            raise invalid_error("is not a JWT")
        signing_keys = self._signing_keys_of(claims)
        _check_type(header, signing_keys.issuer)
        # Check the claims first: an expired token should not cause a fetch.
        check_claims(claims, signing_keys.issuer, self._clock())
        try:
            thumbprint = _verify_signature(signature, signing_keys, issued_at=claims["iat"])
        except JoseError as error:
            raise invalid_error(f"is not valid: {preview(error.description or error.error)}") from None
        return to_key(claims, signing_keys.issuer, digest=digest, thumbprint=thumbprint)

    def _signing_keys_of(self, claims: Mapping[str, Any]) -> SigningKeys:
        """Return the signing keys of the issuer that a token names. Raise Refused for other issuers."""
        name = claims.get("iss")
        if not isinstance(name, str) or name not in self._signing_keys:
            raise invalid_error("has an issuer (iss) that this server does not trust")
        return self._signing_keys[name]

    def _remember(self, key: TokenKey) -> None:
        """Remember the key of a verified token. If there are too many, forget the oldest."""
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key.digest] = key


def _registry(algorithms: Sequence[str] | None) -> JWSRegistry:
    """Return the rules for signed tokens. Unknown headers are ignored (RFC 7515, section 4)."""
    registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
    registry.max_header_length = HEADER_CHARACTERS_MAX
    registry.max_signature_length = TOKEN_CHARACTERS_MAX
    return registry


def _check_type(header: Mapping[str, Any], issuer: Issuer) -> None:
    """Raise Refused unless the token is an access token. An ID token has another type (RFC 9068, section 4)."""
    token_type = str(header.get("typ")).lower().removeprefix("application/")
    if token_type != issuer.token_type.lower():
        raise invalid_error(f"is not of the type (typ) {issuer.token_type}")


def _verify_signature(signature: CompactSignature, signing_keys: SigningKeys, *, issued_at: float) -> str:
    """Verify the algorithm and the signature of a token. Return the thumbprint of the key that signed it.

    Raises:
        Refused, JoseError: the token is not valid.
        SigningKeysNotFetched: the issuer may have a new signing key.
    """
    header = signature.headers()
    registry = _registry(signing_keys.issuer.algorithms)
    registry.check_header(header)
    algorithm = registry.get_alg(header["alg"]).name  # Raises for an algorithm that is not allowed.
    key = _find_signing_key(signing_keys, header.get("kid"), algorithm, issued_at)
    if not validate_compact(signature, key, registry=registry):
        raise invalid_error("has a wrong signature")
    return key.thumbprint()


def _find_signing_key(signing_keys: SigningKeys, key_id: Any, algorithm: str, issued_at: float) -> SigningKey:
    """Return the key with an id. Raises the exceptions of `_verify_signature`."""
    key = signing_keys.find(key_id, algorithm)
    if key is not None:
        return key
    fetched_at = signing_keys.fetched_at
    if fetched_at is not None and key_id is None:
        raise invalid_error("has no key id (kid), and its issuer has several keys")
    if fetched_at is None or fetched_at <= issued_at + LEEWAY_S:  # The key may be newer than the last fetch.
        raise SigningKeysNotFetched(signing_keys)
    raise invalid_error("has a key (kid) that its issuer does not have")
