"""The time from the 202 of an event until a report counts it, read over HTTP under light load."""

import random
import threading
import time
from functools import partial
from pathlib import Path
from statistics import quantiles

import httpx

from bench.background import background
from bench.results import Goal, Result, median_of
from bench.server import BenchError, Server, fresh_folder
from bench.traffic import sessions, view

REPORT_PATH = "/api/v1/reports/views.json"
PROBES = 30
LIGHT_LOAD_PAUSE_S = 0.05
POLL_PAUSE_S = 0.02
VISIBLE_TIMEOUT_S = 30
# Only probes use these deployments, so that a report contains one probe or nothing.
FIRST_PROBE_DEPLOYMENT = 1_000


def measure(*, root: Path) -> list[Result]:
    """Return the seconds from acknowledgement to visibility."""
    rng = random.Random(3)
    waits_s = []
    with (
        fresh_folder(root) as folder,
        Server(folder) as server,
        background([partial(_send_light_load, server)]),
        server.client() as client,
    ):
        for number in range(PROBES):
            # A random phase of the one-second segments, instead of just after the previous probe was loaded.
            time.sleep(rng.random())
            waits_s.append(probe(server, client, FIRST_PROBE_DEPLOYMENT + number))
    p95_s = quantiles(waits_s, n=20, method="inclusive")[-1]
    return [
        median_of("ack to visible, p50", "s", waits_s),
        Result("ack to visible, p95", p95_s, "s", waits_s, Goal(at_most=2)),
    ]


def probe(server: Server, client: httpx.Client, deployment: int) -> float:
    """Send a view of an unused deployment. Return the seconds from the 202 until a report counts it."""
    # The tenant is set: an event without one makes every report read all `ready` events.
    server.send(client, {"context": {"deployment": deployment, "tenant": "probe"}, "events": [view("/probe")]})
    acknowledged_at = time.monotonic()
    while time.monotonic() - acknowledged_at < VISIBLE_TIMEOUT_S:
        rows = server.rows(client, REPORT_PATH, deployment=deployment)
        if any(row["view_count"] == 1 for row in rows):
            return time.monotonic() - acknowledged_at
        time.sleep(POLL_PAUSE_S)
    raise BenchError(f"{REPORT_PATH}: does not count an acknowledged view after {VISIBLE_TIMEOUT_S} s.")


def _send_light_load(server: Server, ended: threading.Event) -> None:
    """Send a session's events every 50 ms."""
    start_ms = time.time_ns() // 1_000_000 - 3_600_000
    with server.client() as client:
        for session in sessions(4, start_ms=start_ms):
            if ended.wait(LIGHT_LOAD_PAUSE_S):
                return
            server.send(client, {"context": session.context, "events": session.envelopes})
