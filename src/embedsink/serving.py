"""`embedsink serve`: the application in uvicorn, from the first signal handler to the exit code."""

import ipaddress
import logging
import signal
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from embedsink.errors import Misconfigured
from embedsink.folder import DataFolder, FolderLock
from embedsink.http.access import Transport
from embedsink.http.app import create_app
from embedsink.http.connections import BoundedConnection
from embedsink.settings import Settings

log = logging.getLogger(__name__)

CONNECTIONS_WAITING_MAX = 2_048


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


def serve(folder: DataFolder, settings: Settings, listening: Listening) -> int:
    """Serve until SIGTERM or SIGINT; the exit code: 0, or 1 when the disk failed or the start did.

    Raises:
        Misconfigured: the address, the folder, or another server that has it open.
    """
    listening.check()
    folder.make()
    with FolderLock(folder):
        pass  # Asked before anything starts, so that a second server ends with one sentence.
    failures: list[str] = []
    server = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))

    def end_after_failure() -> None:
        failures.append("journal")
        server.should_exit = True

    app = create_app(
        folder,
        settings,
        transport=listening.transport,
        on_failed=end_after_failure,
    )
    server.config = uvicorn.Config(
        app,
        host=listening.host,
        port=listening.port,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.private_key,
        proxy_headers=False,  # http/access.py reads the one that matters
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=CONNECTIONS_WAITING_MAX,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        lifespan="on",
        http=BoundedConnection,
    )
    # uvicorn raises the signal again after a clean end; by then it has been answered.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run()
    except SystemExit:
        return 1  # uvicorn's way to say that the start failed; it has logged why
    return 0 if server.started and not failures else 1


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
