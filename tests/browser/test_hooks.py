"""The functions that a host gives to the forwarder: `adapt`, `beforeSend` and `context`, and its calls of `track`."""

import pytest
from playwright.sync_api import Page

from tests.browser.stage import FRAME, INLINE_SCRIPT, Stage, embed_in, on_durable
from tests.support.servers import wait_until

pytestmark = pytest.mark.server

# An adapter of a vendor whose messages are JSON texts, such as '{"moved": "/a"}'.
ADAPT = """(data) => typeof data == "string"
    ? JSON.parse(data).moved.map((path) => ({ type: "navigate", payload: { path }, surface: "app", timestamp: 7 }))
    : []"""
SAY_MOVED = """parent.postMessage('{"moved": ["/a", "/b"]}', '*')"""


def vendor_page(stage: Stage, vendor: str, *, before: str = "", path: str = "/vendor") -> Page:
    """Open a page whose element names a vendor. `warnings` of the page has its console warnings."""
    attributes = f'data-vendor="{vendor}" data-key="{stage.key}" data-origin="{stage.tenant.url}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    watch = "<script>window.warnings = []; console.warn = (error) => void warnings.push(String(error));</script>"
    page = stage.context().new_page()
    page.goto(
        stage.host.add(
            path, f"<!doctype html>{watch}{before}{element}{FRAME.format(embed=stage.tenant.url, session=1)}"
        )
    )
    return page


def test_an_adapter_converts_messages_of_the_origin_only(stage: Stage) -> None:
    page = stage.open(stage.host_page(options=f"{{ adapt: (data) => (seen.push(data), ({ADAPT})(data)) }}"))
    page.evaluate('() => { window.seen = []; postMessage(\'{"moved": ["/forged"]}\'); }')
    page.wait_for_function("f.ignored == 1")
    embed_in(page).evaluate(SAY_MOVED)
    [delivery] = stage.delivered(2, at_once=page)
    assert page.evaluate("seen") == ['{"moved": ["/a", "/b"]}']
    for number, (event, path) in enumerate(zip(delivery["events"], ("/a", "/b"), strict=True)):
        del event["id"]
        assert event == {
            "source": "svc-embed",
            "direction": "event",
            "type": "svc:event:navigate",
            "payload": {"path": path},
            "surface": "app",
            "timestamp": 7,
            "seq": number,
        }


def test_with_an_adapter_other_messages_are_ignored_and_its_exceptions_do_not_escape(stage: Stage) -> None:
    page = stage.open(stage.host_page(options=f"{{ adapt: {ADAPT} }}"))
    embed_in(page).evaluate("view('/a'); parent.postMessage('no JSON', '*')")
    page.wait_for_function("f.ignored == 2")
    assert page.evaluate("stages") == []


def test_an_element_with_a_vendor_adapts_also_the_messages_before_it_ran(stage: Stage) -> None:
    stage.gate.modules["/vendors/pretend-1.js"] = f"export const adapt = {ADAPT};"
    page = vendor_page(stage, "pretend-1", before=INLINE_SCRIPT)
    embed_in(page).evaluate(SAY_MOVED)
    body = stage.gate.first_body()
    assert [event["payload"]["path"] for event in body["events"]] == ["/a", "/b"]
    assert body["context"]["vendor"] == "pretend-1"


@pytest.mark.parametrize("vendor", ["missing", "Looker", ""])
def test_without_its_adapter_a_vendor_is_not_sent(stage: Stage, vendor: str) -> None:
    embed_in(vendor_page(stage, vendor, before=INLINE_SCRIPT)).evaluate("view('/a')")
    body = stage.gate.first_body()
    assert body["events"][0]["payload"]["path"] == "/a"
    assert "vendor" not in body["context"]


def test_a_tracked_event_does_not_take_the_session_of_the_iframe(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ iframe: document.querySelector('iframe') }"))
    page.evaluate("f.track({ type: 'view', payload: { surface: 'app', path: '/tracked' } })")
    embed_in(page).evaluate("view('/a')")
    tracked, first = (delivery["context"]["session"] for delivery in stage.delivered(2, at_once=page))
    assert first != tracked
    page.reload()
    embed_in(page).evaluate("view('/b')")
    *_, last = stage.delivered(3)
    assert (last["context"]["session"], last["events"][0]["seq"]) == (first, 1)


def test_a_missing_adapter_is_named_in_a_warning_and_breaks_nothing(stage: Stage) -> None:
    page = vendor_page(stage, "missing")
    page.wait_for_function("warnings.length == 1")
    if stage.engine.names_failed_imports:
        assert f"{stage.gate.url}/vendors/missing.js" in page.evaluate("warnings[0]")
    invalid = vendor_page(stage, "../actions")
    invalid.wait_for_function("warnings.length == 1")
    if stage.engine.names_failed_imports:
        assert f"{stage.gate.url}/vendors/..%2Factions.js" in invalid.evaluate("warnings[0]")
    assert stage.thrown == []


def test_the_context_may_be_a_function(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ context: () => ({ viewer: `u_${++calls}` }) }"))
    page.evaluate("window.calls = 0")
    for _ in range(2):
        embed_in(page).evaluate("view('/a')")
    deliveries = stage.delivered(2, at_once=page)
    assert [delivery["context"]["viewer"] for delivery in deliveries] == ["u_1", "u_2"]


def test_before_send_changes_a_copy_and_the_server_gets_only_the_change(stage: Stage) -> None:
    options = "{ beforeSend: (event) => { event.payload.embedTenant = event.payload.path = 'hidden'; return event; } }"
    page = stage.open(stage.host_page(options=options))
    page.evaluate("""() => {
        window.own = [];
        addEventListener("message", ({ data }) => own.push(data.payload.path ?? data.payload.embedTenant));
    }""")
    embed_in(page).evaluate("ready(12, 'secret'); view('/secret')")
    [delivery] = stage.delivered(2, at_once=page)
    assert delivery["context"]["tenant"] == "hidden"
    assert delivery["context"]["deployment"] == 12
    assert "secret" not in str(delivery)
    assert page.evaluate("own") == ["secret", "/secret"]


@pytest.mark.parametrize("dropped", ["null", "undefined"])
def test_a_dropped_event_takes_no_number_and_is_not_lost(stage: Stage, dropped: str) -> None:
    options = f"{{ beforeSend: (event) => event.payload.path == '/drop' ? {dropped} : event }}"
    page = stage.open(stage.host_page(options=options))
    embed_in(page).evaluate("view('/drop'); view('/a'); view('/drop'); view('/b')")
    [delivery] = stage.delivered(2, at_once=page)
    assert [(event["seq"], event["payload"]["path"]) for event in delivery["events"]] == [(0, "/a"), (1, "/b")]
    assert delivery["lost"] == {}
    assert "/drop" not in page.evaluate("JSON.stringify({ ...localStorage })")
    assert page.evaluate("f.ignored") == 0


@pytest.mark.parametrize("hook", ["beforeSend", "context"])
def test_an_event_whose_hook_throws_is_counted_and_never_sent(stage: Stage, hook: str) -> None:
    failing = "() => { if (isFailing) throw new Error('boom'); return value; }"
    value = "{ viewer: 'u_1' }" if hook == "context" else "event"
    page = stage.open(
        stage.host_page(options=f"{{ {hook}: (event) => {{ const value = {value}; return ({failing})(); }} }}")
    )
    page.evaluate("window.isFailing = true")
    embed_in(page).evaluate("view('/secret')")
    page.wait_for_function("problems.length == 1")
    assert page.evaluate("problems[0].message") == "boom"
    page.evaluate("() => { isFailing = false; }")
    embed_in(page).evaluate("view('/b')")
    [delivery] = stage.delivered(1, at_once=page)
    assert delivery["lost"] == {"before_send": 1}
    assert [(event["seq"], event["payload"]["path"]) for event in delivery["events"]] == [(0, "/b")]


def test_a_tracked_event_is_completed_and_belongs_to_a_session_of_its_own(stage: Stage) -> None:
    page = stage.open()
    page.evaluate(
        "f.track({ type: 'ready', payload: { embedTenant: 'acme', deploymentId: 12, mode: 'signed', surface: 'app' } })"
    )
    page.evaluate("f.track({ type: 'x-filter', payload: { filters: { year: 2026 } }, surface: 'app' })")
    embed_in(page).evaluate("view('/a')")
    page.wait_for_function("stages.filter(([, stage]) => stage == 'seen').length == 3")
    page.evaluate("f.flush()")
    page.wait_for_function("stages.some(([, stage]) => stage == 'durable')")
    tracked = stage.gate.first_body()
    assert [event["type"] for event in tracked["events"]] == ["svc:event:ready", "svc:event:x-filter"]
    filtered = tracked["events"][1]
    assert filtered["timestamp"] > 1.7e12
    assert (filtered["source"], filtered["direction"], filtered["surface"]) == ("svc-embed", "event", "app")
    assert [event["seq"] for event in tracked["events"]] == [0, 1]
    assert tracked["context"]["deployment"] == 12
    wait_until(lambda: len(stage.gate.answered) == 2, description="the event of the iframe is delivered")
    viewed = stage.gate.answered[1][1]
    assert [event["seq"] for event in viewed["events"]] == [0]
    assert viewed["context"]["session"] != tracked["context"]["session"]


def test_wrong_or_late_calls_of_track_change_nothing(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("() => { for (const wrong of [undefined, null]) f.track(wrong); }")
    page.evaluate("forward({ origin: 'localhost:3000', key: 1 }).track({ type: 'view', payload: {} })")
    page.evaluate("f.destroy()")
    page.evaluate("f.track({ type: 'view', payload: { surface: 'app', path: '/late' } })")
    on_durable(page, 1.2)
    assert page.evaluate("stages") == []
    assert stage.gate.answered == []
