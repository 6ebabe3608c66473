"""The adapters in Chromium: pretend embeds and SDKs that report what vendors document, to a real server."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.stage import DELIVERED_TIMEOUT_S, INLINE_SCRIPT, Stage, embed_in, events_of
from tests.browser.test_vendors import FIXTURES, Fixture
from tests.support.servers import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

# An embed that posts messages, the first one before its page has loaded.
EMBED = """<!doctype html><script>
  const emit = (message) => parent.postMessage(message, "*");
  emit({first});
</script>"""
ELEMENT = """<!doctype html><link rel="icon" href="data:,">{stub}
<script type="module" src="{gate}/forwarder.js" data-key="{key}" data-origin="{embed}" data-vendor="{vendor}"></script>
<iframe src="{embed}/vendor"></iframe>"""
# A host page with a pretend SDK object, element and Superset dashboard. `send` makes one of them report an event.
HOST = """<!doctype html><link rel="icon" href="data:,"><body><pretend-viz></pretend-viz><script type="module">
  import {{ forward }} from "{gate}/forwarder.js";
  import * as adapter from "{gate}/vendors/{vendor}.js";
  customElements.define("pretend-viz", class extends HTMLElement {{}});
  const {{ kind, target, place }} = {fixture};
  const f = forward({{ origin: "https://bi.example.com", key: "{key}", vendor: "{vendor}" }});
  const listeners = {{}};
  const element = Object.assign(document.querySelector("pretend-viz"), target);
  const sdk = {{
    on: (name, listener) => (listeners[name] = listener),
    off: (name) => delete listeners[name],
    getId: () => target?.reportId,
    observeDataMask: (listener) => (listeners.observeDataMask = listener),
  }};
  const callbacks = adapter.callbacks?.(f);
  window.detach = adapter.attach?.(kind == "element" ? element : sdk, f, place);
  window.send = (name, message) => {{
    if (kind == "element") element.dispatchEvent(new CustomEvent(name, message));
    else (callbacks ?? listeners)[name]?.(message);
  }};
</script>"""
POSTING = [fixture for fixture in FIXTURES if fixture["kind"] in ("message", "json text")]
ATTACHED = [fixture for fixture in FIXTURES if fixture not in POSTING]


def label(fixture: Fixture) -> str:
    """Return the id of a test."""
    return f"{fixture['vendor']} {fixture['kind']}"


def expected_events(fixture: Fixture) -> list[tuple[str, dict[str, Any]]]:
    """Return the type and the payload of the events of the first flow."""
    [flow, *_] = fixture["flows"]
    return [(f"svc:event:{event['type']}", event["payload"]) for step in flow["steps"] for event in step["events"]]


def check_events(stage: Stage, page: Page, fixture: Fixture) -> None:
    """Check that the events of the first flow are delivered once and in order, and that the server has stored them."""
    expected = expected_events(fixture)
    wait_until(
        lambda: len(stage.gate.ids()) >= len(expected),
        description="the events are delivered",
        timeout_s=DELIVERED_TIMEOUT_S,
    )
    page.wait_for_timeout(300)
    deliveries = [body for status, body in stage.gate.answered if status == 202]
    events = events_of(deliveries)
    assert [(event["type"], event["payload"]) for event in events] == expected
    assert {(event["source"], event["direction"]) for event in events} == {("svc-embed", "event")}
    assert {delivery["context"]["vendor"] for delivery in deliveries} == {fixture["vendor"]}
    ids = [event["id"] for event in events]
    assert sorted(stage.stored(ids)) == sorted(ids)
    assert {row["vendor"] for row in rows(stage, ids)} == {fixture["vendor"]}


def rows(stage: Stage, ids: list[str]) -> list[dict[str, Any]]:
    """Return the stored events with these ids."""
    response = stage.server.get("/api/v1/events.ndjson", key=stage.reader)
    return [row for row in map(json.loads, response.body.splitlines()) if row["event_id"] in ids]


@pytest.mark.parametrize("fixture", POSTING, ids=label)
def test_the_element_forwards_the_events_of_an_embed_that_posts_messages(stage: Stage, fixture: Fixture) -> None:
    messages = [step["send"] for step in fixture["flows"][0]["steps"]]
    if fixture["kind"] == "json text":
        messages = [json.dumps(message) for message in messages]
    stage.tenant.add("/vendor", EMBED.replace("{first}", json.dumps(messages[0])))
    html = ELEMENT.format(
        stub=INLINE_SCRIPT, gate=stage.gate.url, key=stage.key, embed=stage.tenant.url, vendor=fixture["vendor"]
    )
    page = stage.context().new_page()
    page.goto(stage.host.add("/", html))
    frame = embed_in(page)
    for message in messages[1:]:
        frame.evaluate("message => emit(message)", message)
    check_events(stage, page, fixture)


def test_two_embeds_of_a_vendor_do_not_share_their_paths(stage: Stage) -> None:
    stage.tenant.add("/vendor", EMBED.replace("{first}", "{}"))
    element = ELEMENT.format(
        stub=INLINE_SCRIPT, gate=stage.gate.url, key=stage.key, embed=stage.tenant.url, vendor="lightdash"
    )
    page = stage.context().new_page()
    page.goto(stage.host.add("/", f'{element}<iframe src="{stage.tenant.url}/vendor"></iframe>'))
    for index, path in enumerate(("/a", "/b")):
        message = {"type": "lightdash:locationChanged", "payload": {"pathname": path}}
        embed_in(page, index).evaluate("message => emit(message)", message)
    wait_until(lambda: len(stage.gate.ids()) >= 2, description="two events are delivered")
    events = events_of([body for _, body in stage.gate.answered])
    assert [(event["type"], event["payload"]["path"]) for event in events] == [
        ("svc:event:view", "/a"),
        ("svc:event:view", "/b"),
    ]


@pytest.mark.parametrize("fixture", ATTACHED, ids=label)
def test_an_attached_forwarder_forwards_the_events_until_it_is_detached(stage: Stage, fixture: Fixture) -> None:
    html = HOST.format(gate=stage.gate.url, vendor=fixture["vendor"], key=stage.key, fixture=json.dumps(fixture))
    page = stage.context().new_page()
    page.goto(stage.host.add("/", html))
    page.wait_for_function("typeof send == 'function'")
    steps = [step for step in fixture["flows"][0]["steps"] if step.get("event") != "attach"]
    for _ in range(2):
        for step in steps:
            page.evaluate(
                "([name, message]) => send(name, message)", [step.get("event", "observeDataMask"), step["send"]]
            )
        if fixture["kind"] == "callbacks":
            break
        page.evaluate("detach()")
    check_events(stage, page, fixture)
