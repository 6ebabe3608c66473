"""Fixtures of the page tests: Chromium, driven by Playwright, and a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.pages.watching import Reader, log_in, reader_at
from tests.support.chromium import ARGUMENTS, PROGRAM
from tests.support.programs import require
from tests.support.servers import RunningServer, running_server, wait_until


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start a browser for this folder only, because its running event loop would disturb tests of other folders."""
    require("chromium")
    with sync_playwright() as running:
        launched = running.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server that all tests share. Each test uses its own tenant or session."""
    with running_server(tmp_path_factory.mktemp("pages") / "data") as running:
        yield running


@pytest.fixture(scope="package")
def bundle(browser: Browser, server: RunningServer) -> Path:
    """Return the bundle that draws the charts. A server builds it at the first request of a dashboard."""
    with browser.new_context() as context:
        log_in(context, server, server.key("read"))
        assert context.request.get(f"{server.url}/dashboards/overview", max_redirects=0).status == 200
    folder = server.data / "pages"
    wait_until(lambda: any(folder.glob("vega-*.js.gz")), description="the bundle is built", timeout_s=120)
    return folder


@pytest.fixture
def reader(browser: Browser, server: RunningServer, bundle: Path) -> Iterator[Reader]:
    """Yield a reader with a read key and no open page."""
    with reader_at(browser, server, key=server.key("read")) as opened_reader:
        yield opened_reader
