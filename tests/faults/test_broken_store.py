"""A real server whose store breaks while readers query it."""

import json
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from embedsink.key_scope import EVERYTHING
from embedsink.store.snapshot_reader import open_snapshot
from tests.support.envelopes import view
from tests.support.servers import RunningServer, running_server, wait_until

pytestmark = [pytest.mark.server, pytest.mark.alone]

READER_COUNT = 6
BREAK_COUNT = 5
DELIVERY_COUNT = 30
EVENT_COUNT = 400  # of one delivery


def test_a_store_that_breaks_under_readers_is_reopened_and_loses_nothing(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server,
        ThreadPoolExecutor(READER_COUNT) as threads,
    ):
        key, read_key = server.key(), server.key("read")
        for _ in range(DELIVERY_COUNT):
            send(server, key)
        wait_until(lambda: metric(server, "embedsink_snapshots_total") > 1, description="a snapshot exists")
        is_over: list[bool] = []
        reading = [threads.submit(read, server, read_key, is_over) for _ in range(READER_COUNT)]
        try:
            sent_count = DELIVERY_COUNT + sum(break_store(server, key) for _ in range(BREAK_COUNT))
        finally:
            is_over.append(True)
        statuses = set[int]().union(*(future.result() for future in reading))
        assert server.process.poll() is None
        assert statuses == {200, 503}
        wait_until(lambda: server.get("/readyz").status == 200, description="the store is open again", timeout_s=10)
        assert server.stop() == 0
    count = EVENT_COUNT * sent_count
    with open_snapshot(server.data / "store.duckdb", EVERYTHING.variables()) as reader:
        row, _ = reader.first_row("select count(*) as event_count, count(distinct event_id) as id_count from event")
    assert row == {"event_count": count, "id_count": count}


def send(server: RunningServer, key: str) -> None:
    """Send a megabyte of incompressible events."""
    events = [view({"title": os.urandom(900).hex()}, id=None) for _ in range(EVENT_COUNT)]
    assert server.post(json.dumps(events).encode(), key=key).status == 202


def read(server: RunningServer, key: str, is_over: list[bool]) -> set[int]:
    """Request reports until the end. Return the statuses; 0 for a connection that ended without a response."""
    statuses = set()
    while not is_over:
        try:
            statuses.add(server.get("/api/v1/events.csv?columns=title&limit=2000", key=key).status)
        except (OSError, HTTPException):
            statuses.add(0)
    return statuses


@contextmanager
def store_that_can_not_grow(server: RunningServer) -> Iterator[None]:
    """Make each write beyond the store's end fail. DuckDB then fails the checkpoint, and every later query."""
    byte_count = (server.data / "store.duckdb").stat().st_size
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (byte_count, most))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, most))


def break_store(server: RunningServer, key: str) -> int:
    """Send deliveries until the store fails to write one. Return the number of deliveries."""
    before = reopened_count(server)
    for count in range(1, 20):
        send(server, key)  # The journal may still grow.
        with store_that_can_not_grow(server):
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                if reopened_count(server) > before:
                    return count
                time.sleep(0.02)
    pytest.fail("the store does not break")


def reopened_count(server: RunningServer) -> float:
    return metric(server, "embedsink_store_reopened_total")


def metric(server: RunningServer, name: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))
