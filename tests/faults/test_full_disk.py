"""A full disk: reports work, also after a restart, senders are refused, and free space restores everything."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from embedsink import open as open_folder
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.errors import Misconfigured
from tests.support.crash_harness import Server
from tests.support.disks import mounted
from tests.support.envelopes import view
from tests.support.live_client import open_stream
from tests.support.servers import fetch, wait_until

MIB = 1_048_576
ANSWERED = (
    "/api/v1/reports",
    "/api/v1/reports/views",
    "/api/v1/reports/sessions",
    "/api/v1/dashboards/overview/sections/use",
    "/api/v1/inspect?session=s1&wait=0",
    "/api/v1/deployments",
    "/dashboards/",
    "/docs",
    "/metrics",
)

# They must leave an entry in the audit trail. Its last block may have space for some.
EXPORTS = (
    "/api/v1/reports/views.csv",
    "/api/v1/reports/views.parquet",
    "/api/v1/reports/views.arrow",
    "/api/v1/reports/sessions.csv",
    "/api/v1/summary.zip",
    "/api/v1/events.ndjson",
    "/api/v1/events.parquet",
    "/api/v1/quarantine",
    "/api/v1/analytics.duckdb",
)

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a 24 MiB disk."""
    with mounted(tmp_path / "disk", mebibytes=24) as disk:
        yield disk


class Full:
    """A data folder on a small disk, with the keys of its server."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self.data = disk / "data"
        self.data.mkdir()
        keys = KeyStore(self.data / "keys.json")
        kinds = (KeyKind.INGEST, KeyKind.READ, KeyKind.READ)
        self.ingest, self.read, self.other = (keys.create(kind, now=time.time())[1] for kind in kinds)
        self.sent: list[str] = []

    @contextlib.contextmanager
    def server(self) -> Iterator[str]:
        """Run a server and end it with SIGTERM. Yield its URL."""
        server = Server(self.data, TMPDIR=str(self.disk))
        try:
            server.wait_until_ready()
            yield f"http://127.0.0.1:{server.port}"
            assert server.stop() == 0
        finally:
            server.kill()
        assert "Traceback" not in server.log.read_text()

    def send(self, url: str) -> int:
        """Send one event, and record its id if it is accepted. Return the status."""
        event = view(id=str(uuid4()))
        headers = {"Content-Type": "application/json"}
        response = fetch(f"{url}/api/v1/events", key=self.ingest, headers=headers, body=json.dumps(event).encode())
        self.sent += [event["id"]] if response.status == 202 else []
        return response.status

    def ids(self, url: str) -> list[str]:
        """Return the ids of the events in the store."""
        rows = fetch(f"{url}/api/v1/events.ndjson", key=self.read).body.splitlines()
        return [json.loads(row)["event_id"] for row in rows]

    def snapshot_count(self) -> int:
        """Return the number of events in the snapshot."""
        try:
            return len(open_folder(self.data).events())
        except Misconfigured:
            return 0  # no snapshot yet

    def fill(self) -> None:
        """Fill the disk completely."""
        for size in (MIB, 4_096, 1):
            with contextlib.suppress(OSError), (self.disk / "filling").open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(size))

    def assert_reports_answer(self, url: str) -> None:
        statuses = {path: fetch(url + path, key=self.read).status for path in ANSWERED}
        assert {path: status for path, status in statuses.items() if status != 200} == {}
        with open_stream(url, self.read) as reader:
            reader.message("connected")

    def assert_unrecorded_exports_are_refused(self, url: str) -> None:
        """Export until the audit trail has no space, and then with each operation."""
        key = self.other
        responses = [fetch(f"{url}/api/v1/reports/views.csv?since={hours}h", key=key) for hours in range(1, 21)]
        assert {response.status for response in responses} <= {200, 503}
        assert responses[-1].json()["reason"] == "storage_low"
        assert "can't be recorded in the audit trail" in responses[-1].json()["detail"]
        statuses = {path: fetch(url + path, key=key).status for path in EXPORTS}
        assert 503 in statuses.values()
        assert set(statuses.values()) <= {200, 503}


def test_a_full_disk_answers_reports_also_after_a_restart_and_recovers(disk: Path) -> None:
    full = Full(disk)
    with full.server() as url:
        for _ in range(5):
            assert full.send(url) == 202
        wait_until(lambda: len(full.ids(url)) == 5, description="all is loaded")
        wait_until(lambda: full.snapshot_count() == 5, description="a snapshot contains it", timeout_s=60)
        assert full.send(url) == 202
        full.fill()
        wait_until(lambda: full.send(url) == 503, description="senders are refused")
        full.assert_reports_answer(url)

    full.fill()
    with full.server() as url:
        full.assert_reports_answer(url)
        assert full.snapshot_count() >= 5
        # at least the events of the last checkpoint; later ones are in the journal
        assert sum(row["view_count"] for row in fetch(f"{url}/api/v1/reports/views", key=full.read).json()) >= 5
        command = [sys.executable, "-m", "embedsink", "report", "views", "--format", "csv", "--data", str(full.data)]
        report_process = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(disk)})
        assert (report_process.returncode, len(report_process.stdout.splitlines())) == (0, 2), report_process.stderr
        assert full.send(url) == 503
        full.assert_unrecorded_exports_are_refused(url)
        ready = fetch(f"{url}/readyz").json()
        assert "bytes are free on its disk" in ready["detail"]

        (disk / "filling").unlink()
        wait_until(lambda: full.send(url) == 202, description="senders are accepted")
        wait_until(lambda: fetch(f"{url}/readyz").status == 200, description="the server is ready")
        wait_until(lambda: sorted(full.ids(url)) == sorted(full.sent), description="each accepted event is stored once")
