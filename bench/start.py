"""The time of `embedsink --help`, of a server's start, and of the first event after a start until it is visible."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.options import REPOSITORY, DataRoot, Events
from bench.reports import fill_in_child
from bench.results import Goal, Result, median_of
from bench.server import Server, fresh_folder
from bench.visible import FIRST_PROBE_DEPLOYMENT, probe
from embedsink.data_folder import DataFolder

HELP_RUNS = 10
SERVE_RUNS = 5
READY = Goal(at_most=1.5)


def measure(events: Events = 1_000_000, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Seconds of `embedsink --help`, of a server's start, and until the first event after it is visible."""
    yield median_of("embedsink --help", "s", [_help_s() for _ in range(HELP_RUNS)], Goal(at_most=0.3))
    with fresh_folder(data_root) as folder:
        ready_s, _ = _start(folder)
        yield median_of("serve until ready, empty folder", "s", ready_s, READY)
    with fresh_folder(data_root) as folder:
        fill_in_child(folder.store, events)
        ready_s, visible_s = _start(folder)
        yield median_of(f"serve until ready, {events:,} events", "s", ready_s, READY)
        yield median_of("ack to visible after that start", "s", visible_s, Goal(at_most=3))


def _help_s() -> float:
    started_at = time.perf_counter()
    # The installed command, which users type, and not `python -m`.
    subprocess.run([Path(sys.executable).with_name("embedsink"), "--help"], check=True, capture_output=True)
    return time.perf_counter() - started_at


def _start(folder: DataFolder) -> tuple[list[float], list[float]]:
    """Start a server several times. Return the seconds until it is ready, and until a new event is visible."""
    ready_s, visible_s = [], []
    for number in range(SERVE_RUNS):
        with Server(folder) as server:
            ready_s.append(server.ready_after_s)
            visible_s.append(probe(server, FIRST_PROBE_DEPLOYMENT + number))
    return ready_s, visible_s
