"""The demo's server: `embedsink serve`, and beside its own addresses a pretend customer's page at `/demo/`.

`python -m embedsink.demo.host_site DATA PORT EMBED`, where EMBED is the origin of the pretend embed.
"""

import json
import sys
import time
from pathlib import Path

from embedsink.auth.key import KeyKind
from embedsink.auth.key_store import KeyStore
from embedsink.data_folder import DataFolder
from embedsink.demo.fixtures import CUSTOMER, DEPLOYMENTS
from embedsink.demo.sites import PAGE_PATH, origins
from embedsink.http.app import Demo
from embedsink.http.server import Listening, serve
from embedsink.http.static_pages import Page, demo_headers, page_routes, read_pages
from embedsink.json_logging import log_as_json
from embedsink.settings import read_settings

_PAGES = Path(__file__).with_name("pages")


def main(data: Path, port: int, embed: str) -> int:
    """Serve until SIGTERM; the exit code of `serve`."""
    log_as_json()
    folder = DataFolder(data)
    pages = read_pages(_PAGES / "host", _PAGES / "shared") | {"host.json": _knowledge(folder, port, embed)}
    routes = page_routes(PAGE_PATH, pages, demo_headers(frames=embed, framed_by="'none'"), loopback_only=True)
    _, opened_with = KeyStore(folder.keys).create(KeyKind.READ, label="demo: dashboards", now=time.time())
    return serve(folder, read_settings(), Listening(port=port), demo=Demo(routes, opened_with))


def _knowledge(folder: DataFolder, port: int, embed: str) -> Page:
    """What the page is told: two keys of its own, which can do no more than it needs, and where the embed is."""
    file, now = KeyStore(folder.keys), time.time()
    _, ingest = file.create(
        KeyKind.INGEST, deployments=[CUSTOMER.deployment], origins=origins(port), label="demo page: sends", now=now
    )
    _, read = file.create(
        KeyKind.READ,
        deployments=[CUSTOMER.deployment, *(one.number for one in DEPLOYMENTS)],
        origins=origins(port),
        label="demo page: reads reports",
        now=now,
    )
    told = {
        "embed": embed,
        "ingestKey": ingest,
        "readKey": read,
        "deployment": CUSTOMER.deployment,
        "tenant": CUSTOMER.tenant,
        "viewer": CUSTOMER.viewer,
    }
    return Page(json.dumps(told).encode(), "application/json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
