"""The client address of a request, for rate limits and fair queues."""

import ipaddress
import re

from starlette.types import Scope

from embedsink.http.transport import Transport

# One household or server usually has a whole network of this size (RFC 6177).
_IPV6_PREFIX = 64
# Some proxies append the port (RFC 7239, section 6).
_PORT = re.compile(r"^(\[.*\]|[\d.]+):\d+$")


def client_address(scope: Scope) -> str:
    """Return the client's IPv4 address, or its IPv6 network with a prefix of 64 bits.

    Behind a proxy this is the last entry of `X-Forwarded-For`. The proxy added it; the client may have forged the
    entries before it. Without the header it is the address of the proxy.
    """
    client = scope.get("client")
    address: str = client[0] if client else ""
    if scope["state"].get("transport") is Transport.FORWARDED:
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        if forwarded:
            return _normalize(forwarded[-1].decode("latin-1").rpartition(",")[2].strip())
    # An IPv4 address of the socket is in its usual form already. Parsing it would take 2 µs.
    return _normalize(address) if ":" in address else address


def _normalize(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(_PORT.sub(r"\1", address).strip("[]").partition("%")[0])
    except ValueError:
        return "unknown"  # All of these share one bucket.
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)
