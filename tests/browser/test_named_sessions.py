"""A session that the host page names, so that a test of the page or the host's analytics can query it."""

import pytest
from playwright.sync_api import Page

from tests.browser.stage import FRAME, Stage, embed_in, events_of

pytestmark = pytest.mark.server

NAMED = "{ context: { session: new URLSearchParams(location.search).get('session') } }"


def open_named(stage: Stage, name: str, *, frames: str | None = None, page: Page | None = None) -> Page:
    """Return a page that names its session in its own URL."""
    address = f"{stage.host_page(options=NAMED, frames=frames)}?session={name}"
    if page is None:
        return stage.open(address)
    page.goto(address)
    page.wait_for_function("window.f")
    return page


def numbers(stage: Stage, session: str, count: int) -> list[int]:
    """Return the numbers of a session's events, each id once, after this many events were delivered."""
    of_session = [delivery for delivery in stage.delivered(count) if delivery["context"]["session"] == session]
    return sorted({event["id"]: event["seq"] for event in events_of(of_session)}.values())


def test_an_element_names_the_session(stage: Stage) -> None:
    attributes = f'data-key="{stage.key}" data-origin="{stage.tenant.url}" data-session="s_element"'
    page = stage.context().new_page()
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    page.goto(stage.host.add("/named", element + FRAME.format(embed=stage.tenant.url, session=1)))
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1)
    assert delivery["context"]["session"] == "s_element"
    [row] = stage.server.get("/api/v1/inspect?session=s_element&wait=10", key=stage.reader).json()["events"].items()
    assert row == ("view", 1)


def test_the_next_page_of_a_tab_continues_the_numbers(stage: Stage) -> None:
    page = open_named(stage, "s_pages")
    embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
    stage.delivered(2, at_once=page)
    open_named(stage, "s_pages", page=page)
    embed_in(page).evaluate("ready(12, 'acme'); view('/b')")
    assert numbers(stage, "s_pages", 4) == [0, 1, 2, 3]


def test_two_iframes_share_numbers_and_keep_their_deployments(stage: Stage) -> None:
    two = "".join(FRAME.format(embed=stage.tenant.url, session=session) for session in "ab")
    page = open_named(stage, "s_frames", frames=two)
    for index, deployment in enumerate((12, 13)):
        embed_in(page, index).evaluate(f"ready({deployment}, 'acme'); view('/{index}')")
    embed_in(page, 0).evaluate("view('/2')")
    deliveries = stage.delivered(5, at_once=page)
    assert numbers(stage, "s_frames", 5) == [0, 1, 2, 3, 4]
    deployments = {
        event["payload"]["path"]: delivery["context"]["deployment"]
        for delivery in deliveries
        for event in delivery["events"]
        if event["type"] == "svc:event:view"
    }
    assert deployments == {"/0": 12, "/1": 13, "/2": 12}


def test_a_host_may_change_the_session_at_any_time_and_go_back_to_none(stage: Stage) -> None:
    page = stage.open()
    for session in ("'s_one'", "'s_two'", "'s_one'", "null", "''", "42", "'constructor'"):
        page.evaluate(f"options.context.session = {session}")
        embed_in(page).evaluate("view('/a')")
        page.wait_for_function("f.flush(), stages.at(-1)[1] == 'durable'")
    sent = [
        (delivery["context"]["session"], event["seq"])
        for delivery in stage.delivered(7)
        for event in delivery["events"]
    ]
    own_session = sent[3][0]
    assert sent == [
        ("s_one", 0),
        ("s_two", 0),
        ("s_one", 1),
        (own_session, 0),
        (own_session, 1),
        ("42", 0),
        ("constructor", 0),
    ]
    assert len(stage.stored(stage.gate.ids())) == 7


def test_a_session_named_like_another_storage_entry_has_its_own_numbers(stage: Stage) -> None:
    page = stage.open()
    embed_in(page).evaluate("view('/a')")
    stage.delivered(1, at_once=page)
    page.reload()
    page.wait_for_function("window.f")
    [slot] = page.evaluate("Object.keys(sessionStorage).map((name) => name.split(' ').at(-1))")
    open_named(stage, slot, page=page)
    embed_in(page).evaluate("view('/b')")
    assert numbers(stage, slot, 2) == [0]
