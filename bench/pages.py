"""Dashboards in a real browser over millions of events: how soon the first paint is there, and how soon all tiles are.

Each visit is a first one, by a browser that has kept nothing, and sees days that nobody has asked for before.
"""

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.reports import ENDS_AT, fill_elsewhere
from bench.server import Server, fresh_folder, serving_on
from embedsink.dashboards.files import read_dashboards

FIRST_PAINT_MS_MAX = 1_000
ALL_TILES_MS_MAX = 2_000
READY_TIMEOUT_S = 180
SHOWN_TIMEOUT_S = 60
# A chart has its label when it is drawn; a tile that waits says so. The page tells by itself when it changes: asking it
# again and again would take a tenth of the time that is measured.
_SHOWN_AT = """(timeoutMs) => new Promise((resolve) => {
  const isShown = () => document.querySelector('[data-body]') !== null
    && document.querySelector('[aria-busy="true"]') === null
    && [...document.querySelectorAll('[data-body]')].every((body) =>
      body.querySelector('.plot[aria-label], table, .empty'));
  const look = () => { if (isShown()) { resolve(performance.now()); observer.disconnect(); } };
  const observer = new MutationObserver(look);
  observer.observe(document, { subtree: true, childList: true, attributes: true });
  setTimeout(() => resolve(null), timeoutMs);
  look();
})"""
_FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(*, event_count: int, days: int, rounds: int, root: Path) -> list[Finding]:
    """Milliseconds from a click on a link, for each dashboard, over so many days."""
    program = shutil.which("chromium")
    if program is None:
        raise BenchError("pages: chromium was not found. Install it (Debian: apt-get install chromium).")
    with fresh_folder(root) as folder:
        fill_elsewhere(folder.store, event_count)
        with serving_on(folder) as server, sync_playwright() as playwright:
            # The first snapshot copies the whole store, and the program that draws is made at the first visit.
            _wait_until_published(folder.snapshot)
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            _visit(browser, server, "overview", _period(days, days_ago=0))
            periods = [_period(days, days_ago=number) for number in range(1, rounds + 1)]
            findings = [found for name in read_dashboards() for found in _measure(browser, server, name, periods)]
            browser.close()
    return findings


def _period(days: int, *, days_ago: int) -> str:
    until = ENDS_AT.date() - timedelta(days=days_ago)
    return f"since={until - timedelta(days=days)}&until={until}"


def _measure(browser: Browser, server: Server, name: str, periods: list[str]) -> Iterator[Finding]:
    visits = [_visit(browser, server, name, period) for period in periods]
    for what, values, at_most in zip(
        ("first paint", "all tiles"), zip(*visits, strict=True), (FIRST_PAINT_MS_MAX, ALL_TILES_MS_MAX), strict=True
    ):
        yield Finding(f"{name}, {what}", median(values), "ms", list(values), Goal(at_most=at_most))


def _visit(browser: Browser, server: Server, name: str, period: str) -> tuple[float, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        _log_in(context, server)
        page = context.new_page()
        page.goto(f"{server.child.url}/dashboards/{name}?{period}")
        shown_ms = _wait_until_shown(page, name)
        return float(page.evaluate(_FIRST_PAINT)), shown_ms
    finally:
        context.close()


def _log_in(context: BrowserContext, server: Server) -> None:
    answer = context.request.post(f"{server.child.url}/login", form={"key": server.read_key}, max_redirects=0)
    if answer.status != httpx.codes.SEE_OTHER:
        raise BenchError(f"pages: the login answered {answer.status}: {answer.text()[:300]}")


def _wait_until_shown(page: Page, name: str) -> float:
    shown_ms = page.evaluate(_SHOWN_AT, SHOWN_TIMEOUT_S * 1_000)
    if shown_ms is None:
        raise BenchError(f"pages: {name} was not drawn within {SHOWN_TIMEOUT_S} s. Open it, and see which tile waits.")
    return float(shown_ms)


def _wait_until_published(snapshot: Path) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    while not snapshot.exists():
        if time.monotonic() > end:
            raise BenchError(f"pages: there was no snapshot within {READY_TIMEOUT_S} s. See the server's log.")
        time.sleep(0.1)
