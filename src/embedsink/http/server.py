"""The server: the application in uvicorn, with its sockets, signals and exit code."""

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
# Descriptors of the journal, the store, snapshots and reports, and of pending connections.
_DESCRIPTORS_RESERVED = 96 + HANDSHAKES_MAX
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
_NOT_LOCAL = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Listening:
    """The address to listen on, and its encryption."""

    host: str = "127.0.0.1"
    port: int = 8321
    certificate: Path | None = None
    private_key: Path | None = None
    behind_proxy: bool = False

    @property
    def transport(self) -> Transport:
        """The connections over which keys are accepted."""
        if self.behind_proxy:
            return Transport.FORWARDED
        return Transport.ANYTHING if is_loopback(self.host) else Transport.ENCRYPTED

    def check(self) -> None:
        """Raise Misconfigured for an address beyond loopback without encryption."""
        if not (is_loopback(self.host) or self.certificate or self.behind_proxy):
            raise Misconfigured(
                f"--host {self.host}: keys would be sent unencrypted. Give --certificate and --private-key, "
                "or --behind-proxy if a proxy in front of this server uses HTTPS."
            )

    def check_certificate(self) -> None:
        """Raise Misconfigured unless certificate and private key can be read and match."""
        if self.certificate is None or self.private_key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certificate, self.private_key, password=self._refuse_password
            )
        except OSError as error:  # Includes SSLError.
            cause = (
                error.strerror if error.errno and not isinstance(error, ssl.SSLError) else "not a matching pair in PEM"
            )
            raise Misconfigured(
                f"--certificate {self.certificate} --private-key {self.private_key}: {cause}. "
                "Give a certificate and its private key, each in PEM."
            ) from None

    def _refuse_password(self) -> str:
        # A server that restarts automatically can't ask for a password.
        raise Misconfigured(f"--private-key {self.private_key}: is encrypted. Decrypt it: `openssl pkey -in … -out …`.")

    @contextmanager
    def bound(self, *, read_timeout_s: float = 60.0) -> Iterator[list[socket.socket]]:
        """Bind a socket to each local address of the host name. Clients can't connect before the server listens.

        Args:
            read_timeout_s: the maximum time without progress of a client that reads a response. Then the system closes
                the connection.

        Raises:
            Misconfigured: the host is unknown or not local, or the port is in use or not permitted.
        """
        with ExitStack() as stack:
            try:
                sockets = self._bind_all(stack, read_timeout_s)
            except (OSError, UnicodeError) as error:
                raise Misconfigured(self._bind_error(error)) from None
            yield sockets

    def _bind_all(self, stack: ExitStack, read_timeout_s: float) -> list[socket.socket]:
        addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in addresses):
            try:
                sockets.append(stack.enter_context(_bound(family, address, read_timeout_s)))
            except OSError as error:
                if error.errno not in _NOT_LOCAL:
                    raise
                missing = error  # `localhost` resolves to an IPv6 address even if IPv6 is disabled.
        if missing and not sockets:
            raise missing
        return sockets

    def _bind_error(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            in_use = f"--port {self.port}: is in use. Choose another port, or stop the program that uses it."
            return f"{in_use} For example: --port {self.port + 1 if self.port < PORT_MAX else PORT_MAX - 1}."
        cause = (error.strerror if isinstance(error, OSError) else None) or "is not a host name"
        return f"--host {self.host} --port {self.port}: {cause}. Give an address of this machine, and a free port."


def serve(folder: DataFolder, settings: Settings, listening: Listening, *, demo: Demo | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code: 0, or 1 if the start or the disk failed.

    Args:
        folder: the data folder.
        settings: the limits.
        listening: the address and its encryption.
        demo: the additions of `embedsink demo`.

    Raises:
        Misconfigured: the address, the certificate, the keys or the folder is invalid, or another server has it open.
    """
    listening.check()
    listening.check_certificate()
    folder.create()
    # Checked first, so that a failed start prints one message.
    with FolderLock(folder):
        KeyStore(folder.keys).keys()
    with listening.bound(read_timeout_s=settings.read_timeout_s) as sockets:
        log.info("bound", extra={"addresses": [list(bound.getsockname()[:2]) for bound in sockets]})
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
        create_app(folder, settings, transport=listening.transport, on_journal_failure=end_after_failure, demo=demo)
    )
    server.config = _config(app, settings, listening)
    # uvicorn raises the signal again after a clean shutdown, when it has been handled.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=sockets)
    except SystemExit:  # uvicorn raises this if the start fails.
        if app.failure is None:
            return 1
    if app.failure is not None:
        raise app.failure
    return 0 if server.started and not failures else 1


def _config(app: "_Startup", settings: Settings, listening: Listening) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.private_key,
        proxy_headers=False,  # client_address.py and transport.py read the headers that a proxy adds.
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


class _Startup:
    """Wraps the application, and stores the error of a failed start. uvicorn would log a traceback."""

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
        # Live streams don't end on their own, and would delay the shutdown until its timeout.
        self.lifespan.state["engine"].load_notifier.close()
        await super().shutdown(sockets)


class _Loop(uvloop.Loop):
    async def create_server(  # type: ignore[override]  # as uvicorn calls it
        self, protocol_factory: Any, *, sock: socket.socket, ssl: ssl.SSLContext | None, backlog: int
    ) -> Listener:
        # uvloop's default is a minute. The handshake has the timeout of a head.
        options: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_TIMEOUT_S} if ssl else {}
        connect = partial(self.connect_accepted_socket, protocol_factory, **options)
        return Listener(sock, backlog=backlog, connect=connect)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, for `uvicorn.Config(loop=…)`, which needs the name of a function."""
    return _Loop()


def connections_max(settings: Settings) -> int:
    """Return the maximum number of connections: the setting, or fewer if the system has too few descriptors."""
    wanted = settings.connections_max + _DESCRIPTORS_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        log.warning(
            "few_descriptors", extra={"detail": f"ulimit -n: is {soft:,}, and {wanted:,} are needed. Raise it."}
        )
    return max(1, min(settings.connections_max, soft - _DESCRIPTORS_RESERVED))


def _bound(family: int, address: Any, read_timeout_s: float) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a separate socket.
        if sys.platform == "linux":
            # Inherited by every connection. A server can't detect that a client stops reading while the kernel buffers.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(read_timeout_s * 1_000))
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
