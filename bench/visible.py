"""From the 202 of an event until a report counts it, as a reader sees it over HTTP, under light load."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from uuid_utils import uuid7

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.server import Server, serving
from bench.traffic import sessions

REPORT_PATH = "/api/v1/reports/views.json"
PROBES = 30
LIGHT_LOAD_PAUSE_S = 0.05
POLL_PAUSE_S = 0.02
VISIBLE_TIMEOUT_S = 30
# Nothing else happens in these deployments, so a report on one shows a probe or nothing.
FIRST_PROBE_DEPLOYMENT = 1_000


def measure(*, root: Path) -> list[Finding]:
    """Seconds from ack to visible."""
    chance = random.Random(3)
    with serving(root) as server, _light_load(server), server.child.client() as client:
        waits_s = []
        for number in range(PROBES):
            # At any moment of the journal's one-second rhythm, not just after the last probe was loaded.
            time.sleep(chance.random())
            waits_s.append(probe(server, client, FIRST_PROBE_DEPLOYMENT + number))
    p95_s = quantiles(waits_s, n=20, method="inclusive")[-1]
    return [
        Finding("ack to visible, p50", median(waits_s), "s", waits_s),
        Finding("ack to visible, p95", p95_s, "s", waits_s, Goal(at_most=2)),
    ]


def probe(server: Server, client: httpx.Client, deployment: int) -> float:
    """Send a view of a deployment that has none yet. Return the seconds from the 202 until a report counts it."""
    # With a tenant: if one event lacks what some `ready` names, each report reads all `ready` events.
    server.send(client, {"context": {"deployment": deployment, "tenant": "probe"}, "events": [_view()]})
    acknowledged_at = time.monotonic()
    while time.monotonic() - acknowledged_at < VISIBLE_TIMEOUT_S:
        rows = server.rows(client, REPORT_PATH, deployment=deployment)
        if any(row["view_count"] == 1 for row in rows):
            return time.monotonic() - acknowledged_at
        time.sleep(POLL_PAUSE_S)
    raise BenchError(f"{REPORT_PATH}: does not show an acknowledged view after {VISIBLE_TIMEOUT_S} s.")


def _view() -> dict[str, Any]:
    return {
        "id": str(uuid7()),
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": "/probe"},
        "timestamp": time.time_ns() // 1_000_000,
        "surface": "dashboard",
    }


@contextmanager
def _light_load(server: Server) -> Iterator[None]:
    """A visit's worth of events, some times a second, as long as the block lasts."""
    ended = threading.Event()
    failures: list[Exception] = []
    sender = threading.Thread(target=_send_until, args=(server, ended, failures))
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
    if failures:
        raise failures[0]


def _send_until(server: Server, ended: threading.Event, failures: list[Exception]) -> None:
    now_ms = time.time_ns() // 1_000_000
    try:
        with server.child.client() as client:
            for session in islice(sessions(4, start_ms=now_ms - 3_600_000, length=range(8, 40)), 100_000):
                if ended.wait(LIGHT_LOAD_PAUSE_S):
                    return
                server.send(client, {"context": session.context, "events": session.envelopes})
    except (BenchError, httpx.HTTPError) as error:
        failures.append(error)
