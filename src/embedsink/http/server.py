"""`embedsink serve`: the application in uvicorn, from the first signal handler to the exit code."""

import asyncio
import errno
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from embedsink.auth.key_store import KeyStore
from embedsink.data_folder import DataFolder, FolderLock
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.http.app import Demo, create_app
from embedsink.http.transport import Transport
from embedsink.http.wire.connection_limits import HEAD_TIMEOUT_S, limited_connections
from embedsink.http.wire.listener import HANDSHAKES_MAX, Listener
from embedsink.net import is_loopback
from embedsink.settings import Settings

log = logging.getLogger(__name__)

CONNECTIONS_WAITING_MAX = 2_048
PORT_MAX = 65_535
# For journal, store, snapshots and reports; and for connections that are not made yet.
_DESCRIPTORS_RESERVED = 96 + HANDSHAKES_MAX
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and how keys get there safely."""

    host: str = "127.0.0.1"
    port: int = 8321
    certificate: Path | None = None
    private_key: Path | None = None
    behind_proxy: bool = False

    @property
    def transport(self) -> Transport:
        """What keys may travel over to here."""
        if self.behind_proxy:
            return Transport.FORWARDED
        return Transport.ANYTHING if is_loopback(self.host) else Transport.ENCRYPTED

    def check(self) -> None:
        """Raises Misconfigured for an address beyond loopback without encryption."""
        if not (is_loopback(self.host) or self.certificate or self.behind_proxy):
            raise Misconfigured(
                f"--host {self.host}: keys would travel unencrypted. Give --certificate and --private-key, "
                "or --behind-proxy when a proxy that speaks HTTPS stands before this server."
            )

    def check_certificate(self) -> None:
        """Raises Misconfigured unless certificate and private key can be read, and belong together."""
        if self.certificate is None or self.private_key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, self.private_key, password=self._refuse_password
            )
        except OSError as error:  # SSLError is one
            seen = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else "no such pair in PEM"
            raise Misconfigured(
                f"--certificate {self.certificate} --private-key {self.private_key}: {seen}. "
                "Give a certificate and the private key that belongs to it, each in PEM."
            ) from None

    def _refuse_password(self) -> str:
        # A server that starts again by itself has nobody to ask.
        raise Misconfigured(f"--private-key {self.private_key}: is encrypted. Decrypt it: `openssl pkey -in … -out …`.")

    @contextmanager
    def bound(self, *, read_timeout_s: float = 60.0) -> Iterator[list[socket.socket]]:
        """The sockets of every address that the host name has here, bound; nobody can connect before they listen.

        Args:
            read_timeout_s: the longest pause of whoever reads an answer; then the system cuts the connection.

        Raises:
            Misconfigured: the host is unknown or elsewhere, or the port is taken or not ours to take.
        """
        with ExitStack() as stack:
            try:
                sockets = self._bind_all(stack, read_timeout_s)
            except (OSError, UnicodeError) as error:
                raise Misconfigured(self._why_not(error)) from None
            yield sockets

    def _bind_all(self, stack: ExitStack, read_timeout_s: float) -> list[socket.socket]:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            try:
                sockets.append(stack.enter_context(_bound(family, address, read_timeout_s)))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error  # `localhost` has an IPv6 address also where IPv6 is switched off.
        if missing and not sockets:
            raise missing
        return sockets

    def _why_not(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            chosen = f"--port {self.port}: is in use. Choose another, or stop what listens there."
            return f"{chosen} For example: --port {self.port + 1 if self.port < PORT_MAX else PORT_MAX - 1}."
        seen = (error.strerror if isinstance(error, OSError) else None) or "is no name of a host"
        return (
            f"--host {self.host} --port {self.port}: {seen}. Name an address of this machine, and a port that is free."
        )


def serve(folder: DataFolder, settings: Settings, listening: Listening, *, demo: Demo | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code: 0, or 1 when the disk failed or the start did.

    Args:
        folder: the data folder.
        settings: the limits.
        listening: where.
        demo: what only a demo has.

    Raises:
        Misconfigured: the address, the certificate, the keys, the folder, or another server that has it open.
    """
    listening.check()
    listening.check_certificate()
    folder.make()
    # Asked before anything is opened, so that a start that can't succeed ends with one sentence.
    with FolderLock(folder):
        KeyStore(folder.keys).keys()
    with listening.bound(read_timeout_s=settings.read_timeout_s) as sockets:
        log.info("bound", extra={"addresses": [list(one.getsockname()[:2]) for one in sockets]})
        return _serve_on(sockets, folder, settings, listening, demo)


def _serve_on(
    sockets: list[socket.socket], folder: DataFolder, settings: Settings, listening: Listening, demo: Demo | None
) -> int:
    failures: list[str] = []
    server = _Server(uvicorn.Config(lambda: None, log_config=None))

    def end_after_failure() -> None:
        failures.append("journal")
        server.should_exit = True

    app = _Startup(
        create_app(
            folder,
            settings,
            transport=listening.transport,
            on_failed=end_after_failure,
            demo=demo,
        )
    )
    server.config = uvicorn.Config(
        app,
        interface="asgi3",
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.private_key,
        proxy_headers=False,  # http/access.py reads the one that matters
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=CONNECTIONS_WAITING_MAX,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        lifespan="on",
        ws="none",
        loop="embedsink.http.server:new_loop",
        http=limited_connections(  # type: ignore[arg-type]
            connections_max=connections_max(settings),
            request_bytes_max=8 * settings.body_bytes_max,
        ),
    )
    # uvicorn raises the signal again after a clean end; by then it has been answered.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=sockets)
    except SystemExit:  # uvicorn's way to say that the start failed
        if app.failure is None:
            return 1
    if app.failure is not None:
        raise app.failure
    return 0 if server.started and not failures else 1


class _Startup:
    """Passes everything on to the application, and keeps why it refused to start: uvicorn would log a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: EmbedsinkError | None = None

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        if scope["type"] != "lifespan":
            return self._app(scope, receive, send)
        return self._live(scope, receive, send)

    async def _live(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_without_traceback(message: dict[str, Any]) -> None:
            await send({**message, "message": ""} if "message" in message else message)

        try:
            await self._app(scope, receive, send_without_traceback)
        except EmbedsinkError as error:
            self.failure = error
        except Exception as error:
            log.error("bug", exc_info=error)
            raise


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Live streams have no end of their own, and would keep the server until its patience ends.
        self.lifespan.state["engine"].load_notifier.close()
        await super().shutdown(sockets)


class _Loop(uvloop.Loop):
    async def create_server(  # type: ignore[override]  # as uvicorn calls it
        self, protocol_factory: Any, *, sock: socket.socket, ssl: ssl.SSLContext | None, backlog: int
    ) -> Listener:
        # uvloop gives a sender a minute for the handshake; it is a part of the head.
        options: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_TIMEOUT_S} if ssl else {}
        connect = partial(self.connect_accepted_socket, protocol_factory, **options)
        return Listener(sock, backlog=backlog, connect=connect)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop; `uvicorn.Config(loop=…)` takes it by name."""
    return _Loop()


def connections_max(settings: Settings) -> int:
    """As many as the settings say, or as the system has descriptors for beside those of journal and store."""
    wanted = settings.connections_max + _DESCRIPTORS_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        log.warning("few_descriptors", extra={"detail": f"ulimit -n is {soft:,}, {wanted:,} were wanted. Raise it."})
    return max(1, min(settings.connections_max, soft - _DESCRIPTORS_RESERVED))


def _bound(family: int, address: Any, read_timeout_s: float) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # Its IPv4 twin has a socket of its own.
        if sys.platform == "linux":
            # Inherited by every connection. No server can see that a reader has stopped while the kernel still buffers.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(read_timeout_s * 1_000))
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
