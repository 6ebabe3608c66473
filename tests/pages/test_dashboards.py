"""The dashboards in a real browser: on the demo's data, on none, on hostile data; filters, live, dark, narrow."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.envelope.sending import event_or_action, view
from tests.pages.watching import DASHBOARDS, Reader, reader_at
from tests.pages.weeks import loaded_count, send_weeks
from tests.servers import RunningServer, running_server, wait_until

HOSTILE = (
    "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>",
    "\"'><svg onload=window.pwned=1>${window.pwned=1}{{7*7}}",
    "\u202eقائمة الإيرادات\u202c שלום " + "مرحبا" * 20,
    "=cmd|' /C calc'!A0\t\r\n" + "w" * 900,
    "javascript:window.pwned=1",
)
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the demo's week."""
    with running_server(tmp_path_factory.mktemp("busy") / "data") as server:
        send_weeks(server)
        yield server


@pytest.fixture(scope="module")
def bundle(browser: Browser, busy: RunningServer) -> Path:
    """What draws the charts: made by the first server whose page is opened, within some seconds."""
    with reader_at(browser, busy) as reader:
        reader.log_in(busy.key("read"))
        folder = busy.data / "pages"
        wait_until(lambda: any(folder.glob("vega-*.js.gz")), what="the bundle is made", timeout_s=120)
    return folder


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[RunningServer]:
    """A server without any events."""
    data = tmp_path_factory.mktemp("quiet") / "data"
    shutil.copytree(bundle, data / "pages")
    with running_server(data) as server:
        yield server


@pytest.fixture
def reader(browser: Browser, busy: RunningServer, bundle: Path) -> Iterator[Reader]:
    """Somebody with a read key, at the demo's data."""
    with reader_at(browser, busy, timezone_id="Europe/Berlin") as one:
        one.log_in(busy.key("read"))
        one.wait_until_shown()
        yield one


def test_each_dashboard_shows_everything_and_hides_nothing_from_anybody(reader: Reader) -> None:
    for name in DASHBOARDS:
        reader.open(name)
        assert reader.page.locator("[role=alert]").count() == 0
        assert reader.page.locator("canvas").count() >= 1, name
        found = Axe().run(reader.page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in SERIOUS] == [], name
    assert reader.page.get_attribute('nav a[href*="/dashboards/pipeline"]', "aria-current") == "page"


def test_dark_and_narrow_nothing_is_cut_off(browser: Browser, busy: RunningServer) -> None:
    narrow = {"width": 390, "height": 844}
    with reader_at(browser, busy, viewport=narrow, color_scheme="dark", has_touch=True) as reader:
        reader.log_in(busy.key("read"))
        for name in ("overview", "reliability"):
            reader.open(name)
            assert reader.page.evaluate("document.documentElement.scrollWidth") == 390
            ground = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == "rgb(13, 18, 24)"
            found = Axe().run(reader.page).response["violations"]
            assert [one["id"] for one in found if one["impact"] in SERIOUS] == [], name


def test_a_link_shows_the_same(reader: Reader) -> None:
    reader.open("overview", "?period=24h&surface=dashboard&timezone=Asia%2FTokyo&compare=off")
    page = reader.page
    assert page.is_checked('input[name="period"][value="24h"]')
    assert page.input_value('input[name="timezone"]') == "Asia/Tokyo"
    assert not page.is_checked('input[name="compare"]')
    assert page.inner_text("#chips").startswith("Surface: dashboard")
    query = "period=24h&compare=off&surface=dashboard&timezone=Asia%2FTokyo"
    assert page.url.endswith(f"?{query}")
    assert (page.get_attribute('nav a[href*="exports"]', "href") or "").endswith(f"/dashboards/exports?{query}")


def test_choosing_narrows_every_tile_and_the_way_back_widens_it(reader: Reader) -> None:
    reader.open("tenants")
    before = int(reader.number("tenant-views").replace(",", ""))
    page = reader.page
    page.click('[data-tile="all"] button:has-text("acme-north")')
    reader.wait(lambda: reader.number("active") == "1", "one tenant is left")
    assert "tenant=acme-north" in page.url
    assert [row[0] for row in reader.texts("all")] == ["acme-north"]
    assert 0 < int(reader.number("tenant-views").replace(",", "")) < before
    page.go_back()
    reader.wait(lambda: int(reader.number("tenant-views").replace(",", "")) >= before, "all tenants are back")
    page.click('label:has(input[value="24h"])')
    reader.wait(lambda: int(reader.number("tenant-views").replace(",", "")) < before, "a day has fewer")
    assert "period=24h" in page.url


def test_a_click_on_a_bar_narrows_the_page(reader: Reader) -> None:
    reader.open("tenants")
    canvas = reader.page.locator('[data-tile="tenants"] canvas')
    box = canvas.bounding_box()
    assert box is not None
    longest = reader.texts("all")[0][0]
    canvas.click(position={"x": box["width"] * 0.4, "y": 20})
    reader.wait(lambda: f"tenant={longest}" in reader.page.url, "the longest bar's tenant is chosen")
    reader.page.click("#chips button")
    reader.wait(lambda: "tenant=" not in reader.page.url, "the filter is gone")


def test_each_chart_is_a_table_a_file_and_a_picture_too(reader: Reader) -> None:
    reader.open("overview")
    page, tile = reader.page, '[data-tile="views-by-surface"]'
    for what, start in {"png": b"\x89PNG", "svg": b"<svg"}.items():
        page.click(f"{tile} summary")
        with page.expect_download() as saved:
            page.click(f'{tile} [data-do="{what}"]')
        assert Path(saved.value.path()).read_bytes().startswith(start)
        assert saved.value.suggested_filename == f"overview-views-by-surface.{what}"
    page.click(f"{tile} summary")
    page.click(f'{tile} [data-do="table"]')
    assert {row[2] for row in reader.texts("views-by-surface")} == {"dashboard", "app", "chat"}
    href = page.get_attribute(f"{tile} a[data-csv]", "href") or ""
    answer = page.request.get(reader.server.url + href)
    assert answer.status == 200
    assert answer.text().startswith("period_start,deployment,surface,view_count")
    assert page.get_attribute(f'{tile} a[href^="/docs"]', "href") == "/docs#report-views"


def test_a_tooltip_follows_the_pointer(reader: Reader) -> None:
    reader.open("tenants")
    box = reader.page.locator('[data-tile="tenants"] canvas').bounding_box()
    assert box is not None
    reader.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    reader.wait(lambda: reader.page.is_visible("#tip"), "the tooltip is there")
    assert "Views" in reader.page.inner_text("#tip")


def test_a_scoped_key_sees_its_deployment_and_no_other(browser: Browser, busy: RunningServer) -> None:
    with reader_at(browser, busy) as reader:
        reader.log_in(busy.key("read", deployments=[31]))
        for name in ("overview", "exports", "reliability"):
            reader.open(name)
            text = reader.page.inner_text("main")
            assert not any(other in text for other in ("acme", "globex", "umbra")), name
        reader.open("tenants")
        assert {row[0] for row in reader.texts("all")} <= {"initech", "–"}


def test_without_events_each_tile_says_so(browser: Browser, quiet: RunningServer) -> None:
    with reader_at(browser, quiet) as reader:
        reader.log_in(quiet.key("read"))
        for name in DASHBOARDS:
            reader.open(name)
            assert reader.page.locator("canvas").count() == 0
            assert reader.page.locator("[role=alert]").count() == 0
            assert reader.page.locator(".empty").count() >= 2
        reader.open("overview", "?surface=app")
        assert "Remove all filters" in reader.page.inner_text("main")


def test_new_events_appear_within_two_seconds_and_nothing_jumps(browser: Browser, quiet: RunningServer) -> None:
    with reader_at(browser, quiet) as reader:
        reader.log_in(quiet.key("read"))
        reader.wait_until_shown()
        ingest = quiet.key("ingest")
        assert reader.number("views") == "0"
        took_s = []
        for sent in ("1", "2", "3"):
            send(quiet, ingest, "calm", "live")
            began = time.monotonic()
            reader.wait(lambda sent=sent: reader.number("views") == sent, "the view is counted")  # type: ignore[misc]
            took_s.append(time.monotonic() - began)
            reader.wait_until_shown()
            if sent == "1":
                reader.page.evaluate("scrollTo(0, 300); window.canvas = document.querySelector('canvas')")
        # Where others keep this machine busy, everything takes its multiple.
        assert min(took_s) <= max(2, 4 * seconds_to_ask(quiet))
        assert reader.page.evaluate("scrollY") == 300
        assert reader.page.evaluate("document.querySelector('canvas') === window.canvas")
        assert "Live" in reader.page.inner_text("#live")


def test_text_in_every_field_is_text(browser: Browser, quiet: RunningServer) -> None:
    ingest = quiet.key("ingest")
    before = loaded_count(quiet)
    sent = sum(send_everything(quiet, ingest, text) for text in HOSTILE)
    wait_until(lambda: loaded_count(quiet) >= before + sent, what="hostile events are loaded", timeout_s=30)
    with reader_at(browser, quiet) as reader:
        reader.log_in(quiet.key("read"))
        for name in DASHBOARDS:
            reader.open(name)
            page = reader.page
            assert page.evaluate("window.pwned") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= 1440, name
            assert page.locator("main img, main svg, main script").count() == 0
            for summary in page.query_selector_all(".chart .menu:not([open]) summary"):
                summary.click()
                page.locator('details[open] [data-do="table"]').click()
            assert page.evaluate("window.pwned") is None
        reader.open("tenants")
        assert any(row[0].startswith("<script>window.pwned=1</script>") for row in reader.texts("all"))
        reader.page.locator('[data-tile="all"] button:has-text("<script>")').click()
        reader.wait(lambda: reader.number("active") == "1", "only that tenant is left")
        assert reader.page.inner_text("#chips").startswith("Tenant: <script>")


def test_a_revoked_key_leads_to_the_login(browser: Browser, quiet: RunningServer) -> None:
    from embedsink.keys import KeyFile

    context = browser.new_context()
    try:
        reader = Reader(context.new_page(), quiet)
        key = quiet.key("read")
        reader.log_in("es_read_nothing")
        assert "This key is unknown" in reader.page.inner_text("[role=alert]")
        reader.page.fill('input[name="key"]', key)
        reader.page.click("button.main")
        reader.wait_until_shown()
        KeyFile(quiet.data / "keys.json").revoke(key, now=time.time())
        reader.wait(lambda: "/login?next=" in reader.page.url, "the login asks for another key", timeout_s=15)
        reader.page.fill('input[name="key"]', quiet.key("read"))
        reader.page.click("button.main")
        reader.wait_until_shown()
        assert "/dashboards/overview" in reader.page.url
        reader.page.click(".leave button")
        assert reader.page.url.endswith("/login")
    finally:
        context.close()


def test_a_server_that_is_gone_is_told_and_what_was_shown_stays(browser: Browser, quiet: RunningServer) -> None:
    context = browser.new_context()
    try:
        reader = Reader(context.new_page(), quiet)
        reader.log_in(quiet.key("read"))
        reader.wait_until_shown()
        views = reader.number("views")
        quiet.stop()
        reader.wait(lambda: "Disconnected · as of" in reader.page.inner_text("#live"), "the page says so", timeout_s=20)
        assert reader.number("views") == views
        assert reader.page.locator("canvas").count() > 0
    finally:
        context.close()


def seconds_to_ask(server: RunningServer) -> float:
    """How long the sections of a page take now, one after the other."""
    key, began = server.key("read"), time.monotonic()
    for section in ("use", "quality", "leaders"):
        assert server.get(f"/api/v1/dashboards/overview/sections/{section}?surface=chat", key=key).status == 200
    return time.monotonic() - began


def send(server: RunningServer, key: str, viewer: str, session: str) -> None:
    now = time.time_ns() // 1_000_000
    context = {"deployment": 1, "viewer": viewer, "session": session, "tenant": "calm"}
    answer = server.post({"context": context, "events": [view(timestamp=now)]}, key=key)
    assert answer.status == 202


def send_everything(server: RunningServer, key: str, text: str) -> int:
    """Every event with this text in each field that takes one; how many."""
    now = time.time_ns() // 1_000_000
    short = text[:400]
    events: list[dict[str, Any]] = [
        event_or_action("event:ready", {"embedTenant": short, "publicId": short, "deploymentId": 1}, timestamp=now),
        view({"path": short, "publicId": short, "title": text}, timestamp=now),
        event_or_action("event:navigate", {"path": short, "previousPath": short}, timestamp=now),
        event_or_action("event:dashboard-loaded", {"publicId": short, "loadDurationMs": 900}, timestamp=now),
        event_or_action("event:download", {"widgetId": short, "title": text, "rowCount": 7}, timestamp=now),
        event_or_action("event:drilldown", {"member": text, "value": text}, timestamp=now),
        event_or_action("event:ai-query", {"query": text, "chatId": short, "agentId": short}, timestamp=now - 900_000),
        event_or_action("event:error", {"message": text, "name": short, "context": short}, timestamp=now),
        view({"novel": text}, timestamp=now),
        event_or_action("event:view", {"title": text, "path": 7}, timestamp=now),
    ]
    context = {
        "deployment": 1,
        "session": short,
        "viewer": short,
        "tenant": short,
        "page": f"https://x.example/{short}",
    }
    answer = server.post({"context": context, "events": events}, key=key)
    assert answer.status == 202, answer.body
    return len(events)
