"""Free ports for servers that are about to start, outside the ranges of other programs."""

import socket
from itertools import islice
from pathlib import Path

from bench.server import PORTS

from embedsink.demo.ports import free_port_pairs
from tests.support.servers import OWN_PORTS, OWN_PORTS_MAX

EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_distinct_and_the_next_port_is_free_too() -> None:
    ports = list(islice(free_port_pairs(11_000, 80), 10))
    assert len(set(ports)) == 10
    assert set(ports) <= set(range(11_000, 11_080, 2))


def test_a_port_in_use_and_the_port_before_it_are_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for first in (port - 4, port - 5):
            assert not {port - 1, port} & set(islice(free_port_pairs(first, 10), 12))


def test_the_ranges_of_bench_tests_and_system_do_not_overlap() -> None:
    first, count = PORTS
    assert first + count <= OWN_PORTS
    assert int(EPHEMERAL_PORTS.read_text().split()[0]) > OWN_PORTS + OWN_PORTS_MAX
