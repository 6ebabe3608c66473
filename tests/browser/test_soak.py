"""Eight thousand events over page loads, killed tabs and killed servers: each is stored once, or counted as lost."""

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.stage import Stage, embed_in, on_durable, open_stage
from tests.support.servers import RunningServer, running_server, wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

ROUNDS = 20
EVENTS_A_ROUND = 400
SETTLED_TIMEOUT_S = 60.0


class Hosts:
    """Two tabs of one browser. Each round uses one of them, which then closes, crashes or navigates."""

    def __init__(self, stage: Stage) -> None:
        self.emitted = 0
        self._stage = stage
        self._context = stage.context()
        self._context.set_default_timeout(SETTLED_TIMEOUT_S * 1_000)  # Other tests use the processors too.
        self._pages = [stage.open(context=self._context) for _ in range(2)]
        self._elsewhere = stage.host.add("/elsewhere", "<!doctype html>elsewhere")

    def play(self, turn: int) -> None:
        """Emit a round of events, and leave as soon as the host page has received them: most are still in flight."""
        page = self._pages[turn % 2]
        page.evaluate("addEventListener('message', () => window.heard = (window.heard ?? 0) + 1)")
        embed_in(page).evaluate(f"for (let i = 0; i < {EVENTS_A_ROUND}; i++) view('/{turn}/' + i)")
        page.wait_for_function(f"window.heard == {EVENTS_A_ROUND}")
        self.emitted += EVENTS_A_ROUND
        self._pages[turn % 2] = self._leave(page, turn // 2)

    def _leave(self, page: Page, how: int) -> Page:
        if how % 4 == 0:
            page.reload()
        elif how % 4 == 1:
            page.goto(self._elsewhere)
            page.goto(self._stage.host_page())
        elif how % 4 == 2:
            page.close()
            return self._stage.open(context=self._context)
        else:
            on_durable(page, 0.1)  # A killed tab may lose the events of its last 10 ms.
            self._stage.kill(page)
            page.close()
            return self._stage.open(context=self._context)
        page.wait_for_function("window.f")
        return page


def stored_ids(server: RunningServer, key: str) -> Counter[str]:
    """Return how often each event is in the store."""
    response = server.get("/api/v1/events.ndjson", key=key)
    return Counter(json.loads(line)["event_id"] for line in response.body.splitlines())


def lost_count(server: RunningServer, key: str) -> int:
    """Return the number of events that the forwarders reported as lost."""
    rows = json.loads(server.get("/api/v1/reports/completeness.json", key=key).body)
    return sum(int(row["lost_count"]) for row in rows)


def test_every_event_is_stored_once_or_counted_as_lost(stage: Stage, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(running_server(data, checks_store=False))
        stage = opened.enter_context(open_stage(stage.playwright, stage.engine, server))
        hosts = Hosts(stage)
        for turn in range(ROUNDS):
            if turn % 10 == 4:
                server.kill()
            if turn % 10 == 6:
                server = opened.enter_context(running_server(data, checks_store=False))
                stage.gate.target = server.url
            hosts.play(turn)
        stored_counts: Counter[str] = Counter()

        def is_settled() -> bool:
            stored_counts.clear()
            stored_counts.update(stored_ids(server, stage.reader))
            return len(stored_counts) + lost_count(server, stage.reader) >= hosts.emitted

        wait_until(is_settled, description="all events are stored or counted as lost", timeout_s=SETTLED_TIMEOUT_S)
        assert hosts.emitted == ROUNDS * EVENTS_A_ROUND
        assert hosts.emitted == len(stored_counts) + lost_count(server, stage.reader)
        assert set(stored_counts.values()) == {1}
        stage.check_that_nothing_was_thrown()
