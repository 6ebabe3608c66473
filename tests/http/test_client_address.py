"""The client address of a request."""

import pytest

from embedsink.http.client_address import client_address
from embedsink.http.transport import Transport


def address(client: str | None, *forwarded: str, transport: Transport = Transport.ANYTHING) -> str:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return client_address({"client": client and (client, 1), "headers": headers, "state": {"transport": transport}})


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        (None, ""),
    ],
)
def test_the_client_address_is_an_ipv4_address_or_an_ipv6_network(client: str | None, expected: str) -> None:
    assert address(client) == expected


def test_x_forwarded_for_is_ignored_without_a_proxy() -> None:
    assert address("192.0.2.7", "198.51.100.1") == "192.0.2.7"
    assert address("192.0.2.7", "198.51.100.1", transport=Transport.ENCRYPTED) == "192.0.2.7"


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["198.51.100.1"], "198.51.100.1"),
        (["10.0.0.1, 198.51.100.1"], "198.51.100.1"),
        (["10.0.0.1", "198.51.100.1"], "198.51.100.1"),
        (["10.0.0.1, [2001:db8::5]"], "2001:db8::/64"),
        (["10.0.0.1, 198.51.100.1:51234"], "198.51.100.1"),
        (["[2001:db8::5]:443"], "2001:db8::/64"),
        (["2001:db8::5"], "2001:db8::/64"),
        (["10.0.0.1, unknown"], "unknown"),
        ([""], "unknown"),
        ([], "127.0.0.1"),
    ],
)
def test_the_last_x_forwarded_for_entry_counts_behind_a_proxy(forwarded: list[str], expected: str) -> None:
    assert address("127.0.0.1", *forwarded, transport=Transport.FORWARDED) == expected
