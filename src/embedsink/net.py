"""Which hosts are this machine itself, and no other can reach or be."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or its address, leads to this machine from nowhere but here."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
