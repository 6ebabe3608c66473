"""Authentication by bearer token (RFC 6750) or session, and authorization by the permissions and origins of the key."""

import re
from collections.abc import Collection
from urllib.parse import unquote

from starlette.requests import Request

from embedsink.auth.credentials import Credentials
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.tokens import TOKEN_PREFIX
from embedsink.errors import Refused, preview
from embedsink.http.session_cookie import read_cookie
from embedsink.http.transport import check_transport, is_own_page
from embedsink.reasons import Reason

_KEY_IN_URL = re.compile(rf"{TOKEN_PREFIX.pattern}|(?:^|[&;])access_token=")
# One message for all invalid API keys, so that clients don't learn why a key is invalid.
_INVALID_KEY_MESSAGE = "authorization: the key or token is malformed, unknown, expired or revoked. Get a valid one."
# One message for valid and invalid keys: the server never looks up a key in a URL.
_KEY_IN_URL_MESSAGE = (
    "url: contains a key or access_token, and URLs are often logged. Remove it, and send the key in the "
    "header `Authorization: Bearer <key>`. If the key is valid, replace it."
)


def parse_bearer_token(authorization: list[str], query: str, *, schemes: Collection[str] = ("bearer",)) -> str | None:
    """Return the token of the `Authorization` header; None without the header.

    Args:
        authorization: the values of all `Authorization` headers.
        query: the query string of the URL, which must contain no key.
        schemes: the accepted schemes, in lower case.

    Raises:
        Refused: there are several headers (`two_credentials`), the URL contains a key, or the header is not a bearer
            token (`bad_credential`).
    """
    if len(authorization) > 1:
        raise Refused(Reason.TWO_CREDENTIALS, "authorization: is given twice. Send one key.")
    # URLs are often logged, so refuse a key in the URL even if the header contains a valid one.
    if query and _KEY_IN_URL.search(unquote(query)):
        raise Refused(Reason.BAD_CREDENTIAL, _KEY_IN_URL_MESSAGE)
    if not authorization:
        return None
    scheme, _, token = authorization[0].partition(" ")
    token = token.strip()
    if scheme.lower() not in schemes or not token:
        raise Refused(Reason.BAD_CREDENTIAL, _INVALID_KEY_MESSAGE)
    return token


def find_key(token: str | None, credentials: Credentials) -> Key:
    """Return the live key of an API key or an access token.

    Raises:
        Refused: the token is None (`no_credential`), or is not valid (`bad_credential`).
        Unavailable: an access token can't be verified before its issuer's signing keys are fetched (`not_ready`).
    """
    if token is None:
        raise Refused(Reason.NO_CREDENTIAL, "authorization: is missing. Send `Authorization: Bearer <key>`.")
    return check_found(credentials.find(token))


def check_found(key: Key | None) -> Key:
    """Return the key unchanged. Raise Refused (`bad_credential`) for None."""
    if key is None:
        raise Refused(Reason.BAD_CREDENTIAL, _INVALID_KEY_MESSAGE)
    return key


def check_kind(key: Key, kinds: Collection[KeyKind]) -> None:
    """Raise Refused (`wrong_kind`) unless the key has one of these permissions or that of an admin."""
    if key.kinds.isdisjoint({*kinds, KeyKind.ADMIN}):
        has = " and ".join(sorted(key.kinds)) or "no"
        allowed = " or ".join(sorted(kinds))
        detail = f"authorization: the key has {has} permission, but this request needs {allowed}. Use another key."
        raise Refused(Reason.WRONG_KIND, detail)


def check_unlimited(key: Key, content: str) -> None:
    """Raise Refused (`out_of_scope`) if the key has a scope. The message begins with `content`."""
    if key.scope.is_limited:
        raise Refused(Reason.OUT_OF_SCOPE, f"{content}. Use a key without a scope.")


def check_origin(key: Key, origin: str | None) -> None:
    """Raise Refused (`wrong_origin`) if the key is limited to origins and the request's origin is not among them.

    A request without an `Origin` passes: it comes from a program, which could forge the header anyway.
    """
    if origin is not None and not key.allows_origin(origin):
        raise Refused(
            Reason.WRONG_ORIGIN,
            f"origin: {preview(origin)} is not an origin of this key or token. Create a key with --origin, or add the "
            "origin to the token's issuer in identity.toml.",
        )


def require_key(request: Request, *kinds: KeyKind) -> Key:
    """Return the key of a request, after checking the transport, and the permissions and origins of the key.

    A request without a token is authenticated by the browser session. `Admission` authenticates ingest requests: their
    key may be in the body.

    Raises:
        Refused: the connection is not encrypted (`plain_http`), the credential is missing or not valid
            (`no_credential`, `bad_credential`, `two_credentials`), or the key has other permissions (`wrong_kind`) or
            other origins (`wrong_origin`).
        Unavailable: an access token can't be verified yet (`not_ready`).
    """
    check_transport(request.scope)
    token = parse_bearer_token(request.headers.getlist("authorization"), request.url.query)
    key = session_key(request) if token is None else None
    if key is None:
        key = find_key(token, request.state.credentials)  # Raises `no_credential` if the token is None.
    _authorize(request, key, kinds)
    return key


def require_scim_key(request: Request) -> Key:
    """Return the key of a request to the SCIM API, after the checks of `require_key`.

    The scheme `Api-Key` is accepted too (spec 5.4), and a browser session is not.

    Raises:
        Refused, Unavailable: as `require_key`.
    """
    check_transport(request.scope)
    authorization = request.headers.getlist("authorization")
    token = parse_bearer_token(authorization, request.url.query, schemes=("bearer", "api-key"))
    key = find_key(token, request.state.credentials)
    _authorize(request, key, (KeyKind.SCIM,))
    return key


def _authorize(request: Request, key: Key, kinds: Collection[KeyKind]) -> None:
    """Record the key for log lines, and raise Refused unless its permissions and its origins allow the request."""
    request.scope["state"]["key_id"] = key.key_id
    check_kind(key, kinds)
    for origin in request.headers.getlist("origin"):
        check_origin(key, origin)


def session_key(request: Request, *, allow_cross_site_navigation: bool = False) -> Key | None:
    """Return the live key of the request's session.

    Return None without a session, for methods other than GET and HEAD, and for requests from pages of other sites.

    Args:
        request: the request with the cookie.
        allow_cross_site_navigation: whether to accept a click on a link in a page of another site.
    """
    credentials: Credentials = request.state.credentials
    is_read = request.method in ("GET", "HEAD")
    if is_read and is_own_page(request, allow_cross_site_navigation=allow_cross_site_navigation):
        token = read_cookie(request)
        return None if token is None else credentials.sessions.find(token)
    return None
