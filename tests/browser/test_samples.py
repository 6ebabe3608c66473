"""The samples of the npm package: each is installed from the tarball, built, and opened with an embed and a server."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.sites import EMBED
from tests.browser.stage import Stage, embed_in, events_of, on_durable, paths_of
from tests.support.browser_package import INSTALL, SOURCE
from tests.support.servers import fetch, free_port, wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

# The samples that Vite builds, with the number of their forwarders: StrictMode mounts a component twice.
SAMPLES = {"vite": 1, "react-19": 2, "react-18": 2, "vue-3": 1}
# A sample that consists of another one and the files of its own folder.
BASES = {"react-18": "react-19"}
MEDIA_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
# Counts the `message` listeners of forwarders. Only these have a signal, which removes them.
COUNT_LISTENERS = """
    window.listeners = window.forwarders = 0;
    const add = window.addEventListener;
    window.addEventListener = (type, listener, options) => {
        if (type == "message" && options?.signal) {
            listeners++;
            forwarders++;
            options.signal.addEventListener("abort", () => listeners--);
        }
        return add.call(window, type, listener, options);
    };"""


def run(*command: str | Path, folder: Path, **variables: str) -> None:
    result = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def tarball(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the package, as for a release."""
    folder = tmp_path_factory.mktemp("tarball")
    run("npm", "pack", "--ignore-scripts", "--pack-destination", folder, folder=package)
    [packed] = folder.iterdir()
    return packed


@pytest.fixture(scope="module")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that copies a sample to a folder, installs its packages there, and returns the folder."""

    @cache
    def install(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        ignore = shutil.ignore_patterns("node_modules", "dist", ".next")
        for source in (BASES.get(name, name), name):
            shutil.copytree(SOURCE / "samples" / source, folder, ignore=ignore, dirs_exist_ok=True)
        run(*INSTALL, "--prefer-offline", folder=folder)
        options = ("--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit")
        run("npm", "install", *options, tarball, folder=folder)
        return folder

    return install


def open_page(stage: Stage, address: str) -> Page:
    """Open a page that counts the listeners of its forwarders."""
    context = stage.context()
    context.add_init_script(COUNT_LISTENERS)
    page = context.new_page()
    page.goto(address)
    return page


def open_sample(stage: Stage, name: str, folder: Path) -> Page:
    """Build an installed sample for this stage, add its files to the host's site, and open it."""
    # A development build: only there, StrictMode mounts each component twice.
    run(
        *("npm", "run", "build", "--", "--mode", "development", "--base", f"/{name}/"),
        folder=folder,
        NODE_ENV="development",
        VITE_EMBED_URL=f"{stage.tenant.url}/embed?session=credential-1",
        VITE_EMBEDSINK_URL=stage.gate.url,
        VITE_EMBEDSINK_KEY=stage.key,
    )
    for path in (folder / "dist").rglob("*.*"):
        url_path = f"/{name}/{path.relative_to(folder / 'dist')}".removesuffix("index.html")
        stage.host.add(url_path, path.read_text(encoding="utf-8"), Content_Type=MEDIA_TYPES[path.suffix])
    return open_page(stage, f"{stage.host.url}/{name}/")


def check_that_each_event_counts_once(stage: Stage, page: Page, *, first_number: int = 0) -> None:
    """Emit two events, hide the dashboard, and assert that the events arrived once and that no listener remains."""
    page.wait_for_selector("iframe")
    page.wait_for_function("listeners == 1")
    embed = embed_in(page)
    embed.evaluate("view('/a'); view('/b')")
    deliveries = stage.delivered(2)
    on_durable(page, 1.2)  # A second forwarder would send its events a second later.
    assert paths_of(deliveries) == ["/a", "/b"]
    assert [event["seq"] for event in events_of(deliveries)] == [first_number, first_number + 1]
    assert deliveries[0]["context"]["viewer"] == "u_42"
    page.get_by_role("button").click()
    page.wait_for_function("!document.querySelector('iframe')")
    assert page.evaluate("listeners") == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_forwards_each_event_once_until_its_dashboard_is_hidden(
    name: str, stage: Stage, installed: Callable[[str], Path]
) -> None:
    page = open_sample(stage, name, installed(name))
    check_that_each_event_counts_once(stage, page)
    assert page.evaluate("forwarders") == SAMPLES[name]


def test_a_page_that_next_renders_on_the_server_forwards_also_the_events_before_its_hydration(
    stage: Stage, installed: Callable[[str], Path]
) -> None:
    folder = installed("next")
    run("npm", "run", "build", folder=folder, NEXT_TELEMETRY_DISABLED="1")
    stage.tenant.add("/embed/dashboard/d_81f2", f"{EMBED}<script>ready(12, 'acme')</script>")
    with next_server(stage, folder) as url:
        rendered = fetch(url).body.decode()
        assert f'<iframe src="{stage.tenant.url}/embed/dashboard/d_81f2?session=credential-1"' in rendered
        page = open_page(stage, url)
        [delivery] = stage.delivered(1)
        assert [event["type"] for event in delivery["events"]] == ["svc:event:ready"]
        stage.gate.answered.clear()
        check_that_each_event_counts_once(stage, page, first_number=1)


@contextmanager
def next_server(stage: Stage, folder: Path) -> Iterator[str]:
    """Start the built sample with a key for its own origin. Yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    variables = {
        "EMBED_BASE": stage.tenant.url,
        "EMBEDSINK_URL": stage.gate.url,
        "EMBEDSINK_KEY": stage.server.key("ingest", origins=[url]),
    }
    command = ["node", "node_modules/next/dist/bin/next", "start", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, cwd=folder, env=os.environ | variables, start_new_session=True) as process:
        try:
            wait_until(lambda: is_listening(port), description="Next listens")
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("name", [*SAMPLES, "next"])
def test_the_lock_file_of_a_sample_names_no_registry(name: str) -> None:
    assert '"resolved"' not in (SOURCE / "samples" / name / "package-lock.json").read_text(encoding="utf-8")
