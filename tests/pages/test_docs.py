"""The documentation pages in a browser: short enough to read, and without horizontal scrolling on a phone."""

import pytest
from playwright.sync_api import Browser

from tests.pages.watching import reader_at
from tests.support.servers import RunningServer

HEIGHT_MAX_PX = 10_000


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_short_and_fit_the_width(browser: Browser, server: RunningServer, width: int) -> None:
    with reader_at(browser, server, viewport={"width": width, "height": 900}) as reader:
        waiting, sizes = ["/docs"], {}
        while waiting:
            path = waiting.pop()
            reader.page.goto(server.url + path)
            root = "document.documentElement"
            sizes[path] = reader.page.evaluate(f"[{root}.scrollHeight, {root}.scrollWidth]")
            links = reader.page.evaluate("[...document.querySelectorAll('a[href^=\"/docs\"]')].map(a => a.pathname)")
            waiting += sorted(set(links) - sizes.keys() - set(waiting))
    assert len(sizes) > 30
    assert {path: wide for path, (_, wide) in sizes.items() if wide > width} == {}
    if width == 1280:
        assert {path: high for path, (high, _) in sizes.items() if high > HEIGHT_MAX_PX} == {}
