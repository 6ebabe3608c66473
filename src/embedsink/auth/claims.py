"""The claims of an access token (RFC 9068): which a token needs, and what they permit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwt import JWTClaimsRegistry

from embedsink.auth.identity import Issuer
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import LABEL_CHARACTERS_MAX, parse_deployment
from embedsink.errors import Misconfigured, Refused, preview
from embedsink.key_scope import KeyScope
from embedsink.reasons import Reason

SCOPES = {f"embedsink:{kind}": kind for kind in KeyKind}
# In the claim with the deployments or with the tenants, this text allows all of them.
EVERYTHING = "*"
# The tolerated difference between the clocks of the issuer and of this server.
LEEWAY_S = 60
# The end of the year 9999. A larger `exp` may not fit into a float.
_EXPIRES_AT_MAX = 253_402_300_799


@dataclass(frozen=True, slots=True)
class TokenKey(Key):
    """The key of an access token.

    Args:
        issuer: the issuer of the token.
        thumbprint: the thumbprint of the key that signed the token (RFC 7638).
    """

    issuer: str
    thumbprint: str


def check_claims(claims: dict[str, Any], issuer: Issuer, now: float) -> None:
    """Raise Refused unless the claims are those of a token for this server, at this time (RFC 9068, section 4)."""
    registry = JWTClaimsRegistry(
        now=int(now),
        leeway=LEEWAY_S,
        iss={"essential": True, "value": issuer.issuer},
        aud={"essential": True, "value": issuer.audience},
        exp={"essential": True},
        iat={"essential": True},
        sub={"essential": True},
    )
    try:
        registry.validate(claims)
    except ExpiredTokenError:
        raise invalid_error("has expired") from None
    except JoseError as error:
        raise invalid_error(f"is not valid: {preview(error.description or error.error)}") from None
    if "cnf" in claims:  # RFC 7800
        raise invalid_error("is bound to a key (cnf), and this server can't check that the sender has it")


def to_key(claims: Mapping[str, Any], issuer: Issuer, *, digest: str, thumbprint: str) -> TokenKey:
    """Return the key of a token with valid claims. Raise Refused if a claim with the scope is invalid."""
    subject = claims["sub"]
    return TokenKey(
        # All tokens of a subject have the same id, so they share its limits.
        key_id=f"t_{sha256(json.dumps([issuer.issuer, subject]).encode()).hexdigest()[:12]}",
        kinds=_parse_scopes(claims.get(issuer.scope_claim)),
        label=subject[:LABEL_CHARACTERS_MAX],
        scope=KeyScope(
            deployments=_parse_deployments(claims, issuer.deployments_claim),
            tenants=_parse_tenants(claims, issuer.tenants_claim),
        ),
        origins=frozenset(issuer.origins),
        created_at=float(max(claims["iat"], 0)),
        expires_at=float(min(claims["exp"], _EXPIRES_AT_MAX)) + LEEWAY_S,
        revoked_at=None,
        digest=digest,
        issuer=issuer.issuer,
        thumbprint=thumbprint,
    )


def invalid_error(problem: str) -> Refused:
    """Return the error for an invalid token. `problem` completes the sentence "the access token …"."""
    return Refused(Reason.BAD_CREDENTIAL, f"authorization: the access token {problem}. Get a new one from its issuer.")


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
        raise invalid_error(f"has no list of deployments in its claim {preview(name)}")
    return deployments


def _parse_tenants(claims: Mapping[str, Any], name: str | None) -> frozenset[str] | None:
    """Return the tenants in the claim with this name, as `_parse_deployments` does."""
    if name is None:
        return None
    entries = _entries_of(claims, name)
    if entries == [EVERYTHING]:
        return None
    if not entries or not all(isinstance(entry, str) and entry for entry in entries):
        raise invalid_error(f"has no list of tenants in its claim {preview(name)}")
    return frozenset(entries)


def _entries_of(claims: Mapping[str, Any], name: str) -> list[Any]:
    """Return the entries of a claim that is a list, or a single value."""
    value = claims.get(name)
    return value if isinstance(value, list) else [value]
