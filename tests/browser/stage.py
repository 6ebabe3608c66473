"""The setup of the browser tests: real pages with real frames of other origins, and a real server."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error, Frame, Page, Playwright

from tests.browser.engines import Engine
from tests.browser.gate import Gate
from tests.browser.sites import Site
from tests.support.paths import ROOT
from tests.support.servers import RunningServer, wait_until

DELIVERED_TIMEOUT_S = 15.0

# The id that the browser gives a page's locks (Web Locks, section 4.5), and the ids of all pages with a lock.
LOCK_CLIENT = """() => navigator.locks.request("own", async () =>
    (await navigator.locks.query()).held.find(({ name }) => name == "own").clientId)"""
LOCK_HOLDERS = "async () => (await navigator.locks.query()).held.map(({ clientId }) => clientId)"

FRAME = '<iframe src="{embed}/embed?session=credential-{session}"></iframe>'
# The inline script that keeps early messages, as documented.
INLINE_SCRIPT = (ROOT / "docs/browser.md").read_text(encoding="utf-8").partition("```html\n")[2].splitlines()[0]
# A host page that records the calls of its forwarder `f`: `stages` for onEvent, `problems` for onError.
HOST = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body>{frames}
<script type="module">
  import {{ forward }} from "{gate}/forwarder.js";
  window.stages = []; window.problems = [];
  window.options = {{ origin: "{embed}", key: "{key}", context: {{ viewer: "u_42" }},
    onEvent: (envelope, stage) => stages.push([envelope.id, stage]), onError: (problem) => problems.push(problem) }};
  window.forward = forward;
  // Firefox refuses a window of another origin as an option of the constructor.
  window.receive = ({{ source, ...init }}) => dispatchEvent(
    Object.defineProperty(new MessageEvent("message", init), "source", {{ value: source }}));
  window.f = forward(Object.assign(options, {options}));
</script>"""


class Stage:
    """A browser, a server behind a gate, the host's site and the tenant's site. `key` belongs to the host's pages."""

    def __init__(self, playwright: Playwright, engine: Engine, browser: Browser, server: RunningServer) -> None:
        self.engine = engine
        self.browser = browser
        self.playwright = playwright
        self.server = server
        self.gate = Gate(server.url)
        self.host = Site()
        self.tenant = Site()
        self.key = server.key("ingest", origins=[self.host.url])
        self.reader = server.key("read")
        self.thrown: list[str] = []

    def host_page(self, *, frames: str | None = None, path: str = "/", options: str = "{}", **headers: str) -> str:
        """Add a host page with frames of the tenant, and a forwarder with these further options. Return its URL."""
        frame = FRAME.format(embed=self.tenant.url, session="one")
        html = HOST.format(
            frames=frame if frames is None else frames,
            gate=self.gate.url,
            embed=self.tenant.url,
            key=self.key,
            options=options,
        )
        return self.host.add(path, html, **headers)

    def context(self, **options: Any) -> BrowserContext:
        """Return a context with its own storage, like the browser of another person."""
        return self._watched(self.browser.new_context(**options))

    @contextmanager
    def profile(self, folder: Path) -> Iterator[BrowserContext]:
        """Yield a separate browser that stores its data in a folder and has a back/forward cache."""
        context = self.engine.open_profile(self.playwright, folder)
        try:
            yield self._watched(context)
        finally:
            context.close()

    def _watched(self, context: BrowserContext) -> BrowserContext:
        context.set_default_timeout(DELIVERED_TIMEOUT_S * 1_000)
        context.on("weberror", lambda error: self._record(error.error))
        return context

    def _record(self, error: Error) -> None:
        if self.engine.is_exception(error):
            self.thrown.append(str(error))

    def open(self, address: str | None = None, *, context: BrowserContext | None = None) -> Page:
        """Open a host page, and wait until its forwarder listens and its frames exist."""
        page = (context or self.context()).new_page()
        page.goto(address or self.host_page())
        page.wait_for_function("window.f")
        return page

    def kill(self, page: Page) -> None:
        """Kill the process of a tab, and wait until the browser has released its locks."""
        client = page.evaluate(LOCK_CLIENT)
        self.engine.kill(page)
        witness = page.context.new_page()
        witness.goto(self.host.add("/plain", "<!doctype html>without a forwarder"))
        wait_until(
            lambda: client not in witness.evaluate(LOCK_HOLDERS), description="the killed tab's locks are released"
        )
        witness.close()

    def clear(self) -> None:
        """Close all pages, and open the gate."""
        for context in self.browser.contexts:
            context.close()
        self.await_farewells()
        self.gate.next_responses.clear()
        self.gate.answered.clear()
        self.gate.refused_count = 0
        self.gate.drops_responses = False
        self.gate.is_closed = False
        self.gate.events_max = None
        self.gate.delay_s = 0.0
        self.gate.modules.clear()

    def await_farewells(self) -> None:
        """Wait until the requests of closing pages have arrived. Otherwise, they would count for the next step."""
        request_count, quiet_since = -1, 0.0
        until = time.monotonic() + DELIVERED_TIMEOUT_S
        while time.monotonic() < min(until, quiet_since + 0.2) or request_count < 0:
            if request_count != len(self.gate.answered) + self.gate.refused_count:
                request_count, quiet_since = len(self.gate.answered) + self.gate.refused_count, time.monotonic()
            time.sleep(0.02)

    def delivered(
        self, count: int, *, timeout_s: float = DELIVERED_TIMEOUT_S, at_once: Page | None = None
    ) -> list[dict[str, Any]]:
        """Return the acknowledged deliveries, once they have this many events.

        Args:
            count: the number of distinct events.
            timeout_s: how long to wait for them.
            at_once: a page to flush until the events are delivered, instead of waiting for the forwarder's pauses.
        """
        if at_once is not None:
            at_once.wait_for_function(
                "count => stages.filter(([, stage]) => stage == 'seen').length >= count", arg=count
            )

        def is_delivered() -> bool:
            if at_once is not None:
                at_once.evaluate("f.flush()")
            return len(set(self.gate.ids())) >= count

        wait_until(is_delivered, description=f"{count} events are delivered", timeout_s=timeout_s)
        return [body for status, body in self.gate.answered if status == 202]

    def stored(self, ids: list[str]) -> list[str]:
        """Return the ids of these events in the store, with repetitions."""
        wanted, stored_ids = set(ids), list[str]()

        def look() -> bool:
            response = self.server.get("/api/v1/events.ndjson", key=self.reader)
            assert response.status == 200, response.body
            rows = [json.loads(line) for line in response.body.splitlines()]
            stored_ids[:] = [row["event_id"] for row in rows if row["event_id"] in wanted]
            return set(stored_ids) == wanted

        wait_until(look, description=f"{len(wanted)} events are stored", timeout_s=DELIVERED_TIMEOUT_S)
        return stored_ids

    def check_that_nothing_was_thrown(self) -> None:
        """Assert that the forwarder threw no exception into its host."""
        thrown, self.thrown = self.thrown, []
        assert thrown == [], thrown

    def close(self) -> None:
        """Stop everything except the server."""
        self.browser.close()
        for opened in (self.gate, self.host, self.tenant):
            opened.close()


def embed_in(page: Page, index: int = 0) -> Frame:
    """Return the embed in a page's frame, once it listens."""
    wait_until(lambda: len(page.frames) > index + 1, description="the frame is there")
    frame = page.frames[index + 1]
    frame.wait_for_function("typeof emit == 'function'")
    return frame


def on_durable(page: Page, seconds: float = 0.3) -> None:
    """Wait long enough for an unwanted action to happen."""
    page.wait_for_timeout(seconds * 1_000)


def events_of(deliveries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of all deliveries, in order."""
    return [event for delivery in deliveries for event in delivery["events"]]


def paths_of(deliveries: list[dict[str, Any]]) -> list[str]:
    """Return the paths of the view events of all deliveries, in order."""
    return [event["payload"]["path"] for event in events_of(deliveries)]


def received_ids(page: Page) -> list[str]:
    """Return the ids of the events that this page's forwarder received, without adopted ones."""
    ids: list[str] = page.evaluate("stages.filter(([, stage]) => stage == 'seen').map(([id]) => id)")
    return ids


def emit(page: Page, count: int, prefix: str = "/") -> list[str]:
    """Emit this many events, and wait until the host page has received them. Return their ids."""
    before = len(received_ids(page))
    embed_in(page).evaluate(f"for (let i = 0; i < {count}; i++) view('{prefix}' + i)")
    wait_until(lambda: len(received_ids(page)) == before + count, description=f"{count} events are received")
    return received_ids(page)[before:]


def waiting(page: Page) -> int:
    """Return the number of events in localStorage: each is a line of its delivery, after the time and the context."""
    count: int = page.evaluate(
        """Object.entries(localStorage).filter(([key, value]) => key.startsWith("embedsink-queue ") && value[0] != "[")
           .reduce((sum, [, value]) => sum + value.split("\\n").length - 2, 0)"""
    )
    return count


@contextmanager
def open_stage(playwright: Playwright, engine: Engine, server: RunningServer) -> Iterator[Stage]:
    """Start a browser and the sites in front of a server, and stop them at the end."""
    stage = Stage(playwright, engine, engine.launch(playwright), server)
    try:
        yield stage
    finally:
        stage.close()
