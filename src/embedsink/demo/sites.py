"""The two sites of the demo: a host page, and the simulated embed in its iframe, each on its own origin.

`python -m embedsink.demo.sites DATA PORT EMBED` runs `embedsink serve` with the host page at `/demo/`. EMBED is the
origin of the embed.
"""

import json
import logging
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.demo.fixtures import CUSTOMER, DEPLOYMENTS
from embedsink.demo.ports import HOST
from embedsink.demo.static_pages import Page, demo_headers, page_routes, read_pages
from embedsink.http.app import Demo
from embedsink.http.server import ListenOptions, serve
from embedsink.json_logging import log_as_json
from embedsink.settings import read_settings

PAGE_PATH = "/demo/"
_PAGES = Path(__file__).with_name("pages")


def origins(port: int) -> tuple[str, ...]:
    """Return the origins at which a browser can open the host page."""
    return (f"http://127.0.0.1:{port}", f"http://localhost:{port}")


class EmbedServer:
    """A server of the embed on loopback, in a thread. It answers inside its `with` block.

    Args:
        port: the port to use. If it is in use, the server uses a free one.
        host_origins: the origins whose pages may frame the embed.
    """

    def __init__(self, port: int, *, host_origins: tuple[str, ...]) -> None:
        self._socket = _bind(port)
        _, bound_port = self._socket.getsockname()
        self.origin = f"http://{HOST}:{bound_port}"
        config = uvicorn.Config(_embed_app(host_origins), log_config=None, access_log=False, server_header=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="embed", kwargs={"sockets": [self._socket]})

    def __enter__(self) -> Self:
        # There is no need to wait for the thread: the socket already listens, so connections wait in its queue.
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _bind(port: int) -> socket.socket:
    """Return a listening socket on the port, or on a free port if the port is in use or above 65,535.

    The caller passes the port after the host page's port, which may be 65,535.
    """
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError):
        return socket.create_server((HOST, 0))


def _embed_app(host_origins: tuple[str, ...]) -> Starlette:
    """Return the application of the embed: one page for all embed URLs, and the files that this page loads."""
    pages = read_pages(_PAGES / "embed", _PAGES / "shared")
    headers = demo_headers(frames="'none'", framed_by=" ".join(host_origins))

    async def show(request: Request) -> Response:
        # Every embed URL (spec 4.3) has the same page. Its script reads the surface from the URL.
        is_embed_url = request.url.path.startswith("/embed/")
        name = "index.html" if is_embed_url else request.path_params["path"]
        page = pages.get(name)
        if page is None:
            return PlainTextResponse("This page does not exist.\n", 404, headers)
        return Response(page.content, headers=headers, media_type=page.media_type)

    return Starlette(routes=[Route("/{path:path}", show)])


def run_server(data: Path, port: int, embed_origin: str) -> int:
    """Run an embedsink server until SIGTERM. Return the exit code.

    The server also has the host page. Its dashboards open without a login, because they use a new read key.

    Args:
        data: the data folder.
        port: the port on loopback.
        embed_origin: the origin of the simulated embed, which the host page frames.
    """
    log_as_json(logging.INFO)
    folder = DataFolder(data)
    pages = read_pages(_PAGES / "host", _PAGES / "shared")
    pages["host.json"] = _create_page_settings(folder, port, embed_origin)
    routes = page_routes(PAGE_PATH, pages, demo_headers(frames=embed_origin, framed_by="'none'"), loopback_only=True)
    _, dashboard_token = KeyStore(folder.keys).create(KeyKind.READ, label="demo: dashboards", now=time.time())
    return serve(folder, read_settings(), ListenOptions(port=port), demo=Demo(routes, dashboard_token))


def _create_page_settings(folder: DataFolder, port: int, embed_origin: str) -> Page:
    """Create the two keys of the host page. Return them as `host.json`, with the customer and the embed's origin."""
    key_store = KeyStore(folder.keys)
    now = time.time()
    host_origins = origins(port)
    _, ingest_key = key_store.create(
        KeyKind.INGEST,
        deployments=[CUSTOMER.deployment],
        origins=host_origins,
        label="demo page: sends",
        now=now,
    )
    _, read_key = key_store.create(
        KeyKind.READ,
        # The page sends events of the customer only, but offers reports on the synthetic traffic too.
        deployments=[CUSTOMER.deployment, *(deployment.number for deployment in DEPLOYMENTS)],
        origins=host_origins,
        label="demo page: reads reports",
        now=now,
    )
    settings = CUSTOMER._asdict() | {"embed": embed_origin, "ingestKey": ingest_key, "readKey": read_key}
    return Page(json.dumps(settings).encode(), "application/json")


if __name__ == "__main__":
    sys.exit(run_server(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
