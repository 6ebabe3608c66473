"""Protection against double counting: duplicated tabs, restored pages, and second elements."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.stage import FRAME, Stage, embed_in, emit, events_of, on_durable, paths_of, waiting
from tests.support.servers import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

VIEW = """(path) => receive({ origin: options.origin, source: frames[0],
    data: { source: "svc-embed", direction: "event", type: "svc:event:view", timestamp: Date.now(),
            surface: "dashboard", payload: { surface: "dashboard", path } } })"""
ALMOST_SIX_DAYS_MS = 5 * 10**8


def come_back(page: Page) -> None:
    """Go back to a page of the back/forward cache; its frame may still be loading."""
    page.evaluate("setTimeout(() => history.back(), 10)")
    page.wait_for_function("window.isBack")


def numbers_by_session(stage: Stage) -> dict[str, list[int]]:
    """Return the numbers of all delivered events in the order of delivery, by session."""
    numbers: dict[str, list[int]] = {}
    for status, delivery in stage.gate.answered:
        assert status == 202
        numbers.setdefault(delivery["context"]["session"], []).extend(event["seq"] for event in delivery["events"])
    return numbers


def test_a_duplicated_tab_is_a_session_of_its_own(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    stage.delivered(2, at_once=page)
    # A page that another one opens gets a copy of its sessionStorage, as a duplicated tab does (HTML, 7.1.1).
    with page.context.expect_page() as opened:
        page.evaluate("void window.open(location.href)")
    twin = opened.value
    twin.wait_for_function("window.f")
    for tab in (page, twin):
        embed_in(tab).evaluate("view('/b')")
    stage.delivered(4)
    assert sorted(numbers_by_session(stage).values()) == [[0], [0, 1, 2]]


def test_two_frames_with_the_same_url_are_two_sessions(stage: Stage) -> None:
    page = stage.open(stage.host_page(frames=2 * FRAME.format(embed=stage.tenant.url, session="same")))
    for index in (0, 1):
        embed_in(page, index).evaluate("ready(12, 'acme'); view('/a')")
    stage.delivered(4, at_once=page)
    assert list(numbers_by_session(stage).values()) == [[0, 1], [0, 1]]


def test_a_restored_page_continues_the_numbers_of_the_next_page(stage: Stage, tmp_path: Path) -> None:
    with stage.profile(tmp_path) as context:
        page = stage.open(context=context)
        emit(page, 2)
        stage.delivered(2, at_once=page)
        page.evaluate("addEventListener('pageshow', ({ persisted }) => window.isBack = persisted)")
        page.goto(stage.host_page() + "?again")
        page.wait_for_function("window.f")
        emit(page, 1)
        page.evaluate("f.flush()")
        stage.delivered(3)
        come_back(page)
        page.evaluate(VIEW, "/back")
        page.evaluate("f.flush()")
        stage.delivered(4)
    expected = [0, 1, 2, 3] if stage.engine.refreshes_session_storage else [0, 1, 2, 2]
    assert list(numbers_by_session(stage).values()) == [expected]


def test_a_loss_reported_by_another_page_is_not_repeated_by_a_restored_page(stage: Stage, tmp_path: Path) -> None:
    other_page = stage.host.add("/elsewhere", "<!doctype html>elsewhere")
    with stage.profile(tmp_path) as context:
        page = stage.open(context=context)
        page.evaluate("addEventListener('pageshow', ({ persisted }) => window.isBack = persisted)")
        stage.gate.is_closed = True
        ids = emit(page, 1)
        embed_in(page).evaluate("emit('drilldown', { value: 10n })")
        wait_until(
            lambda: "not_json" in page.evaluate("JSON.stringify(localStorage)"), description="the loss is stored"
        )
        page.goto(other_page)
        on_durable(page)
        stage.gate.is_closed = False
        heir = stage.open(context=context)
        stage.delivered(1)
        wait_until(lambda: waiting(heir) == 0, description="the queue of the heir is empty")
        assert stage.gate.answered[-1][1]["lost"] == {"not_json": 1}
        come_back(page)
        page.evaluate(VIEW, "/back")
        stage.delivered(2, at_once=page)
        on_durable(page)
    assert [delivery["lost"] for _, delivery in stage.gate.answered if delivery["lost"]] == [{"not_json": 1}]
    assert stage.gate.ids().count(ids[0]) == 1  # the queue is not sent again either


def test_a_restored_page_sends_again_what_was_in_flight_when_it_left(stage: Stage, tmp_path: Path) -> None:
    with stage.profile(tmp_path) as context:
        page = stage.open(context=context)
        page.evaluate("addEventListener('pageshow', ({ persisted }) => window.isBack = persisted)")
        # Firefox never settles the promise of such a request.
        page.evaluate("""() => {
            const real = fetch;
            window.fetch = () => new Promise(() => {});
            addEventListener("pagehide", () => { window.fetch = real; });
        }""")
        ids = emit(page, 10)
        page.wait_for_function("stages.some(([, stage]) => stage == 'sent')")
        page.goto(stage.host.add("/elsewhere", "<!doctype html>elsewhere"))
        page.evaluate("setTimeout(() => history.back(), 10)")
        page.wait_for_function("window.isBack")
        page.evaluate(VIEW, "/back")
        stage.delivered(11, at_once=page)
        wait_until(lambda: waiting(page) == 0, description="the queue is empty")
    assert len(stage.gate.ids()) == 11
    assert set(ids) < set(stage.gate.ids())


def test_a_second_element_and_an_import_forward_no_event_twice(stage: Stage) -> None:
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    page = stage.open(stage.host_page(frames=2 * element + FRAME.format(embed=stage.tenant.url, session="one")))
    embed_in(page).evaluate("for (let i = 0; i < 10; i++) view('/' + i)")
    deliveries = stage.delivered(10)
    on_durable(page, 1.2)  # a second forwarder would send its events a second later
    assert paths_of(deliveries) == [f"/{index}" for index in range(10)]
    assert len(stage.gate.ids()) == 10


def test_an_open_page_does_not_send_events_beyond_the_deduplication_window(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    emit(page, 1, "/old")
    page.wait_for_function("problems.length")
    page.evaluate(f"const now = Date.now; Date.now = () => now() + {ALMOST_SIX_DAYS_MS};")
    stage.gate.is_closed = False
    page.evaluate("f.flush()")
    page.wait_for_function("stages.some(([, stage]) => stage == 'lost')")
    assert waiting(page) == 0
    embed_in(page).evaluate("view('/new')")
    [delivery] = stage.delivered(1, at_once=None)
    assert paths_of([delivery]) == ["/new"]
    assert delivery["lost"] == {"expired": 1}


def test_a_queue_of_a_page_with_another_key_is_sent_with_that_key(stage: Stage) -> None:
    context = stage.context()
    other = stage.server.key("ingest", origins=[stage.host.url], deployments=[7])
    page = stage.open(stage.host_page(options=f"{{ key: '{other}' }}"), context=context)
    stage.gate.is_closed = True
    left_ids = emit(page, 1)
    page.close()
    stage.gate.is_closed = False
    heir = stage.open(stage.host_page(), context=context)
    own_ids = emit(heir, 1)
    stage.delivered(2)
    keys = {event["id"]: delivery["key"] for _, delivery in stage.gate.answered for event in delivery["events"]}
    assert keys == {left_ids[0]: other, own_ids[0]: stage.key}


def test_a_host_that_flushes_on_every_callback_counts_no_loss_twice(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ onEvent: (envelope, stage) => stage == 'durable' && f.flush() }"))
    embed_in(page).evaluate("emit('drilldown', { value: 10n }); for (let i = 0; i < 25; i++) view('/' + i)")
    stage.delivered(25)
    assert [delivery["lost"] for _, delivery in stage.gate.answered if delivery["lost"]] == [{"not_json": 1}]
    assert len(events_of([delivery for _, delivery in stage.gate.answered])) == 25
