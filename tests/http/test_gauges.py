"""The gauges of the pipeline dashboard."""

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedsink.journal.segment import Segment
from embedsink.store.database import Store
from embedsink.store.ledger import LoadCounts
from tests.support.app import WAIT_S_MAX, open_server
from tests.support.envelopes import view
from tests.support.servers import wait_until


def test_gauges_show_the_loading_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_load = threading.Event()
    load = Store.load

    def load_when_it_may(store: Store, *segments: Segment) -> LoadCounts:
        assert may_load.wait(WAIT_S_MAX)
        return load(store, *segments)

    monkeypatch.setattr(Store, "load", load_when_it_may)
    with open_server(tmp_path, segment_seal_s=0.01, snapshot_interval_s=0.01) as server, ExitStack() as ended:
        ended.callback(may_load.set)  # before the server closes, which waits for the loader
        key, reader = server.key(), server.key("read")

        def gauges() -> dict[str, Any]:
            charts = server.get("/api/v1/dashboards/pipeline/sections/server", key=reader).json()["charts"]
            return {name: gauge["value"] for name, gauge in charts.items()}

        for _ in range(3):
            assert server.post(view(), key=key).status_code == 202
            time.sleep(0.1)  # so that each event is in a separate segment
        time.sleep(1.0)
        behind = gauges()
        sizes = [path.stat().st_size for path in server.folder.journal.glob("*.ndjson")]
        assert 1.0 <= behind["delay"] < WAIT_S_MAX
        assert len(sizes) == 3
        assert (behind["segments"], behind["bytes"]) == (3, sum(sizes))
        may_load.set()
        server.rows("/api/v1/reports/views", key=reader)
        end = time.monotonic() + WAIT_S_MAX
        while (caught_up := gauges())["snapshot"] is None or caught_up["delay"]:
            assert time.monotonic() < end, caught_up
            time.sleep(0.02)

        def age_s() -> float:
            return time.time() - server.folder.snapshot.stat().st_mtime

        wait_until(lambda: age_s() >= 0.5, description="the last snapshot is published")
        assert gauges()["snapshot"] == pytest.approx(age_s(), abs=0.25)
