"""Who is asking: the bearer token of RFC 6750, and what its key may do (spec 5, design section 6)."""

import re
from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Scope

from embedsink.errors import Refused, quote
from embedsink.keys import TOKEN_START, Key, KeyKind
from embedsink.loopback import is_loopback
from embedsink.reasons import Reason
from embedsink.sink import Sink

if TYPE_CHECKING:
    from embedsink.http.logins import Logins

_KEY_IN_URL = re.compile(rf"{TOKEN_START.pattern}|(?:^|[&;])access_token=")
# One sentence for every key that does not hold, so that nobody learns why.
_BAD = "authorization: the key is malformed, unknown, expired or revoked. Get a valid one."
# Nor is it looked up there: of any key, and of a word that only looks like one, the same is said.
_IN_ADDRESS = (
    "address: a key, or access_token, stands in it, and addresses end up in logs. "
    "Take it out, send the key in the header `Authorization: Bearer <key>`, and replace it if it is a real one."
)


class Transport(Enum):
    """What keys may travel over to this server."""

    ANYTHING = "only this machine can reach it"
    ENCRYPTED = "HTTPS on the connection itself"
    FORWARDED = "HTTPS as far as a proxy, which says so in X-Forwarded-Proto"


def token_of(authorization: list[str], query: str) -> str | None:
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


def key_for(token: str | None, sink: Sink) -> Key:
    """The live key of a token.

    Raises:
        Refused: `no_credential` or `bad_credential`.
    """
    if token is None:
        raise Refused(Reason.NO_CREDENTIAL, "authorization: is missing. Send `Authorization: Bearer <key>`.")
    key = sink.keys.find(token)
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


def check_transport(scope: Scope) -> None:
    """Raises Refused (`plain_http`) when a key travelled unencrypted to a server that is not on loopback."""
    transport: Transport = scope["state"]["transport"]
    if transport is Transport.ANYTHING or scope["scheme"] == "https":
        return
    if transport is Transport.FORWARDED:
        # All of them: a sender could have written the first, and a proxy that only appends is no proof.
        schemes = [value.strip().lower() for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and all(scheme == b"https" for scheme in schemes):
            return
    raise Refused(Reason.PLAIN_HTTP, "request: came over plain HTTP. Use https, and replace this key.")


def require_key(request: Request, *kinds: KeyKind) -> Key:
    """The key of a request to any resource but ingest, checked for its kind and its origins.

    Where a page of ours reads, its login stands for the key.
    """
    sink: Sink = request.state.sink
    check_transport(request.scope)
    token = token_of(request.headers.getlist("authorization"), request.url.query)
    key = (login_of(request) if token is None else None) or key_for(token, sink)
    request.scope["state"]["key_id"] = key.key_id
    check_kind(key, kinds)
    for origin in request.headers.getlist("origin"):
        check_origin(key, origin)
    return key


def login_of(request: Request, *, or_navigation: bool = False) -> Key | None:
    """The live key that somebody has logged in with; it reads, and never changes anything.

    Args:
        request: of a page of ours.
        or_navigation: or of a link on another site's page that leads here.
    """
    logins: Logins = request.state.logins
    if request.method not in ("GET", "HEAD") or not is_own_page(request, or_navigation=or_navigation):
        return None
    return logins.key_of(request, request.state.sink.keys)


def is_asked_here(request: Request) -> bool:
    """Whether the reader's browser went to this machine by a loopback name, and not by one of elsewhere.

    A page elsewhere may give its own host our address (DNS rebinding), and would then read what we answer.
    """
    return is_loopback(request.url.hostname or "")


def is_https(request: Request) -> bool:
    """Whether the reader's browser speaks HTTPS, with us or with the proxy before us."""
    transport: Transport = request.scope["state"]["transport"]
    return request.scope["scheme"] == "https" or transport is not Transport.ANYTHING


def is_own_page(request: Request, *, or_navigation: bool = False) -> bool:
    """Whether a page of ours makes the request, or none does: what a browser says of it (Fetch Metadata, Origin).

    Args:
        request: with a cookie that its sender may not even know of.
        or_navigation: a link on another site may lead here.
    """
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        return or_navigation and request.headers.get("sec-fetch-mode") == "navigate"
    origin = request.headers.get("origin")
    # Compared and not taken apart: anybody may send anything here, a bracket without its end among it.
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def check_own_page(request: Request) -> None:
    """Raises Refused (`wrong_origin`) for a form that a page of another site sends."""
    if not is_own_page(request):
        raise Refused(Reason.WRONG_ORIGIN, "origin: this form was sent by another site. Open it here, and send it.")
