"""Single events while ten readers have dashboards open, interleaved with rounds without readers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import httpx

from bench.results import Result, median_of, ratio_of
from bench.server import EVENTS_PATH, BenchError, Server, fresh_folder
from bench.wrk import Burst, burst, write_single_bodies
from embedsink.dashboards.files import read_dashboards
from embedsink.errors import EmbedsinkError

CONNECTIONS = 16
READERS = 10
WARM_UP_S = 1
LIVE_PATH = "/api/v1/events/live"


@dataclass(slots=True)
class _Readers:
    """The state that all readers share."""

    ended: threading.Event = field(default_factory=threading.Event)
    response_count: int = 0
    failures: list[Exception] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def measure(*, seconds: float, rounds: int, root: Path) -> list[Result]:
    """Return requests/s and latency of senders with and without readers, and their ratios."""
    without, with_readers, responses_per_s = [], [], []
    with fresh_folder(root) as folder, Server(folder) as server:
        bodies = write_single_bodies(folder.path / "bodies")
        for length in [WARM_UP_S] + [seconds] * rounds:
            without.append(_burst(server, bodies, length))
            with _reading(server) as readers:
                with_readers.append(_burst(server, bodies, length))
                responses_per_s.append(readers.response_count / length)
            server.catch_up()
    return _results(without[1:], with_readers[1:], responses_per_s[1:])


def _burst(server: Server, bodies: Path, seconds: float) -> Burst:
    url = server.url + EVENTS_PATH
    return burst(url, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)


@contextmanager
def _reading(server: Server) -> Iterator[_Readers]:
    """Run ten readers with one dashboard each during the block."""
    readers = _Readers()
    dashboards = [
        [f"/api/v1/dashboards/{name}/sections/{section.id}" for section in dashboard.sections]
        for name, dashboard in read_dashboards().items()
    ]
    threads = [
        threading.Thread(target=_read, args=(server, sections, readers))
        for sections in islice(cycle(dashboards), READERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        readers.ended.set()
        for thread in threads:
            thread.join()
    if readers.failures:
        raise readers.failures[0]


def _read(server: Server, sections: list[str], readers: _Readers) -> None:
    """Do as a dashboard page: after each load, get all sections, then pause for as long as that took."""
    headers = {"Authorization": f"Bearer {server.read_key}"}
    try:
        with server.client() as client, client.stream("GET", LIVE_PATH, headers=headers) as stream:
            if stream.status_code != httpx.codes.OK:
                raise BenchError(f"{LIVE_PATH}: {stream.status_code}.")
            tags: dict[str, str] = {}
            # The loader loads the last segment after the burst, so every reader receives a line and sees the end.
            for line in stream.iter_lines():
                if readers.ended.is_set():
                    return
                if line == "event: loaded":
                    readers.ended.wait(_get_all(client, headers, sections, tags, readers))
    except (EmbedsinkError, httpx.HTTPError) as error:
        readers.failures.append(error)


def _get_all(
    client: httpx.Client, headers: dict[str, str], sections: list[str], tags: dict[str, str], readers: _Readers
) -> float:
    """Get each section. Return the seconds that it took."""
    started_at = time.monotonic()
    for path in sections:
        condition = {"If-None-Match": tags[path]} if path in tags else {}
        response = client.get(path, headers=headers | condition)
        if response.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
            raise BenchError(f"{path}: {response.status_code} {response.text[:300]}")
        tags[path] = response.headers.get("etag", "")
        with readers.lock:
            readers.response_count += 1
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
