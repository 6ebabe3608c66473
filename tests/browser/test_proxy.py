"""The forwarder behind nginx, with the locations and the element of docs/deployment.md."""

import getpass
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.stage import Stage, embed_in
from tests.docs.blocks import blocks
from tests.http.test_server import CERTIFICATE, PRIVATE_KEY, pem
from tests.support.programs import require
from tests.support.servers import RunningServer, free_port, running_server, wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

PAGE = "docs/deployment.md"
CONFIGURATION = """
user {user};
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    types {{ text/html html; }}
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
        root {folder};
        {locations}
    }}
}}
"""
VIEW = "view('/a')"
LOOKER_DOWNLOAD = """parent.postMessage('{"type": "dashboard:download", "fileFormat": "pdf"}', "*")"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    require("nginx")
    with running_server(tmp_path_factory.mktemp("proxied") / "data", arguments=["--behind-proxy"]) as running:
        yield running


@pytest.fixture(scope="module")
def site(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of nginx, and the folder with its HTML files."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    pem(folder, PRIVATE_KEY, CERTIFICATE)
    documented = "\n".join(block.text for block in blocks("nginx") if block.page == PAGE)
    configuration = CONFIGURATION.format(
        user=getpass.getuser(),
        folder=folder,
        port=port,
        locations=documented.replace("http://127.0.0.1:8321", server.url),
    )
    (folder / "nginx.conf").write_text(configuration, encoding="utf-8")
    process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        wait_until((folder / "nginx.pid").exists, description="nginx listens")
        yield f"https://127.0.0.1:{port}", folder
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    ("vendor", "message", "type_"), [(None, VIEW, "view"), ("looker", LOOKER_DOWNLOAD, "download")]
)
def test_the_element_forwards_through_the_proxy(
    stage: Stage, server: RunningServer, site: tuple[str, Path], vendor: str | None, message: str, type_: str
) -> None:
    url, folder = site
    [element] = [block.text for block in blocks("html") if block.page == PAGE]
    for documented, real in {
        "es_ingest_…": server.key("ingest", origins=[url]),
        "https://tenant.example.com": stage.tenant.url,
        "<script ": f'<script data-vendor="{vendor}" ' if vendor else "<script ",
    }.items():
        assert documented in element
        element = element.replace(documented, real)
    html = f'<!doctype html>{element}<iframe src="{stage.tenant.url}/embed"></iframe>'
    (folder / "page.html").write_text(html, encoding="utf-8")
    page = stage.context(ignore_https_errors=True).new_page()
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(f"{url}/page.html", wait_until="networkidle")
    with page.expect_response(f"{url}/live/in") as response:
        embed_in(page).evaluate(message)
    assert response.value.status == 202
    assert {address for address in addresses if not address.startswith((f"{url}/live/", stage.tenant.url))} <= {
        f"{url}/page.html",
        f"{url}/favicon.ico",
    }
    key = server.key("read")

    def stored_events() -> list[tuple[str, str | None]]:
        response = page.request.get(f"{url}/api/v1/events.ndjson", headers={"Authorization": f"Bearer {key}"})
        return [(row["type"], row.get("vendor")) for row in map(json.loads, response.text().splitlines())]

    wait_until(lambda: (type_, vendor) in stored_events(), description="the event is stored")
