"""The claims of an identity provider's tokens: what they permit, in which scope."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from embedsink.auth.identity import Issuer, Provider
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import ALL, LABEL_CHARACTERS_MAX, parse_deployment, parse_tenant
from embedsink.auth.signed_tokens import LEEWAY_S, InvalidToken, SignedToken
from embedsink.errors import Misconfigured, preview
from embedsink.key_scope import KeyScope

T = TypeVar("T")
SCOPES = {f"embedsink:{kind}": kind for kind in KeyKind}
# The scope with which reports contain names.
NAMES_SCOPE = "embedsink:names"
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


def check_access_token(token: SignedToken, issuer: Issuer, now: float) -> None:
    """Raise InvalidToken unless the claims are those of an access token for this server, at this time."""
    # An ID token has another type (RFC 9068, section 4).
    if token.type != issuer.token_type.lower():
        raise InvalidToken(f"is not of the type (typ) {issuer.token_type}")
    token.check_claims(issuer=issuer.issuer, audience=issuer.audience, now=now)
    subject_of(token.claims)
    if "cnf" in token.claims:  # RFC 7800
        raise InvalidToken("is bound to a key (cnf), and this server can't check that the sender has it")


def token_key(claims: Mapping[str, Any], issuer: Issuer, *, digest: str, thumbprint: str) -> TokenKey:
    """Return the key of a valid access token. Raise InvalidToken if a claim with the scope is invalid."""
    subject = subject_of(claims)
    scopes = _parse_scopes(claims.get(issuer.scope_claim))
    kinds = frozenset(kind for scope, kind in SCOPES.items() if scope in scopes)
    scope = scope_of(claims, issuer, shows_names=NAMES_SCOPE in scopes or KeyKind.ADMIN in kinds)
    return TokenKey(
        key_id=subject_id("t", issuer.issuer, subject, scope),
        kinds=kinds,
        label=subject[:LABEL_CHARACTERS_MAX],
        scope=scope,
        origins=frozenset(issuer.origins),
        created_at=float(max(claims["iat"], 0)),
        expires_at=float(min(claims["exp"], _EXPIRES_AT_MAX)) + LEEWAY_S,
        revoked_at=None,
        digest=digest,
        issuer=issuer.issuer,
        thumbprint=thumbprint,
    )


def subject_of(claims: Mapping[str, Any]) -> str:
    """Return the subject of a token (`sub`). Raise InvalidToken without one."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("has no subject (sub)")
    return subject


def subject_id(prefix: str, issuer: str, subject: str, scope: KeyScope) -> str:
    """Return the key id of a subject with a scope. All its credentials with this prefix and scope have this id.

    The scope is part of the id, because a `ready` event supplies its tenant to events of the same key only.
    """
    limits = [sorted(limit) if limit is not None else None for limit in (scope.deployments, scope.tenants)]
    return f"{prefix}_{sha256(json.dumps([issuer, subject, *limits]).encode()).hexdigest()[:12]}"


def scope_of(claims: Mapping[str, Any], provider: Provider, *, shows_names: bool) -> KeyScope:
    """Return the deployments and tenants that the claims allow, with `shows_names`.

    Raise InvalidToken if a claim is missing, empty or invalid: a mistake at the provider must not grant access.
    """
    return KeyScope(
        deployments=_parse_limit(claims, provider.deployments_claim, _parse_deployment_entry, plural="deployments"),
        tenants=_parse_limit(claims, provider.tenants_claim, parse_tenant, plural="tenants"),
        shows_names=shows_names,
    )


def entries_of(claims: Mapping[str, Any], name: str) -> list[Any]:
    """Return the entries of a claim that is a list, or a single value."""
    value = claims.get(name)
    return value if isinstance(value, list) else [value]


def _parse_scopes(value: Any) -> frozenset[str]:
    """Return the scopes in a text with spaces (RFC 8693, section 4.2) or a list. Entries of other types are ignored."""
    # Only a space separates scopes (RFC 6749, section 3.3).
    scopes = value.split(" ") if isinstance(value, str) else value
    if not isinstance(scopes, list):
        return frozenset()
    return frozenset(scope for scope in scopes if isinstance(scope, str))


def _parse_limit(
    claims: Mapping[str, Any], name: str | None, parse: Callable[[Any], T], *, plural: str
) -> frozenset[T] | None:
    """Return the entries of the claim with this name; None for no limit, if there is no name or the claim is `*`.

    Raise InvalidToken if the claim is missing, empty or has an invalid entry.
    """
    if name is None:
        return None
    entries = entries_of(claims, name)
    if entries == [ALL]:
        return None
    try:
        limit = frozenset(parse(entry) for entry in entries)
    except Misconfigured:
        limit = frozenset()
    if not limit:
        raise InvalidToken(f"has no list of {plural} in its claim {preview(name)}")
    return limit


def _parse_deployment_entry(entry: Any) -> int:
    return parse_deployment(str(entry))  # "None" and "True" are refused.
