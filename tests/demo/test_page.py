"""The demo page in Chromium: actions in the simulated embed become events that the page tracks to the reports.

The server has no synthetic traffic, so every number on the page comes from these tests.
"""

import csv
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    FrameLocator,
    Locator,
    Page,
    Request,
    Route,
    ViewportSize,
    expect,
    sync_playwright,
)

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.demo.fixtures import CUSTOMER
from embedsink.demo.server import DemoServer
from embedsink.demo.sites import PAGE_PATH, EmbedServer, origins
from embedsink.demo.stop import Stop
from tests.support.chromium import ARGUMENTS, PROGRAM
from tests.support.programs import require
from tests.support.servers import fetch, free_port

pytestmark = [pytest.mark.slow, pytest.mark.server]

VISIBLE_MS_MAX = 15_000
WINDOW: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# Targets with a side below 44 px. Points of the area chart may be narrower: the same data has larger targets.
SMALL_TARGETS = """[...document.querySelectorAll("a, button, label, [role=button], input[name=question]")]
  .filter((element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest("section.area .mark"))
  .filter((element) => {
    const target = element.closest("li.event") ?? element.querySelector(".reach") ?? element;
    const { width, height } = target.getBoundingClientRect();
    return Math.min(width, height) < 44;
  })
  .map((element) => element.outerHTML.slice(0, 90))"""
LOADED = ["ready", "view", "dashboard-loaded"]
# Browser errors appear on the console. This listener also writes violations of the policy there.
WATCH_POLICY = """addEventListener("securitypolicyviolation",
  ({ violatedDirective, blockedURI }) => console.error("policy", violatedDirective, blockedURI))"""


class Demo(NamedTuple):
    """The two servers and a browser."""

    server: DemoServer
    read_key: str
    embed: str
    browser: Browser

    @property
    def page(self) -> str:
        return self.server.url + PAGE_PATH


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    require("chromium")
    folder, port = tmp_path_factory.mktemp("data"), free_port()
    _, read_key = KeyStore(DataFolder(folder).keys).create(KeyKind.READ, now=time.time())
    with (
        Stop() as stop,
        EmbedServer(port + 1, host_origins=origins(port)) as embed,
        DemoServer(folder, port, embed_origin=embed.origin, read_key=read_key, stop=stop) as server,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS) as browser,
    ):
        yield Demo(server, read_key, embed.origin, browser)


class DemoWindow:
    """The page in a browser window, and the errors on its console."""

    def __init__(self, demo: Demo, *, address: str | None = None) -> None:
        self.demo = demo
        self.context = demo.browser.new_context(viewport=WINDOW, reduced_motion="reduce")
        self.context.add_init_script(WATCH_POLICY)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(VISIBLE_MS_MAX)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._add_error)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._add_request)
        self.address = address or demo.page

    def open(self) -> None:
        """Load the page, and wait for its dashboard."""
        self.requests.clear()
        if self.page.url.startswith("http"):
            # Without this, the page would resend the pending events of the previous page.
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.goto(self.address)
        self.wait_for("dashboard-loaded", reached=None)

    def _add_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _add_request(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def embed(self) -> FrameLocator:
        return self.page.frame_locator("#embed")

    def lines(self, name: str) -> Locator:
        """Return the lines of a type in the live panel, newest first."""
        return self.page.locator(f"#events > [data-type={name}]")

    def wait_for(self, name: str, *, reached: str | None = "visible", count: int = 1) -> Locator:
        """Wait until this many lines of a type have reached a stage, or exist. Return the newest."""
        has_reached = f":has(.reached[data-stage={reached}])" if reached else ""
        arrived = self.page.locator(f"#events > [data-type={name}]{has_reached}")
        expect(arrived).to_have_count(count, timeout=VISIBLE_MS_MAX)
        return arrived.first

    def names(self) -> list[str]:
        """Return the types in the panel, oldest first."""
        names: list[str] = self.page.locator("#events > li").evaluate_all(
            "(lines) => lines.map((element) => element.dataset.type)"
        )
        return names[::-1]

    def choose(self, action: str, value: str) -> None:
        """Use a control of the host page."""
        control = self.page.locator(f"[data-action={action}] [value='{value}']")
        if control.get_attribute("type") == "radio":
            control.check()
        else:
            control.click()

    def style(self, selector: str, name: str) -> str:
        """Return a computed style inside the embed."""
        value: str = self.embed.locator(selector).first.evaluate(f"(element) => getComputedStyle(element).{name}")
        return value

    def assert_no_errors(self) -> None:
        """Assert that the console has no errors."""
        assert self.errors == []

    def close(self) -> None:
        self.assert_no_errors()
        self.context.close()


@pytest.fixture(scope="module")
def window(demo: Demo) -> Iterator[DemoWindow]:
    window = DemoWindow(demo)
    yield window
    window.close()


@pytest.fixture
def demo_window(window: DemoWindow) -> Iterator[DemoWindow]:
    """Reload the page."""
    window.open()
    yield window
    window.assert_no_errors()


def stored(demo: Demo) -> list[dict[str, Any]]:
    """Return all stored events of the page's deployment."""
    lines = demo.server.get(f"/api/v1/events.ndjson?deployment={CUSTOMER.deployment}", demo.read_key)
    return [json.loads(line) for line in lines.splitlines()]


class TestEvents:
    def test_the_page_loads_without_errors_and_without_requests_to_other_origins(self, demo_window: DemoWindow) -> None:
        assert demo_window.names() == LOADED
        expect(demo_window.page.get_by_role("heading", level=1)).to_be_visible()
        origins = {"/".join(url.split("/")[:3]) for url in demo_window.requests}
        assert origins == {demo_window.demo.server.url, demo_window.demo.embed}

    def test_every_interaction_sends_an_event_that_becomes_visible(self, demo_window: DemoWindow) -> None:
        embed = demo_window.embed
        embed.locator("[data-widget=w_regions] .mark").first.click()
        embed.locator("[data-widget=w_months] .mark").nth(3).click()
        embed.locator("[data-widget=w_products] .cell").first.click()
        embed.get_by_role("button", name="Deliveries").click()
        demo_window.wait_for("dashboard-loaded", reached=None, count=2)
        embed.get_by_role("button", name="Query timeout").click()
        embed.get_by_role("button", name="Try again").click()
        for name, count in {"dashboard-loaded": 3, "drilldown": 3, "navigate": 1, "view": 2, "error": 1}.items():
            demo_window.wait_for(name, count=count)

        ids = set(
            demo_window.page.locator("#events > li").evaluate_all(
                "(lines) => lines.map((element) => element.dataset.id)"
            )
        )
        events = {event["event_id"]: event for event in stored(demo_window.demo)}
        assert ids <= events.keys(), "the panel shows the event as visible, but it is not in the store"
        sent = [events[event_id] for event_id in ids]
        assert {event["viewer"] for event in sent} == {CUSTOMER.viewer}
        assert {event["tenant"] for event in sent} == {CUSTOMER.tenant}
        drilled = {(event["member"], event["widget_id"]) for event in sent if event["type"] == "drilldown"}
        assert drilled == {
            ("orders.revenue", "w_regions"),
            ("orders.revenue", "w_months"),
            ("orders.count", "w_products"),
        }
        assert len({event["session"] for event in sent}) == 1

    def test_questions_are_answered_fail_or_stay_unanswered(self, demo_window: DemoWindow) -> None:
        for end in ("answers", "fails", "hangs"):
            demo_window.embed.locator(f".suggestion.{end}").click()
        expect(demo_window.embed.locator(".answer.failed")).to_have_count(1)
        demo_window.wait_for("ai-query", count=5)
        expect(demo_window.embed.locator(".thinking")).to_have_count(1)
        texts = demo_window.lines("ai-query").all_inner_texts()
        assert sorted(re.findall(r"(submitted|completed|error):", " ".join(texts))) == [
            "completed", "error", "submitted", "submitted", "submitted",
        ]  # fmt: skip
        expect(demo_window.page.locator("[data-report=ai_queries] .own")).to_contain_text("1 of 3")

    def test_the_app_and_the_chat_send_their_own_surface(self, demo_window: DemoWindow) -> None:
        demo_window.page.locator("#surfaces [value=app]").click()
        demo_window.embed.get_by_role("button", name="Quarterly planning").first.click()
        demo_window.embed.locator(".suggestion.answers").click()
        demo_window.wait_for("ai-query", reached=None, count=2)
        demo_window.page.locator("#surfaces [value=chat]").click()
        demo_window.embed.get_by_role("textbox").fill("How are we doing?")
        demo_window.embed.get_by_role("textbox").press("Enter")
        demo_window.wait_for("ai-query", reached="durable", count=4)
        surfaces = demo_window.lines("ai-query").locator(".meta > span").all_inner_texts()
        assert surfaces == ["chat", "chat", "app", "app"]
        assert demo_window.lines("ready").locator(".meta > span").all_inner_texts() == ["chat", "app", "dashboard"]
        demo_window.wait_for("navigate", reached="durable")

    def test_an_expired_session_is_fatal_until_the_viewer_signs_in_again(self, demo_window: DemoWindow) -> None:
        demo_window.embed.get_by_role("button", name="Expired session").click()
        expect(demo_window.wait_for("error", reached=None)).to_contain_text("fatal")
        demo_window.choose("navigate", "/dashboards/d_deliveries")
        demo_window.embed.get_by_role("button", name="Sign in again").click()
        demo_window.wait_for("ready", reached=None, count=2)
        # Only the action itself: the stopped embed ignored it.
        assert demo_window.lines("navigate").count() == 1

    def test_an_unknown_event_is_shown_as_quarantined(self, demo_window: DemoWindow) -> None:
        demo_window.wait_for("dashboard-loaded", reached="durable")
        demo_window.embed.get_by_role("button", name="Unknown event type").click()
        line = demo_window.wait_for("share", reached="durable")
        expect(line).to_contain_text("quarantined: unknown_type")
        expect(demo_window.page.locator("#summary")).to_contain_text("1 quarantined")
        # The browser logs the 422 itself.
        assert [error for error in demo_window.errors if "422" not in error] == []
        demo_window.errors.clear()

    def test_an_event_is_visible_only_after_the_server_returns_it(self, demo_window: DemoWindow) -> None:
        raw_events = re.compile(r"/api/v1/events\.ndjson")
        demo_window.page.route(raw_events, lambda route: route.fulfill(body=""))
        demo_window.embed.locator("[data-widget=w_regions] .mark").first.click()
        line = demo_window.wait_for("drilldown", reached="durable")
        with demo_window.page.expect_response(raw_events), demo_window.page.expect_response(raw_events):
            pass
        demo_window.page.wait_for_timeout(100)
        assert line.get_attribute("data-reached") == "durable"
        demo_window.page.unroute(raw_events)
        demo_window.wait_for("drilldown")

    def test_events_are_queued_while_offline_and_sent_when_online(self, demo_window: DemoWindow) -> None:
        demo_window.wait_for("dashboard-loaded", reached="durable")
        demo_window.page.locator("#offline").check()
        demo_window.embed.locator("[data-widget=w_regions] .mark").first.click()
        line = demo_window.wait_for("drilldown", reached="sent")
        expect(demo_window.page.locator("#summary")).to_contain_text("4 seen · 1 waiting")
        demo_window.page.wait_for_timeout(1_500)
        assert "reached" not in (line.locator("[data-stage=durable]").get_attribute("class") or "")
        demo_window.page.locator("#offline").uncheck()
        demo_window.wait_for("drilldown")
        expect(demo_window.page.locator("#summary")).to_have_text("4 seen · 4 visible · 0 lost")

    def test_the_page_stays_offline_through_a_reload(self, demo_window: DemoWindow) -> None:
        demo_window.wait_for("dashboard-loaded", reached="durable")
        demo_window.page.locator("#offline").check()
        demo_window.embed.locator("[data-widget=w_regions] .mark").first.click()
        demo_window.wait_for("drilldown", reached="sent")
        demo_window.page.reload()
        expect(demo_window.page.locator("#offline")).to_be_checked()
        line = demo_window.wait_for("drilldown", reached="sent")
        expect(line).to_contain_text("from before the reload")
        demo_window.wait_for("dashboard-loaded", reached=None)
        expect(demo_window.page.locator("#summary")).to_have_text("4 seen · 4 waiting · 0 visible · 0 lost")
        demo_window.page.locator("#offline").uncheck()
        demo_window.wait_for("drilldown")
        expect(demo_window.page.locator("#summary")).to_have_text("4 seen · 4 visible · 0 lost")
        # Events from before the reload do not count as this page's.
        expect(demo_window.page.locator("[data-report=views] .own")).to_have_text("1by you")

    @pytest.mark.parametrize(
        ("change", "name", "about"),
        [
            ({"type": "svc:event:view", "payload": None}, "view", ""),
            ({"type": 7, "payload": {"text": {"deep": 1}}}, "7", '{"deep":1}'),
            ({"type": None, "payload": "all of it", "surface": ["chat"]}, "no type", "all of it"),
            ({"type": "svc:event:drilldown", "payload": [1], "timestamp": "yesterday"}, "drilldown", "[1]"),
            ({"type": "svc:event:view", "payload": {"path": 3}, "timestamp": 1e300}, "view", "3"),
        ],
    )
    def test_invalid_envelopes_are_shown_and_counted(
        self, reused_window: DemoWindow, change: dict[str, Any], name: str, about: str
    ) -> None:
        before = reused_window.page.locator(f"#events > [data-type='{name}']").count()
        post_from_embed(reused_window, [change])
        line = reused_window.page.locator(f"#events > [data-type='{name}']").first
        expect(reused_window.page.locator(f"#events > [data-type='{name}']")).to_have_count(before + 1)
        expect(line).to_contain_text("quarantined: ")
        expect(line.locator(".title span")).to_have_text(about)
        reused_window.page.wait_for_timeout(100)  # until the browser has logged the 422
        reused_window.errors[:] = [error for error in reused_window.errors if "422" not in error]

    def test_a_line_expands_to_the_whole_envelope(self, reused_window: DemoWindow) -> None:
        line = reused_window.lines("ready").first
        line.get_by_role("button").click()
        envelope = json.loads(line.locator(".envelope").inner_text())
        assert envelope["type"] == "svc:event:ready"
        assert envelope["id"] == line.get_attribute("data-id")
        line.get_by_role("button").press("Enter")
        expect(line.locator(".envelope")).to_have_count(0)

    def test_chart_marks_work_with_the_keyboard(self, demo_window: DemoWindow) -> None:
        demo_window.embed.locator("[data-widget=w_regions] .mark").first.focus()
        demo_window.page.keyboard.press("Tab")
        demo_window.page.keyboard.press("Enter")
        expect(demo_window.wait_for("drilldown", reached=None)).to_contain_text("East")
        demo_window.page.keyboard.press("Enter")  # the focus is on the back button
        expect(demo_window.embed.locator("[data-widget=w_regions] h2")).to_have_text("Revenue by region")

    def test_the_counts_by_you_include_only_this_page(self, demo: Demo, demo_window: DemoWindow) -> None:
        demo_window.wait_for("view")
        views = "[data-report=views] .own"
        expect(demo_window.page.locator(views)).to_have_text("1by you", timeout=VISIBLE_MS_MAX)
        other = DemoWindow(demo)
        other.open()
        other.embed.get_by_role("button", name="Deliveries").click()
        other.wait_for("view", count=2)
        expect(other.page.locator(views)).to_have_text("2by you", timeout=VISIBLE_MS_MAX)
        total = "[data-report=views] .all b"
        expect(demo_window.page.locator(total)).to_have_text(other.page.locator(total).inner_text())
        expect(demo_window.page.locator(views)).to_have_text("1by you")
        other.close()

    def test_counts_include_lines_that_left_the_list(self, demo_window: DemoWindow) -> None:
        demo_window.wait_for("dashboard-loaded")
        demo_window.page.locator("#offline").check()
        post_from_embed(
            demo_window, [{"payload": {"surface": "dashboard", "path": f"/{number}"}} for number in range(240)]
        )
        summary = demo_window.page.locator("#summary")
        expect(summary).to_have_text("243 seen · 240 waiting · 3 visible · 0 lost")
        expect(demo_window.page.locator("#events > li")).to_have_count(80)
        expect(demo_window.page.locator("#older")).to_be_visible()
        demo_window.page.locator("#offline").uncheck()
        expect(summary).to_have_text("243 seen · 243 visible · 0 lost", timeout=VISIBLE_MS_MAX)
        expect(demo_window.page.locator("#events > li")).to_have_count(80)
        expect(demo_window.page.locator("#events > li .note", has_text="in ")).to_have_count(80)

    def test_the_page_works_at_localhost_too(self, demo: Demo) -> None:
        demo_window = DemoWindow(demo, address=demo.page.replace("127.0.0.1", "localhost"))
        demo_window.open()
        demo_window.wait_for("ready", reached="durable")
        demo_window.close()


class TestDownloads:
    def test_a_download_saves_a_file_and_sends_its_row_count(self, demo_window: DemoWindow) -> None:
        with demo_window.page.expect_download() as waiting:
            demo_window.embed.locator("[data-widget=w_products] .csv").click()
        rows = list(csv.reader(Path(waiting.value.path()).read_text().splitlines()))
        assert rows[0] == ["orders.product", "orders.count"]
        line = demo_window.wait_for("download")
        event = next(
            stored_event
            for stored_event in stored(demo_window.demo)
            if stored_event["event_id"] == line.get_attribute("data-id")
        )
        assert (event["format"], event["target"], event["widget_id"]) == ("csv", "widget", "w_products")
        assert event["row_count"] == len(rows) - 1
        expect(demo_window.page.locator("[data-report=downloads] .own")).to_contain_text("1")

    def test_downloads_need_allow_export_in_the_url(self, demo_window: DemoWindow) -> None:
        assert "allowExport=true" in (demo_window.page.locator("#embed").get_attribute("src") or "")
        expect(demo_window.embed.locator(".csv")).to_have_count(3)
        demo_window.page.locator("#allow-export").uncheck()
        demo_window.wait_for("dashboard-loaded", reached=None, count=2)
        assert "allowExport" not in (demo_window.page.locator("#embed").get_attribute("src") or "")
        expect(demo_window.embed.locator(".csv")).to_have_count(0)

    def test_every_report_can_be_saved(self, reused_window: DemoWindow) -> None:
        names = {report["name"] for report in reused_window.demo.server.get_json("/api/v1/reports")}
        expect(reused_window.page.locator("#reports > li")).to_have_count(len(names))
        with reused_window.page.expect_download() as waiting:
            reused_window.page.locator("#reports [data-report=views] button").click()
        assert Path(waiting.value.path()).read_text().startswith("period_start,deployment,surface,")


@pytest.fixture
def reused_window(window: DemoWindow) -> Iterator[DemoWindow]:
    """Return the page as the previous test left it, because loading takes a second."""
    if not window.page.url.startswith("http"):
        window.open()
    yield window
    window.assert_no_errors()


@pytest.fixture(scope="module")
def action_window(demo: Demo) -> Iterator[DemoWindow]:
    """Open one page for all tests of actions."""
    action_window = DemoWindow(demo)
    action_window.open()
    yield action_window
    action_window.close()


class TestActions:
    def test_the_colour_scheme_action_changes_the_embed(self, action_window: DemoWindow) -> None:
        before = action_window.style("html", "backgroundColor")
        action_window.choose("set-color-scheme", "dark")
        expect(action_window.embed.locator("html")).to_have_attribute("data-scheme", "dark")
        assert lightness(action_window.style("html", "backgroundColor")) < 0.2 < 0.8 < lightness(before)

    def test_the_theme_action_changes_the_embed(self, action_window: DemoWindow) -> None:
        action_window.choose("set-theme", "plum")
        expect(action_window.embed.locator(".questions form button")).to_have_css(
            "background-color", "rgb(156, 54, 181)"
        )
        assert action_window.style(".widget", "borderRadius") == "2px"
        assert "Georgia" in action_window.style("html", "fontFamily")

    def test_the_locale_action_changes_the_embed(self, action_window: DemoWindow) -> None:
        action_window.choose("set-locale", "de-AT")
        expect(action_window.embed.locator("html")).to_have_attribute("lang", "de-AT")
        expect(action_window.embed.locator("[data-widget=w_months] h2")).to_have_text("Umsatz nach Monat")

    def test_the_filter_action_changes_the_embed(self, action_window: DemoWindow) -> None:
        revenue = action_window.embed.locator(".figure dd").first
        before = revenue.inner_text()
        action_window.choose("set-filter", "North")
        expect(action_window.embed.locator(".chip")).to_have_text("Region: North")
        expect(action_window.embed.locator("[data-widget=w_regions] .mark")).to_have_count(1)
        assert revenue.inner_text() != before
        action_window.choose("set-filter", "")
        expect(revenue).to_have_text(before)

    def test_the_navigate_action_changes_the_embed(self, action_window: DemoWindow) -> None:
        action_window.choose("navigate", "/dashboards/d_deliveries")
        expect(action_window.embed.locator("[aria-current=page]")).to_have_text("Lieferungen")
        action_window.wait_for("view", reached=None, count=2)
        # The action and its event have the same name.
        action_window.wait_for("navigate", reached=None, count=2)

    def test_the_refresh_action_reloads_the_embed(self, action_window: DemoWindow) -> None:
        loaded_count = action_window.lines("dashboard-loaded").count()
        action_window.choose("refresh", "refresh")
        action_window.wait_for("dashboard-loaded", reached=None, count=loaded_count + 1)

    @pytest.mark.parametrize(
        "change", [{"source": "other-embed"}, {"direction": "event"}, {"type": "svc:action:unheard-of"}]
    )
    def test_other_messages_are_ignored(self, action_window: DemoWindow, change: dict[str, str]) -> None:
        action = {"source": "svc-embed", "direction": "action", "type": "svc:action:set-locale"} | change
        post = "(message) => document.querySelector('#embed').contentWindow.postMessage(message, '*')"
        action_window.page.evaluate(post, {**action, "payload": {"locale": "fr"}, "timestamp": 0})
        self.test_the_refresh_action_reloads_the_embed(action_window)
        expect(action_window.embed.locator("html")).to_have_attribute("lang", "de-AT")

    def test_every_action_is_stored(self, action_window: DemoWindow) -> None:
        for name in ("set-color-scheme", "set-theme", "set-locale", "refresh"):
            action_window.wait_for(name, reached="durable", count=action_window.lines(name).count())
        action_window.wait_for("set-filter", reached="durable", count=2)
        action_window.wait_for("navigate", reached="durable", count=2)

    def test_a_reloaded_embed_receives_the_chosen_actions_again(self, action_window: DemoWindow) -> None:
        action_window.choose("set-filter", "South")
        for surface in ("app", "dashboard"):
            action_window.page.locator(f"#surfaces [value={surface}]").click()
            expect(action_window.embed.locator("html")).to_have_attribute("lang", "de-AT")
            expect(action_window.embed.locator("html")).to_have_attribute("data-scheme", "dark")
            expect(action_window.embed.locator(".chip")).to_have_text("Region: South")
            expect(action_window.embed.locator(".questions form button")).to_have_css(
                "background-color", "rgb(156, 54, 181)"
            )
            chosen = action_window.page.locator("#actions input:checked").evaluate_all(
                "(all) => all.map((element) => element.value)"
            )
            assert chosen == ["dark", "plum", "de-AT", "South"]


class TestLooks:
    def test_the_page_follows_the_preferred_colour_scheme(self, reused_window: DemoWindow) -> None:
        for scheme, is_light in (("dark", False), ("light", True)):
            reused_window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            for frame in reused_window.page.frames:
                light = lightness(frame.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
                assert light > 0.8 if is_light else light < 0.2, f"{scheme}: {frame.url}"

    def test_no_width_needs_horizontal_scrolling(self, reused_window: DemoWindow) -> None:
        for surface in ("dashboard", "app", "chat"):
            reused_window.page.locator(f"#surfaces [value={surface}]").click()
            expect(reused_window.embed.locator(f"#embed.{surface} main *").first).to_be_visible()
            for width in (320, 390, 768, 1100, 1920):
                reused_window.page.set_viewport_size({"width": width, "height": 844})
                for frame in reused_window.page.frames:
                    room = frame.evaluate("innerWidth - document.documentElement.scrollWidth")
                    assert room >= 0, f"{surface}, {width} px: {frame.url}"
            reused_window.page.set_viewport_size(WINDOW)

    def test_reduced_motion_stops_all_animations(self, reused_window: DemoWindow) -> None:
        reused_window.page.emulate_media(reduced_motion="reduce")
        reused_window.embed.locator(".suggestion.hangs").click()
        expect(reused_window.embed.locator(".thinking")).to_have_count(1)
        for frame in reused_window.page.frames:
            assert frame.evaluate("document.getAnimations().length") == 0
        reused_window.page.emulate_media(reduced_motion="no-preference")

    def test_touch_targets_are_at_least_44_px(self, reused_window: DemoWindow) -> None:
        reused_window.page.set_viewport_size(PHONE)
        for surface in ("app", "chat", "dashboard"):
            reused_window.page.locator(f"#surfaces [value={surface}]").click()
            expect(reused_window.embed.locator(f"#embed.{surface} main *").first).to_be_visible()
            expect(reused_window.embed.locator(".loading")).to_have_count(0)
            for frame in reused_window.page.frames:
                assert frame.evaluate(SMALL_TARGETS) == [], f"{surface}: {frame.url}"
        reused_window.page.set_viewport_size(WINDOW)

    def test_a_phone_shows_the_newest_event_while_the_panel_is_off_screen(self, demo_window: DemoWindow) -> None:
        newest = demo_window.page.locator("#newest")
        expect(newest).to_be_hidden()
        demo_window.page.set_viewport_size(PHONE)
        # The main targets are visible without scrolling inside the embed.
        foot = demo_window.embed.locator("footer").evaluate("(element) => element.getBoundingClientRect().top")
        for selector in (".suggestion.answers", "[data-widget=w_regions] .mark:last-child"):
            assert (
                demo_window.embed.locator(selector).evaluate("(element) => element.getBoundingClientRect().bottom")
                < foot
            ), selector
        demo_window.page.evaluate("scrollTo(0, 0)")
        demo_window.embed.locator(".suggestion.hangs").click()
        expect(newest).to_contain_text("submitted: Compare all orders")
        expect(newest.locator(".reached")).to_have_count(4, timeout=VISIBLE_MS_MAX)
        expect(newest).to_contain_text("4 seen · 4 visible · 0 lost")
        newest.click()
        expect(demo_window.page.locator("#panel")).to_be_in_viewport()
        expect(newest).to_be_hidden()
        demo_window.page.set_viewport_size(WINDOW)

    def test_a_phone_shows_the_first_reports_until_all_are_requested(self, reused_window: DemoWindow) -> None:
        reused_window.page.set_viewport_size(PHONE)
        reports = reused_window.page.locator("#reports > li:visible")
        expect(reports).to_have_count(6)
        every = reused_window.page.locator("#all-reports")
        every.click()
        assert reports.count() == reused_window.page.locator("#reports > li").count() > 15
        expect(every).to_be_hidden()
        reused_window.page.set_viewport_size(WINDOW)

    def test_the_page_has_the_logo_of_the_dashboards_and_links_to_them(self, reused_window: DemoWindow) -> None:
        marks = reused_window.page.locator("link[rel=icon], .brand img").evaluate_all(
            "(all) => all.map((element) => element.href ?? element.src)"
        )
        assert marks == [f"{reused_window.demo.server.url}/pages/mark.svg"] * 2
        assert fetch(marks[0]).headers["content-type"].startswith("image/svg+xml")
        for name, path in {"Dashboards": "/dashboards/", "Inspector": "/dashboards/inspector", "API": "/docs"}.items():
            link = reused_window.page.get_by_role("link", name=name, exact=True)
            assert link.get_attribute("href") == path
            with reused_window.page.expect_popup() as opened:
                link.click()
            expect(opened.value.get_by_role("heading", level=1)).to_be_visible()
            assert opened.value.url == reused_window.demo.server.url + path
            opened.value.close()


class TestServers:
    def test_other_origins_can_frame_neither_page(self, demo: Demo) -> None:
        page = policy(demo.page)
        assert page["frame-ancestors"] == "'none'"
        assert page["frame-src"] == demo.embed
        embed = policy(f"{demo.embed}/embed/dashboard/d_orders")
        assert embed["frame-ancestors"] == " ".join(origins(demo.server.port))
        for rules in (page, embed):
            assert rules["default-src"] == "'none'"
            assert rules["script-src"] == rules["style-src"] == "'self'"

    def test_an_embed_in_a_foreign_page_does_not_load(self, demo: Demo) -> None:
        with demo.browser.new_context() as context:
            page = context.new_page()
            foreign = f'<iframe src="{demo.embed}/embed/dashboard/d_orders?session=s"></iframe>'
            page.route("http://elsewhere.example/", lambda route: answer(route, foreign))
            page.goto("http://elsewhere.example/")
            with pytest.raises(Exception, match="Timeout"):
                page.frame_locator("iframe").locator("#embed").wait_for(timeout=1_000)

    @pytest.mark.parametrize("path", ["/", "/embed.py", "/../embed.py", "/host.json", "/embed", "/%2e%2e/host/main.js"])
    def test_the_embed_serves_only_its_own_pages(self, demo: Demo, path: str) -> None:
        assert fetch(demo.embed + path).status == 404

    def test_the_keys_of_the_page_have_minimal_permissions(self, demo: Demo) -> None:
        known = json.loads(demo.server.get("/demo/host.json"))
        assert known["ingestKey"].startswith("es_ingest_")
        assert known["readKey"].startswith("es_read_")
        assert "es_admin_" not in json.dumps(known)
        # The notebook lines on the page work with this key.
        assert fetch(f"{demo.server.url}/api/v1/reports", key=known["readKey"]).status == 200
        # The snapshot contains all deployments, more than the key's scope.
        assert fetch(f"{demo.server.url}/api/v1/analytics.duckdb", key=known["readKey"]).status == 403
        elsewhere = {"Origin": "https://elsewhere.example"}
        assert fetch(f"{demo.server.url}/api/v1/reports", key=known["readKey"], headers=elsewhere).status == 403
        body = json.dumps({"context": {"deployment": 12}, "events": []}).encode()
        headers = {"Content-Type": "application/json"}
        assert fetch(f"{demo.server.url}/api/v1/events", key=known["ingestKey"], headers=headers, body=body).status in (
            400,
            403,
        )

    @pytest.mark.parametrize("path", ["", "host.json", "main.js"])
    def test_the_page_and_its_keys_need_a_loopback_host_header(self, demo: Demo, path: str) -> None:
        for host in ("127.0.0.1", "localhost"):
            assert fetch(demo.page + path, headers={"Host": f"{host}:{demo.server.port}"}).status == 200
        rebound = fetch(demo.page + path, headers={"Host": f"elsewhere.example:{demo.server.port}"})
        assert rebound.status == 404
        assert b"es_" not in rebound.body

    def test_the_embed_uses_a_free_port_when_its_port_is_in_use(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            EmbedServer(taken.getsockname()[1], host_origins=("'self'",)) as embed,
        ):
            assert fetch(f"{embed.origin}/embed/chat").status == 200


def post_from_embed(demo_window: DemoWindow, changes: list[dict[str, Any]]) -> None:
    """Send view events from the embed, each with changed fields."""
    envelope = {"source": "svc-embed", "direction": "event", "type": "svc:event:view", "surface": "dashboard"}
    post = """(envelopes) => envelopes.forEach(
        (envelope) => parent.postMessage({ timestamp: Date.now(), ...envelope }, "*"))"""
    demo_window.embed.locator("html").evaluate(
        f"(_, envelopes) => ({post})(envelopes)", [envelope | change for change in changes]
    )


def answer(route: Route, html: str) -> None:
    route.fulfill(body=html, content_type="text/html")


def policy(url: str) -> dict[str, str]:
    rules = [rule.partition(" ") for rule in fetch(url).headers["content-security-policy"].split("; ")]
    return {name: value for name, _, value in rules}


def lightness(colour: str) -> float:
    """Return the lightness of a computed colour such as `rgb(247, 246, 242)`, from 0 to 1."""
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3 / 255
