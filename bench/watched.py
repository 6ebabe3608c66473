"""Single events while ten readers have dashboards open, interleaved with rounds without readers."""

import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice

import httpx

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
    without: list[Burst] = []
    with_readers: list[Burst] = []
    responses_per_s: list[float] = []
    dashboards = [
        [f"/api/v1/dashboards/{name}/sections/{section.id}" for section in dashboard.sections]
        for name, dashboard in read_dashboards().items()
    ]
    with fresh_folder(data_root) as folder, Server(folder) as server:
        bodies, key = write_single_bodies(folder.path / "bodies"), server.ingest_key
        for length in [WARM_UP_S] + [seconds] * rounds:
            without.append(burst(server, bodies, key=key, connections=CONNECTIONS, seconds=length))
            readers = [_Reader(server, dashboard) for dashboard in islice(cycle(dashboards), READERS)]
            with background([reader.run for reader in readers]):
                with_readers.append(burst(server, bodies, key=key, connections=CONNECTIONS, seconds=length))
                responses_per_s.append(sum(reader.response_count for reader in readers) / length)
            server.catch_up()
    del without[0], with_readers[0], responses_per_s[0]
    yield from speed_and_latency("without readers", without)
    yield from speed_and_latency("with ten readers", with_readers)
    yield median_of("with ten readers, responses to their pages", "responses/s", responses_per_s)
    yield from ratios("with / without readers", with_readers, without)


class _Reader:
    """A dashboard page: after each load it gets all sections, then pauses for as long as that took."""

    def __init__(self, server: Server, sections: list[str]) -> None:
        self.response_count = 0
        self._server = server
        self._sections = sections
        self._tags: dict[str, str] = {}
        self._headers = {"Authorization": f"Bearer {server.read_key}"}

    def run(self, ended: threading.Event) -> None:
        client = httpx.Client(base_url=self._server.url, headers=self._headers, trust_env=False, timeout=30)
        with client, client.stream("GET", LIVE_PATH) as stream:
            if stream.status_code != httpx.codes.OK:
                raise BenchError(f"{LIVE_PATH}: {stream.status_code}.")
            # After the burst the last segment is loaded, so every reader gets one more line and checks `ended`.
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
            response = client.get(path, headers=condition)
            if response.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
                raise BenchError(f"{path}: {response.status_code} {response.text[:300]}")
            self._tags[path] = response.headers.get("etag", "")
            self.response_count += 1
        return time.monotonic() - started_at
