"""Queues of closed tabs, and the tabs that adopt them: no event is lost for lack of space, or copied endlessly."""

import pytest

from embedsink.browser.modules import browser_files
from tests.browser.stage import Stage, embed_in, emit, on_durable, waiting
from tests.support.servers import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

FREE_CHARACTERS = 200_000
# The host's own data, which leaves only this much space.
FILL = """(free) => {
    for (let size = 1 << 20; size > 1000; size >>= 1)
        for (let i = 0; ; i++)
            try { localStorage.setItem("host" + size + "_" + i, "x".repeat(size)); } catch { break; }
    for (const key of Object.keys(localStorage).filter((key) => /^host(65|32|16|8)/.test(key)))
        if (free > 0) { free -= localStorage[key].length; localStorage.removeItem(key); }
}"""


def test_events_of_a_killed_tab_are_adopted_without_space_for_a_copy(stage: Stage) -> None:
    context = stage.context()
    stage.gate.is_closed = True
    page = stage.open(context=context)
    ids = emit(page, 60, "x" * 4_000)
    stage.kill(page)
    plain = context.new_page()
    plain.goto(stage.host.add("/plain", "<!doctype html>without a forwarder"))
    plain.evaluate(FILL, FREE_CHARACTERS)
    heir = stage.open(context=context)
    wait_until(lambda: waiting(heir) == 60, description="the heir stores the adopted queue")
    stage.kill(heir)
    stage.gate.is_closed = False
    last = stage.open(context=context)
    wait_until(lambda: set(ids) <= set(stage.gate.ids()), description="all events are delivered")
    wait_until(lambda: waiting(last) == 0, description="the queue is empty")


def test_tabs_without_locks_do_not_copy_from_each_other(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("Object.defineProperty(Navigator.prototype, 'locks', { get() { return undefined; } })")
    pages = [stage.open(context=context) for _ in range(2)]
    stage.gate.is_closed = True
    emit(pages[0], 2)
    for turn in range(10):
        pages[turn % 2].evaluate("document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))")
    # One tab may not see the last write of the other tab yet. Those events are only in the other tab's memory.
    assert waiting(pages[0]) <= 4
    stage.gate.is_closed = False
    for page in pages:
        page.evaluate("dispatchEvent(new Event('online'))")
    stage.delivered(2)
    on_durable(pages[0], 1.5)
    assert len(stage.gate.ids()) <= 4


def test_a_host_that_clears_the_storage_loses_no_event_of_its_page(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    ids = emit(page, 3)
    wait_until(lambda: waiting(page) == 3, description="the events are stored")
    page.evaluate("localStorage.clear()")
    ids += emit(page, 1)
    wait_until(lambda: waiting(page) == 4, description="the events are stored again")
    stage.gate.is_closed = False
    stage.delivered(4)
    assert set(stage.gate.ids()) == set(ids)


def test_numbers_continue_when_the_storage_becomes_full(stage: Stage) -> None:
    page = stage.open()
    emit(page, 9)
    page.evaluate("""() => {
        for (let size = 1 << 22; size; size >>= 1)
            for (let i = 0; ; i++)
                try { sessionStorage.setItem("host" + size + "_" + i, "x".repeat(size)); } catch { break; }
    }""")
    emit(page, 8)
    events = [event for delivery in stage.delivered(17) for event in delivery["events"]]
    assert [event["seq"] for event in events] == list(range(17))


def test_a_fetch_that_rejects_without_an_error_is_retried(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("""() => {
        const real = fetch;
        let failing = 1;
        window.fetch = (...given) => (failing-- > 0 ? Promise.reject() : real(...given));
    }""")
    emit(page, 10)
    stage.delivered(10)


def test_empty_attributes_count_as_absent(stage: Stage) -> None:
    page = stage.context().new_page()
    element = f'<script type="module" src="{stage.gate.url}/{browser_files()["forwarder.js"].name}"'
    attributes = f'data-key="{stage.key}" data-origin="{stage.tenant.url}" data-tenant="" data-deployment=""'
    frame = f'<iframe src="{stage.tenant.url}/embed"></iframe>'
    page.goto(stage.host.add("/empty", f"<!doctype html>{element} {attributes}></script>{frame}"))
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1)
    assert {"tenant", "deployment"}.isdisjoint(delivery["context"])
