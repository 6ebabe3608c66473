"""Single events while ten readers have dashboards open, interleaved with rounds without readers."""

import threading
import time
from itertools import cycle, islice
from pathlib import Path

import httpx

from bench.background import background
from bench.results import Result, median_of, ratio_of
from bench.server import EVENTS_PATH, BenchError, Server, fresh_folder
from bench.wrk import Burst, burst, write_single_bodies
from embedsink.dashboards.files import read_dashboards

CONNECTIONS = 16
READERS = 10
WARM_UP_S = 1
LIVE_PATH = "/api/v1/events/live"


def measure(*, seconds: float, rounds: int, root: Path) -> list[Result]:
    """Return requests/s and latency of senders with and without readers, and their ratios."""
    without, with_readers, responses_per_s = [], [], []
    dashboards = [
        [f"/api/v1/dashboards/{name}/sections/{section.id}" for section in dashboard.sections]
        for name, dashboard in read_dashboards().items()
    ]
    with fresh_folder(root) as folder, Server(folder) as server:
        bodies = write_single_bodies(folder.path / "bodies")
        for length in [WARM_UP_S] + [seconds] * rounds:
            without.append(_burst(server, bodies, length))
            readers = [_Reader(server, dashboard) for dashboard in islice(cycle(dashboards), READERS)]
            with background([reader.run for reader in readers]):
                with_readers.append(_burst(server, bodies, length))
                responses_per_s.append(sum(reader.response_count for reader in readers) / length)
            server.catch_up()
    return _results(without[1:], with_readers[1:], responses_per_s[1:])


def _burst(server: Server, bodies: Path, seconds: float) -> Burst:
    url = server.url + EVENTS_PATH
    return burst(url, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)


class _Reader:
    """A dashboard page: after each load it gets all sections, then pauses for as long as that took."""

    def __init__(self, server: Server, sections: list[str]) -> None:
        self.response_count = 0
        self._server = server
        self._sections = sections
        self._tags: dict[str, str] = {}
        self._headers = {"Authorization": f"Bearer {server.read_key}"}

    def run(self, ended: threading.Event) -> None:
        with self._server.client() as client, client.stream("GET", LIVE_PATH, headers=self._headers) as stream:
            if stream.status_code != httpx.codes.OK:
                raise BenchError(f"{LIVE_PATH}: {stream.status_code}.")
            # The loader loads the last segment after the burst, so every reader receives a line and sees the end.
            for line in stream.iter_lines():
                if ended.is_set():
                    return
                if line == "event: loaded":
                    ended.wait(self._get_all(client))

    def _get_all(self, client: httpx.Client) -> float:
        """Get each section. Return the seconds that it took."""
        started_at = time.monotonic()
        for path in self._sections:
            condition = {"If-None-Match": self._tags[path]} if path in self._tags else {}
            response = client.get(path, headers=self._headers | condition)
            if response.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
                raise BenchError(f"{path}: {response.status_code} {response.text[:300]}")
            self._tags[path] = response.headers.get("etag", "")
            self.response_count += 1
        return time.monotonic() - started_at


def _results(without: list[Burst], with_readers: list[Burst], responses_per_s: list[float]) -> list[Result]:
    speed, speed_without = ([one.requests_per_s for one in bursts] for bursts in (with_readers, without))
    p99_ms, p99_without_ms = ([one.p99_us / 1e3 for one in bursts] for bursts in (with_readers, without))
    return [
        median_of("without readers", "requests/s", speed_without),
        median_of("without readers, p99", "ms", p99_without_ms),
        median_of("with ten readers", "requests/s", speed),
        median_of("with ten readers, p99", "ms", p99_ms),
        median_of("with ten readers, responses to their pages", "responses/s", responses_per_s),
        ratio_of("with / without readers, requests/s", speed, speed_without),
        ratio_of("with / without readers, p99", p99_ms, p99_without_ms),
    ]
