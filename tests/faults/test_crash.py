"""kill -9 at random moments under load: every event answered with 202 is stored once, and no refused event is."""

import time
from pathlib import Path

import pytest

from tests.support.crash_harness import CrashHarness, Server, broken_promises, senders

CYCLES = 30
JUDGED_EVERY = 10
SECONDS_MAX = 240

# An injected bug: the response does not wait for the write. The slow disk makes losses likely.
EARLY_ANSWER = """
import asyncio, os, time
from embedsink.journal import open_segment, writer as journal
submit = journal.Journal.submit
def submit_and_answer_at_once(self, lines, on_durable):
    submit(self, lines, lambda failure: None)
    asyncio.get_running_loop().call_soon(on_durable, None)
journal.Journal.submit = submit_and_answer_at_once
def slow(descriptor):
    time.sleep(0.05)
    os.fdatasync(descriptor)
open_segment.fdatasync = slow
"""


@pytest.mark.slow
@pytest.mark.server
def test_thirty_kills_under_load_break_no_promise(tmp_path: Path) -> None:
    harness = CrashHarness(tmp_path / "data")
    started_at = time.monotonic()

    for cycle in range(1, CYCLES + 1):
        harness.run_and_kill()
        if cycle % JUDGED_EVERY == 0:
            assert harness.restart_and_check() == [], f"after {cycle} kills"

    assert len(harness.log.answered) > 10 * CYCLES
    assert harness.log.unknown
    assert time.monotonic() - started_at < SECONDS_MAX


@pytest.mark.slow
@pytest.mark.server
def test_the_harness_detects_an_early_answer(tmp_path: Path) -> None:
    harness = CrashHarness(tmp_path / "data", injected=EARLY_ANSWER)

    broken: list[str] = []
    for _ in range(20):
        harness.run_and_kill()
        broken = harness.restart_and_check()
        if broken:
            break

    assert [promise.split(":")[0] for promise in broken] == ["answered with 202, but not stored"]


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.server
def test_sigterm_under_load_ends_in_time_and_keeps_every_202(tmp_path: Path) -> None:
    harness = CrashHarness(tmp_path / "data")
    server = Server(harness.data)
    try:
        server.wait_until_ready()
        with senders(server.port, harness.token, harness.log):
            time.sleep(1)
            started_at = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started_at < 10
    finally:
        server.kill()

    assert len(harness.log.answered) > 50
    assert broken_promises(harness.data, harness.log) == []
