"""How long `embedsink --help` takes, and `serve` until it is ready, on an empty and on a full folder."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.server import EVENTS_PATH, fresh_folder, serving_on, stored_rows
from bench.wrk import burst, write_delivery_bodies
from embedsink.folder import DataFolder

HELP_RUNS = 10
SERVE_RUNS = 5
FULL_EVENTS = 1_000_000
EVENTS_PER_DELIVERY = 100
FILL_S = 3
FILL_BURSTS_MAX = 40


def measure(*, root: Path) -> list[Finding]:
    """Seconds of wall time, medians."""
    findings = [_finding("embedsink --help", [_help_s() for _ in range(HELP_RUNS)], Goal(at_most=0.3))]
    with fresh_folder(root) as folder:
        findings.append(_finding("serve until ready, empty folder", _ready_s(folder), Goal(at_most=1.5)))
        _fill(folder)
        what = f"serve until ready, {stored_rows(folder):,} events"
        findings.append(_finding(what, _ready_s(folder), Goal(at_most=1.5)))
    return findings


def _help_s() -> float:
    started_at = time.perf_counter()
    # The command as installed, not `python -m`: that is what people type.
    subprocess.run([Path(sys.executable).with_name("embedsink"), "--help"], check=True, capture_output=True)
    return time.perf_counter() - started_at


def _ready_s(folder: DataFolder) -> list[float]:
    waits_s = []
    for _ in range(SERVE_RUNS):
        with serving_on(folder) as server:
            waits_s.append(server.child.ready_after_s)
    return waits_s


def _fill(folder: DataFolder) -> None:
    bodies = write_delivery_bodies(folder.path / "bodies", event_count=EVENTS_PER_DELIVERY)
    with serving_on(folder) as server:
        for _ in range(FILL_BURSTS_MAX):
            burst(server.child.url + EVENTS_PATH, bodies, key=server.ingest_key, connections=16, seconds=FILL_S)
            if server.ledger().accepted >= FULL_EVENTS:
                server.catch_up()
                return
    raise BenchError(f"start: {FILL_BURSTS_MAX * FILL_S} s were not enough to send {FULL_EVENTS:,} events.")


def _finding(what: str, values: list[float], goal: Goal) -> Finding:
    return Finding(what, median(values), "s", values, goal)
