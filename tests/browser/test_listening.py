"""The events that the forwarder accepts, and their context: spec 6.1, 6.2 and the identity of sessions."""

import re

import pytest
from playwright.sync_api import Page

from tests.browser.sites import EMBED
from tests.browser.stage import FRAME, Stage, embed_in, events_of, on_durable

pytestmark = pytest.mark.server
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

OTHER_ORIGINS = [
    "https://tenant.example.com.evil.com",
    "https://evil-tenant.example.com",
    "https://TENANT.example.com",
    "https://tenant.example.com/",
    "https://tenant.example.com:444",
    "http://tenant.example.com",
    "null",
    "",
]
NO_EVENTS = [
    "null",
    "undefined",
    "'svc-embed'",
    "7",
    "[]",
    "{}",
    "{ source: 'other-embed', direction: 'event' }",
    "{ source: 'svc-embed', direction: 'action' }",
    "{ source: ['svc-embed'], direction: 'event' }",
    "{ source: 'svc-embed', direction: new String('event') }",
    'JSON.parse(\'{"__proto__": {"source": "svc-embed", "direction": "event"}}\')',
    "new Map([['source', 'svc-embed'], ['direction', 'event']])",
    "new Error('svc-embed')",
    "new ArrayBuffer(8)",
]
WRONG_OPTIONS = [
    "undefined",
    "null",
    "{}",
    "{ origin: '*' }",
    "{ origin: 'null', key: 1 }",
    "7",
    "{ origin: 'localhost:3000' }",
]


def received_count(page: Page) -> int:
    """Return the number of events that the forwarder has received."""
    count: int = page.evaluate("stages.filter(([, stage]) => stage == 'seen').length")
    return count


def ignored(page: Page) -> int:
    count: int = page.evaluate("f.ignored")
    return count


def test_an_event_arrives_as_the_embed_sent_it_with_an_id_and_a_number(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("emit('view', { surface: 'dashboard', path: '/a', unheard: ['of'] })")
    [event] = events_of(stage.delivered(1, at_once=page))
    assert UUID.fullmatch(event.pop("id"))
    assert event.pop("timestamp") > 1.7e12
    assert event == {
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": "/a", "unheard": ["of"]},
        "surface": "dashboard",
        "seq": 0,
    }


def test_the_script_element_alone_forwards(stage: Stage) -> None:
    attributes = f'data-key="{stage.key}" data-viewer="u_7" data-tenant="acme" data-deployment="12"'
    page = stage.context().new_page()
    page.goto(
        stage.host.add(
            "/element",
            f'<script type="module" src="{stage.gate.url}/forwarder.js" data-origin="{stage.tenant.url}/" {attributes}>'
            f"</script>{FRAME.format(embed=stage.tenant.url, session=1)}",
        )
    )
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1)
    session = delivery["context"].pop("session")
    assert UUID.fullmatch(session)
    assert delivery["context"] == {
        "page": f"{stage.host.url}/element",
        "viewer": "u_7",
        "tenant": "acme",
        "deployment": 12,
    }


def test_messages_of_other_origins_are_ignored_and_counted(stage: Stage) -> None:
    # The same page on another name of this machine, and on another port, is another origin.
    lookalike = f"http://localhost:{stage.tenant.port}"
    stage.host.pages["/embed"] = ({}, EMBED)
    frames = "".join(f'<iframe src="{origin}/embed"></iframe>' for origin in (lookalike, stage.host.url))
    page = stage.open(stage.host_page(frames=frames))
    for index in (0, 1):
        embed_in(page, index).evaluate("view('/forged')")
    page.evaluate("postMessage({ source: 'svc-embed', direction: 'event', type: 'svc:event:view', payload: {} })")
    page.wait_for_function("f.ignored == 3")
    assert received_count(page) == 0


def test_only_the_exact_origin_matches(stage: Stage) -> None:
    page = stage.open(stage.host_page(options='{ origin: "https://tenant.example.com" }'))
    dispatch = "([origin, data]) => receive({ origin, data, source: frames[0] })"
    data = {"source": "svc-embed", "direction": "event", "type": "svc:event:view", "payload": {}, "timestamp": 1}
    for count, origin in enumerate(OTHER_ORIGINS, start=1):
        page.evaluate(dispatch, [origin, data])
        assert (received_count(page), ignored(page)) == (0, count), origin
    page.evaluate(dispatch, ["https://tenant.example.com", data])
    assert (received_count(page), ignored(page)) == (1, len(OTHER_ORIGINS))


def test_messages_that_are_not_events_are_ignored_and_counted(stage: Stage) -> None:
    page = stage.open()
    embed = embed_in(page)
    for count, data in enumerate(NO_EVENTS, start=1):
        embed.evaluate(f"parent.postMessage({data}, '*')")
        page.wait_for_function("count => f.ignored == count", arg=count)
    assert received_count(page) == 0


def test_exceptions_of_getters_and_proxies_do_not_escape(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("""() => {
        const boom = () => { throw new Error("boom"); };
        const origin = options.origin;
        receive({ origin, source: frames[0], data: { get source() { boom(); } } });
        receive({ origin, source: frames[0], data: new Proxy({}, { get: boom }) });
        receive({ origin, source: null, data: { source: "svc-embed", direction: "event", type: "svc:event:view" } });
        const event = new MessageEvent("message");
        Object.defineProperty(event, "origin", { get: boom });
        dispatchEvent(event);
    }""")
    assert ignored(page) == 3
    assert received_count(page) == 0
    # The third is an event of a closed window.
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert delivery["lost"] == {"not_json": 1}


@pytest.mark.parametrize("payload", ["{ value: 10n }", "(() => { const o = {}; o.value = o; return o; })()"])
def test_values_without_json_are_reported_as_lost_with_the_next_event(stage: Stage, payload: str) -> None:
    page = stage.open()
    embed_in(page).evaluate(f"emit('drilldown', {payload}); view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert delivery["lost"] == {"not_json": 1}
    assert [event["seq"] for event in delivery["events"]] == [1]


def test_exceptions_of_host_callbacks_change_nothing(stage: Stage) -> None:
    options = "{ onEvent: () => { throw new Error('host'); }, onError: () => { throw new Error('host'); } }"
    page = stage.open(stage.host_page(options=options))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1)


def test_wrong_options_throw_nothing_and_forward_nothing(stage: Stage) -> None:
    page = stage.open()
    for options in WRONG_OPTIONS:
        page.evaluate(f"(() => {{ const g = forward({options}); g.flush(); g.stop(); }})()")
    embed_in(page).evaluate("view('/a')")
    assert len(events_of(stage.delivered(1, at_once=page))) == 1


def test_an_origin_without_a_scheme_is_reported_and_matches_no_opaque_origin(stage: Stage) -> None:
    page = stage.open(stage.host_page(frames="", options="{ origin: 'localhost:3000' }"))
    assert page.evaluate("problems.length") == 1
    page.evaluate(r"""() => {
        const data = { source: "svc-embed", direction: "event", type: "svc:event:view", payload: {}, timestamp: 1 };
        const frame = document.createElement("iframe");
        frame.sandbox = "allow-scripts";
        frame.srcdoc =
            `<script>for (const data of [${JSON.stringify(data)}, "done"]) parent.postMessage(data, "*")<\/script>`;
        addEventListener("message", ({ data }) => { window.done ||= data == "done"; });
        document.body.append(frame);
    }""")
    page.wait_for_function("window.done")
    assert page.evaluate("stages.length") == 0


def test_modified_host_prototypes_break_nothing(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("Object.prototype.reason = () => 'mine'; Array.prototype.last = () => 1;")
    embed_in(page).evaluate("emit('drilldown', { value: 10n }); view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert len(delivery["events"]) == 1
    assert delivery["lost"] == {"not_json": 1}


def test_a_given_iframe_is_the_only_source_of_events(stage: Stage) -> None:
    two = "".join(FRAME.format(embed=stage.tenant.url, session=session) for session in "ab")
    page = stage.open(stage.host_page(frames=two, options="{ iframe: document.querySelectorAll('iframe')[1] }"))
    for index in (0, 1):
        embed_in(page, index).evaluate(f"view('/{index}')")
    [delivery] = stage.delivered(1, at_once=page)
    assert [event["payload"]["path"] for event in delivery["events"]] == ["/1"]
    assert ignored(page) == 1


def test_two_iframes_are_two_sessions_with_separate_numbers(stage: Stage) -> None:
    # Two dashboards of one page may share a credential.
    two = "".join(f'<iframe src="{stage.tenant.url}/embed?board={board}&session=same"></iframe>' for board in "ab")
    page = stage.open(stage.host_page(frames=two))
    frames = [embed_in(page, index) for index in (0, 1)]
    frames[0].evaluate("ready(12, 'acme'); view('/a')")
    frames[1].evaluate("ready(13, null); view('/b'); view('/c')")
    deliveries = stage.delivered(5, at_once=page)
    contexts = [delivery["context"] for delivery in deliveries]
    assert len({context["session"] for context in contexts}) == 2
    assert {(context["deployment"], context["tenant"]) for context in contexts} == {(12, "acme"), (13, None)}
    assert sorted([event["seq"] for event in delivery["events"]] for delivery in deliveries) == [[0, 1], [0, 1, 2]]


def test_an_opt_out_is_sent_with_each_event_from_then_on(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ context: (window.context = { viewer: 'u_1' }) }"))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1, at_once=page)
    page.evaluate("() => { context.optedOut = 'yes'; }")
    embed_in(page).evaluate("view('/b')")
    first, second = stage.delivered(2, at_once=page)
    assert "optedOut" not in first
    assert (second["optedOut"], second["context"]["viewer"]) == (True, "u_1")
    assert "optedOut" not in second["context"]


def test_values_of_ready_are_in_the_context_unless_the_host_sets_them(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ context: { viewer: 'u_1', tenant: 'hosts-own' } }"))
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    [delivery] = stage.delivered(2, at_once=page)
    assert delivery["context"]["deployment"] == 12
    assert delivery["context"]["tenant"] == "hosts-own"


def test_a_ready_with_wrong_types_affects_no_other_event(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("ready('12', { big: 1 }); emit('ready', null); view('/a')")
    [delivery] = stage.delivered(3, at_once=page)
    assert delivery["context"]["deployment"] is None
    assert delivery["context"]["tenant"] is None
    view_ids = [event["id"] for event in delivery["events"] if event["type"] == "svc:event:view"]
    assert stage.stored(view_ids) == view_ids


def test_the_page_url_has_no_query_and_fragment(stage: Stage) -> None:
    page = stage.open(stage.host_page() + "?token=secret#also")
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1, at_once=page)
    assert delivery["context"]["page"] == f"{stage.host.url}/"


def test_the_credential_of_the_embed_is_neither_sent_nor_stored(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    page.wait_for_function("problems.length")
    stored_data = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])")
    assert "/a" in stored_data
    assert "credential" not in stored_data
    stage.gate.is_closed = False
    assert "credential" not in str(stage.delivered(2, at_once=page))


def test_a_reload_continues_its_session(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    stage.delivered(2, at_once=page)
    page.reload()
    page.wait_for_function("window.f")
    embed_in(page).evaluate("view('/b')")
    first, second = stage.delivered(3)
    assert second["context"] == first["context"]
    assert [event["seq"] for event in events_of([first, second])] == [0, 1, 2]


def test_another_credential_in_the_same_window_is_another_session(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("ready(12, 'acme')")
    stage.delivered(1, at_once=page)
    page.evaluate("document.querySelector('iframe').src += '-of-another'")
    page.wait_for_timeout(300)
    embed_in(page).evaluate("ready(12, 'acme')")
    first, second = stage.delivered(2)
    assert first["context"]["session"] != second["context"]["session"]
    assert [event["seq"] for event in events_of([first, second])] == [0, 0]


def test_two_tabs_with_one_credential_are_two_sessions(stage: Stage) -> None:
    context = stage.context()
    pages = [stage.open(context=context) for _ in range(2)]
    for page in pages:
        embed_in(page).evaluate("view('/a')")
    deliveries = stage.delivered(2)
    assert len({delivery["context"]["session"] for delivery in deliveries}) == 2


def test_the_service_name_is_the_vendors(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ serviceName: 'acme' }"))
    embed_in(page).evaluate("view('/a')")
    page.wait_for_function("f.ignored == 1")
    embed_in(page).evaluate(
        "parent.postMessage({ source: 'acme-embed', direction: 'event', type: 'acme:event:view' }, '*')"
    )
    page.wait_for_function("stages.some(([, stage]) => stage == 'seen')")


def test_ids_are_generated_without_random_uuid(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("delete Crypto.prototype.randomUUID")
    page = stage.open(context=context)
    embed_in(page).evaluate("view('/a'); view('/b')")
    ids = [event["id"] for event in events_of(stage.delivered(2, at_once=page))]
    assert len(set(ids)) == 2
    assert all(UUID.fullmatch(id_) for id_ in ids)


@pytest.mark.parametrize("destroy", ["destroy", "stop"])
def test_after_destroy_new_events_are_ignored_and_queued_events_are_sent(stage: Stage, destroy: str) -> None:
    page = stage.open()
    embed_in(page).evaluate("view('/a')")
    page.wait_for_function("stages.length")
    page.evaluate(f"f.{destroy}()")
    embed_in(page).evaluate("view('/b')")
    deliveries = stage.delivered(1)
    on_durable(page, 1.2)
    assert [event["payload"]["path"] for event in events_of(deliveries)] == ["/a"]
    assert received_count(page) == 1
