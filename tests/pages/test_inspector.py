"""The inspector in a real browser: it shows arriving events, applies its controls, and runs no script of an event."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from embedsink.auth.key_store import KeyStore
from tests.pages.watching import log_in
from tests.support.envelopes import event_or_action, view
from tests.support.servers import RunningServer, wait_until

WRONG = event_or_action("event:download", {"format": "doc"})
HOSTILE = (
    "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
    "\u202e שלום \x1b]0;run\x07 {{7*7}} '\"`"
)
LOADED_MS = 30_000
WHOLE_TIMES = """[...document.querySelectorAll('.envelope time')].every((time) => {
  const text = document.createRange();
  text.selectNodeContents(time);
  return text.getBoundingClientRect().width <= time.getBoundingClientRect().width;
})"""


class Inspector:
    """A page of the inspector, logged in. `said` has the messages of its console, including policy violations."""

    def __init__(self, page: Page, server: RunningServer) -> None:
        self.page = page
        self.server = server
        self.key = server.key("ingest")
        self.key_id = KeyStore(server.data / "keys.json").keys()[-1].key_id
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(_line(message)))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def open(self, query: str = "") -> None:
        """Open the page, and wait until it is live."""
        self.page.goto(f"{self.server.url}/dashboards/inspector{query}")
        expect(self.page.locator("#live")).to_have_attribute("data-state", "live", timeout=LOADED_MS)

    def send(self, *events: Any, **context: Any) -> None:
        """Deliver events."""
        assert self.server.post({"context": context, "events": list(events)}, key=self.key).status in (202, 422)

    def rows(self, text: str = "") -> Locator:
        """Return the rows that contain a text, newest first."""
        return self.page.locator(".envelope").filter(has_text=text)

    def show(self, text: str) -> Locator:
        """Open the newest row with this text."""
        row = self.rows(text).first
        row.locator("summary").click(timeout=LOADED_MS)
        return row


def _line(message: ConsoleMessage) -> str:
    return f"{message.type}: {message.text}"


@contextmanager
def inspecting(browser: Browser, server: RunningServer, *, key: str = "", **options: Any) -> Iterator[Inspector]:
    context = browser.new_context(**({"reduced_motion": "reduce"} | options))
    try:
        log_in(context, server, key or server.key("read"))
        yield Inspector(context.new_page(), server)
    finally:
        context.close()


@pytest.fixture
def inspector(browser: Browser, server: RunningServer) -> Iterator[Inspector]:
    """Open a page whose console must be empty at the end of the test."""
    with inspecting(browser, server) as opened:
        yield opened
        assert opened.said == []


def test_arriving_events_appear_newest_first_with_reason_and_path(inspector: Inspector) -> None:
    inspector.open("?session=appears")
    expect(inspector.page.get_by_text("No matching envelopes yet")).to_be_visible()
    inspector.send(view(), WRONG, session="appears", deployment=12)
    expect(inspector.rows()).to_have_count(2, timeout=LOADED_MS)
    expect(inspector.rows().first).to_contain_text("bad_field at payload.format")
    expect(inspector.rows().last).to_contain_text("accepted")
    expect(inspector.page.locator("#totals")).to_have_text("Since this list began: 1 accepted · 1 rejected")
    inspector.send(event_or_action("action:refresh"), session="appears")
    expect(inspector.rows().first).to_contain_text("refreshaction", timeout=LOADED_MS)


def test_a_row_opens_with_its_envelope_and_its_error(inspector: Inspector) -> None:
    inspector.open("?session=opens")
    inspector.send(WRONG, session="opens", viewer="u_42")
    row = inspector.show("bad_field")
    text_shown = row.locator("pre").inner_text()
    assert json.loads(text_shown) == WRONG
    assert '\n  "payload": {\n    "format": "doc",\n' in text_shown
    expect(row.locator("pre .invalid")).to_have_text('"doc"')
    expect(row.locator(".detail")).to_have_text('payload.format: "doc" is not one of csv, xlsx, png, pdf.')
    expect(row.locator("dl")).to_contain_text("u_42")


def test_numbers_keep_their_digits_and_duplicate_names_are_both_shown(inspector: Inspector) -> None:
    inspector.open("?outcome=quarantined")
    body = b'{"a":12345678901234567890.10,"a":[1.50,{}, []],"b":"\\u00e9"}'
    assert inspector.server.post(body, key=inspector.key).status == 400
    text_shown = inspector.show("duplicate_key").locator("pre").inner_text()
    assert re.sub(r"\s", "", text_shown) == body.decode().replace(" ", "")


def test_an_unknown_type_can_be_filtered_and_a_misspelt_type_is_reported(inspector: Inspector) -> None:
    inspector.open("?session=slips")
    inspector.send(view() | {"type": "svc:event:veiw"}, view(), session="slips")
    inspector.show("unknown_type").get_by_role("button", name="Only this type").click()
    expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
    assert "type=veiw&outcome=quarantined" in inspector.page.url
    inspector.page.goto(f"{inspector.server.url}/dashboards/inspector?type=veiw")
    expect(inspector.page.get_by_text('Did you mean "view"?')).to_be_visible()
    assert all("status of 400" in line for line in inspector.said)
    inspector.said.clear()


def test_hostile_values_are_escaped(inspector: Inspector) -> None:
    inspector.open()
    wild = {"source": "svc-embed", "direction": "event", "type": HOSTILE, "payload": {HOSTILE: HOSTILE}}
    context = dict.fromkeys(("session", "viewer", "tenant", "page"), HOSTILE)
    inspector.send(view({"title": HOSTILE, HOSTILE: HOSTILE}), wild, 1, HOSTILE, deployment=1, **context)
    inspector.send(view({"title": "x" * 40_000, "path": "\u202e" * 2_000}), deployment=1, **context)
    assert inspector.server.post(f"not json {HOSTILE}".encode(), key=inspector.key).status == 400
    expect(inspector.rows("not_json").first).to_be_visible(timeout=LOADED_MS)
    for row in inspector.rows().all()[:6]:
        row.locator("summary").click()
        row.get_by_role("button", name="Copy").wait_for()
    page = inspector.page
    assert page.title() == "Inspector · embedsink"
    assert page.locator("main img, main script").count() == 0
    text_shown = page.locator("main").inner_text()
    assert "<img src=x" in text_shown
    assert "\u202e" not in text_shown
    assert "\\u202e" in text_shown
    page.get_by_role("button", name="Only this session").first.click()
    assert page.get_by_label("Session").input_value().startswith("<img src=x")
    expect(inspector.rows("unknown_type")).to_have_count(1, timeout=LOADED_MS)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_filters_are_in_the_url_and_a_link_shows_the_same(inspector: Inspector) -> None:
    page = inspector.page
    inspector.send(view(), WRONG, session="one", tenant="acme")
    inspector.send(view(), session="two", tenant="acme")
    inspector.open("?session=one")
    expect(inspector.rows()).to_have_count(2, timeout=LOADED_MS)
    page.get_by_role("radio", name="Rejected").check()
    expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
    assert page.url.endswith("?session=one&outcome=quarantined")
    page.reload()
    expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
    assert page.get_by_label("Session").input_value() == "one"
    page.go_back()
    expect(inspector.rows()).to_have_count(2, timeout=LOADED_MS)
    page.get_by_role("button", name="Remove all filters").click()
    expect(inspector.rows("two").first).to_be_visible(timeout=LOADED_MS)
    page.get_by_label("Type").fill("svc:event:download")
    page.keyboard.press("Enter")
    expect(inspector.rows("view")).to_have_count(0, timeout=LOADED_MS)
    expect(inspector.rows("download").first).to_be_visible(timeout=LOADED_MS)


def test_a_pause_stops_the_list_and_resuming_misses_nothing(inspector: Inspector) -> None:
    inspector.open("?session=pause")
    inspector.send(view(), session="pause")
    expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
    with inspector.page.expect_event("requestfailed", lambda request: "/events/live" in request.url):
        inspector.page.get_by_role("button", name="Pause").click()
    expect(inspector.page.locator("#live")).to_have_text("Paused")
    inspector.send(view(), WRONG, session="pause")
    inspection = inspector.server.get("/api/v1/inspect?session=pause", key=inspector.server.key("read")).json()
    assert inspection["quarantinedCount"] == 1
    expect(inspector.rows()).to_have_count(1)  # No stream is open that could add rows.
    inspector.page.get_by_role("button", name="Resume").click()
    expect(inspector.rows()).to_have_count(3, timeout=LOADED_MS)


def test_a_rejection_can_be_replayed_only_with_an_admin_key(browser: Browser, server: RunningServer) -> None:
    reader = server.key("read")
    with inspecting(browser, server, key=reader) as inspector:
        try_again(inspector, inspector.page, reader)


def try_again(inspector: Inspector, page: Page, reader: str) -> None:
    inspector.open("?session=again")
    inspector.send(WRONG, session="again")
    row = inspector.show("bad_field")
    row.get_by_role("button", name="Replay").click()
    page.get_by_role("textbox", name="Admin key").fill(reader)
    page.get_by_role("button", name="Replay").last.click()
    expect(page.locator("#key-form-error")).to_contain_text("this request needs admin")
    page.get_by_role("textbox", name="Admin key").fill(inspector.server.key("admin"))
    page.keyboard.press("Enter")
    expect(row.get_by_role("button", name="Rejected again")).to_be_enabled()
    assert page.locator("#admin").input_value() == ""
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage])") == "[{},{}]"
    assert [line for line in inspector.said if "403" not in line] == []  # Browsers log each refusal.


def test_the_inspector_works_with_the_keyboard_alone(inspector: Inspector) -> None:
    page = inspector.page
    inspector.open("?session=keys")
    inspector.send(WRONG, session="keys")
    expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(inspector.rows().first.locator("pre")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Envelope"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Only this type"


def test_a_scoped_reader_sees_its_own_deployments(browser: Browser, server: RunningServer) -> None:
    scoped = server.key("read", deployments=[2])
    with inspecting(browser, server, key=scoped) as inspector:
        inspector.send(view({"title": "secret"}), WRONG, session="scoped", deployment=1)
        inspector.open("?session=scoped")
        inspector.send(view(), session="scoped", deployment=1)
        inspector.send(view(), session="scoped", deployment=2)
        expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
        inspector.page.goto(f"{server.url}/dashboards/inspector?deployment=1")
        expect(inspector.page.get_by_role("alert").first).to_contain_text("1 is outside the key's scope")
        expect(inspector.page.locator("#live")).to_have_text("Not connected")


def test_a_revoked_key_redirects_to_the_login(browser: Browser, server: RunningServer) -> None:
    reader = server.key("read")
    with inspecting(browser, server, key=reader) as inspector:
        inspector.open("?session=revoked")
        KeyStore(server.data / "keys.json").revoke(reader, now=time.time())
        inspector.page.wait_for_url("**/login?next=**session*", timeout=LOADED_MS)


def test_a_disconnection_is_shown_and_the_stream_reconnects_automatically(
    browser: Browser, server: RunningServer
) -> None:
    with inspecting(browser, server) as inspector:
        page = inspector.page
        page.clock.install()
        inspector.open("?session=away")
        page.route("**/api/v1/**", lambda route: route.abort())
        page.evaluate("document.getElementById('pause').click(); document.getElementById('pause').click()")
        expect(page.locator("#live")).to_have_attribute("data-state", "connecting")
        page.clock.fast_forward(5_000)
        expect(page.locator("#live")).to_have_text("Disconnected")
        page.unroute("**/api/v1/**")
        inspector.send(view(), session="away")
        page.clock.fast_forward(5_000)
        expect(inspector.rows()).to_have_count(1, timeout=LOADED_MS)
        expect(page.locator("#live")).to_have_text("Live")


def test_earlier_rows_are_shown_after_the_stream_broke(inspector: Inspector) -> None:
    inspector.send(view(), session="broken")
    inspector.server.get("/api/v1/inspect?session=broken", key=inspector.server.key("read"))  # The event is loaded.
    page, broken_stream = inspector.page, "id: 999999999\nevent: connected\ndata: {}\n\n"
    page.clock.install()
    page.route(
        "**/api/v1/events/live*",
        lambda route: route.fulfill(content_type="text/event-stream", body=broken_stream),
        times=1,
    )
    page.goto(f"{inspector.server.url}/dashboards/inspector?session=broken")
    expect(page.locator("#live")).to_have_attribute("data-state", "connecting")

    def is_updated_seconds_later() -> bool:
        page.clock.run_for(5_000)
        return inspector.rows().count() == 1

    wait_until(
        is_updated_seconds_later, description="the page asked again"
    )  # The page may detect the broken stream only now.


@pytest.mark.parametrize("text", ["[" * 16_000, 'x"' + '\\"' * 8_000], ids=["brackets", "quotes"])
def test_a_hostile_body_opens_quickly(inspector: Inspector, text: str) -> None:
    inspector.open(f"?key={inspector.key_id}")
    assert inspector.server.post(text.encode(), key=inspector.key).status == 400
    row = inspector.show("too_deep" if text.startswith("[") else "not_json")
    text_shown = row.locator("pre").text_content(timeout=LOADED_MS) or ""
    stored_text = text[:8_192]
    assert (text_shown.count("["), text_shown.count('"')) == (stored_text.count("["), stored_text.count('"'))
    assert len(text_shown) < 2 * len(text)


def test_formatting_takes_linear_time(inspector: Inspector) -> None:
    inspector.open()
    took_ms = """async text => {
      const {formatEnvelope} = await import('/pages/envelope.js');
      const began = performance.now();
      formatEnvelope(text, 'a');
      return performance.now() - began;
    }"""
    short, long = (inspector.page.evaluate(took_ms, 'x"' + '\\"' * count) for count in (8_000, 64_000))
    assert long <= 24 * max(short, 5)  # Eight times the text takes eight times the work, not 64 times.


def test_a_value_after_an_empty_object_is_shown(inspector: Inspector) -> None:
    inspector.open("?session=empties")
    inspector.send(view({"novel": [{}, "a", {"b": []}, "c"]}), session="empties")
    row = inspector.show("view")
    row.locator("pre").wait_for()
    assert row.locator("pre .text").all_inner_texts().count('"a"') == 1
    assert row.locator("pre .name").all_inner_texts().count('"a"') == 0


def test_the_inspector_fits_phones_and_wide_screens_and_has_no_serious_barrier(inspector: Inspector) -> None:
    page = inspector.page
    page.emulate_media(reduced_motion="reduce")
    inspector.open("?session=fits")
    inspector.send(view(), WRONG, session="fits")
    inspector.show("bad_field")
    schemes: Any = ("light", "dark")
    for scheme in schemes:
        for width in (360, 1_440):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert inspector.rows().first.locator(".session").is_visible()
            assert page.evaluate(WHOLE_TIMES)
            if (scheme, width) in (("light", 1_440), ("dark", 360)):  # Each scheme and each layout once.
                violations = Axe().run(page).response["violations"]
                assert [
                    violation["id"] for violation in violations if violation["impact"] in ("serious", "critical")
                ] == []
