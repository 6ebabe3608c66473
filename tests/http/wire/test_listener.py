"""Connections that wait at the listening socket."""

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedsink.http.server import new_loop
from embedsink.http.wire import listener
from tests.http.test_server import CERTIFICATE, PRIVATE_KEY

CLIENTS = 50


@pytest.fixture
def listening_socket() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as bound:
        yield bound


def clients_of(listening_socket: socket.socket, stack: ExitStack, count: int) -> list[socket.socket]:
    address = listening_socket.getsockname()
    return [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(count)]


def test_connections_that_wait_do_not_need_an_iteration_of_the_loop_each(listening_socket: socket.socket) -> None:
    transports: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(transport)

    async def count_iterations() -> int:
        loop, count = asyncio.get_running_loop(), 0
        server = await loop.create_server(Connection, sock=listening_socket, ssl=None, backlog=CLIENTS)
        while len(transports) < CLIENTS:
            count += 1
            await asyncio.sleep(0)
        for transport in transports:
            transport.close()
        server.close()
        await server.wait_closed()
        return count

    with ExitStack() as stack, asyncio.Runner(loop_factory=new_loop) as runner:
        clients_of(listening_socket, stack, CLIENTS)
        assert runner.run(asyncio.wait_for(count_iterations(), 5)) < CLIENTS / 5


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    (tmp_path / "pem").write_text(CERTIFICATE + PRIVATE_KEY)
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.load_cert_chain(tmp_path / "pem")
    return tls_context


def test_the_oldest_handshake_is_cancelled_beyond_the_maximum_and_all_at_shutdown(
    listening_socket: socket.socket, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKES_MAX", 2)
    trusting = ssl.create_default_context(cadata=CERTIFICATE)
    received: list[Any] = []

    def ask(silent: list[socket.socket]) -> None:
        with socket.create_connection(listening_socket.getsockname(), timeout=5) as plain:
            received.extend(client.recv(1) for client in silent[:-1])
            with trusting.wrap_socket(plain, server_hostname="localhost") as connection:
                received.append(connection.recv(9))

    class Greeting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"x")
            transport.close()

    async def serve(silent: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Greeting, sock=listening_socket, ssl=context, backlog=CLIENTS)
        await asyncio.to_thread(ask, silent)
        server.close()
        await server.wait_closed()

    with ExitStack() as stack, asyncio.Runner(loop_factory=new_loop) as runner:
        silent = clients_of(listening_socket, stack, 5)  # all accepted at once
        runner.run(asyncio.wait_for(serve(silent), 5))
        assert received == [b"", b"", b"", b"", b"x"]
        assert silent[-1].recv(1) == b""


class FullListener(socket.socket):
    """A listening socket of a system that has no descriptor for the first connection."""

    is_full = True

    def accept(self) -> Any:
        if self.is_full:
            self.is_full = False
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_system_without_descriptors_delays_connections_and_loses_none() -> None:
    connected = threading.Event()

    async def connect(accepted: socket.socket) -> None:
        connected.set()
        accepted.close()

    async def accept(full: socket.socket) -> None:
        accepting = listener.Listener(full, backlog=CLIENTS, connect=connect)
        await asyncio.to_thread(connected.wait, 5)
        accepting.close()
        await accepting.wait_closed()

    with FullListener() as full, ExitStack() as stack, asyncio.Runner(loop_factory=new_loop) as runner:
        full.bind(("127.0.0.1", 0))
        full.listen(CLIENTS)
        clients_of(full, stack, 1)
        runner.run(accept(full))
    assert connected.is_set()
