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

from embedsink.auth.identity import Login, read_identity
from embedsink.auth.key_store import KeyStore
from embedsink.data_folder import DataFolder, FolderLock
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.http.app import Demo, create_app
from embedsink.http.certificate import load_certificate, watch_certificate
from embedsink.http.transport import Transport
from embedsink.http.wire.connection_limits import HEAD_TIMEOUT_S, limited_protocol_factory
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
class ListenOptions:
    """The address to listen on, and how connections to it are encrypted."""

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

    def check_encryption(self) -> None:
        """Raise Misconfigured if other machines could send keys without encryption."""
        is_encrypted = self.certificate is not None or self.behind_proxy
        if not is_loopback(self.host) and not is_encrypted:
            raise Misconfigured(
                f"--host {self.host}: keys would be sent unencrypted. Give --certificate and --private-key, "
                "or --behind-proxy if a proxy in front of this server uses HTTPS."
            )

    def check_server_url(self, login: Login | None) -> None:
        """Raise Misconfigured if browsers can't log in at `server_url`, because its scheme is not that of this server.

        Args:
            login: the provider of logins; None without one.
        """
        if login is None:
            return
        is_https = login.server_url.startswith("https:")
        is_encrypted = self.certificate is not None or self.behind_proxy
        if is_https and not is_encrypted:
            raise Misconfigured(
                "identity.toml: login.server_url has HTTPS, but this server has not. Give --behind-proxy if a proxy in "
                "front of this server uses HTTPS, or --certificate and --private-key."
            )
        if not is_https and is_encrypted:
            raise Misconfigured("identity.toml: login.server_url has HTTP, but this server has HTTPS. Correct it.")

    def check_certificate(self) -> None:
        """Raise Misconfigured if a certificate and a private key are given, and can't be loaded."""
        if self.certificate is not None and self.private_key is not None:
            load_certificate(self.certificate, self.private_key)

    @contextmanager
    def bound_sockets(self, *, read_timeout_s: float = 60.0) -> Iterator[list[socket.socket]]:
        """Bind a socket to each local address of the host name. Clients can't connect before the server listens.

        Args:
            read_timeout_s: the time after which the system closes the connection of a client that reads nothing of a
                response.

        Raises:
            Misconfigured: the host is unknown or not local, or the port is in use or not permitted.
        """
        with ExitStack() as stack:
            try:
                sockets = self._bind_all(stack, read_timeout_s)
            except (OSError, UnicodeError) as error:  # UnicodeError: the text is not a host name.
                raise Misconfigured(self._bind_error(error)) from None
            yield sockets

    def _bind_all(self, stack: ExitStack, read_timeout_s: float) -> list[socket.socket]:
        """Bind a socket to each local address of the host name. Skip addresses of other machines.

        Raises:
            OSError: no address is local, or an address can't be bound.
        """
        results = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((family, address) for family, _, _, _, address in results)  # without duplicates
        sockets: list[socket.socket] = []
        not_local_error: OSError | None = None
        for family, address in addresses:
            try:
                sockets.append(stack.enter_context(_bind(family, address, read_timeout_s)))
            except OSError as error:
                if error.errno not in _NOT_LOCAL:
                    raise
                # For example, `localhost` resolves to an IPv6 address even if IPv6 is disabled.
                not_local_error = error
        if not_local_error is not None and not sockets:
            raise not_local_error
        return sockets

    def _bind_error(self, error: Exception) -> str:
        """Return the error message for an address that can't be bound."""
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            other_port = self.port + 1 if self.port < PORT_MAX else PORT_MAX - 1
            in_use = f"--port {self.port}: is in use. Choose another port, or stop the program that uses it."
            return f"{in_use} For example: --port {other_port}."
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "is not a host name"
        return f"--host {self.host} --port {self.port}: {cause}. Give an address of this machine, and a free port."


def serve(folder: DataFolder, settings: Settings, options: ListenOptions, *, demo: Demo | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code: 0, or 1 if the start or the disk failed.

    Args:
        folder: the data folder.
        settings: the limits.
        options: the address and its encryption.
        demo: the additions of `embedsink demo`.

    Raises:
        Misconfigured: the address, the certificate, the keys, the issuers or the folder is invalid, or another server
            has the folder open.
    """
    options.check_encryption()
    options.check_certificate()
    folder.create()
    # Check the lock, the keys and the issuers before uvicorn starts, so that a failed start prints one message.
    with FolderLock(folder):  # The engine takes the lock again.
        KeyStore(folder.keys).keys()
        options.check_server_url(read_identity(folder.identity).login)
    with options.bound_sockets(read_timeout_s=settings.read_timeout_s) as sockets:
        log.info("bound", extra={"addresses": [list(bound.getsockname()[:2]) for bound in sockets]})
        return _serve_on(sockets, folder, settings, options, demo)


def _serve_on(
    sockets: list[socket.socket], folder: DataFolder, settings: Settings, options: ListenOptions, demo: Demo | None
) -> int:
    """Run the application on bound sockets. Return the exit code."""
    has_journal_failed = False
    # `server.config` is replaced below: the application needs the server, and the configuration needs the application.
    server = _Server(uvicorn.Config(lambda: None, log_config=None))

    def stop_after_journal_failure() -> None:
        nonlocal has_journal_failed
        has_journal_failed = True
        server.should_exit = True

    app = create_app(
        folder, settings, transport=options.transport, on_journal_failure=stop_after_journal_failure, demo=demo
    )
    middleware = _StartErrorMiddleware(app)
    server.config = _uvicorn_config(middleware, settings, options)
    # After a clean shutdown, uvicorn raises the signal again. Without these handlers it would end the process.
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: None)
    try:
        server.run(sockets=sockets)
    except SystemExit:  # uvicorn raises SystemExit if the start fails.
        if middleware.start_error is None:
            return 1
    if middleware.start_error is not None:
        raise middleware.start_error
    return 0 if server.started and not has_journal_failed else 1


def _uvicorn_config(app: "_StartErrorMiddleware", settings: Settings, options: ListenOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
        proxy_headers=False,  # client_address.py and transport.py read the headers that a proxy adds.
        log_config=None,
        access_log=False,
        server_header=False,
        headers=_common_headers(settings, options),
        backlog=CONNECTIONS_WAITING_MAX,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        lifespan="on",
        ws="none",
        loop="embedsink.http.server:new_loop",
        http=limited_protocol_factory(  # type: ignore[arg-type]
            connections_max=connections_max(settings),
            # A body in chunks of one byte is six times as large when encoded. Allow some more bytes for the head.
            request_bytes_max=8 * settings.body_bytes_max,
        ),
    )


def _common_headers(settings: Settings, options: ListenOptions) -> list[tuple[str, str]]:
    """Return the headers of all responses: HSTS if clients use HTTPS (RFC 6797). Browsers ignore it over plain HTTP."""
    if options.transport is Transport.ANYTHING and options.certificate is None:
        return []
    return [("Strict-Transport-Security", f"max-age={settings.hsts_max_age_s}")]


class _StartErrorMiddleware:
    """ASGI middleware that stores the error of a failed start. uvicorn would log it with a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.start_error: EmbedsinkError | None = None

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        if scope["type"] != "lifespan":
            return self._app(scope, receive, send)
        return self._run_lifespan(scope, receive, send)

    async def _run_lifespan(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the start and the shutdown of the application. Store an expected error, and log a bug."""

        async def send_without_traceback(message: dict[str, Any]) -> None:
            if "message" in message:  # the traceback from Starlette, which uvicorn would log
                message = {**message, "message": ""}
            await send(message)

        try:
            await self._app(scope, receive, send_without_traceback)
        except EmbedsinkError as error:
            self.start_error = error
        except Exception as error:
            log.error("bug", exc_info=error)
            raise


class _Server(uvicorn.Server):
    """uvicorn's server, except that a shutdown ends live streams, and that a changed certificate is loaded."""

    _certificate_watch: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        certificate, private_key = self.config.ssl_certfile, self.config.ssl_keyfile
        if self.config.ssl is not None and certificate is not None and private_key is not None:
            self._certificate_watch = asyncio.create_task(
                watch_certificate(self.config.ssl, Path(certificate), Path(private_key))
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Live streams don't end on their own, and would delay the shutdown until its timeout.
        self.lifespan.state["engine"].load_notifier.close()
        if self._certificate_watch is not None:
            self._certificate_watch.cancel()
        await super().shutdown(sockets)


class _EventLoop(uvloop.Loop):
    """uvloop's event loop, with a listener that accepts connections in batches."""

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, *, sock: socket.socket, ssl: ssl.SSLContext | None, backlog: int
    ) -> Listener:
        """Listen on a bound socket, and accept connections in batches. uvicorn calls this with these arguments."""
        # uvloop's default timeout of a TLS handshake is a minute. Use the timeout of a request head.
        options: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_TIMEOUT_S} if ssl else {}
        connect = partial(self.connect_accepted_socket, protocol_factory, **options)
        return Listener(sock, backlog=backlog, connect=connect)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the server. `uvicorn.Config(loop=…)` takes the name of this function."""
    return _EventLoop()


def connections_max(settings: Settings) -> int:
    """Return the number of connections that the settings and the limit of file descriptors allow.

    First raise that limit, as far as the system permits, if it is too low for the settings.
    """
    required = settings.connections_max + _DESCRIPTORS_RESERVED
    descriptors, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors < required:
        descriptors = required if hard_limit == resource.RLIM_INFINITY else min(required, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard_limit))
    if descriptors < required:
        log.warning(
            "few_descriptors",
            extra={"detail": f"ulimit -n: is {descriptors:,}, and {required:,} are needed. Raise it."},
        )
    # With too few descriptors, still accept one connection, so that the server can answer.
    return max(1, min(settings.connections_max, descriptors - _DESCRIPTORS_RESERVED))


def _bind(family: int, address: Any, read_timeout_s: float) -> socket.socket:
    """Return a socket that is bound to an address. Its options apply to all accepted connections."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a separate socket.
        if sys.platform == "linux":
            # Only the kernel can detect that a client reads nothing of the data in the kernel's buffer.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(read_timeout_s * 1_000))
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
