"""OAuth 2.0 access tokens of trusted issuers: JWTs that are verified here and become a `Key` (RFC 9068).

One place decides what a credential may do, so a token maps to the same type as an API key.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any

from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from joserfc.jwt import JWTClaimsRegistry

from embedsink.auth.identity import Issuer
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import LABEL_CHARACTERS_MAX, parse_deployment
from embedsink.auth.signing_keys import FETCH_S_MAX, SigningKeys
from embedsink.auth.tokens import digest_of, looks_like_jwt
from embedsink.errors import Misconfigured, Refused, Unavailable, preview
from embedsink.key_scope import KeyScope
from embedsink.reasons import Reason

SCOPES = {f"embedsink:{kind}": kind for kind in KeyKind}
# In the claim with the deployments or with the tenants, this text allows all of them.
EVERYTHING = "*"
# The tolerated difference between the clocks of the issuer and of this server.
LEEWAY_S = 60
TOKEN_CHARACTERS_MAX = 16_384
# Verified tokens are remembered, because a verification takes 0.2 ms. Beyond this number, the oldest is forgotten.
VERIFIED_MAX = 10_000
# The year 9999.
_EXPIRES_AT_MAX = 253_402_300_799


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """A verified token: its key, and the thumbprint of the key that signed it (RFC 7638)."""

    key: Key
    thumbprint: str


class AccessTokens:
    """Verifies access tokens, and remembers those that it has verified.

    Args:
        issuers: the trusted issuers.
        clock: returns the time in epoch seconds.
    """

    def __init__(self, issuers: Sequence[Issuer], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._verified: dict[str, _VerifiedToken] = {}  # by the digest of the token, the oldest first
        self._signing_keys = {
            issuer.issuer: SigningKeys(issuer, on_change=self._forget_removed_keys) for issuer in issuers
        }

    def find(self, token: str) -> Key | None:
        """Return the key of a valid access token; None if the text is not a signed JWT.

        Raises:
            Refused: the token is not valid (`bad_credential`). The message says why, which anyone who has the token can
                find out anyway.
            Unavailable: the issuer's signing keys must be fetched first (`not_ready`). A refresh is running, or no
                refresh has succeeded yet.
        """
        if not looks_like_jwt(token) or len(token) > TOKEN_CHARACTERS_MAX:
            return None
        digest = digest_of(token)
        verified = self._verified.get(digest)
        if verified is None:
            verified = self._verify(token, digest)
            self._remember(verified)
        if not verified.key.is_live(self._clock()):
            raise _invalid_error("has expired")
        return verified.key

    def is_live(self, key: Key) -> bool:
        """Return whether a key that `find` returned has not expired, and its issuer still has the signing key."""
        return key.digest in self._verified and key.is_live(self._clock())

    def origins(self) -> frozenset[str] | None:
        """Return the origins whose pages may use tokens; None for any origin."""
        origins = [keys.issuer.origins for keys in self._signing_keys.values()]
        return frozenset(chain.from_iterable(origins)) if all(origins) else None

    async def run(self) -> None:
        """Refresh the signing keys of all issuers regularly, until this task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for signing_keys in self._signing_keys.values():
                tasks.create_task(signing_keys.run())

    async def wait_for_refreshes(self) -> None:
        """Wait until no signing keys are being fetched, at most `FETCH_S_MAX`."""
        running = [task for keys in self._signing_keys.values() if (task := keys.refreshing) is not None]
        if running:
            await asyncio.wait(running, timeout=FETCH_S_MAX)

    def _verify(self, token: str, digest: str) -> _VerifiedToken:
        """Verify a token. Raises the exceptions of `find`."""
        registry = JWSRegistry(strict_check_header=False)  # Unknown headers are ignored (RFC 7515, section 4).
        try:
            signature = extract_compact(token.encode(), registry=registry)
            claims = json.loads(signature.payload)
            if not isinstance(claims, dict):
                raise _invalid_error("is not a JSON object")
            signing_keys = self._signing_keys_of(claims)
            thumbprint = _verify_signature(signature, signing_keys)
            _validate_claims(claims, signing_keys.issuer, self._clock())
        except ExpiredTokenError:
            raise _invalid_error("has expired") from None
        except JoseError as error:
            raise _invalid_error(f"is not valid: {preview(error.description or error.error)}") from None
        except (ValueError, TypeError, RecursionError):
            raise _invalid_error("is not a JWT") from None
        return _VerifiedToken(_to_key(claims, signing_keys.issuer, digest), thumbprint)

    def _signing_keys_of(self, claims: Mapping[str, Any]) -> SigningKeys:
        """Return the signing keys of the issuer that a token names. Raise Refused for other issuers."""
        name = claims.get("iss")
        if not isinstance(name, str) or name not in self._signing_keys:
            raise _invalid_error("has an issuer (iss) that this server does not trust")
        return self._signing_keys[name]

    def _remember(self, verified: _VerifiedToken) -> None:
        """Remember a verified token. If there are too many, forget the oldest."""
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[verified.key.digest] = verified

    def _forget_removed_keys(self) -> None:
        """Forget the tokens whose signing key is in no JWK Set any more: the issuer has revoked it."""
        present = {key.thumbprint() for keys in self._signing_keys.values() for key in (keys.key_set or ())}
        self._verified = {
            digest: verified for digest, verified in self._verified.items() if verified.thumbprint in present
        }


def _verify_signature(signature: CompactSignature, signing_keys: SigningKeys) -> str:
    """Verify the type, the algorithm and the signature of a token. Return the thumbprint of the key that signed it.

    Raises:
        Refused, JoseError: the token is not valid.
        Unavailable: the key is unknown, and the issuer's keys are being fetched, or could not be fetched yet.
    """
    header = signature.headers()
    issuer = signing_keys.issuer
    # The type distinguishes an access token from an ID token of the same issuer (RFC 9068, section 4).
    token_type = str(header.get("typ")).lower().removeprefix("application/")
    if token_type != issuer.token_type.lower():
        raise _invalid_error(f"is not of the type (typ) {issuer.token_type}")
    registry = JWSRegistry(algorithms=issuer.algorithms, strict_check_header=False)
    algorithm = registry.get_alg(header["alg"]).name  # Raises for an algorithm that is not allowed.
    key_set = signing_keys.key_set
    try:
        if key_set is None:
            raise InvalidKeyIdError
        key = key_set.get_by_kid(header.get("kid"), {"alg": algorithm, "use": "sig"})
    except InvalidKeyIdError:
        if signing_keys.refresh_when_due() is not None or key_set is None:
            message = "authorization: the signing keys of the token's issuer are not available yet. Retry later."
            raise Unavailable(Reason.NOT_READY, message) from None
        raise _invalid_error("has a key (kid) that its issuer does not have") from None
    if not validate_compact(signature, key, registry=registry):
        raise _invalid_error("has a wrong signature")
    return key.thumbprint()


def _validate_claims(claims: dict[str, Any], issuer: Issuer, now: float) -> None:
    """Raise JoseError unless the claims are those of a token for this server, at this time (RFC 9068, section 4)."""
    JWTClaimsRegistry(
        now=int(now),
        leeway=LEEWAY_S,
        iss={"essential": True, "value": issuer.issuer},
        aud={"essential": True, "value": issuer.audience},
        exp={"essential": True},
        sub={"essential": True},
    ).validate(claims)


def _to_key(claims: Mapping[str, Any], issuer: Issuer, digest: str) -> Key:
    """Return the key of a token's claims. Raise Refused if a claim with the scope is invalid."""
    subject = claims["sub"]
    expires_at = float(min(claims["exp"], _EXPIRES_AT_MAX)) + LEEWAY_S
    return Key(
        # All tokens of a subject have the same id, so they share its limits.
        key_id=f"t_{sha256(json.dumps([issuer.issuer, subject]).encode()).hexdigest()[:12]}",
        kinds=_parse_scopes(claims.get(issuer.scope_claim)),
        label=subject[:LABEL_CHARACTERS_MAX],
        scope=KeyScope(
            deployments=_parse_deployments(claims, issuer.deployments_claim),
            tenants=_parse_tenants(claims, issuer.tenants_claim),
        ),
        origins=frozenset(issuer.origins),
        created_at=0.0,
        expires_at=expires_at,
        revoked_at=None,
        digest=digest,
    )


def _parse_scopes(value: Any) -> frozenset[KeyKind]:
    """Return the permissions in a text with spaces (RFC 8693, section 4.2) or a list. Other scopes are ignored."""
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list):
        return frozenset()
    return frozenset(SCOPES[scope] for scope in scopes if isinstance(scope, str) and scope in SCOPES)


def _parse_deployments(claims: Mapping[str, Any], name: str | None) -> frozenset[int] | None:
    """Return the deployments in the claim with this name; None for all of them, if there is no name or the claim is *.

    Raise Refused if the claim is missing, empty or invalid: a mistake at the issuer must not grant access.
    """
    if name is None:
        return None
    entries = _entries_of(claims, name)
    if entries == [EVERYTHING]:
        return None
    try:
        deployments = frozenset(parse_deployment(str(entry)) for entry in entries)  # "None" and "True" are refused.
    except Misconfigured:
        deployments = frozenset()
    if not deployments:
        raise _invalid_error(f"has no list of deployments in its claim {preview(name)}")
    return deployments


def _parse_tenants(claims: Mapping[str, Any], name: str | None) -> frozenset[str] | None:
    """Return the tenants in the claim with this name, as `_parse_deployments` does."""
    if name is None:
        return None
    entries = _entries_of(claims, name)
    if entries == [EVERYTHING]:
        return None
    if not entries or not all(isinstance(entry, str) and entry for entry in entries):
        raise _invalid_error(f"has no list of tenants in its claim {preview(name)}")
    return frozenset(entries)


def _entries_of(claims: Mapping[str, Any], name: str) -> list[Any]:
    """Return the entries of a claim that is a list, or a single value."""
    value = claims.get(name)
    return value if isinstance(value, list) else [value]


def _invalid_error(problem: str) -> Refused:
    """Return the error for an invalid token. `problem` completes the sentence "the access token …"."""
    return Refused(Reason.BAD_CREDENTIAL, f"authorization: the access token {problem}. Get a new one from its issuer.")
