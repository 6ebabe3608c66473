"""Where a request comes from, as rate limits and fair queues count it."""

import ipaddress
import re

from starlette.types import Scope

from embedsink.http.transport import Transport

# A household or a server has a network of this size, and may choose any address in it (RFC 6177).
_IPV6_PREFIX = 64
# Some proxies write the port, too (RFC 7239, section 6).
_PORT = re.compile(r"^(\[.*\]|[\d.]+):\d+$")


def client_address(scope: Scope) -> str:
    """The sender's IPv4 address, or its IPv6 network of 64 bits.

    Behind a proxy it is the last entry of `X-Forwarded-For`, which the proxy itself has added; the sender may have
    written those before it.
    """
    client = scope.get("client")
    address: str = client[0] if client else ""
    if scope["state"].get("transport") is Transport.FORWARDED:
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        if forwarded:
            address = forwarded[-1].decode("latin-1").rpartition(",")[2].strip()
            return _normal(address)
    return _normal(address) if ":" in address else address


def _normal(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(_PORT.sub(r"\1", address).strip("[]").partition("%")[0])
    except ValueError:
        return "unknown"  # All of these share one bucket.
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)
