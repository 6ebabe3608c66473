"""Writes the pictures in README: the demo page in Chromium, light and dark. `scripts/pictures` runs it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Page, expect, sync_playwright

from tests.support.chromium import ARGUMENTS, PROGRAM
from tests.support.paths import ROOT
from tests.support.servers import free_port

DOCS = ROOT / "docs"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PICTURE_BYTES_MAX = 200_000


@contextmanager
def running_demo(port: int) -> Iterator[str]:
    """Run a demo, and yield the URL of its page after it has sent its traffic."""
    command = [sys.executable, "-m", "embedsink", "demo", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            lines = iter(child.stdout.readline, "")
            address = next(line.split()[1] for line in lines if line.startswith("  Open "))
            next(line for line in lines if line.startswith("Live traffic"))
            yield address
        finally:
            child.terminate()
            child.communicate()


def use(page: Page) -> None:
    """Use the page as a visitor does in a minute."""
    embed = page.frame_locator("#embed")
    lines = page.locator("#events > li")
    expect(lines).to_have_count(3)
    page.locator("[data-action=set-filter] [value=North]").check()
    embed.locator("[data-widget=w_regions] .mark").first.click()
    embed.locator("[data-widget=w_products] .csv").click()
    embed.locator(".suggestion.answers").click()
    expect(lines).to_have_count(8)
    embed.get_by_role("button", name="Unknown event type").click()
    embed.locator(".suggestion.fails").click()
    expect(lines).to_have_count(11)
    expect(page.locator("#events [data-stage=visible].reached")).to_have_count(9)
    page.mouse.move(0, 0)
    for frame in page.frames:
        frame.evaluate("scrollTo(0, 0)")


def main() -> None:
    """Write both pictures, and print their sizes."""
    with running_demo(free_port()) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1360, "height": 780}, reduced_motion="reduce")
        page.goto(address)
        use(page)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            picture = DOCS / f"demo-{scheme}.png"
            page.screenshot(path=picture)
            size = picture.stat().st_size
            print(f"{picture.name:15} {size:7,} bytes")
            assert size <= PICTURE_BYTES_MAX, f"{picture.name}: {size:,} bytes; the limit is {PICTURE_BYTES_MAX:,}."
        browser.close()


if __name__ == "__main__":
    main()
