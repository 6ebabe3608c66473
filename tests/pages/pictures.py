"""Takes the pictures of the dashboards that README shows: `scripts/pictures`."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import sync_playwright

from tests.pages.traffic import send_syncs, send_traffic
from tests.pages.watching import reader_at
from tests.support.chromium import ARGUMENTS, PROGRAM
from tests.support.paths import ROOT
from tests.support.servers import running_server

FOLDER = ROOT / "docs" / "pictures"


class Picture(NamedTuple):
    """A page, its display options, and the name of the file."""

    name: str
    dashboard: str
    scheme: str
    width: int
    height: int


PICTURES = (
    Picture("overview", "overview", "light", 1280, 900),
    Picture("reliability-dark", "reliability", "dark", 1280, 900),
    Picture("overview-phone", "overview", "light", 390, 844),
)


def main() -> None:
    """Send all of the demo's traffic, and take a picture of each page."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder) / "data") as server,
        sync_playwright() as playwright,
    ):
        send_syncs(server)
        send_traffic(server)
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        key = server.key("read")
        for picture in PICTURES:
            size = {"width": picture.width, "height": picture.height}
            with reader_at(browser, server, key=key, viewport=size, color_scheme=picture.scheme) as reader:
                reader.page.goto(f"{server.url}/dashboards/{picture.dashboard}")
                reader.wait_until_shown(timeout_s=120)
                reader.page.screenshot(path=FOLDER / f"{picture.name}.png")
                print(FOLDER / f"{picture.name}.png")
        browser.close()


if __name__ == "__main__":
    main()
