"""The outcome of events when pages leave, tabs crash, storage is full or the network fails; and strict policies."""

from pathlib import Path

import pytest

from embedsink.browser.modules import browser_files
from tests.browser.stage import FRAME, Stage, embed_in, emit, events_of, on_durable, paths_of, waiting
from tests.support.servers import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

# Without timers, events are sent for the reason that the test names, and not after a second.
NO_TIMERS = """() => {
    const real = setTimeout;
    window.setTimeout = (action, ms) => (ms > 0 ? 1 : real(action));
}"""


def test_a_closing_page_loses_no_event(stage: Stage) -> None:
    page = stage.open()
    stage.host.add("/next", "<!doctype html>elsewhere")
    ids: list[str] = []
    for index in range(5):
        page.goto(stage.host_page())
        page.wait_for_function("window.f")
        ids += emit(page, 3, f"/{index}/")
        page.goto(stage.host.url + "/next")
    # A leaving page receives no answer, so its events remain queued until a later page sends them.
    assert len(set(ids)) == 15
    wait_until(
        lambda: set(stage.gate.ids()) == set(ids), description="all events are delivered while their pages leave"
    )
    stage.open(context=page.context)
    assert sorted(stage.stored(ids)) == sorted(ids)


@pytest.mark.alone
def test_a_leaving_page_sends_less_than_64_kib_and_the_rest_later(stage: Stage) -> None:
    page = stage.open()
    page.evaluate(NO_TIMERS)
    stage.gate.is_closed = True
    ids = emit(page, 40, "x" * 4_000)
    page.wait_for_function("problems.length")
    stage.gate.is_closed = False
    page.goto(stage.host.add("/next", "<!doctype html>elsewhere"))
    wait_until(lambda: bool(stage.gate.answered), description="a delivery arrives while the page leaves")
    on_durable(page, 0.5)
    sizes = [len(str(body)) for _, body in stage.gate.answered]
    assert sum(sizes) < 66_000
    stage.open(context=page.context)
    stage.delivered(40)
    assert sorted(stage.stored(ids)) == sorted(ids)


@pytest.mark.alone
def test_a_hidden_page_sends_its_queue(stage: Stage) -> None:
    page = stage.open()
    page.evaluate(NO_TIMERS)
    emit(page, 2)
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")
    page.wait_for_function("stages.some(([, stage]) => stage == 'sent')", timeout=700)
    assert len(events_of(stage.delivered(2))) == 2


@pytest.mark.alone
def test_offline_then_online_delivers_at_once(stage: Stage) -> None:
    page = stage.open()
    page.context.set_offline(True)
    emit(page, 12)
    page.wait_for_function("problems.length >= 3")  # by now, the pause between retries is several seconds
    assert stage.gate.answered == []
    page.context.set_offline(False)
    stage.delivered(12, timeout_s=2.5)
    wait_until(lambda: waiting(page) == 0, description="the queue is empty")


def test_full_storage_does_not_affect_delivery(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("""() => {
        for (const store of [localStorage, sessionStorage])
            for (let size = 1 << 22; size; size >>= 1)
                for (let i = 0; ; i++)
                    try { store.setItem("host" + size + "_" + i, "x".repeat(size)); } catch { break; }
    }""")
    stage.gate.is_closed = True
    embed_in(page).evaluate("ready(12, 'acme')")
    emit(page, 11)
    page.wait_for_function("problems.length")
    stage.gate.is_closed = False
    deliveries = stage.delivered(12)
    assert [event["seq"] for event in events_of(deliveries)] == list(range(12))
    assert len({delivery["context"]["session"] for delivery in deliveries}) == 1
    assert waiting(page) == 0


def test_denied_storage_does_not_affect_delivery(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("""
        for (const name of ["localStorage", "sessionStorage"])
            Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });""")
    page = stage.open(context=context)
    emit(page, 3)
    assert [event["seq"] for event in events_of(stage.delivered(3))] == [0, 1, 2]


@pytest.mark.alone
def test_the_queue_is_bounded_and_dropped_events_are_counted(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    emit(page, 550, "x" * 20_000)
    lost = page.evaluate("stages.filter(([, stage]) => stage == 'lost').length")
    assert 40 < lost < 70
    assert page.evaluate("JSON.stringify({ ...localStorage }).length") < 2_600_000
    stage.gate.is_closed = False
    page.evaluate("dispatchEvent(new Event('online'))")
    deliveries = stage.delivered(550 - lost, timeout_s=60)
    reported = [delivery["lost"] for delivery in deliveries if delivery["lost"]]
    assert reported == [{"queue_overflow": lost}]


def test_a_killed_tab_loses_nothing(stage: Stage) -> None:
    context = stage.context()
    page = stage.open(context=context)
    stage.gate.is_closed = True
    ids = emit(page, 5)
    wait_until(lambda: waiting(page) == 5, description="the events are stored, within 10 ms")
    stage.kill(page)
    stage.gate.is_closed = False
    stage.open(context=context)
    stage.delivered(5)
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_a_reopened_browser_sends_its_queue(stage: Stage, tmp_path: Path) -> None:
    address = stage.host_page()
    stage.gate.is_closed = True
    with stage.profile(tmp_path) as context:
        ids = emit(stage.open(address, context=context), 5)
    stage.gate.is_closed = False
    with stage.profile(tmp_path) as context:
        stage.open(address, context=context)
        stage.delivered(5)
    assert sorted(stage.stored(ids)) == sorted(ids)


@pytest.mark.alone
def test_ten_tabs_send_each_event_once(stage: Stage) -> None:
    context = stage.context()
    pages = [stage.open(context=context) for _ in range(10)]
    stage.gate.is_closed = True
    ids = [id_ for page in pages for id_ in emit(page, 4)]
    stage.gate.is_closed = False
    for page in pages:
        page.evaluate("dispatchEvent(new Event('online'))")
    stage.delivered(40)
    on_durable(pages[0], 1.5)
    assert sorted(stage.gate.ids()) == sorted(ids)


@pytest.mark.alone
def test_the_queue_of_a_killed_tab_is_adopted_once_by_ten_tabs(stage: Stage) -> None:
    context = stage.context()
    stage.gate.is_closed = True
    pages = [stage.open(context=context) for _ in range(10)]
    ids = [id_ for page in pages[:2] for id_ in emit(page, 4)]
    for page in pages[:2]:
        stage.kill(page)
    stage.gate.is_closed = False

    def is_taken_over() -> bool:
        # Each tab that becomes visible searches for queues of closed tabs.
        for page in pages[2:]:
            page.evaluate("document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))")
        return set(stage.gate.ids()) == set(ids)

    wait_until(is_taken_over, description="the events of the killed tabs are delivered")
    on_durable(pages[2], 1.5)
    assert sorted(stage.gate.ids()) == sorted(ids)


def test_the_forwarder_works_with_a_strict_policy(stage: Stage) -> None:
    policy = (
        f"default-src 'none'; script-src {stage.gate.url}; connect-src {stage.gate.url}; "
        f"frame-src {stage.tenant.url}; require-trusted-types-for 'script'"
    )
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    html = f"<!doctype html>{element}{FRAME.format(embed=stage.tenant.url, session=1)}"
    page = stage.context().new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(stage.host.add("/strict", html, Content_Security_Policy=policy))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1)
    assert [line for line in messages if "favicon" not in line and "Content Security" in line] == []


def test_a_hash_in_the_page_lets_the_versioned_module_work(stage: Stage) -> None:
    file = browser_files()["forwarder.js"]
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}" crossorigin integrity="{file.integrity}"'
    element = f'<script type="module" src="{stage.gate.url}/{file.versioned_name}" {attributes}></script>'
    page = stage.context().new_page()
    page.goto(stage.host.add("/sri", element + FRAME.format(embed=stage.tenant.url, session=1)))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1)


@pytest.mark.alone
def test_a_modified_module_is_not_run(stage: Stage) -> None:
    file = browser_files()["actions.js"]
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}" integrity="{file.integrity}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    page = stage.context().new_page()
    page.goto(stage.host.add("/tampered", element + FRAME.format(embed=stage.tenant.url, session=1)))
    embed_in(page).evaluate("for (let i = 0; i < 10; i++) view('/a')")
    on_durable(page)
    assert stage.gate.answered == []


def test_a_page_restored_from_the_back_forward_cache_continues(stage: Stage, tmp_path: Path) -> None:
    other_page = stage.host.add("/elsewhere", "<!doctype html>elsewhere")
    with stage.profile(tmp_path) as context:
        page = stage.open(stage.host_page(), context=context)
        emit(page, 2)
        stage.delivered(2, at_once=page)
        page.evaluate("addEventListener('pageshow', ({ persisted }) => window.isBack = persisted)")
        page.goto(other_page)
        page.evaluate("setTimeout(() => history.back(), 10)")
        page.wait_for_function("window.isBack")
        assert page.evaluate("navigator.locks.query().then(({ held }) => held.length)") == 0
        page.evaluate("""() => receive({ origin: options.origin, source: frames[0],
            data: { source: "svc-embed", direction: "event", type: "svc:event:view", timestamp: Date.now(),
                    surface: "dashboard", payload: { surface: "dashboard", path: "/back" } } })""")
        deliveries = stage.delivered(3, at_once=page)
    assert paths_of(deliveries) == ["/0", "/1", "/back"]
    assert [event["seq"] for event in events_of(deliveries)] == [0, 1, 2]
