"""How a request reached the server: its encryption, and the site of the page that sent it."""

import ipaddress
from enum import Enum

from starlette.requests import Request
from starlette.types import Scope

from embedsink.errors import Misconfigured, Refused
from embedsink.net import is_loopback
from embedsink.reasons import Reason


class Transport(Enum):
    """The connections over which this server accepts keys."""

    ANYTHING = "any connection, because only this machine can reach the server"
    ENCRYPTED = "HTTPS"
    FORWARDED = "HTTPS to a proxy that sets X-Forwarded-Proto"


ProxyNetworks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def parse_networks(addresses: str) -> ProxyNetworks | None:
    """Return the networks in `EMBEDSINK_PROXY_ADDRESSES`; None for any address.

    Raises:
        Misconfigured: an entry is neither an address nor a network.
    """
    if addresses == "any":
        return None
    try:
        return tuple(map(ipaddress.ip_network, addresses.split()))
    except ValueError as error:
        raise Misconfigured(
            f"EMBEDSINK_PROXY_ADDRESSES: {error}. Write addresses or networks, such as 10.0.0.5 or 10.0.0.0/8."
        ) from None


def connection_transport(transport: Transport, proxies: ProxyNetworks | None, address: str) -> Transport:
    """Return the transport for a connection from this address. Only a trusted proxy may state how a request came."""
    if transport is not Transport.FORWARDED or proxies is None:
        return transport
    parsed_address = ipaddress.ip_address(address.partition("%")[0])  # without the zone
    is_trusted = any(parsed_address in network for network in proxies)
    return transport if is_trusted else Transport.ENCRYPTED


def check_transport(scope: Scope) -> None:
    """Raise Refused (`plain_http`) for an unencrypted request to a server that other machines can reach."""
    transport: Transport = scope["state"]["transport"]
    if transport is Transport.ANYTHING or scope["scheme"] == "https":
        return
    if transport is Transport.FORWARDED:
        # All values must match: the client may have sent the first, and some proxies only append.
        schemes = [value.strip().lower() for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and all(scheme == b"https" for scheme in schemes):
            return
    raise Refused(Reason.PLAIN_HTTP, "request: was sent over plain HTTP. Use HTTPS, and replace this key.")


def is_loopback_host(request: Request) -> bool:
    """Return whether the URL has a loopback host, such as localhost.

    This check prevents DNS rebinding, by which a page of another host could read the response.
    """
    return is_loopback(request.url.hostname or "")


def is_https(request: Request) -> bool:
    """Return whether the browser uses HTTPS, to this server or to a proxy in front of it."""
    transport: Transport = request.scope["state"]["transport"]
    # With any other transport, the server refuses plain HTTP, so a proxy has received this request over HTTPS.
    return request.scope["scheme"] == "https" or transport is not Transport.ANYTHING


def is_own_page(request: Request, *, allow_cross_site_navigation: bool = False) -> bool:
    """Return whether a page of this server, or no page, sent the request, according to Fetch Metadata and `Origin`.

    Args:
        request: a request with a cookie. The cookie is no proof: browsers also send it for pages of other sites.
        allow_cross_site_navigation: whether to accept a link on a page of another site.
    """
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):  # None: an older browser. "none": the address bar.
        return allow_cross_site_navigation and request.headers.get("sec-fetch-mode") == "navigate"
    origin = request.headers.get("origin")  # Older browsers send no Fetch Metadata, but send this with a form.
    if origin is None:
        return True
    # Compare text without parsing it, because parsing fails on some values that a client may send.
    origin_host = origin.partition("://")[2]
    return origin_host == request.headers.get("host")


def check_own_page(request: Request) -> None:
    """Raise Refused (`wrong_origin`) if a page of another site sent the form."""
    if not is_own_page(request):
        raise Refused(
            Reason.WRONG_ORIGIN,
            "origin: a page of another site sent this form. Open the form on this server, and send it again.",
        )
