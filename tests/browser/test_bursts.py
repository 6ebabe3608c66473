"""Many messages at once, repeated reloads and mounts: the host page stays fast, and no event is lost or sent often."""

import json

import pytest
from playwright.sync_api import Page

from embedsink.browser.modules import VERSIONS
from tests.browser.stage import FRAME, INLINE_SCRIPT, Stage, embed_in, emit, events_of, on_durable, waiting
from tests.support.servers import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

BURST_COUNT = 10_000
TASK_MS_MAX = 50
REQUESTS_MAX = 60
BURST_TIMEOUT_S = 60.0
# The inline script of docs/browser.md, which keeps the messages that arrive before the module runs.
FILL = """() => {
    for (let size = 1 << 22; size; size >>= 1)
        for (let i = 0; ; i++)
            try { localStorage.setItem("host" + size + "_" + i, "x".repeat(size)); } catch { break; }
}"""


def element(stage: Stage, *, name: str = "forwarder.js", endpoint: str = "") -> str:
    """Return the script element of a host page."""
    attributes = f'data-key="{stage.key}" data-origin="{stage.tenant.url}"' + (
        f' data-endpoint="{endpoint}"' if endpoint else ""
    )
    return f'<script type="module" src="{stage.gate.url}/{name}" {attributes}></script>'


def open_html(stage: Stage, html: str, *, path: str = "/html") -> Page:
    """Open a page of the host with this content."""
    page = stage.context().new_page()
    page.goto(stage.host.add(path, f"<!doctype html>{html}"))
    return page


@pytest.mark.alone
def test_a_burst_of_ten_thousand_messages_loses_nothing_and_blocks_the_page_for_less_than_50_ms(stage: Stage) -> None:
    page = open_html(stage, element(stage) + FRAME.format(embed=stage.tenant.url, session="one"))
    page.evaluate("""() => {
        window.tasks = [];
        // Firefox has no long tasks: measure the listeners of each message too.
        if (PerformanceObserver.supportedEntryTypes.includes("longtask"))
            new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)))
                .observe({ type: "longtask" });
        let start;
        addEventListener("message", () => start = performance.now(), true);
        addEventListener("message", () => tasks.push(performance.now() - start));
    }""")
    on_durable(page)
    embed_in(page).evaluate(f"for (let i = 0; i < {BURST_COUNT}; i++) view('/' + i)")
    deliveries = stage.delivered(BURST_COUNT, timeout_s=BURST_TIMEOUT_S)
    assert len(stage.gate.ids()) == BURST_COUNT
    assert sorted(event["seq"] for event in events_of(deliveries)) == list(range(BURST_COUNT))
    assert len(deliveries) < REQUESTS_MAX
    assert 0 < max(page.evaluate("tasks")) < TASK_MS_MAX
    wait_until(lambda: waiting(page) == 0, description="the queue is empty")


def test_a_burst_survives_a_reload_in_the_middle(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    ids = emit(page, 3_000)
    page.reload()
    stage.gate.is_closed = False
    page.wait_for_function("window.f")
    stage.delivered(3_000, timeout_s=BURST_TIMEOUT_S)
    assert set(stage.gate.ids()) == set(ids)


def test_a_server_that_accepts_few_events_per_request_gets_few_refused_requests(stage: Stage) -> None:
    page = stage.open()
    stage.gate.events_max = 3
    emit(page, 30)
    deliveries = stage.delivered(30)
    assert len(stage.gate.ids()) == 30
    assert stage.gate.refused_count < 8
    assert all(delivery["lost"] == {} for delivery in deliveries)


def test_one_unreadable_event_does_not_make_later_deliveries_small(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("view('x'.repeat(1.2e6)); for (let i = 0; i < 9; i++) view('/' + i)")
    stage.delivered(9, at_once=page)
    emit(page, 40)
    assert len(stage.delivered(49)[-1]["events"]) > 9


def test_reloads_with_slow_responses_send_each_event_at_most_twice(stage: Stage) -> None:
    page = stage.open()
    stage.gate.delay_s = 3
    ids = emit(page, 65)
    for _ in range(4):
        page.reload()
        page.wait_for_function("window.f")
    stage.gate.delay_s = 0
    wait_until(lambda: waiting(page) == 0, description="the queue is empty", timeout_s=BURST_TIMEOUT_S)
    sent = stage.gate.ids()
    assert set(sent) == set(ids)
    assert max(sent.count(id_) for id_ in ids) <= 2


def test_a_clock_that_is_set_back_while_events_wait_does_not_change_their_time(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    emit(page, 1)
    page.wait_for_function("problems.length")
    page.evaluate("const now = Date.now; Date.now = () => now() - 3_600_000;")
    emit(page, 1)
    stage.gate.is_closed = False
    deliveries = stage.delivered(2, at_once=page)
    for delivery in deliveries:
        [event] = delivery["events"]
        is_first = event["seq"] == 0
        assert 0 <= delivery["sentAt"] - event["timestamp"] + (0 if is_first else 3_600_000) < 15_000


def test_events_without_space_that_leave_with_their_page_are_counted(stage: Stage) -> None:
    page = stage.open()
    page.evaluate(FILL)
    stage.gate.is_closed = True
    emit(page, 30)
    assert waiting(page) == 0
    page.wait_for_function("problems.length")
    page.goto(stage.host.add("/next", "<!doctype html>elsewhere"))
    on_durable(page)
    assert stage.gate.ids() == []
    stage.gate.is_closed = False
    page.goto(stage.host_page())
    emit(page, 1)
    [delivery] = stage.delivered(1)
    assert delivery["lost"] == {"not_stored": 30}


def test_messages_before_the_module_runs_are_forwarded(stage: Stage) -> None:
    stage.host.add("/slow.js", "document.documentElement.dataset.early = embedsink.length")
    frame = FRAME.format(embed=stage.tenant.url, session="one")
    html = f"""{INLINE_SCRIPT}{frame}<script>
        addEventListener("message", () => {{
            const module = document.createElement("script");
            Object.assign(module.dataset, {{ key: "{stage.key}", origin: "{stage.tenant.url}" }});
            module.type = "module";
            module.src = "{stage.gate.url}/forwarder.js";
            document.head.append(module);
        }}, {{ once: true }});
    </script>"""
    page = open_html(stage, html)
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    deliveries = stage.delivered(2)
    assert [event["type"].rpartition(":")[2] for event in events_of(deliveries)] == ["ready", "view"]
    assert deliveries[0]["context"]["deployment"] == 12
    assert len(stage.gate.ids()) == 2


def test_the_inline_script_is_small_and_keeps_a_limited_number_of_messages(stage: Stage) -> None:
    page = open_html(stage, INLINE_SCRIPT + FRAME.format(embed=stage.tenant.url, session="one"))
    embed_in(page).evaluate("for (let i = 0; i < 500; i++) view('/' + i)")
    page.wait_for_function("embedsink.length == 99")
    on_durable(page)
    assert page.evaluate("embedsink.length") == 99
    assert len(INLINE_SCRIPT) < 120


def test_other_spellings_of_the_endpoint_and_other_versions_count_no_event_twice(stage: Stage) -> None:
    port = stage.gate.url.rpartition(":")[2]
    older = max(VERSIONS.glob("forwarder.64b476a0ebd22f96.js")).name
    elements = (
        element(stage)
        + element(stage, endpoint=f"HTTP://127.0.0.1:{port}/api/../api/v1/events")
        + element(stage, name=older)
    )
    page = open_html(stage, elements + FRAME.format(embed=stage.tenant.url, session="one"))
    embed_in(page).evaluate("for (let i = 0; i < 10; i++) view('/' + i)")
    stage.delivered(10)
    on_durable(page, 1.5)
    assert len(stage.gate.ids()) == 10


def test_destroyed_forwarders_leave_no_listener_timer_or_lock(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("""
        window.listeners = new Map();
        const add = EventTarget.prototype.addEventListener;
        EventTarget.prototype.addEventListener = function (type, listener, options) {
            if (this == window || this === undefined) {
                listeners.set(listener, type);
                options?.signal?.addEventListener?.call(options.signal, "abort", () => listeners.delete(listener));
            }
            return add.call(this ?? window, type, listener, options);
        };""")
    page = stage.open(context=context)
    before = page.evaluate("listeners.size")
    page.evaluate("""async () => {
        for (let i = 0; i < 200; i++) {
            forward(options).destroy();
            await new Promise(setTimeout);
        }
    }""")
    assert page.evaluate("listeners.size") == before
    assert page.evaluate("navigator.locks.query().then(({ held, pending }) => held.length + pending.length)") == 0
    assert page.evaluate("Object.keys(localStorage).length") == 1
    emit(page, 2)
    assert len(events_of(stage.delivered(2))) == 2


def test_a_remounted_forwarder_continues_the_session(stage: Stage) -> None:
    page = stage.open()
    emit(page, 2)
    page.evaluate("f.destroy(); window.f = forward(options)")
    emit(page, 2)
    deliveries = stage.delivered(4)
    assert sorted(event["seq"] for event in events_of(deliveries)) == [0, 1, 2, 3]
    assert len({delivery["context"]["session"] for delivery in deliveries}) == 1


def test_two_tabs_in_an_outage_keep_their_own_events(stage: Stage) -> None:
    context = stage.context()
    pages = [stage.open(context=context) for _ in range(2)]
    stage.gate.is_closed = True
    ids = emit(pages[0], 5)
    on_durable(pages[0], 12)  # longer than the lease: the first page renews it
    pages[1].evaluate("dispatchEvent(new Event('online'))")
    on_durable(pages[1])
    assert waiting(pages[0]) == 5
    stage.gate.is_closed = False
    for page in pages:
        page.evaluate("dispatchEvent(new Event('online'))")
    stage.delivered(5)
    on_durable(pages[0], 1.5)
    assert sorted(stage.gate.ids()) == sorted(ids)
    assert json.loads(pages[0].evaluate("JSON.stringify(stages.filter(([, stage]) => stage == 'durable').length)")) == 5
