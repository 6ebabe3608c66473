"""The dashboards in a real browser: demo data, no data, hostile data; filters, dark mode, narrow screens."""

import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from embedsink.dashboards.files import read_dashboards
from tests.dashboards.image.svg_reader import texts_of
from tests.pages.traffic import loaded_count, send_traffic
from tests.pages.watching import DASHBOARDS, Reader, reader_at
from tests.support.envelopes import event_or_action, view
from tests.support.servers import RunningServer, running_server, wait_until

HOSTILE = (
    "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>",
    "\"'><svg onload=window.pwned=1>${window.pwned=1}{{7*7}}",
    "\u202eقائمة الإيرادات\u202c שלום " + "مرحبا" * 20,
    "=cmd|' /C calc'!A0\t\r\n" + "w" * 900,
    "javascript:window.pwned=1",
    "__proto__",
)
SERIOUS = ("serious", "critical")
# The colours of the uppermost pixels of a canvas.
COLOURS_ABOVE = """([at, height]) => {
    const canvas = document.querySelector(at);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, height * devicePixelRatio).data;
    const hex = (i) => "#" + [0, 1, 2].map((part) => pixels[i + part].toString(16).padStart(2, "0")).join("");
    return [...new Set(Array.from({ length: pixels.length / 4 }, (_, i) => hex(4 * i)))];
}"""
# The tables by shape in which no number is completely visible without horizontal scrolling.
TABLES_WITHOUT_A_NUMBER = """() => [...document.querySelectorAll('[data-tile$="shapes"] .scroll')].filter((scroll) => {
    const faded = scroll.getBoundingClientRect().right - 24;
    const [figure] = scroll.querySelectorAll("tbody .figure");
    return figure.getBoundingClientRect().right - parseFloat(getComputedStyle(figure).paddingRight) > faded;
}).map((scroll) => scroll.ariaLabel)"""
# The page with every kind of tile.
OF_ALL_KINDS = "pipeline"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[RunningServer]:
    """Start a server with a week of the demo's traffic."""
    data = tmp_path_factory.mktemp("busy") / "data"
    shutil.copytree(bundle, data / "pages")
    with running_server(data) as server:
        send_traffic(server, days=7)
        yield server


@pytest.fixture
def demo_reader(browser: Browser, busy: RunningServer) -> Iterator[Reader]:
    """Yield a reader of the demo's data, with a read key and no open page."""
    with reader_at(browser, busy, key=busy.key("read"), timezone_id="Europe/Berlin") as opened_reader:
        yield opened_reader


def test_each_dashboard_shows_all_tiles_and_is_accessible(demo_reader: Reader) -> None:
    for name in DASHBOARDS:
        demo_reader.open(name)
        assert demo_reader.page.locator("[role=alert]").count() == 0
        assert demo_reader.page.locator("canvas").count() >= 1, name
        changes = demo_reader.page.locator("[data-change]").all_inner_texts()
        assert "not comparable yet" in changes, name  # The data has one week, and no complete week before it.
        assert not any("from" in change for change in changes), name
        if name == "content":
            unused = demo_reader.page.inner_text('[data-tile="unused"]')
            assert "Every dashboard viewed in the last 90 days was also viewed in the last 14." in unused
        if name == OF_ALL_KINDS:
            violations = Axe().run(demo_reader.page).response["violations"]
            assert [violation["id"] for violation in violations if violation["impact"] in SERIOUS] == [], name
    assert demo_reader.page.get_attribute('nav a[href*="/dashboards/pipeline"]', "aria-current") == "page"


def test_one_dashboard_has_every_kind_of_tile() -> None:
    kinds = {
        name: {tile.kind for section in dashboard.sections for tile in section.tiles}
        for name, dashboard in read_dashboards().items()
    }
    assert set(kinds) == set(DASHBOARDS)
    assert kinds[OF_ALL_KINDS] == set().union(*kinds.values())


def test_nothing_is_cut_off_in_dark_mode_or_on_narrow_screens(browser: Browser, busy: RunningServer) -> None:
    phone = {"width": 390, "height": 844}
    with reader_at(
        browser,
        busy,
        key=busy.key("read"),
        viewport=phone,
        color_scheme="dark",
        has_touch=True,
        locale="en-US",  # the locale with the longest times
    ) as reader:
        for name in ("overview", "reliability", "content", OF_ALL_KINDS):
            reader.open(name)
            assert reader.page.evaluate("document.documentElement.scrollWidth") == 390, name
            ground = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == "rgb(13, 18, 24)"
        for name in ("reliability", "ai-questions"):
            reader.open(name)
            assert reader.page.evaluate(TABLES_WITHOUT_A_NUMBER) == [], name
        for width in (390, 400, 390):
            reader.page.set_viewport_size({"width": width, "height": 844})  # a rotated phone
            reader.page.wait_for_timeout(300)
            drawn = reader.page.evaluate(COLOURS_ABOVE, ['[data-tile="latency"] canvas', 40])
            assert {"#4c96ea", "#3fbfb3"} <= set(drawn), "both lines of the legend are visible"
        violations = Axe().run(reader.page).response["violations"]
        assert [violation["id"] for violation in violations if violation["impact"] in SERIOUS] == []


def test_a_link_shows_the_same(demo_reader: Reader) -> None:
    demo_reader.open("overview", "?period=24h&surface=dashboard&timezone=Asia%2FTokyo&compare=off")
    page = demo_reader.page
    assert page.is_checked('input[name="period"][value="24h"]')
    assert page.input_value('input[name="timezone"]') == "Asia/Tokyo"
    assert not page.is_checked('input[name="compare"]')
    assert page.inner_text("#chips").startswith("Surface: dashboard")
    query = "period=24h&surface=dashboard&timezone=Asia%2FTokyo&compare=off"
    assert page.url.endswith(f"?{query}")
    assert (page.get_attribute('nav a[href*="exports"]', "href") or "").endswith(f"/dashboards/exports?{query}")


def test_a_filter_narrows_every_tile_and_going_back_removes_it(demo_reader: Reader) -> None:
    demo_reader.open("tenants")
    before = int(demo_reader.number("tenant-views").replace(",", ""))
    page = demo_reader.page
    page.click('[data-tile="all"] button:has-text("acme-north")')
    demo_reader.wait(lambda: demo_reader.number("active") == "1", "one tenant remains")
    assert "tenant=acme-north" in page.url
    assert [row[0] for row in demo_reader.texts("all")] == ["acme-north"]
    assert 0 < int(demo_reader.number("tenant-views").replace(",", "")) < before
    page.go_back()
    demo_reader.wait(lambda: int(demo_reader.number("tenant-views").replace(",", "")) >= before, "all tenants are back")
    page.click('label:has(input[value="24h"])')
    demo_reader.wait(lambda: int(demo_reader.number("tenant-views").replace(",", "")) < before, "a day has fewer")
    assert "period=24h" in page.url


def test_a_period_that_ends_before_it_begins_is_reported_at_its_fields(demo_reader: Reader) -> None:
    demo_reader.open("tenants", "?since=2026-11-20")
    page, until = demo_reader.page, demo_reader.page.locator('input[name="until"]')
    until.fill("2026-11-18")
    assert until.evaluate("field => field.validationMessage") == "The last day can't be before the first day."
    assert "until=" not in page.url
    until.fill("2026-11-20")
    assert until.evaluate("field => field.validationMessage") == ""
    # The period ends with that day: `until` in the URL is the next day.
    assert "until=2026-11-21" in page.url
    assert until.input_value() == "2026-11-20"
    page.reload()
    assert until.input_value() == "2026-11-20"


def test_a_custom_period_begins_with_the_one_that_is_shown(demo_reader: Reader) -> None:
    page = demo_reader.page
    # The 24 hours include the current one: after 23:00 they are in one day.
    for period, length in (("7d", timedelta(days=6)), ("24h", timedelta(hours=23)), ("30d", timedelta(days=29))):
        before = datetime.now(UTC)
        demo_reader.open("tenants", f"?timezone=UTC&period={period}")
        page.click('label:has(input[value="custom"])')
        fields = [page.input_value(f'input[name="{name}"]') for name in ("since", "until")]
        expected_days = [[str(now.date()) for now in (now - length, now)] for now in (before, datetime.now(UTC))]
        assert fields in expected_days
    last = date.fromisoformat(fields[1])
    page.fill('input[name="since"]', last.isoformat())
    assert f"since={last}&until={last + timedelta(days=1)}" in page.url


def test_a_last_day_without_a_first_day_is_reported(demo_reader: Reader) -> None:
    demo_reader.open("tenants")
    page = demo_reader.page
    page.click('label:has(input[value="custom"])')
    since = page.locator('input[name="since"]')
    since.evaluate("field => { field.value = ''; }")
    page.fill('input[name="until"]', "2026-11-20")
    assert since.evaluate("field => field.validationMessage") == "Choose the first day."
    assert "until=" not in page.url
    since.fill("2026-11-19")
    assert "since=2026-11-19&until=2026-11-21" in page.url


def test_deployments_are_offered_by_their_use_and_any_other_can_be_typed(demo_reader: Reader) -> None:
    demo_reader.open("tenants")
    page = demo_reader.page
    page.click("#more > summary")
    demo_reader.wait(lambda: page.locator("#deployments option").count() > 2, "they are offered")
    offered = [option.text_content() for option in page.locator("#deployments option").all()]
    key = {"Authorization": f"Bearer {demo_reader.server.key('read')}"}
    rows = page.request.get(
        f"{demo_reader.server.url}/api/v1/reports/views?since=30d&interval=month", headers=key
    ).json()
    most = max(rows, key=lambda row: row["view_count"] if row["deployment"] is not None else 0)
    assert (offered[0], len(set(offered))) == (str(most["deployment"]), len(offered))
    page.fill('input[name="deployment"]', "4711")
    page.press('input[name="deployment"]', "Enter")
    demo_reader.wait(lambda: "deployment=4711" in page.url, "it is chosen")
    demo_reader.wait(lambda: demo_reader.number("active") == "0", "nothing is there")


def test_a_cut_table_shows_its_number_of_rows(demo_reader: Reader) -> None:
    demo_reader.open("exports")
    note = demo_reader.page.inner_text('[data-tile="by-viewer"] [data-note]')
    counted = re.fullmatch(r"12 of (\d+) rows shown\.", note)
    assert counted, note
    assert int(counted[1]) > 12
    link = demo_reader.page.locator('[data-tile="by-viewer"] .menu a[data-csv]')
    assert link.text_content() == "Download the whole report as CSV"


def test_a_sync_is_marked_where_it_happened(demo_reader: Reader) -> None:
    page = demo_reader.page
    completed_at = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    result = {
        "syncJobId": "marked",
        "generatedFiles": [],
        "manifestStats": {"models": 1, "sources": 2, "macros": 3},
        "svcCount": 4,
        "completedAt": completed_at.isoformat().replace("+00:00", "Z"),
        "durationMs": 5,
    }
    response = page.request.put(
        f"{demo_reader.server.url}/api/v1/deployments/12/dbt-sync/marked/result",
        data=result,
        headers={"Authorization": f"Bearer {demo_reader.server.key('sync')}"},
    )
    assert response.status == 200, response.text()
    key = {"Authorization": f"Bearer {demo_reader.server.key('read')}"}
    loading = f"{demo_reader.server.url}/api/v1/dashboards/reliability/sections/loading"
    demo_reader.wait(
        lambda: page.request.get(loading, headers=key).json()["charts"]["load-course"]["marks"], "it is loaded"
    )
    demo_reader.open("reliability")
    tile = '[data-tile="load-course"]'
    page.click(f"{tile} summary")
    with page.expect_download() as saved:
        page.click(f'{tile} [data-do="svg"]')
    assert "dbt sync completed: " in Path(saved.value.path()).read_text()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?period=5d", 'period: "5d" is not one of 24h, 7d, 30d, 90d.'),
        ("?timezone=Mars%2FX", 'timezone: "Mars/X" is not a time zone'),
        ("?since=2026-11-20&until=2026-11-18", "until"),
    ],
)
def test_an_error_in_the_url_is_reported_once_and_removed_after_a_correction(
    demo_reader: Reader, query: str, message: str
) -> None:
    page = demo_reader.page
    page.goto(f"{demo_reader.server.url}/dashboards/overview{query}")
    demo_reader.wait(lambda: page.is_visible("#request-error"), "the error is shown")
    assert message in page.inner_text("#request-error")
    assert page.locator("section:visible").count() == 0
    assert page.get_by_text("Try again").count() == 0
    demo_reader.wait(lambda: page.inner_text("#live").startswith("Not available"), "the page does not claim to be live")
    page.click("#request-error a")
    demo_reader.wait(lambda: page.url.endswith("?timezone=Europe%2FBerlin"), "the URL is corrected")
    demo_reader.wait_until_shown()
    assert not page.is_visible("#request-error")
    assert page.is_checked('input[name="period"][value="7d"]')
    assert demo_reader.number("views") != "–"
    demo_reader.troubles.clear()  # A browser logs each refusal.


@pytest.mark.parametrize(("path", "meant"), [("overview?deploymnt=1", "deployment"), ("inspector?sesion=x", "session")])
def test_a_misspelt_filter_is_reported_instead_of_ignored(demo_reader: Reader, path: str, meant: str) -> None:
    page = demo_reader.page
    page.goto(f"{demo_reader.server.url}/dashboards/{path}")
    assert f'Did you mean "{meant}"?' in page.inner_text("[role=alert]")
    assert page.url.endswith(path), "the filter can be corrected there"
    assert page.locator("section").count() == 0
    demo_reader.troubles.clear()  # A browser logs each refusal.


def test_a_typing_error_in_a_field_is_reported_and_corrected_there(demo_reader: Reader) -> None:
    demo_reader.open("tenants", "?timezone=UTC")
    page = demo_reader.page
    page.click("#more > summary")
    page.fill('input[name="timezone"]', "Mars/X")
    page.press('input[name="timezone"]', "Enter")
    demo_reader.wait(lambda: page.is_visible("#request-error"), "the error is shown")
    page.go_back()
    demo_reader.wait(
        lambda: page.is_visible("section") and not page.is_visible("#request-error"), "going back removes the error"
    )
    demo_reader.wait_until_shown()
    demo_reader.troubles.clear()


def test_a_chosen_hour_is_in_the_fields(demo_reader: Reader) -> None:
    demo_reader.open("tenants", "?since=2026-11-20T05:00:00&until=2026-11-20T06:00:00")
    assert demo_reader.page.input_value('input[name="since"]') == "2026-11-20T05:00"
    assert demo_reader.page.input_value('input[name="until"]') == "2026-11-20T06:00"


def test_a_click_on_a_bar_narrows_the_page(demo_reader: Reader) -> None:
    demo_reader.open("tenants")
    canvas = demo_reader.page.locator('[data-tile="tenants"] canvas')
    box = canvas.bounding_box()
    assert box is not None
    longest = demo_reader.texts("all")[0][0]
    canvas.click(position={"x": box["width"] * 0.4, "y": 20})
    demo_reader.wait(lambda: f"tenant={longest}" in demo_reader.page.url, "the longest bar's tenant is chosen")
    demo_reader.page.click("#chips button")
    demo_reader.wait(lambda: "tenant=" not in demo_reader.page.url, "the filter is gone")


def test_each_chart_is_available_as_table_file_and_picture(demo_reader: Reader) -> None:
    demo_reader.open("overview", "?surface=app")
    page, tile = demo_reader.page, '[data-tile="views-by-surface"]'
    for format, start in {"png": b"\x89PNG", "svg": b"<svg"}.items():
        page.click(f"{tile} summary")
        with page.expect_download() as saved:
            page.click(f'{tile} [data-do="{format}"]')
        assert Path(saved.value.path()).read_bytes().startswith(start)
        assert saved.value.suggested_filename == f"overview-views-by-surface.{format}"
    texts = texts_of(Path(saved.value.path()).read_text())
    # A saved chart names its data, because it leaves the page.
    assert "Views by surface" in texts
    assert any(text.endswith("Europe/Berlin · Surface: app") for text in texts), texts
    page.click("#chips button")
    demo_reader.wait(lambda: demo_reader.page.locator("#chips button").count() == 0, "the filter is gone")
    demo_reader.wait_until_shown()
    page.click(f"{tile} summary")
    page.click(f'{tile} [data-do="table"]')
    surfaces = {"dashboard", "app", "chat"}
    demo_reader.wait(
        lambda: {row[1] for row in demo_reader.texts("views-by-surface")} == surfaces, "all surfaces are there"
    )
    heads = [head.text_content() for head in page.query_selector_all(f"{tile} th")]
    assert {"Period", "Views"} < set(heads)
    assert all(re.fullmatch(r"\w+,? \d+ \w+", row[0]) for row in demo_reader.texts("views-by-surface"))
    href = page.get_attribute(f"{tile} a[data-csv]", "href") or ""
    response = page.request.get(demo_reader.server.url + href)
    assert response.status == 200
    assert response.text().startswith("period_start,deployment,surface,view_count")
    assert page.get_attribute(f'{tile} a[href^="/docs"]', "href") == "/docs/reports/views"


def test_a_saved_chart_explains_its_dashed_lines(demo_reader: Reader) -> None:
    demo_reader.open("overview", "?period=24h")
    page, tile = demo_reader.page, '[data-tile="views-by-surface"]'
    assert page.inner_text(f"{tile} [data-note]") == "The dashed line shows the previous period."
    page.click(f"{tile} summary")
    with page.expect_download() as saved:
        page.click(f'{tile} [data-do="svg"]')
    texts = texts_of(Path(saved.value.path()).read_text())
    assert "View events by surface. The dashed line shows the previous period." in texts


def test_a_tooltip_follows_the_pointer(demo_reader: Reader) -> None:
    demo_reader.open("tenants")
    box = demo_reader.page.locator('[data-tile="tenants"] canvas').bounding_box()
    assert box is not None
    demo_reader.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    demo_reader.wait(lambda: demo_reader.page.is_visible("#tooltip"), "the tooltip is there")
    assert "Views" in demo_reader.page.inner_text("#tooltip")


def test_a_scoped_key_sees_its_deployment_and_no_other(browser: Browser, busy: RunningServer) -> None:
    key = busy.key("read", deployments=[31])
    # Charts have no text in the page: their rows are in the responses.
    for name in ("overview", "exports", "reliability"):
        for section in read_dashboards()[name].sections:
            response = busy.get(f"/api/v1/dashboards/{name}/sections/{section.id}", key=key)
            assert response.status == 200
            assert not any(other in response.body for other in (b"acme", b"globex", b"umbra")), name
    with reader_at(browser, busy, key=key) as reader:
        reader.open("tenants")
        assert {row[0] for row in reader.texts("all")} <= {"initech", "–"}
        assert not any(other in reader.page.inner_text("main") for other in ("acme", "globex", "umbra"))


def test_without_events_each_tile_says_so(browser: Browser, tmp_path: Path, bundle: Path) -> None:
    shutil.copytree(bundle, tmp_path / "data" / "pages")
    with (
        running_server(tmp_path / "data") as empty_server,
        reader_at(browser, empty_server, key=empty_server.key("read")) as reader,
    ):
        reader.open("overview")
        assert reader.page.locator("canvas").count() == 0
        assert reader.page.locator("[role=alert]").count() == 0
        assert reader.page.locator(".empty").count() >= 2
        reader.open("overview", "?surface=app")
        assert "Remove all filters" in reader.page.inner_text("main")


def test_hostile_text_is_escaped_in_every_field(reader: Reader) -> None:
    server, ingest = reader.server, reader.server.key("ingest")
    before = loaded_count(server)
    sent = sum(send_everything(server, ingest, text) for text in HOSTILE)
    wait_until(lambda: loaded_count(server) >= before + sent, description="hostile events are loaded", timeout_s=30)
    page = reader.page
    for name in (OF_ALL_KINDS, "tenants"):
        reader.open(name)
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440, name
        assert page.locator("main img, main svg, main script").count() == 0
        for summary in page.query_selector_all(".chart .menu:not([open]) summary"):
            summary.click()
            page.locator('details[open] [data-do="table"]').click()
        assert page.evaluate("window.pwned") is None
    assert {"__proto__"} < {row[0] for row in reader.texts("all")}
    assert any(row[0].startswith("<script>window.pwned=1</script>") for row in reader.texts("all"))
    page.locator('[data-tile="all"] button:has-text("<script>")').click()
    reader.wait(lambda: reader.number("active") == "1", "only that tenant remains")
    assert page.inner_text("#chips").startswith("Tenant: <script>")


def send_everything(server: RunningServer, key: str, text: str) -> int:
    """Send every event with this text in each text field. Return the number of events."""
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
    response = server.post({"context": context, "events": events}, key=key)
    assert response.status == 202, response.body
    return len(events)
