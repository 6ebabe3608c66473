"""The time from the 202 of an event until a report counts it, read over HTTP under light load."""

import json
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from statistics import quantiles

from bench.background import background
from bench.options import REPOSITORY, DataRoot
from bench.results import Goal, Result, median_of
from bench.server import BenchError, Server, fresh_folder
from bench.traffic import delivery_of, view_in, visits

REPORT_PATH = "/api/v1/reports/views.json"
PROBES = 30
LIGHT_LOAD_PAUSE_S = 0.05
POLL_PAUSE_S = 0.02
VISIBLE_TIMEOUT_S = 30
# Only probes use these deployments, so that a report contains one probe or nothing.
FIRST_PROBE_DEPLOYMENT = 1_000


def measure(data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Seconds from the 202 of an event until a report counts it, under light load."""
    generator = random.Random(3)
    waits_s = []
    with fresh_folder(data_root) as folder, Server(folder) as server, background([partial(_send_light_load, server)]):
        for number in range(PROBES):
            # Start at a random moment of a segment, which lasts a second. The previous probe ended with a load.
            time.sleep(generator.random())
            waits_s.append(probe(server, FIRST_PROBE_DEPLOYMENT + number))
    yield median_of("ack to visible, p50", "s", waits_s)
    p95_s = quantiles(waits_s, n=20, method="inclusive")[-1]
    yield Result("ack to visible, p95", p95_s, "s", waits_s, Goal(at_most=2))


def probe(server: Server, deployment: int) -> float:
    """Send a view of an unused deployment. Return the seconds from the 202 until a report of the last day counts it."""
    server.browsers.send_visit([view_in(deployment)])
    acknowledged_at = time.monotonic()
    while time.monotonic() - acknowledged_at < VISIBLE_TIMEOUT_S:
        rows = json.loads(server.get(f"{REPORT_PATH}?deployment={deployment}&since=1d", server.read_key))
        if any(row["view_count"] == 1 for row in rows):
            return time.monotonic() - acknowledged_at
        time.sleep(POLL_PAUSE_S)
    raise BenchError(f"{REPORT_PATH}: does not count an acknowledged view after {VISIBLE_TIMEOUT_S} s.")


def _send_light_load(server: Server, block_ended: threading.Event) -> None:
    """Send the events of a visit every 50 ms."""
    for visit in visits(4):
        if block_ended.wait(LIGHT_LOAD_PAUSE_S):
            return
        server.browsers.send_visit([delivery_of(visit)])
