"""Host names and addresses."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
