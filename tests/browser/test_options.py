"""Mistakes of a host that adds the forwarder: each is reported, and none throws."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page

from tests.browser.stage import FRAME, Stage, embed_in, emit, events_of

pytestmark = [pytest.mark.server, pytest.mark.slow]


@contextmanager
def warnings_of(page: Page) -> Iterator[list[str]]:
    """Yield the console warnings of a page."""
    warnings: list[str] = []
    # Playwright does not tell the kind of an error in Firefox.
    page.expose_function("onWarning", lambda text: warnings.append(text))
    override = "console.warn = (...values) => void onWarning(values.join(' '))"
    page.add_init_script(override)
    page.evaluate(f"() => {{ {override} }}")
    yield warnings


def with_element(stage: Stage, attributes: str, *, before: str = "") -> str:
    """Add a page with only an element and a frame. Return its URL."""
    element = f'<script type="module" src="{stage.gate.url}/forwarder.js" {attributes}></script>'
    frame = FRAME.format(embed=stage.tenant.url, session="one")
    return stage.host.add("/options", f"<!doctype html>{before}{element}{frame}")


def test_a_forwarder_with_invalid_options_deletes_nothing_of_the_host(stage: Stage) -> None:
    page = stage.open()
    emit(page, 1)
    names = page.evaluate("""() => {
        localStorage.undefined = sessionStorage.undefined = "mine";
        const names = () => JSON.stringify([Object.keys(localStorage), Object.keys(sessionStorage)].flat().sort());
        const before = names();
        forward({ onError() {} }).destroy();
        return [before, names()];
    }""")
    assert names[0] == names[1]


def test_options_that_throw_are_reported_without_an_exception(stage: Stage) -> None:
    page = stage.open()
    with warnings_of(page) as warnings:
        page.evaluate("() => { forward({ get origin() { throw new Error('boom'); } }).flush(); }")
        page.wait_for_function("true")
    assert len(warnings) == 1
    emit(page, 10)
    assert len(events_of(stage.delivered(10))) == 10


def test_an_element_named_like_a_document_property_breaks_nothing(stage: Stage) -> None:
    attributes = f'data-key="{stage.key}" data-origin="{stage.tenant.url}"'
    page = stage.context().new_page()
    page.goto(with_element(stage, attributes, before='<img name="scripts" alt="">'))
    assert page.evaluate("document.scripts.tagName") == "IMG"
    embed_in(page).evaluate("view('/a')")
    assert len(events_of(stage.delivered(1))) == 1


@pytest.mark.parametrize("missing", ["data-key", "data-origin"])
def test_an_element_without_a_key_or_an_origin_is_reported_and_ignores_all_events(stage: Stage, missing: str) -> None:
    attributes = {"data-key": stage.key, "data-origin": stage.tenant.url}
    del attributes[missing]
    page = stage.context().new_page()
    with warnings_of(page) as warnings:
        page.goto(with_element(stage, " ".join(f'{name}="{value}"' for name, value in attributes.items())))
        embed_in(page).evaluate("view('/a')")
        page.wait_for_function("!Object.keys(localStorage).length")
    assert len(warnings) == 1
    assert "TypeError" in warnings[0]
    assert stage.gate.answered == []


def test_an_empty_endpoint_counts_as_absent(stage: Stage) -> None:
    page = stage.context().new_page()
    page.goto(with_element(stage, f'data-endpoint="" data-key="{stage.key}" data-origin="{stage.tenant.url}"'))
    embed_in(page).evaluate("view('/a')")
    assert len(events_of(stage.delivered(1))) == 1


@pytest.mark.parametrize(("option", "expected"), [("=true", True), ("", True), ("=1", True), ("=false", None)])
def test_any_value_but_false_is_an_opt_out(stage: Stage, option: str, *, expected: bool | None) -> None:
    page = stage.context().new_page()
    attributes = f'data-opted-out{option} data-key="{stage.key}" data-origin="{stage.tenant.url}"'
    page.goto(with_element(stage, attributes))
    embed_in(page).evaluate("view('/a')")
    [delivery] = stage.delivered(1)
    assert delivery.get("optedOut") is expected


@pytest.mark.parametrize(("option", "count"), [('"true"', 1), ("true", 1), ('"false"', 0), ("false", 0), ('""', 0)])
def test_only_true_records_actions(stage: Stage, option: str, count: int) -> None:
    page = stage.open(stage.host_page(options=f"{{ recordActions: {option} }}"))
    embed_in(page)
    page.evaluate(f"""async () => {{
        const {{ send }} = await import("{stage.gate.url}/actions.js");
        send(document.querySelector("iframe"), options.origin, "refresh");
    }}""")
    assert page.evaluate("stages.length") == count


def test_a_named_frame_in_a_shadow_tree_continues_its_session_after_a_reload(stage: Stage) -> None:
    frame = FRAME.format(embed=stage.tenant.url, session="one")
    shadow = f'<div id="host"><template shadowrootmode="open">{frame}</template></div>'
    address = stage.host_page(
        frames=shadow, options="{ iframe: document.querySelector('#host').shadowRoot.querySelector('iframe') }"
    )
    page = stage.open(address)
    for count in (1, 2):
        embed_in(page).evaluate("view('/a')")
        page.wait_for_function("stages.length")
        stage.delivered(count, at_once=None)
        page.reload()
        page.wait_for_function("window.f")
    deliveries = stage.delivered(2)
    assert len({delivery["context"]["session"] for delivery in deliveries}) == 1
    # By id: a page that left before the answer sends the events again.
    assert list({event["id"]: event["seq"] for event in events_of(deliveries)}.values()) == [0, 1]


def test_generating_ids_without_random_uuid_uses_no_memory(stage: Stage) -> None:
    context = stage.context()
    context.add_init_script("""
        delete Crypto.prototype.randomUUID;
        const create = URL.createObjectURL;
        window.made = 0;
        URL.createObjectURL = (blob) => (made++, create(blob));""")
    page = stage.open(context=context)
    emit(page, 20)
    assert page.evaluate("made") <= 1
