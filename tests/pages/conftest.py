"""Debian's chromium, driven by Playwright, against the real program."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.pages.watching import Reader, log_in, reader_at
from tests.programs import require
from tests.servers import RunningServer, running_server, wait_until


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser for the tests of this folder: it lives in an event loop that others must not find running."""
    require("chromium")
    with sync_playwright() as running:
        # Sandboxes need rights that containers don't give; the pages are our own.
        launched = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for everybody: each test looks at a tenant or a session of its own."""
    with running_server(tmp_path_factory.mktemp("pages") / "data") as running:
        yield running


@pytest.fixture(scope="package")
def bundle(browser: Browser, server: RunningServer) -> Path:
    """What draws the charts: made by the first server of which a dashboard is asked, within some seconds."""
    with browser.new_context() as context:
        log_in(context, server, server.key("read"))
        assert context.request.get(f"{server.url}/dashboards/overview", max_redirects=0).status == 200
    folder = server.data / "pages"
    wait_until(lambda: any(folder.glob("vega-*.js.gz")), what="the bundle is made", timeout_s=120)
    return folder


@pytest.fixture
def reader(browser: Browser, server: RunningServer, bundle: Path) -> Iterator[Reader]:
    """A reader with a read key and no open page."""
    with reader_at(browser, server, key=server.key("read")) as one:
        yield one
