"""Checks of host names and IP addresses."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address, which only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
