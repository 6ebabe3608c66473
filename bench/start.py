"""How long `embedsink --help` takes, `serve` until it is ready, and a new event until it is visible after a start."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.finding import Finding, Goal
from bench.reports import fill_elsewhere
from bench.server import fresh_folder, serving_on
from bench.visible import FIRST_PROBE_DEPLOYMENT, probe
from embedsink.data_folder import DataFolder

HELP_RUNS = 10
SERVE_RUNS = 5
READY = Goal(at_most=1.5)
VISIBLE = Goal(at_most=3)


def measure(*, event_count: int, root: Path) -> list[Finding]:
    """Seconds of wall time, medians."""
    findings = [_finding("embedsink --help", [_help_s() for _ in range(HELP_RUNS)], Goal(at_most=0.3))]
    with fresh_folder(root) as folder:
        ready_s, _ = _start(folder)
        findings.append(_finding("serve until ready, empty folder", ready_s, READY))
    with fresh_folder(root) as folder:
        fill_elsewhere(folder.store, event_count)
        ready_s, visible_s = _start(folder)
        findings.append(_finding(f"serve until ready, {event_count:,} events", ready_s, READY))
        findings.append(_finding("ack to visible after that start", visible_s, VISIBLE))
    return findings


def _help_s() -> float:
    started_at = time.perf_counter()
    # The command as installed, not `python -m`: that is what people type.
    subprocess.run([Path(sys.executable).with_name("embedsink"), "--help"], check=True, capture_output=True)
    return time.perf_counter() - started_at


def _start(folder: DataFolder) -> tuple[list[float], list[float]]:
    """Start a server again and again. Return the seconds until it is ready, and until a new event is visible."""
    ready_s, visible_s = [], []
    for number in range(SERVE_RUNS):
        with serving_on(folder) as server, server.child.client() as client:
            ready_s.append(server.child.ready_after_s)
            visible_s.append(probe(server, client, FIRST_PROBE_DEPLOYMENT + number))
    return ready_s, visible_s


def _finding(what: str, values: list[float], goal: Goal) -> Finding:
    return Finding(what, median(values), "s", values, goal)
