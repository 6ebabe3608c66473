"""Who is asking: the bearer token of RFC 6750, and what its key may do (spec 5, design section 6)."""

import re
from collections.abc import Collection
from urllib.parse import unquote

from starlette.requests import Request

from embedsink.auth.key import Key, KeyKind
from embedsink.auth.token import TOKEN_START
from embedsink.engine import Engine
from embedsink.errors import Refused, quote
from embedsink.http.sessions import Sessions
from embedsink.http.transport import check_transport, is_own_page
from embedsink.reasons import Reason

_KEY_IN_URL = re.compile(rf"{TOKEN_START.pattern}|(?:^|[&;])access_token=")
# One sentence for every key that does not hold, so that nobody learns why.
_BAD = "authorization: the key is malformed, unknown, expired or revoked. Get a valid one."
# Nor is it looked up there: of any key, and of a word that only looks like one, the same is said.
_IN_ADDRESS = (
    "address: a key, or access_token, stands in it, and addresses end up in logs. "
    "Take it out, send the key in the header `Authorization: Bearer <key>`, and replace it if it is a real one."
)


def bearer_token(authorization: list[str], query: str) -> str | None:
    """The token of a request's `Authorization` headers; None when there is no credential at all.

    Raises:
        Refused: `bad_credential` for a malformed one or one in the URL, `two_credentials` for more than one.
    """
    if len(authorization) > 1:
        raise Refused(Reason.TWO_CREDENTIALS, "authorization: stands twice. Send one key.")
    # A key in a URL ends up in logs and histories, so it does not count as one, whatever the header holds.
    if query and _KEY_IN_URL.search(unquote(query)):
        raise Refused(Reason.BAD_CREDENTIAL, _IN_ADDRESS)
    if not authorization:
        return None
    scheme, _, token = authorization[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Refused(Reason.BAD_CREDENTIAL, _BAD)
    return token


def find_key(token: str | None, engine: Engine) -> Key:
    """The live key of a token.

    Raises:
        Refused: `no_credential` or `bad_credential`.
    """
    if token is None:
        raise Refused(Reason.NO_CREDENTIAL, "authorization: is missing. Send `Authorization: Bearer <key>`.")
    key = engine.keys.find(token)
    if key is None:
        raise Refused(Reason.BAD_CREDENTIAL, _BAD)
    return key


def check_kind(key: Key, kinds: Collection[KeyKind]) -> None:
    """Raises Refused (`wrong_kind`) unless the key is of one of these kinds, or an admin key, which may all."""
    if key.kind not in kinds and key.kind is not KeyKind.ADMIN:
        wanted = " or ".join(sorted(kinds))
        raise Refused(Reason.WRONG_KIND, f"authorization: {key.kind} keys may not do this, {wanted} keys may.")


def check_origin(key: Key, origin: str | None) -> None:
    """Raises Refused (`wrong_origin`) when a page uses a key that is tied to other pages.

    A request without an `Origin` comes from no page: whoever can send one could also forge the header.
    """
    if origin is not None and not key.allows_origin(origin):
        raise Refused(Reason.WRONG_ORIGIN, f"origin: {quote(origin)} is not one that this key belongs to.")


def require_key(request: Request, *kinds: KeyKind) -> Key:
    """The key of a request to any resource but ingest, checked for its kind and its origins.

    Where a page of ours reads, its login stands for the key.
    """
    engine: Engine = request.state.engine
    check_transport(request.scope)
    token = bearer_token(request.headers.getlist("authorization"), request.url.query)
    key = (session_key(request) if token is None else None) or find_key(token, engine)
    request.scope["state"]["key_id"] = key.key_id
    check_kind(key, kinds)
    for origin in request.headers.getlist("origin"):
        check_origin(key, origin)
    return key


def session_key(request: Request, *, or_navigation: bool = False) -> Key | None:
    """The live key that somebody has logged in with; it reads, and never changes anything.

    Args:
        request: of a page of ours.
        or_navigation: or of a link on another site's page that leads here.
    """
    sessions: Sessions = request.state.sessions
    if request.method not in ("GET", "HEAD") or not is_own_page(request, or_navigation=or_navigation):
        return None
    return sessions.key_of(request, request.state.engine.keys)
