"""The time of `embedsink --help`, of a server's start, and of the first event after a start until it is visible."""

import subprocess
import sys
import time
from pathlib import Path

from bench.reports import fill_in_child
from bench.results import Goal, Result, median_of
from bench.server import Server, fresh_folder
from bench.visible import FIRST_PROBE_DEPLOYMENT, probe
from embedsink.data_folder import DataFolder

HELP_RUNS = 10
SERVE_RUNS = 5
READY = Goal(at_most=1.5)


def measure(*, event_count: int, root: Path) -> list[Result]:
    """Return seconds of wall time."""
    results = [median_of("embedsink --help", "s", [_help_s() for _ in range(HELP_RUNS)], Goal(at_most=0.3))]
    with fresh_folder(root) as folder:
        ready_s, _ = _start(folder)
        results.append(median_of("serve until ready, empty folder", "s", ready_s, READY))
    with fresh_folder(root) as folder:
        fill_in_child(folder.store, event_count)
        ready_s, visible_s = _start(folder)
        results.append(median_of(f"serve until ready, {event_count:,} events", "s", ready_s, READY))
        results.append(median_of("ack to visible after that start", "s", visible_s, Goal(at_most=3)))
    return results


def _help_s() -> float:
    started_at = time.perf_counter()
    # The installed command, which users type, and not `python -m`.
    subprocess.run([Path(sys.executable).with_name("embedsink"), "--help"], check=True, capture_output=True)
    return time.perf_counter() - started_at


def _start(folder: DataFolder) -> tuple[list[float], list[float]]:
    """Start a server several times. Return the seconds until it is ready, and until a new event is visible."""
    ready_s, visible_s = [], []
    for number in range(SERVE_RUNS):
        with Server(folder) as server, server.client() as client:
            ready_s.append(server.ready_after_s)
            visible_s.append(probe(server, client, FIRST_PROBE_DEPLOYMENT + number))
    return ready_s, visible_s
