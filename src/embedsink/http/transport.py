"""How a request reached the server: transport encryption, and which site its page belongs to."""

from enum import Enum

from starlette.requests import Request
from starlette.types import Scope

from embedsink.errors import Refused
from embedsink.net import is_loopback
from embedsink.reasons import Reason


class Transport(Enum):
    """What keys may travel over to this server."""

    ANYTHING = "only this machine can reach it"
    ENCRYPTED = "HTTPS on the connection itself"
    FORWARDED = "HTTPS as far as a proxy, which says so in X-Forwarded-Proto"


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


def is_loopback_host(request: Request) -> bool:
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
