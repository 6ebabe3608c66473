"""The client address of a request, for rate limits, fair queues and the audit trail."""

import ipaddress
import re

from starlette.types import Scope

from embedsink.http.transport import Transport

# The prefix length, in bits, of the network that one household or server usually has (RFC 6177).
_IPV6_PREFIX_BITS = 64
# An address with a port, which some proxies append (RFC 7239, section 6).
_ADDRESS_WITH_PORT = re.compile(r"^(?P<address>\[.*\]|[\d.]+):\d+$")


def client_address(scope: Scope) -> str:
    """Return the client's IPv4 address, or its IPv6 network with a prefix of 64 bits.

    Behind a proxy, return the last entry of `X-Forwarded-For`, which the proxy added: the client may have forged the
    entries before it. Without that header, return the address of the proxy.
    """
    if scope["state"].get("transport") is Transport.FORWARDED:
        forwarded_for = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        if forwarded_for:
            last_entry = forwarded_for[-1].decode("latin-1").rpartition(",")[2]
            return _normalize_address(last_entry.strip())
    client = scope.get("client")
    address: str = client[0] if client else ""
    # An IPv4 address of the socket is already normalized. Parsing it would take 2 µs.
    is_ipv6 = ":" in address
    return _normalize_address(address) if is_ipv6 else address


def _normalize_address(address: str) -> str:
    """Return an address without its port and zone; "unknown" if the address is invalid.

    An IPv4 address is otherwise unchanged. An IPv4-mapped IPv6 address becomes IPv4. Any other IPv6 address becomes its
    network, because one client has a whole network.
    """
    without_port = _ADDRESS_WITH_PORT.sub(r"\g<address>", address).strip("[]")
    without_zone = without_port.partition("%")[0]
    try:
        parsed = ipaddress.ip_address(without_zone)
    except ValueError:
        return "unknown"  # All invalid addresses share one rate limit.
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_BITS), strict=False))
