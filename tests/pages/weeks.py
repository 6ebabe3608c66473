"""The demo's traffic, on a server of a test's own."""

import time

from embedsink.demo.sending import Account, Browsers
from embedsink.demo.stopping import Stop
from embedsink.demo.traffic import SEED, VISITS, make_week
from embedsink.demo.words import ORIGINS
from tests.servers import RunningServer, wait_until

WEEK_MS = 7 * 86_400_000


def send_weeks(server: RunningServer, count: int = 1) -> None:
    """Send the last weeks, the earliest first, and wait until all of it is loaded."""
    account = Account()
    with Stop() as stop:
        browsers = Browsers(int(server.url.rpartition(":")[2]), dict.fromkeys(ORIGINS, server.key("ingest")), account)
        for week in reversed(range(count)):
            now_ms = time.time_ns() // 1_000_000 - week * WEEK_MS
            # No two weeks are the same, and it has been growing.
            visits = make_week(now_ms, seed=SEED + week, visits=VISITS - 60 * week)
            for _ in browsers.send_all(visits, stop):
                pass
    wait_until(lambda: loaded_count(server) >= account.sent_count, what="all is loaded", timeout_s=60)


def loaded_count(server: RunningServer) -> int:
    """How many envelopes the loader has seen, whatever became of them."""
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith("embedsink_loaded_envelopes_total{"))
