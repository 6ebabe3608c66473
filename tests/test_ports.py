"""Ports for servers that are about to start: free ones, and none that somebody else may get meanwhile."""

import socket
from itertools import islice
from pathlib import Path

from bench.server import PORTS

from embedsink.demo.ports import free_ports
from tests.servers import OWN_PORTS, OWN_PORTS_MAX

SYSTEMS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_each_is_another_and_leaves_room_for_one_beside_it() -> None:
    told = list(islice(free_ports(11_000, 80), 10))
    assert len(set(told)) == 10
    assert set(told) <= set(range(11_000, 11_080, 2))


def test_one_that_is_taken_is_left_out_and_so_is_the_one_before_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for first in (port - 4, port - 5):
            assert not {port - 1, port} & set(islice(free_ports(first, 10), 12))


def test_none_is_one_that_the_system_hands_out_or_that_another_takes() -> None:
    first, count = PORTS
    assert first + count <= OWN_PORTS
    assert int(SYSTEMS_OWN.read_text().split()[0]) > OWN_PORTS + OWN_PORTS_MAX
