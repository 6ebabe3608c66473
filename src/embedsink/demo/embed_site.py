"""The pretend embed: static pages on a port of their own, hence on another origin than the page around them."""

import sys
import threading
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from embedsink.demo.server import HOST
from embedsink.http.static_pages import Page, demo_headers, read_pages

READ_TIMEOUT_S = 10.0
_PAGES = Path(__file__).with_name("pages")
# The embed page address of spec 4.3, and the same for the other surfaces. The page reads which one it is from it.
_ADDRESS = "/embed/"


class EmbedServer:
    """Serves the pretend embed on loopback. Use it as a context manager: it listens inside, and is gone afterwards.

    Args:
        port: where it listens; any free one when that is taken.
        hosts: the origins whose pages may frame it.
    """

    def __init__(self, port: int, *, hosts: tuple[str, ...]) -> None:
        headers = demo_headers(frames="'none'", framed_by=" ".join(hosts))
        self._server = _listen(port, partial(_Answering, read_pages(_PAGES / "embed", _PAGES / "shared"), headers))
        self.origin = f"http://{HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="embed", kwargs={"poll_interval": 0.1})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    # A browser that keeps a connection open must not keep the demo from ending.
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves in the middle is no error, and the terminal belongs to the demo."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _listen(port: int, answering: "partial[_Answering]") -> ThreadingHTTPServer:
    with suppress(OSError, OverflowError):
        return _Server((HOST, port), answering)
    return _Server((HOST, 0), answering)


class _Answering(BaseHTTPRequestHandler):
    """Answers the requests of one connection from the pages in memory."""

    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT_S
    server_version = "embedsink-demo"
    sys_version = ""

    def __init__(self, pages: dict[str, Page], headers: dict[str, str], *connection: object) -> None:
        self._pages = pages
        self._headers = headers
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """A page, or 404."""
        path = urlsplit(self.path).path
        page = self._pages.get("index.html" if path.startswith(_ADDRESS) else path.removeprefix("/"))
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, Page(b"There is no such page.\n", "text/plain; charset=utf-8"))
        else:
            self._answer(HTTPStatus.OK, page)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal belongs to the demo."""

    def _answer(self, status: HTTPStatus, page: Page) -> None:
        self.send_response(status)
        for name, value in self._headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", page.media_type)
        self.send_header("Content-Length", str(len(page.content)))
        self.end_headers()
        self.wfile.write(page.content)
