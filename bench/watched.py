"""Single events while ten readers have dashboards open, interleaved with rounds without readers."""

import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice

import httpx2

from bench.background import background
from bench.options import REPOSITORY, DataRoot, Rounds, Seconds
from bench.results import Result, median_of
from bench.server import BenchError, Server, fresh_folder
from bench.wrk import Burst, burst, ratios, speed_and_latency, write_single_bodies
from embedsink.dashboards.files import read_dashboards

CONNECTIONS = 16
READERS = 10
WARM_UP_S = 1
LIVE_PATH = "/api/v1/events/live"


def measure(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Throughput and latency of single events, with and without ten readers who have dashboards open."""
    bursts_without: list[Burst] = []
    bursts_with: list[Burst] = []
    responses_per_s: list[float] = []
    dashboards = [
        [f"/api/v1/dashboards/{name}/sections/{section.id}" for section in dashboard.sections]
        for name, dashboard in read_dashboards().items()
    ]
    with fresh_folder(data_root) as folder, Server(folder) as server:
        bodies, key = write_single_bodies(folder.path / "bodies"), server.ingest_key
        for length in [WARM_UP_S] + [seconds] * rounds:
            bursts_without.append(burst(server, bodies, key=key, connections=CONNECTIONS, seconds=length))
            readers = [_Reader(server, dashboard) for dashboard in islice(cycle(dashboards), READERS)]
            with background([reader.run for reader in readers]):
                bursts_with.append(burst(server, bodies, key=key, connections=CONNECTIONS, seconds=length))
                responses_per_s.append(sum(reader.response_count for reader in readers) / length)
            server.catch_up()
    del bursts_without[0], bursts_with[0], responses_per_s[0]  # of the warm-up
    yield from speed_and_latency("without readers", bursts_without)
    yield from speed_and_latency("with ten readers", bursts_with)
    yield median_of("with ten readers, responses to their pages", "responses/s", responses_per_s)
    yield from ratios("with / without readers", bursts_with, bursts_without)


class _Reader:
    """A dashboard page. After each load it requests all sections, and then pauses for as long as that took."""

    def __init__(self, server: Server, sections: list[str]) -> None:
        self.response_count = 0
        self._server = server
        self._sections = sections
        self._etags: dict[str, str] = {}
        self._headers = {"Authorization": f"Bearer {server.read_key}"}

    def run(self, block_ended: threading.Event) -> None:
        """Request the sections after each load until the event is set."""
        client = httpx2.Client(base_url=self._server.url, headers=self._headers, trust_env=False, timeout=30)
        with client, client.stream("GET", LIVE_PATH) as stream:
            if stream.status_code != httpx2.codes.OK:
                raise BenchError(f"{LIVE_PATH}: {stream.status_code}.")
            # The last segment is loaded after the burst, so each reader gets one more line and checks `block_ended`.
            for line in stream.iter_lines():
                if block_ended.is_set():
                    return
                if line == "event: loaded":
                    block_ended.wait(self._request_all(client))

    def _request_all(self, client: httpx2.Client) -> float:
        """Request each section. Return the seconds that it took."""
        started_at = time.monotonic()
        for path in self._sections:
            condition = {"If-None-Match": self._etags[path]} if path in self._etags else {}
            response = client.get(path, headers=condition)
            if response.status_code not in (httpx2.codes.OK, httpx2.codes.NOT_MODIFIED):
                raise BenchError(f"{path}: {response.status_code} {response.text[:300]}")
            self._etags[path] = response.headers.get("etag", "")
            self.response_count += 1
        return time.monotonic() - started_at
