"""The HTML and the JavaScript of the documentation run in a real browser, against a real server and a fake embed."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Frame, Page, sync_playwright

from embedsink.browser.modules import browser_files
from tests.browser.sites import EMBED, Site
from tests.browser.stage import embed_in
from tests.docs.blocks import Block, blocks
from tests.docs.conftest import Documented
from tests.support.chromium import ARGUMENTS, PROGRAM
from tests.support.programs import require

pytestmark = [pytest.mark.server, pytest.mark.slow]

RECIPE = 'import { expect, test } from "@playwright/test";'  # test_recipe.py runs it
ANSWERED_MS = 15_000
DASHBOARD = "/embed/dashboard/d_81f2"
VENDORS = "docs/vendors.md"  # its examples need the embeds of other vendors
SCRIPTS = [block for block in blocks("js") if RECIPE not in block.text and block.page != VENDORS]
# tests/browser/test_proxy.py runs the element that loads the module through a proxy, from the path /live.
ELEMENTS = [block for block in blocks("html") if block.page != VENDORS and 'src="/live/' not in block.text]


class Sites(NamedTuple):
    """A browser, the customer's site, the vendor's site, and the replacements for the examples."""

    browser: Browser
    host: Site
    tenant: Site
    instead: dict[str, str]

    def at(self, text: str) -> str:
        """Return a text with real URLs, keys and hashes."""
        for written, real in self.instead.items():
            text = text.replace(written, real)
        return text

    def open(self, html: str, errors: list[str]) -> Page:
        """Return a page of the customer's site, after all its modules have run."""
        page = self.browser.new_context().new_page()
        page.set_default_timeout(ANSWERED_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(self.host.add("/page", f"<!doctype html><body>{html}"))
        return page


@pytest.fixture(scope="module")
def sites(documented: Documented) -> Iterator[Sites]:
    require("chromium")
    host, tenant = Site(), Site()
    tenant.add(DASHBOARD, EMBED)
    host.add("/embed-session", '{"session": "credential"}', Content_Type="application/json")
    key, file = documented.server.key("ingest", origins=[host.url]), browser_files()["forwarder.js"]
    instead = {
        "https://events.example.com": documented.server.url,
        "https://tenant.example.com": tenant.url,
        "https://acme.bi.example": tenant.url,
        "https://acme.cloud.looker.com": tenant.url,
        "/embed/dashboard/…": DASHBOARD,
        "es_ingest_…": key,
        'data-key="…"': f'data-key="{key}"',
        'data-origin="…"': f'data-origin="{tenant.url}"',
        "forwarder.….js": file.versioned_name,
        "sha384-…": file.integrity,
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield Sites(browser, host, tenant, instead)
        browser.close()
    host.close()
    tenant.close()


def label(block: Block) -> str:
    return f"{block.page}: {block.text.splitlines()[0][:50]}"


def is_delivered(page: Page, embed: Frame, event: str = "view('/a')") -> bool:
    """Return whether an event of the embed is answered with a 202."""
    with page.expect_response(lambda response: response.url.endswith("/api/v1/events")) as answer:
        embed.evaluate(event)
    return answer.value.status == 202 and answer.value.json()["accepted"] == 1


def framed(sites: Sites, html: str) -> str:
    """Return the HTML, with an embed if it contains none."""
    return html if "<iframe" in html else f'{html}<iframe src="{sites.tenant.url}{DASHBOARD}"></iframe>'


@pytest.mark.parametrize("block", ELEMENTS, ids=label)
def test_every_element_delivers_events_of_an_embed(block: Block, sites: Sites) -> None:
    errors: list[str] = []
    page = sites.open(framed(sites, sites.at(block.text)), errors)
    assert is_delivered(page, embed_in(page))
    assert errors == []


@pytest.mark.parametrize("block", [block for block in SCRIPTS if "embedUrl" not in block.text], ids=label)
def test_every_script_runs_and_delivers_until_it_stops(block: Block, sites: Sites) -> None:
    errors: list[str] = []
    script = sites.at(block.text).replace("f.destroy();", "window.f = f;")
    page = sites.open(framed(sites, f'<script type="module">{script}</script>'), errors)
    assert is_delivered(page, embed_in(page))
    if "window.f" in script:
        page.evaluate("f.destroy()")
        assert page.evaluate("f.ignored") == 0
    assert errors == []


def test_the_actions_reach_the_embed(sites: Sites) -> None:
    [block] = [block for block in SCRIPTS if "embedUrl" in block.text]
    errors: list[str] = []
    wait_for_load = "await new Promise((resolve) => (iframe.onload = resolve));"
    script = sites.at(block.text).replace("// After the embed's `ready` event:", wait_for_load)
    assert wait_for_load in script
    page = sites.open(f'<script type="module">{script}</script>', errors)
    page.wait_for_selector("iframe")
    embed = page.frames[1]
    embed.wait_for_function("typeof actions == 'object' && actions.length == 6")
    assert "session=credential" in embed.url
    types = embed.evaluate("actions.map(({ data }) => data.type)")
    assert [type_.removeprefix("svc:action:") for type_ in types] == [
        "set-color-scheme",
        "set-theme",
        "set-locale",
        "set-filter",
        "navigate",
        "refresh",
    ]
    assert errors == []


LOOKER_DOWNLOAD = """parent.postMessage('{"type": "dashboard:download", "fileFormat": "pdf"}', "*")"""
REPORT = """<script>
  const listeners = {};
  const report = { on: (name, listener) => (listeners[name] = listener), off: (name) => delete listeners[name] };
</script>"""


def vendor_examples(sites: Sites, language: str, word: str) -> list[str]:
    """Return the examples for other vendors with this word, as HTML."""
    texts = [sites.at(block.text) for block in blocks(language) if block.page == VENDORS and word in block.text]
    return texts if language == "html" else [f'<script type="module">{text}</script>' for text in texts]


@pytest.mark.parametrize("language", ["html", "js"])
def test_the_examples_for_looker_deliver_its_events(sites: Sites, language: str) -> None:
    errors: list[str] = []
    [example] = vendor_examples(sites, language, "looker")
    page = sites.open(framed(sites, example), errors)
    page.wait_for_load_state("networkidle")
    assert is_delivered(page, embed_in(page), LOOKER_DOWNLOAD)
    assert errors == []


def test_the_example_for_power_bi_delivers_its_events(sites: Sites) -> None:
    errors: list[str] = []
    [example] = vendor_examples(sites, "js", "powerbi")
    page = sites.open(REPORT + example, errors)
    page.wait_for_function("typeof listeners.error == 'function'")
    assert is_delivered(page, page.main_frame, "listeners.error({ detail: { message: 'LoadReportFailed' } })")
    assert errors == []
