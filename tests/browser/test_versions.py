"""Pages keep an older version of the forwarder after an upgrade: it still loads, and it still delivers."""

from base64 import b64encode
from hashlib import sha384

import pytest

from embedsink.browser.modules import VERSIONS
from tests.browser.stage import FRAME, Stage, embed_in, emit, events_of, waiting
from tests.support.servers import wait_until

pytestmark = pytest.mark.server

# The first version that stores its queue as one JSON list, which newer versions adopt.
SAME_FORMAT = "forwarder.30a41133f8770741.js"
# All versions since the first commit that served a forwarder: `git log -- src/embedsink/browser/versions`.
SERVED_ONCE = {
    "forwarder.1471f866f53a13b2.js",
    "forwarder.41a5dadf508a9a56.js",
    "forwarder.36855529a8d7afcd.js",
    "forwarder.95796fd976b42d56.js",
    "forwarder.64b476a0ebd22f96.js",
    SAME_FORMAT,
    "actions.7bb76612634f503a.js",
    "actions.583fed7cda8aa550.js",
    "actions.1109362f7a539e0b.js",
}


def pinned(stage: Stage, name: str, *, path: str, integrity: str = "") -> str:
    """Add a page whose element loads a versioned forwarder. Return its URL."""
    hashed = f'crossorigin integrity="{integrity}"' if integrity else ""
    attributes = f'{hashed} data-key="{stage.key}" data-origin="{stage.tenant.url}" data-viewer="u_42"'
    element = f'<script type="module" src="{stage.gate.url}/{name}" {attributes}></script>'
    return stage.host.add(path, f"<!doctype html>{element}{FRAME.format(embed=stage.tenant.url, session=1)}")


def test_no_version_that_was_served_is_deleted() -> None:
    assert {path.name for path in VERSIONS.iterdir()} >= SERVED_ONCE


def test_a_page_that_pins_an_older_forwarder_by_its_hash_delivers_to_this_server(stage: Stage) -> None:
    names = sorted(path.name for path in VERSIONS.glob("forwarder.*"))
    for count, name in enumerate(names, start=1):
        integrity = f"sha384-{b64encode(sha384((VERSIONS / name).read_bytes()).digest()).decode()}"
        page = stage.context().new_page()
        page.goto(pinned(stage, name, path=f"/{name}", integrity=integrity))
        embed_in(page).evaluate("ready(12, 'acme'); view('/a')")
        assert len(events_of(stage.delivered(2 * count))) == 2 * count, name
        page.close()
    ids = stage.gate.ids()
    assert sorted(stage.stored(ids)) == sorted(ids)


def test_a_page_of_a_version_that_this_server_does_not_know_delivers_with_the_current_one(stage: Stage) -> None:
    page = stage.context().new_page()
    page.goto(pinned(stage, "forwarder.0123456789abcdef.js", path="/unknown"))
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1)
    assert delivery["context"]["viewer"] == "u_42"


def test_a_page_with_an_older_actions_module_still_controls_its_embed(stage: Stage) -> None:
    page = stage.open()
    embed = embed_in(page)
    names = sorted(path.name for path in VERSIONS.glob("actions.*"))
    for name in names:
        page.evaluate(f"""async () => {{
            const {{ send }} = await import("{stage.gate.url}/{name}");
            // The first versions throw in Firefox, after they have posted the action.
            try {{ send(document.querySelector("iframe"), "{stage.tenant.url}", "refresh"); }} catch {{}}
        }}""")
    embed.wait_for_function(f"actions.length == {len(names)}")
    assert embed.evaluate("actions.map(({ data }) => data.type)") == ["svc:action:refresh"] * len(names)


def test_the_queue_of_an_older_version_is_delivered_by_the_current_one(stage: Stage) -> None:
    page = stage.context().new_page()
    page.goto(pinned(stage, SAME_FORMAT, path="/older"))
    embed = embed_in(page)
    stage.gate.is_closed = True
    embed.evaluate("for (let i = 0; i < 3; i++) view('/' + i)")
    page.wait_for_function("JSON.stringify({ ...localStorage }).includes('/2')")
    page.goto(stage.host.add("/between", "<!doctype html>"))
    stage.gate.is_closed = False
    page.goto(stage.host_page())
    page.wait_for_function("window.f")
    emit(page, 1, "/newer")
    # A retry may repeat an event with its id.
    assert len({event["id"] for event in events_of(stage.delivered(4))}) == 4
    wait_until(lambda: waiting(page) == 0, description="the queue is empty")
