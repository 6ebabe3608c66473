"""Queries: cancellation, time limit and priority."""

import asyncio
import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from embedsink.errors import Unavailable
from embedsink.http.execute import cancel_on_disconnect
from embedsink.store.reader import Reader
from tests.support.app import Server, open_server, problem

# Longer than every timeout here, but finite, because a failing test has to end.
LONG = "select count(*) from range(1_000_000) one, range(2_000) other where hash(one.range, other.range) = 1"
ENDED_S_MAX = 5.0


every_reading = pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/api/v1/reports/views", "report_response.write_rows"),
        ("/api/v1/summary.zip", "api.exports.write_summary"),
        ("/api/v1/dashboards/overview/sections/use", "api.dashboards.query_section"),
        ("/api/v1/quarantine", "api.quarantine.rejections_json"),
        ("/api/v1/deployments", "api.deployments._read_rows"),
        ("/api/v1/inspect?session=s", "api.inspection.count_ingested"),
    ],
)


@pytest.fixture
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with a slot for one report and none for waiting."""
    limits: dict[str, Any] = {"report_concurrency_max": 1, "report_waiting_max": 0}
    with open_server(tmp_path_factory.mktemp("data"), **limits) as server:
        yield server


@every_reading
def test_a_disconnected_reader_frees_its_slot(
    narrow: Server, monkeypatch: pytest.MonkeyPatch, path: str, read: str
) -> None:
    query_started = threading.Event()
    bodies: list[bytes] = []

    def read_long(reader: Reader, *_: Any, **__: Any) -> None:
        query_started.set()
        reader._fetch_all(LONG)

    async def write(body: bytes) -> None:
        bodies.append(body)

    async def wait() -> None:
        assert await asyncio.to_thread(query_started.wait, ENDED_S_MAX)

    async def take_the_place() -> None:
        async with asyncio.timeout(ENDED_S_MAX):
            while True:
                with contextlib.suppress(Unavailable):
                    async with narrow.engine.limiters.reports.slot("k_other"):
                        return
                await asyncio.sleep(0.01)

    key = narrow.key("read")
    with monkeypatch.context() as patched:
        patched.setattr(f"embedsink.http.{read}", read_long)
        with narrow.streaming(path, key, write):
            narrow._runner.run(wait())
            assert narrow.get("/api/v1/reports/views", key=key).status_code == 503
            left_at = time.monotonic()
        assert time.monotonic() - left_at < ENDED_S_MAX
        narrow._runner.run(take_the_place())
    assert narrow.get("/api/v1/reports/views", key=key).status_code == 200
    assert bodies == []
    assert narrow.engine.counters["refused.internal_error"] == 0


@every_reading
def test_a_query_beyond_the_time_limit_answers_503_and_frees_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, read: str
) -> None:
    def read_long(reader: Reader, *_: Any, **__: Any) -> None:
        reader._fetch_all(LONG)

    with open_server(tmp_path, report_concurrency_max=1, report_waiting_max=0, report_timeout_s=1) as server:
        key = server.key("read")
        with monkeypatch.context() as patched:
            patched.setattr(f"embedsink.http.{read}", read_long)
            response = server.get(path, key=key)
        assert (response.status_code, problem(response)) == (503, "overloaded")
        detail = "report: took longer than 1 s (EMBEDSINK_REPORT_TIMEOUT_S). Request a shorter period."
        assert response.json()["detail"] == detail
        assert "retry-after" in response.headers
        assert server.get("/api/v1/reports/views", key=key).status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
@every_reading
def test_queries_have_a_lower_priority_than_ingest(
    narrow: Server, monkeypatch: pytest.MonkeyPatch, path: str, read: str
) -> None:
    module, _, name = read.rpartition(".")
    original = getattr(importlib.import_module(f"embedsink.http.{module}"), name)
    earlier_threads = threads()
    priorities: dict[int, int] = {}

    def read_and_record(*arguments: Any, **options: Any) -> Any:
        priorities.update({thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads() - earlier_threads})
        priorities[0] = priorities[threading.get_native_id()]
        return original(*arguments, **options)

    monkeypatch.setattr(f"embedsink.http.{read}", read_and_record)
    assert narrow.get(path, key=narrow.key("read")).status_code == 200
    low = max(10, os.getpriority(os.PRIO_PROCESS, 0))
    assert priorities.pop(0) == low
    # DuckDB's worker thread inherits the priority of the query's thread.
    assert list(priorities.values()).count(low) >= 2


def threads() -> set[int]:
    """Return the thread ids of this process."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def test_cancelling_one_request_does_not_cancel_a_shared_query(narrow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    query_started, may_end = threading.Event(), threading.Event()
    bodies: list[list[bytes]] = [[], []]
    has_head = asyncio.Event()

    def read(reader: Reader, *_: Any, **__: Any) -> dict[str, Any]:
        query_started.set()
        assert may_end.wait(ENDED_S_MAX)
        return {}

    def writing(number: int) -> Any:
        async def write(body: bytes) -> None:
            bodies[number].append(body)
            has_head.set()

        return write

    async def wait() -> None:
        assert await asyncio.to_thread(query_started.wait, ENDED_S_MAX)
        await asyncio.sleep(0.1)

    monkeypatch.setattr("embedsink.http.api.dashboards.query_section", read)
    path, key = "/api/v1/dashboards/overview/sections/use", narrow.key("read")
    with narrow.streaming(path, key, writing(0)):
        with narrow.streaming(path, key, writing(1)):
            narrow._runner.run(wait())
        may_end.set()
        narrow._runner.run(asyncio.wait_for(has_head.wait(), ENDED_S_MAX))
        narrow._runner.run(asyncio.sleep(0.05))  # the head is sent first, then the body
    assert b'"charts"' in b"".join(bodies[0])
    assert bodies[1] == []


def test_a_bug_is_raised_and_not_treated_as_a_disconnect() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def receive() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    with pytest.raises(ValueError, match="no"):
        asyncio.run(cancel_on_disconnect(Request({"type": "http"}, receive), fail()))


def test_further_bytes_of_a_client_are_not_a_disconnect() -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(parts == [])

    async def receive() -> Message:
        await asyncio.sleep(0)
        return parts.pop(0)

    with pytest.raises(ClientDisconnect):
        asyncio.run(cancel_on_disconnect(Request({"type": "http"}, receive), wait()))
    assert ended == [True]
