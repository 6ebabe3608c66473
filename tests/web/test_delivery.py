"""What becomes of an event on its way: whatever happens to page, network, storage or server, it counts once."""

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Page

from embedsink.web import browser_files
from tests.servers import wait_until
from tests.web.stage import FRAME, Stage, embed_in, settled

pytestmark = pytest.mark.server


def events_of(deliveries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for delivery in deliveries for event in delivery["events"]]


def paths_of(deliveries: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["path"] for event in events_of(deliveries)]


def seen(page: Page) -> list[str]:
    """The ids of what this page's forwarder has taken; not of what it took over from others."""
    ids: list[str] = page.evaluate("stages.filter(([, stage]) => stage == 'seen').map(([id]) => id)")
    return ids


def emit(page: Page, count: int, prefix: str = "/") -> list[str]:
    """Let the embed say so many events, and wait until the host page has heard them; their ids."""
    before = len(seen(page))
    embed_in(page).evaluate(f"for (let i = 0; i < {count}; i++) view('{prefix}' + i)")
    wait_until(lambda: len(seen(page)) == before + count, what=f"{count} events are seen")
    return seen(page)[before:]


def waiting(page: Page) -> int:
    """How many events localStorage holds."""
    count: int = page.evaluate(
        """Object.entries(localStorage).filter(([key]) => key.startsWith("embedsink "))
           .reduce((sum, [, value]) => sum + JSON.parse(value)[0].length, 0)"""
    )
    return count


def test_ten_events_go_at_once_and_fewer_after_a_second(stage: Stage) -> None:
    page = stage.open()
    emit(page, 9)
    settled(page, 0.5)
    assert stage.gate.passed == []
    embed_in(page).evaluate("view('/tenth')")
    first = stage.delivered(10, timeout_s=0.5 + 5)
    assert [len(delivery["events"]) for delivery in first] == [10]
    emit(page, 1)
    assert len(stage.delivered(11)) == 2
    assert waiting(page) == 0


def test_one_request_is_on_its_way_at_a_time(stage: Stage) -> None:
    page = stage.open()
    page.evaluate("""() => {
        const real = fetch;
        let flying = 0;
        window.most = 0;
        window.fetch = async (...given) => {
            most = Math.max(most, ++flying);
            await new Promise((resolve) => setTimeout(resolve, 50));
            return real(...given).finally(() => flying--);
        };
    }""")
    for index in range(6):
        emit(page, 10, f"/{index}/")
    stage.delivered(60)
    assert page.evaluate("most") == 1


def test_a_page_that_leaves_loses_nothing(stage: Stage) -> None:
    page = stage.open()
    stage.host.add("/next", "<!doctype html>elsewhere")
    ids: list[str] = []
    for index in range(5):
        page.goto(stage.host_page())
        page.wait_for_function("window.f")
        ids += emit(page, 3, f"/{index}/")
        page.goto(stage.host.url + "/next")
    # What was sent while leaving was not answered to anybody, so it waits: a later page settles it.
    assert len(set(ids)) == 15
    wait_until(lambda: set(stage.gate.ids()) == set(ids), what="all of them are delivered while their pages leave")
    stage.open(context=page.context)
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_what_waits_while_leaving_goes_in_requests_of_less_than_64_kib_and_the_rest_later(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    ids = emit(page, 40, "x" * 4_000)
    stage.gate.is_closed = False
    page.goto(stage.host.add("/next", "<!doctype html>elsewhere"))
    wait_until(lambda: bool(stage.gate.passed), what="some are sent while the page leaves")
    settled(page, 0.5)
    sizes = [len(str(body)) for _, body in stage.gate.passed]
    assert sum(sizes) < 66_000
    stage.open(context=page.context)
    stage.delivered(40)
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_a_hidden_page_sends_what_waits(stage: Stage) -> None:
    page = stage.open()
    emit(page, 2)
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")
    page.wait_for_function("stages.some(([, stage]) => stage == 'sent')", timeout=700)
    assert len(events_of(stage.delivered(2))) == 2


def test_a_beacon_serves_browsers_without_keepalive(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("delete Request.prototype.keepalive")
    page = stage.open(context=context)
    emit(page, 2)
    page.goto(stage.host.add("/next", "<!doctype html>elsewhere"))
    deliveries = stage.delivered(2)
    assert {event["payload"]["path"] for event in events_of(deliveries)} == {"/0", "/1"}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_what_may_pass_is_sent_again_with_the_same_ids(stage: Stage, status: int) -> None:
    page = stage.open()
    stage.gate.answer(status)
    emit(page, 2)
    stage.delivered(2)
    assert stage.gate.refused == 1
    page.wait_for_function("stages.filter(([, stage]) => stage == 'durable').length == 2")
    sent = page.evaluate("stages.filter(([, stage]) => stage == 'sent').map(([id]) => id)")
    assert len(set(sent)) == 2
    # Chromium itself repeats a request after a 408 on a connection that was used before.
    assert len(sent) == 4 or status == 408


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(stage: Stage, status: int) -> None:
    page = stage.open()
    stage.gate.answer(status, Retry_After="3")
    emit(page, 10)
    wait_until(lambda: stage.gate.refused == 1, what="the first try is refused")
    refused_at = time.monotonic()
    # Neither more events, nor the host, nor a page that leaves make it ask sooner.
    emit(page, 20)
    page.evaluate("f.flush(); f.flush(true); dispatchEvent(new Event('online'))")
    stage.delivered(20)
    assert time.monotonic() - refused_at > 2.8
    assert stage.gate.refused == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 415])
def test_what_is_refused_is_not_sent_again_but_counted(stage: Stage, status: int) -> None:
    page = stage.open()
    stage.gate.answer(status)
    emit(page, 10)
    page.wait_for_function("stages.filter(([, stage]) => stage == 'lost').length == 10")
    assert waiting(page) == 0
    embed_in(page).evaluate("view('/later')")
    [delivery] = stage.delivered(1, timeout_s=10)
    assert stage.gate.refused == 1
    assert delivery["lost"] == {f"http_{status}": 10}
    embed_in(page).evaluate("view('/last')")
    assert stage.delivered(2)[1]["lost"] == {}


def test_a_revoked_key_is_told_to_the_host_and_the_count_comes_with_the_next(stage: Stage) -> None:
    page = stage.open(stage.host_page(options="{ key: 'es_ingest_wrong' }"))
    emit(page, 1)
    page.wait_for_function("problems.length")
    problem = page.evaluate("problems[0]")
    assert (problem["status"], problem["reason"]) == (401, "bad_credential")
    page.goto(stage.host_page())
    emit(page, 1)
    [delivery] = stage.delivered(1)
    assert delivery["lost"] == {"http_401": 1}


def test_a_key_of_another_page_gets_a_403_that_the_page_can_read(stage: Stage) -> None:
    address = stage.host_page().replace("127.0.0.1", "localhost")
    stage.server.key("ingest", origins=[f"http://localhost:{stage.host.port}"])
    page = stage.open(address)
    emit(page, 1)
    page.wait_for_function("problems.length")
    problem = page.evaluate("problems[0]")
    assert (problem["status"], problem["reason"]) == (403, "wrong_origin")
    assert address[:-1] in problem["detail"]


def test_what_is_too_large_is_split_until_it_passes(stage: Stage) -> None:
    page = stage.open()
    stage.gate.events_max = 3
    emit(page, 16)
    deliveries = stage.delivered(16)
    assert sorted(paths_of(deliveries)) == sorted(f"/{index}" for index in range(16))
    assert all(delivery["lost"] == {} for delivery in deliveries)


def test_one_event_that_is_too_large_is_lost_alone(stage: Stage) -> None:
    page = stage.open()
    # Larger than the server's body limit, and than the queue.
    embed_in(page).evaluate("view('/a'); view('x'.repeat(1.2e6)); view('/b')")
    deliveries = stage.delivered(2)
    assert paths_of(deliveries) == ["/a", "/b"]
    assert deliveries[0]["lost"] == {"queue_overflow": 1}


def test_an_event_that_nobody_can_read_does_not_take_others_with_it(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("""
        let deep = 1;
        for (let i = 0; i < 50; i++) deep = [deep];
        for (let i = 0; i < 4; i++) view("/" + i);
        emit("drilldown", { member: "a.b", value: deep });
        for (let i = 4; i < 9; i++) view("/" + i);""")
    stage.delivered(9)
    embed_in(page).evaluate("view('/9')")
    deliveries = stage.delivered(10)
    assert sorted(paths_of(deliveries)) == [f"/{index}" for index in range(10)]
    assert {reason: count for one in deliveries for reason, count in one["lost"].items()} == {"http_401": 1}


def test_a_quarantined_event_is_not_counted_as_lost(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("emit('view', { surface: 'moon', path: 1 })")
    page.wait_for_function("problems.length && stages.some(([, stage]) => stage == 'durable')")
    assert page.evaluate("problems[0].reason") == "nothing_accepted"
    embed_in(page).evaluate("view('/a'); emit('view', null)")
    [delivery] = stage.delivered(1)
    page.wait_for_function("problems.length == 2")
    assert delivery["lost"] == {}
    assert page.evaluate("problems[1].rejected[0].index") == 1


def test_only_a_202_is_a_promise(stage: Stage) -> None:
    page = stage.open()
    for status in (200, 302):
        stage.gate.answer(status)
    emit(page, 1)
    assert len(events_of(stage.delivered(1, timeout_s=20))) == 1
    assert stage.gate.refused == 2


def test_an_answer_that_never_arrives_makes_no_event_count_twice(stage: Stage) -> None:
    page = stage.open()
    stage.gate.swallow_answers = True
    emit(page, 3)
    wait_until(lambda: len(stage.gate.passed) >= 2, what="it was sent twice")
    stage.gate.swallow_answers = False
    page.wait_for_function("stages.filter(([, stage]) => stage == 'durable').length == 3")
    ids = stage.gate.ids()
    assert len(ids) > len(set(ids)) == 3
    assert sorted(stage.stored(ids)) == sorted(set(ids))


def test_offline_then_online_delivers_at_once(stage: Stage) -> None:
    page = stage.open()
    page.context.set_offline(True)
    emit(page, 12)
    page.wait_for_function("problems.length >= 3")  # by now it waits for several seconds
    assert stage.gate.passed == []
    page.context.set_offline(False)
    stage.delivered(12, timeout_s=2.5)
    assert waiting(page) == 0


def test_a_full_storage_of_the_host_takes_nothing_from_delivery(stage: Stage) -> None:
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
    assert page.evaluate("Object.keys(localStorage).every((key) => key.startsWith('host'))")


def test_denied_storage_takes_nothing_from_delivery(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("""
        for (const name of ["localStorage", "sessionStorage"])
            Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });""")
    page = stage.open(context=context)
    emit(page, 3)
    assert [event["seq"] for event in events_of(stage.delivered(3))] == [0, 1, 2]


def test_the_queue_is_bounded_and_what_it_gives_up_is_counted(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    emit(page, 200, "x" * 4_000)
    lost = page.evaluate("stages.filter(([, stage]) => stage == 'lost').length")
    assert 60 < lost < 100
    assert page.evaluate("JSON.stringify({ ...localStorage }).length") < 1_500_000
    stage.gate.is_closed = False
    page.reload()  # The count survives it.
    deliveries = stage.delivered(200 - lost, timeout_s=20)
    reported = [delivery["lost"] for delivery in deliveries if delivery["lost"]]
    assert reported == [{"queue_overflow": lost}]


def test_a_killed_tab_loses_nothing(stage: Stage) -> None:
    context = stage.context()
    page = stage.open(context=context)
    stage.gate.is_closed = True
    ids = emit(page, 5)
    kill(page)
    stage.gate.is_closed = False
    stage.open(context=context)
    stage.delivered(5)
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_a_closed_browser_that_is_opened_again_sends_what_waited(stage: Stage, tmp_path: Path) -> None:
    address = stage.host_page()
    stage.gate.is_closed = True
    with stage.profile(tmp_path) as context:
        ids = emit(stage.open(address, context=context), 5)
    stage.gate.is_closed = False
    with stage.profile(tmp_path) as context:
        stage.open(address, context=context)
        stage.delivered(5)
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_ten_tabs_send_each_event_once(stage: Stage) -> None:
    context = stage.context()
    pages = [stage.open(context=context) for _ in range(10)]
    stage.gate.is_closed = True
    ids = [id_ for page in pages for id_ in emit(page, 4)]
    stage.gate.is_closed = False
    for page in pages:
        page.evaluate("dispatchEvent(new Event('online'))")
    stage.delivered(40)
    settled(pages[0], 1.5)
    assert sorted(stage.gate.ids()) == sorted(ids)


def test_one_of_ten_killed_tabs_is_taken_over_once(stage: Stage) -> None:
    context = stage.context()
    stage.gate.is_closed = True
    pages = [stage.open(context=context) for _ in range(10)]
    ids = [id_ for page in pages[:2] for id_ in emit(page, 4)]
    for page in pages[:2]:
        kill(page)
    stage.gate.is_closed = False

    def is_taken_over() -> bool:
        # A lock is free a moment after its tab has died; each tab that comes to the front looks.
        for page in pages[2:]:
            page.evaluate("document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))")
        return set(stage.gate.ids()) == set(ids)

    wait_until(is_taken_over, what="the events of the killed tabs are delivered")
    settled(pages[2], 1.5)
    assert sorted(stage.gate.ids()) == sorted(ids)


def test_a_strict_policy_lets_it_work(stage: Stage) -> None:
    policy = (
        f"default-src 'none'; script-src {stage.gate.url}; connect-src {stage.gate.url}; "
        f"frame-src {stage.tenant.url}; require-trusted-types-for 'script'"
    )
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    html = f"<!doctype html>{element}{FRAME.format(embed=stage.tenant.url, session=1)}"
    page = stage.context().new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(stage.host.add("/strict", html, Content_Security_Policy=policy))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1)
    assert [line for line in said if "favicon" not in line and "Content Security" in line] == []


def test_a_hash_in_the_page_lets_the_versioned_module_work(stage: Stage) -> None:
    file = browser_files()["forwarder.js"]
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}" crossorigin integrity="{file.integrity}"'
    element = f'<script type="module" src="{stage.gate.url}/{file.versioned_name}" {attributes}></script>'
    page = stage.context().new_page()
    page.goto(stage.host.add("/sri", element + FRAME.format(embed=stage.tenant.url, session=1)))
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1)


def test_a_module_that_was_tampered_with_is_not_run(stage: Stage) -> None:
    file = browser_files()["actions.js"]
    attributes = f'data-origin="{stage.tenant.url}" data-key="{stage.key}" integrity="{file.integrity}"'
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    page = stage.context().new_page()
    page.goto(stage.host.add("/tampered", element + FRAME.format(embed=stage.tenant.url, session=1)))
    embed_in(page).evaluate("for (let i = 0; i < 10; i++) view('/a')")
    settled(page)
    assert stage.gate.passed == []


@pytest.mark.slow
def test_a_server_that_is_down_for_twenty_seconds_costs_nothing(stage: Stage) -> None:
    page = stage.open()
    stage.gate.is_closed = True
    ids = []
    for index in range(20):
        ids += emit(page, 3, f"/{index}/")
        settled(page, 1.0)
    stage.gate.is_closed = False
    # Nobody helps it along: the longest pause by then is 16 s.
    stage.delivered(60, timeout_s=30)
    assert sorted(stage.stored(ids)) == sorted(ids)
    assert stage.gate.refused < 12


def kill(page: Page) -> None:
    """End the process of a tab, as a lack of memory does."""
    with contextlib.suppress(Error):
        page.goto("chrome://crash")
