"""The two sites of the demo: a host page, and the simulated embed in its iframe, each on an origin of its own.

`python -m embedsink.demo.sites DATA PORT EMBED` runs `embedsink serve` with the host page at `/demo/`; EMBED is the
origin of the embed.
"""

import json
import socket
import sys
import threading
import time
from contextlib import suppress
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
from embedsink.http.app import Demo
from embedsink.http.server import ListenOptions, serve
from embedsink.http.static_pages import Page, demo_headers, page_routes, read_pages
from embedsink.json_logging import log_as_json
from embedsink.settings import read_settings

PAGE_PATH = "/demo/"
_PAGES = Path(__file__).with_name("pages")


def origins(port: int) -> tuple[str, ...]:
    """Return the origins of the host page."""
    return (f"http://127.0.0.1:{port}", f"http://localhost:{port}")


class EmbedServer:
    """Serves the embed on loopback, in a thread. Use it as a context manager: it listens inside the block.

    Args:
        port: the port; any free one when it is in use.
        hosts: the origins whose pages may frame the embed.
    """

    def __init__(self, port: int, *, hosts: tuple[str, ...]) -> None:
        self._socket = _bind(port)
        self.origin = f"http://{HOST}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(_embed_app(hosts), log_config=None, access_log=False, server_header=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="embed", kwargs={"sockets": [self._socket]})

    def __enter__(self) -> Self:
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _bind(port: int) -> socket.socket:
    with suppress(OSError, OverflowError):
        return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


def _embed_app(hosts: tuple[str, ...]) -> Starlette:
    pages = read_pages(_PAGES / "embed", _PAGES / "shared")
    headers = demo_headers(frames="'none'", framed_by=" ".join(hosts))

    async def show(request: Request) -> Response:
        # Every embed URL (spec 4.3) gets the same page; its script reads the surface from the URL.
        is_embed = request.url.path.startswith("/embed/")
        page = pages.get("index.html" if is_embed else request.path_params["path"])
        if page is None:
            return PlainTextResponse("This page does not exist.\n", 404, headers)
        return Response(page.content, headers=headers, media_type=page.media_type)

    return Starlette(routes=[Route("/{path:path}", show)])


def run_host(data: Path, port: int, embed: str) -> int:
    """Serve the host page until SIGTERM. Return the exit code of `serve`."""
    log_as_json()
    folder = DataFolder(data)
    pages = read_pages(_PAGES / "host", _PAGES / "shared") | {"host.json": _page_settings(folder, port, embed)}
    routes = page_routes(PAGE_PATH, pages, demo_headers(frames=embed, framed_by="'none'"), loopback_only=True)
    _, login_key = KeyStore(folder.keys).create(KeyKind.READ, label="demo: dashboards", now=time.time())
    return serve(folder, read_settings(), ListenOptions(port=port), demo=Demo(routes, login_key))


def _page_settings(folder: DataFolder, port: int, embed: str) -> Page:
    """Return `host.json`: the embed's origin, and two keys with only the permissions that the page needs."""
    keys, now, own_origins = KeyStore(folder.keys), time.time(), origins(port)
    deployments = [CUSTOMER.deployment, *(one.number for one in DEPLOYMENTS)]
    _, ingest = keys.create(
        KeyKind.INGEST, deployments=deployments[:1], origins=own_origins, label="demo page: sends", now=now
    )
    _, read = keys.create(
        KeyKind.READ, deployments=deployments, origins=own_origins, label="demo page: reads reports", now=now
    )
    settings = CUSTOMER._asdict() | {"embed": embed, "ingestKey": ingest, "readKey": read}
    return Page(json.dumps(settings).encode(), "application/json")


if __name__ == "__main__":
    sys.exit(run_host(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
