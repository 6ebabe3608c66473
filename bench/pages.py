"""The time until the first paint and until all tiles of each dashboard, over millions of events, in Chromium.

Each visit has an empty browser cache, and a period that no earlier visit used.
"""

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.options import REPOSITORY, DataRoot, Events, Rounds
from bench.reports import ENDS_AT, fill_in_child
from bench.results import Goal, Result, median_of
from bench.server import BenchError, Server, fresh_folder
from embedsink.dashboards.files import read_dashboards

FIRST_PAINT_MS_MAX = 1_000
ALL_TILES_MS_MAX = 2_000
READY_TIMEOUT_S = 180
SHOWN_TIMEOUT_S = 60
# Resolves with the time at which all tiles are shown. A drawn chart has a label, and a pending tile is marked as busy.
# The script observes changes, because polling would take a tenth of the measured time.
_WAIT_UNTIL_SHOWN = """(timeoutMs) => new Promise((resolve) => {
  const isShown = () => document.querySelector('[data-body]') !== null
    && document.querySelector('[aria-busy="true"]') === null
    && [...document.querySelectorAll('[data-body]')].every((body) =>
      body.querySelector('.plot[aria-label], table, .empty'));
  const check = () => { if (isShown()) { resolve(performance.now()); observer.disconnect(); } };
  const observer = new MutationObserver(check);
  observer.observe(document, { subtree: true, childList: true, attributes: true });
  setTimeout(() => resolve(null), timeoutMs);
  check();
})"""
_FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(
    rounds: Rounds = 3,
    events: Events = 10_000_000,
    days: Annotated[int, typer.Option(min=1, max=90, help="The length of the period on the dashboards.")] = 30,
    data_root: DataRoot = REPOSITORY,
) -> Iterator[Result]:
    """Milliseconds until the first paint and until all tiles of each dashboard in Chromium, over 30 days."""
    program = shutil.which("chromium")
    if program is None:
        raise BenchError("pages: chromium is not installed. On Debian: apt-get install chromium.")
    with fresh_folder(data_root) as folder:
        fill_in_child(folder.store, events)
        with Server(folder) as server, sync_playwright() as playwright:
            # Before measuring: the first snapshot copies the whole store, and the first visit builds the JS bundle.
            _wait_until_published(folder.snapshot)
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            _visit(browser, server, "overview", _period(days, days_ago=0))
            periods = [_period(days, days_ago=number) for number in range(1, rounds + 1)]
            for name in read_dashboards():
                yield from _measure(browser, server, name, periods)
            browser.close()


def _period(days: int, *, days_ago: int) -> str:
    until = ENDS_AT.date() - timedelta(days=days_ago)
    return f"since={until - timedelta(days=days)}&until={until}"


def _measure(browser: Browser, server: Server, name: str, periods: list[str]) -> Iterator[Result]:
    visits = [_visit(browser, server, name, period) for period in periods]
    first_paints_ms = [first_paint_ms for first_paint_ms, _ in visits]
    all_tiles_ms = [shown_ms for _, shown_ms in visits]
    yield median_of(f"{name}, first paint", "ms", first_paints_ms, Goal(at_most=FIRST_PAINT_MS_MAX))
    yield median_of(f"{name}, all tiles", "ms", all_tiles_ms, Goal(at_most=ALL_TILES_MS_MAX))


def _visit(browser: Browser, server: Server, name: str, period: str) -> tuple[float, float]:
    """Return the milliseconds until the first paint, and until all tiles are shown."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        _log_in(context, server)
        page = context.new_page()
        page.goto(f"{server.url}/dashboards/{name}?{period}")
        shown_ms = _wait_until_shown(page, name)
        return float(page.evaluate(_FIRST_PAINT)), shown_ms
    finally:
        context.close()


def _log_in(context: BrowserContext, server: Server) -> None:
    response = context.request.post(f"{server.url}/login", form={"key": server.read_key}, max_redirects=0)
    if response.status != HTTPStatus.SEE_OTHER:
        raise BenchError(f"pages: the login answered {response.status}: {response.text()[:300]}")


def _wait_until_shown(page: Page, name: str) -> float:
    shown_ms = page.evaluate(_WAIT_UNTIL_SHOWN, SHOWN_TIMEOUT_S * 1_000)
    if shown_ms is None:
        raise BenchError(
            f"pages: {name} was not drawn within {SHOWN_TIMEOUT_S} s. Open it, and see which tile is pending."
        )
    return float(shown_ms)


def _wait_until_published(snapshot: Path) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    while not snapshot.exists():
        if time.monotonic() > end:
            raise BenchError(f"pages: no snapshot was published within {READY_TIMEOUT_S} s.")
        time.sleep(0.1)
