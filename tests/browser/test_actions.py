"""The actions that the host sends to its embed (spec 6.5), and the URL of the embed (spec 4.3)."""

import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from playwright.sync_api import Page

from embedsink.engine import now_ms
from embedsink.protocol.validation import parse
from tests.browser.stage import Stage, embed_in

pytestmark = pytest.mark.server

ACTIONS: dict[str, Any] = {
    "set-color-scheme": {"scheme": "dark"},
    "set-theme": {"embedTheme": {"primaryColor": "#123456", "font": "Inter"}},
    "set-locale": {"locale": "de-CH"},
    "set-filter": {"filterUrlParameter": 'f_orders.status={"operator":"equals","value":["paid"]}'},
    "navigate": {"path": "/d/2"},
    "refresh": {},
}
# Characters that break a query without escaping, and JSON with wrong escaping.
DIFFICULT = [
    {"operator": "equals", "value": ["a&b", "50%", "1+1=2", "#1", "?", "/", "%41"]},
    ['"', "\\", '\\"', "\\u0026", "a\nb", "Zürich 東京 🚀"],
    1e21,
    -1.5e-7,
    None,
    True,
    "",
]
WRONG_USE = [
    "send(frame, '*', 'refresh')",
    "send(frame, '/', 'refresh')",
    "send(frame, undefined, 'refresh')",
    "send(frame, options.origin, 'set-filters', {})",
    "send(frame, options.origin, 'set-filter', { status: 1 })",
    "send(frame, options.origin, 'set-filter', { 'orders.a&b': 1 })",
    "send(document.createElement('iframe'), options.origin, 'refresh')",
    "send(frame, 'about:blank', 'refresh')",
    "send(frame, 'null', 'refresh')",
    "send(frame, 'data:text/html,', 'refresh')",
    "send(frame, options.origin, 'set-filter', { 'users.city': 1, 'orders.status': undefined })",
    "send(frame, options.origin, 'set-filter', { 'orders.a+b': 1 })",
    "send(frame, options.origin, 'set-filter', { 'orders.a%41': 1 })",
    "embedUrl({ base: 'not an address', publicId: 'a', session: 's' })",
    "embedUrl({ base: 'javascript:alert(1)//', publicId: 'a', session: 's' })",
    "embedUrl({ base: 'about:blank', publicId: 'a', session: 's' })",
    "embedUrl({ base: 'ftp://a.example.com', publicId: 'a', session: 's' })",
    "embedUrl({ base: 'https://a.example.com', publicId: '..', session: 's' })",
    "embedUrl({ base: 'https://a.example.com', publicId: '.', session: 's' })",
    "embedUrl({ base: 'https://a.example.com', publicId: '', session: 's' })",
    "embedUrl({ base: 'https://a.example.com', session: 's' })",
    "embedUrl({ base: 'https://a.example.com', publicId: 'a' })",
    "embedUrl({ base: 'https://a.example.com', publicId: 'a', session: 's', filters: { 'a.b': undefined } })",
    "embedUrl({ base: 'https://a.example.com', publicId: 'a', session: 's', filters: { status: 1 } })",
]


def prepared(stage: Stage, options: str = "{}") -> Page:
    """Return a host page that has loaded the actions module."""
    page = stage.open(stage.host_page(options=options))
    page.evaluate(f"""async () => {{
        Object.assign(window, await import("{stage.gate.url}/actions.js"));
        window.frame = document.querySelector("iframe");
    }}""")
    embed_in(page)
    return page


def received(page: Page, count: int) -> list[dict[str, Any]]:
    """Return the messages that the embed received, once there are this many."""
    embed = embed_in(page)
    embed.wait_for_function("count => actions.length >= count", arg=count)
    got: list[dict[str, Any]] = embed.evaluate("actions")
    return got


def test_all_six_actions_arrive_in_valid_envelopes_and_are_accepted_by_the_server(stage: Stage) -> None:
    page = prepared(stage)
    for name, payload in ACTIONS.items():
        page.evaluate("([name, payload]) => send(frame, options.origin, name, payload)", [name, payload])
    messages = received(page, len(ACTIONS))
    assert {message["origin"] for message in messages} == {stage.host.url}
    for (name, payload), message in zip(ACTIONS.items(), messages, strict=True):
        envelope = message["data"]
        assert envelope.pop("timestamp") > 1.7e12
        assert envelope == {
            "source": "svc-embed",
            "direction": "action",
            "type": f"svc:action:{name}",
            "payload": payload,
        }
        parsed = parse(json.dumps(envelope | {"timestamp": now_ms()}).encode(), now_ms())
        assert (len(parsed.accepted), len(parsed.rejected)) == (1, 0)


def test_only_the_tenants_origin_can_read_an_action(stage: Stage) -> None:
    page = prepared(stage)
    page.evaluate("send(frame, 'https://other.example.com', 'refresh')")
    page.evaluate("send(frame, options.origin + '/', 'refresh')")
    assert len(received(page, 1)) == 1


def test_invalid_calls_throw_and_send_nothing(stage: Stage) -> None:
    page = prepared(stage)
    for call in WRONG_USE:
        thrown = page.evaluate(f"() => {{ try {{ {call} }} catch (error) {{ return error.name; }} }}")
        assert thrown == "TypeError", call
    page.evaluate("send(frame, options.origin, 'refresh')")
    [message] = received(page, 1)
    assert message["data"]["type"] == "svc:action:refresh"


def test_a_filter_has_the_same_form_in_a_message_and_in_a_url(stage: Stage) -> None:
    page = prepared(stage)
    for sent, value in enumerate(DIFFICULT):
        page.evaluate(
            "value => send(frame, options.origin, 'set-filter', { 'orders.status': value, 'users.city': 1 })", value
        )
        first, second = received(page, 2 * sent + 2)[-2:]
        text = first["data"]["payload"]["filterUrlParameter"]
        name, _, filter_ = text.partition("=")
        assert name == "f_orders.status"
        assert json.loads(filter_) == value
        assert json.loads(unquote(filter_)) == value
        assert {key: json.loads(text_value) for key, [text_value] in parse_qs(text).items()} == {name: value}
        assert second["data"]["payload"] == {"filterUrlParameter": "f_users.city=1"}


def test_embed_url_builds_the_url_of_an_embed(stage: Stage) -> None:
    page = prepared(stage)
    embed = {
        "base": "https://tenant.example.com/",
        "publicId": "board/1?",
        "session": "s&1+=%",
        "allowExport": True,
        "filters": {"orders.status": {"value": ["a&b", "1+1"]}, "users.city": "Zürich"},
    }
    parts = urlsplit(page.evaluate("embed => embedUrl(embed)", embed))
    assert (parts.scheme, parts.netloc, parts.path) == (
        "https",
        "tenant.example.com",
        "/embed/dashboard/board%2F1%3F",
    )
    query = {name: value for name, [value] in parse_qs(parts.query).items()}
    assert query.pop("session") == "s&1+=%"
    assert query.pop("allowExport") == "true"
    assert {name: json.loads(value) for name, value in query.items()} == {
        "f_orders.status": {"value": ["a&b", "1+1"]},
        "f_users.city": "Zürich",
    }
    plain = page.evaluate("embedUrl({ base: 'https://t.example.com', publicId: 'b', session: 's' })")
    assert plain == "https://t.example.com/embed/dashboard/b?session=s"
    below = page.evaluate("embedUrl({ base: 'https://t.example.com/bi/?old=1#there', publicId: '..b', session: 's' })")
    assert below == "https://t.example.com/bi/embed/dashboard/..b?session=s"


def test_only_true_allows_exports(stage: Stage) -> None:
    page = prepared(stage)
    for allow_export, count in [("true", 1), ("'true'", 1), ("false", 0), ("'false'", 0), ("''", 0), ("undefined", 0)]:
        embed = f"{{ base: 'https://t.example.com', publicId: 'b', session: 's', allowExport: {allow_export} }}"
        query = parse_qs(urlsplit(page.evaluate(f"embedUrl({embed})")).query)
        assert query.get("allowExport", []) == ["true"] * count, allow_export


def test_an_action_is_forwarded_on_request_with_the_number_of_its_session(stage: Stage) -> None:
    page = prepared(stage, options="{ recordActions: true }")
    embed_in(page).evaluate("ready(12, 'acme')")
    page.wait_for_function("stages.length == 1")
    page.evaluate("send(frame, options.origin, 'set-filter', { 'orders.status': ['paid'] })")
    [delivery] = stage.delivered(2, at_once=page)
    [ready, action] = delivery["events"]
    assert (ready["seq"], action["seq"]) == (0, 1)
    assert action["type"] == "svc:action:set-filter"
    assert "surface" not in action
    assert delivery["context"]["deployment"] == 12
    assert page.evaluate("problems") == []


def test_an_action_is_not_forwarded_by_default(stage: Stage) -> None:
    page = prepared(stage)
    page.evaluate("send(frame, options.origin, 'refresh')")
    received(page, 1)
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert [event["type"] for event in delivery["events"]] == ["svc:event:view"]


def test_an_embed_cannot_pass_for_the_host(stage: Stage) -> None:
    page = prepared(stage, options="{ recordActions: true }")
    embed_in(page).evaluate(
        "parent.postMessage({ source: 'svc-embed', direction: 'action', type: 'svc:action:refresh', payload: {} }, '*')"
    )
    page.wait_for_function("f.ignored == 1")
    assert page.evaluate("stages") == []
