"""The demo's traffic, on a server of one test."""

import time

from embedsink.demo.fixtures import ORIGINS
from embedsink.demo.send import Browsers, SendCounts
from embedsink.demo.stop import Stop
from embedsink.demo.syncs import record_syncs
from embedsink.demo.traffic import make_traffic
from embedsink.demo.trends import DAYS
from tests.support.servers import RunningServer, wait_until


def send_traffic(server: RunningServer, *, days: int = DAYS) -> None:
    """Send the last days, and wait until all events are loaded."""
    counts = SendCounts()
    with Stop() as stop:
        keys = dict.fromkeys(ORIGINS, server.key("ingest"))
        browsers = Browsers(int(server.url.rpartition(":")[2]), keys, counts)
        for _ in browsers.send_all(make_traffic(time.time_ns() // 1_000_000, days=days), stop):
            pass
    wait_until(lambda: loaded_count(server) >= counts.sent, description="all is loaded", timeout_s=60)


def send_syncs(server: RunningServer) -> None:
    """Record the dbt syncs of these days."""
    record_syncs(server.url, server.key("sync"), time.time_ns() // 1_000_000)


def loaded_count(server: RunningServer) -> int:
    """Return the number of envelopes that the loader has processed, with any outcome."""
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith("embedsink_loaded_envelopes_total{"))
