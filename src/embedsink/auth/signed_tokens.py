"""Signed JWTs (RFC 7519) of identity providers: parsing, and verification of signature and times."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import Key as SigningKey
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from joserfc.jwt import JWTClaimsRegistry

from embedsink.auth.signing_keys import SigningKeys
from embedsink.errors import Unavailable, preview
from embedsink.reasons import Reason

TOKEN_CHARACTERS_MAX = 16_384
# The encoded header. A provider may include the chain of its certificates (x5c).
HEADER_CHARACTERS_MAX = 8_192
# The tolerated difference between the clocks of the provider and of this server.
LEEWAY_S = 60


class InvalidToken(Exception):
    """A token is not valid. The text completes the sentence "the token …"."""


class SigningKeysNotFetched(Unavailable):
    """A token can't be verified until the keys of its issuer are fetched. The fetch is requested."""

    def __init__(self, signing_keys: SigningKeys) -> None:
        super().__init__(
            Reason.NOT_READY,
            "authorization: the signing key of the token must be fetched from its issuer first. Retry later.",
            retry_after_s=signing_keys.request_fetch(),
        )
        self.signing_keys = signing_keys


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A JWT whose signature is not verified yet.

    Args:
        signature: the parts of the token.
        header: the header (RFC 7515, section 4).
        claims: the claims (RFC 7519, section 4).
    """

    signature: CompactSignature
    header: Mapping[str, Any]
    claims: dict[str, Any]

    @classmethod
    def parse(cls, token: str) -> "SignedToken":
        """Parse a token. Raise InvalidToken if it is not a JWT."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise InvalidToken("is too long")
        try:
            signature = extract_compact(token.encode(), registry=_registry(algorithms=None))
            claims = json.loads(signature.payload.decode())
        except JoseError as error:
            raise InvalidToken(f"is not valid: {preview(error.description or error.error)}") from None
        except (ValueError, RecursionError):
            raise InvalidToken("is not a JWT") from None
        if not isinstance(claims, dict):
            raise InvalidToken("is not a JWT")
        if "crit" in signature.headers():  # RFC 7515, section 4.1.11
            raise InvalidToken("has critical headers (crit), and this server supports none")
        return cls(signature, signature.headers(), claims)

    @property
    def type(self) -> str:
        """The header `typ` in lower case, without `application/` (RFC 7515, section 4.1.9); `none` without it."""
        return str(self.header.get("typ")).lower().removeprefix("application/")

    def check_claims(self, *, issuer: str, audience: str, now: float) -> None:
        """Raise InvalidToken unless the token is from an issuer, for an audience, and valid now (RFC 9068, section 4).

        Args:
            issuer: the value of `iss`.
            audience: a value of `aud`.
            now: the time in epoch seconds.
        """
        registry = JWTClaimsRegistry(
            now=int(now),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            registry.validate(self.claims)
        except ExpiredTokenError:
            raise InvalidToken("has expired") from None
        except JoseError as error:
            raise InvalidToken(f"is not valid: {preview(error.description or error.error)}") from None

    def verify(self, signing_keys: SigningKeys, algorithms: Sequence[str]) -> str:
        """Verify the algorithm and the signature, after `check_claims`.

        Return the thumbprint of the key that signed the token (RFC 7638).

        Raises:
            InvalidToken: the signature is not one of the issuer.
            SigningKeysNotFetched: the issuer may have a new signing key.
        """
        registry = _registry(algorithms)
        try:
            registry.check_header(dict(self.header))
            algorithm = registry.get_alg(self.header["alg"])  # Raises for an algorithm that is not allowed.
            keys = self._find_keys(signing_keys, algorithm.name, algorithm.key_type)
            # The parameters of a signature are those of the algorithm, so a wrong key can't make it valid.
            key = next((key for key in keys if validate_compact(self.signature, key, registry=registry)), None)
        except JoseError as error:
            raise InvalidToken(f"is not valid: {preview(error.description or error.error)}") from None
        if key is None:
            raise InvalidToken("has a wrong signature")
        return key.thumbprint()

    def _find_keys(self, signing_keys: SigningKeys, algorithm: str, key_type: str) -> list[SigningKey]:
        """Return the keys that the header names, at least one. Raises the exceptions of `verify`."""
        key_id = self.header.get("kid")
        keys = signing_keys.find(key_id, algorithm=algorithm, key_type=key_type)
        if keys:
            return keys
        fetched_at = signing_keys.fetched_at
        if fetched_at is not None and key_id is None:
            raise InvalidToken("has no key id (kid), and its issuer has several keys")
        # The key may be newer than the last fetch.
        if fetched_at is None or fetched_at <= self.claims["iat"] + LEEWAY_S:
            raise SigningKeysNotFetched(signing_keys)
        raise InvalidToken("has a key (kid) that its issuer does not have")


def _registry(algorithms: Sequence[str] | None) -> JWSRegistry:
    """Return the rules for signed tokens. Unknown headers are ignored (RFC 7515, section 4)."""
    registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
    registry.max_header_length = HEADER_CHARACTERS_MAX
    registry.max_signature_length = TOKEN_CHARACTERS_MAX
    return registry
