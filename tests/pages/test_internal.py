"""Internal people in the filters of a dashboard, in a real browser."""

import shutil
import time
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser

from tests.pages.watching import Reader, reader_at
from tests.support.envelopes import view
from tests.support.servers import running_server, wait_until


def shows(reader: Reader, number: str) -> bool:
    return reader.number("views") == number


def test_internal_people_are_left_out_until_a_reader_includes_them(
    browser: Browser, bundle: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(bundle, data / "pages")
    (data / "internal.toml").write_text('viewers = ["*@example.com"]\n')
    with running_server(data) as server:
        ingest, admin = server.key(), server.key("admin")
        now = time.time_ns() // 1_000_000
        for viewer, count in (("ann@example.com", 2), ("bob", 1)):
            delivery = {"context": {"deployment": 1, "viewer": viewer}, "events": [view(timestamp=now)] * count}
            assert server.post(delivery, key=ingest).status == 202
        wait_until(lambda: server.get("/api/v1/reports/views", key=admin).json() != [], description="loaded")
        with reader_at(browser, server, key=server.key("read")) as reader:
            reader.open("overview")
            assert reader.number("views") == "1"
            reader.page.click("#more summary")
            for option, number in (("include", "3"), ("only", "2")):
                reader.page.select_option('select[name="internal"]', option)
                reader.wait(partial(shows, reader, number), f"internal={option}")
                assert reader.page.inner_text("#chips").startswith(f"Internal: {option}")
            reader.page.click("#chips button")
            reader.wait(lambda: reader.number("views") == "1", "the filter is removed")
