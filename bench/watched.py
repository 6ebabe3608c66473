"""Single events while ten people look at dashboards, by turns with nobody looking, since a machine's speed drifts."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import httpx

from bench.child import BenchError
from bench.finding import Finding
from bench.server import EVENTS_PATH, Server, fresh_folder, serving_on
from bench.wrk import Burst, burst, write_single_bodies
from embedsink.dashboards.files import read_dashboards

CONNECTIONS = 16
READERS = 10
WARM_UP_S = 1
LIVE_PATH = "/api/v1/events/live"


@dataclass(slots=True)
class _Watch:
    """What all readers share: whether they may leave, how often they asked, and what kept one from it."""

    ended: threading.Event = field(default_factory=threading.Event)
    asked_count: int = 0
    failures: list[Exception] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def measure(*, seconds: float, rounds: int, root: Path) -> list[Finding]:
    """Requests/s and latency of senders, with and without readers, and their ratios."""
    alone, watched, asked_per_s = [], [], []
    with fresh_folder(root) as folder, serving_on(folder) as server:
        bodies = write_single_bodies(folder.path / "bodies")
        for length in [WARM_UP_S] + [seconds] * rounds:
            alone.append(_burst(server, bodies, length))
            with _readers(server) as watch:
                watched.append(_burst(server, bodies, length))
                asked_per_s.append(watch.asked_count / length)
            server.catch_up()
    return _findings(alone[1:], watched[1:], asked_per_s[1:])


def _burst(server: Server, bodies: Path, seconds: float) -> Burst:
    url = server.child.url + EVENTS_PATH
    return burst(url, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)


@contextmanager
def _readers(server: Server) -> Iterator[_Watch]:
    """Ten people with a dashboard each, as long as the block lasts."""
    watch = _Watch()
    boards = [
        [f"/api/v1/dashboards/{name}/sections/{section.id}" for section in dashboard.sections]
        for name, dashboard in read_dashboards().items()
    ]
    readers = [
        threading.Thread(target=_read, args=(server, sections, watch)) for sections in islice(cycle(boards), READERS)
    ]
    for one in readers:
        one.start()
    try:
        yield watch
    finally:
        watch.ended.set()
        for one in readers:
            one.join()
    if watch.failures:
        raise watch.failures[0]


def _read(server: Server, sections: list[str], watch: _Watch) -> None:
    """As a page does: all sections again when something was loaded, then a rest as long as that took."""
    headers = {"Authorization": f"Bearer {server.read_key}"}
    try:
        with server.child.client() as client, client.stream("GET", LIVE_PATH, headers=headers) as stream:
            if stream.status_code != httpx.codes.OK:
                raise BenchError(f"{LIVE_PATH}: {stream.status_code}.")
            tags: dict[str, str] = {}
            # The last segment of a burst is told after its end, so whoever waits for a line gets one.
            for line in stream.iter_lines():
                if watch.ended.is_set():
                    return
                if line == "event: loaded":
                    watch.ended.wait(_ask(client, headers, sections, tags, watch))
    except (BenchError, httpx.HTTPError) as error:
        watch.failures.append(error)


def _ask(
    client: httpx.Client, headers: dict[str, str], sections: list[str], tags: dict[str, str], watch: _Watch
) -> float:
    """Ask for each section; how many seconds that took."""
    began_at = time.monotonic()
    for path in sections:
        known = {"If-None-Match": tags[path]} if path in tags else {}
        answer = client.get(path, headers=headers | known)
        if answer.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
            raise BenchError(f"{path}: {answer.status_code} {answer.text[:300]}")
        tags[path] = answer.headers.get("etag", "")
        with watch.lock:
            watch.asked_count += 1
    return time.monotonic() - began_at


def _findings(alone: list[Burst], watched: list[Burst], asked_per_s: list[float]) -> list[Finding]:
    speed = [one.requests_per_s for one in watched], [one.requests_per_s for one in alone]
    p99_ms = [one.p99_us / 1e3 for one in watched], [one.p99_us / 1e3 for one in alone]
    return [
        Finding("unwatched", median(speed[1]), "requests/s", speed[1]),
        Finding("unwatched, p99", median(p99_ms[1]), "ms", p99_ms[1]),
        Finding("watched by ten", median(speed[0]), "requests/s", speed[0]),
        Finding("watched by ten, p99", median(p99_ms[0]), "ms", p99_ms[0]),
        Finding("watched by ten, answers to their pages", median(asked_per_s), "answers/s", asked_per_s),
        _ratio("watched / unwatched, requests/s", *speed),
        _ratio("watched / unwatched, p99", *p99_ms),
    ]


def _ratio(what: str, watched: list[float], alone: list[float]) -> Finding:
    each = [one / other for one, other in zip(watched, alone, strict=True)]
    return Finding(what, median(watched) / median(alone), "×", each)
