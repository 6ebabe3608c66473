"""A logged-in browser that records every error on its page."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from tests.support.servers import RunningServer

DASHBOARDS = ("overview", "content", "exports", "ai-questions", "reliability", "tenants", "pipeline")
# Animations take processor time, and no test of these pages looks at them.
_CONTEXT = {"viewport": {"width": 1440, "height": 900}, "locale": "en-GB", "reduced_motion": "reduce"}
# No tile is pending. A chart gets its label when it is drawn.
_IS_SHOWN = """() => document.querySelectorAll('[aria-busy="true"]').length === 0
  && [...document.querySelectorAll('[data-body]')].every((body) =>
    body.querySelector('.plot[aria-label], table, .empty'))"""
# The page receives violations, and passes them to the test.
_TELL_VIOLATIONS = """addEventListener('securitypolicyviolation', (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"""


class Reader:
    """One page of one browser, in a context of its own."""

    def __init__(self, page: Page, server: RunningServer) -> None:
        self.page = page
        self.server = server
        self.troubles: list[str] = []
        page.add_init_script(_TELL_VIOLATIONS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.troubles.append(f"thrown: {error}"))

    def give(self, key: str) -> None:
        """Fill in the form of the login, and send it."""
        self.page.fill('input[name="key"]', key)
        self.page.click("button.primary")

    def open(self, name: str, query: str = "") -> None:
        """Open a dashboard, and wait until all tiles are shown."""
        self.page.goto(f"{self.server.url}/dashboards/{name}{query}")
        self.wait_until_shown()

    def wait_until_shown(self, *, timeout_s: float = 30.0) -> None:
        """Wait until no tile is pending."""
        self.wait(lambda: self.page.evaluate(_IS_SHOWN), "all tiles are shown", timeout_s=timeout_s)

    def wait(self, condition: Callable[[], Any], description: str, *, timeout_s: float = 30.0) -> None:
        """Wait until a condition is true. The page's policy forbids the script of Playwright's own waiting."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"still not so: {description}; {self.troubles}"
            self.page.wait_for_timeout(50)

    def number(self, tile: str) -> str:
        """Return the text of a tile with a number."""
        return self.page.inner_text(f'[data-tile="{tile}"] [data-value]')

    def texts(self, tile: str) -> list[list[str]]:
        """Return the rows of a tile's table."""
        rows = self.page.query_selector_all(f'[data-tile="{tile}"] tbody tr')
        return [[cell.inner_text() for cell in row.query_selector_all("td")] for row in rows]

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(message.text)


def log_in(context: BrowserContext, server: RunningServer, key: str) -> None:
    """Log in as the form does, without a page."""
    response = context.request.post(f"{server.url}/login", form={"key": key}, max_redirects=0)
    assert response.status == 303, response.text()


def seem_hidden(page: Page, is_hidden: bool) -> None:
    """Pretend that the tab is hidden, or visible again, because a headless browser shows all tabs."""
    page.evaluate(
        """is => {
          Object.defineProperty(document, 'hidden', {get: () => is, configurable: true});
          document.dispatchEvent(new Event('visibilitychange'));
        }""",
        is_hidden,
    )


@contextmanager
def reader_at(browser: Browser, server: RunningServer, *, key: str = "", **options: Any) -> Iterator[Reader]:
    """Yield a reader, logged in with the key if there is one. Assert at the end that its page had no errors."""
    context = browser.new_context(**(_CONTEXT | options))
    try:
        if key:
            log_in(context, server, key)
        reader = Reader(context.new_page(), server)
        yield reader
        assert reader.troubles == []
    finally:
        context.close()
