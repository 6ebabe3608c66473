"""The costs of stores of 1 to 100 million events: what an operator pays for each year that the store keeps."""

import json
import math
import multiprocessing
import resource
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.deliveries import CONNECTIONS, EVENTS_PER_DELIVERY
from bench.options import REPOSITORY, DataRoot, Seconds
from bench.reports import ENDS_AT, LONG_MS, PERIOD_DAYS, ROUNDS, fill_in_child
from bench.results import Goal, Result
from bench.server import BenchError, Server, fresh_folder
from bench.visible import FIRST_PROBE_DEPLOYMENT, probe
from bench.wrk import burst, write_delivery_bodies
from embedsink.data_folder import DataFolder
from embedsink.errors import Unavailable
from embedsink.key_scope import EVERYTHING
from embedsink.loader.loader import Loader
from embedsink.reports.catalog import report_names
from embedsink.reports.pagination import PageRequest
from embedsink.store.database import Store

MILLION = 1_000_000
PAGE_ROWS = 100
PAGED = ("sessions", "ai_query", "download_audit")
GOALS = {
    "visible": Goal(at_most=3),
    "stop": Goal(at_most=5),
    "ai_queries, 1 day": Goal(at_most=200),
    "ai_queries, 30 days": Goal(at_most=1_500),
    "views, 1 day": Goal(at_most=100),
    "error_rates, 1 day": Goal(at_most=100),
    "views, all time": Goal(at_most=2_000),
    "downloads, all time": Goal(at_most=2_000),
    "sessions, first 100": Goal(at_most=2_000),
    "reports, memory at its peak": Goal(at_most=400),
}

# A report, its `since` and its limit, by the title of the result.
_Reads = dict[str, tuple[str, datetime | None, str | None]]
Sizes = Annotated[list[int], typer.Option(min=1, help="A size of the store in million events. Repeat it for more.")]
Chart = Annotated[Path | None, typer.Option(help="Also draw the times of one day and of a page into this SVG file.")]


def measure(
    sizes: Sizes = [1, 10, 50, 100],  # noqa: B006 - typer copies it
    seconds: Seconds = 5,
    chart: Chart = None,
    data_root: DataRoot = REPOSITORY,
) -> Iterator[Result]:
    """Start, load, reports, snapshot, stop and memory with stores of several sizes."""
    values: dict[int, dict[str, float]] = {}
    for size in sizes:
        values[size] = {}
        with fresh_folder(data_root) as folder:
            fill_in_child(folder.store, size * MILLION)
            for name, value, unit in _measure_folder(folder, seconds):
                values[size][name] = value
                yield Result(f"{size} M: {name}", value, unit, goal=GOALS.get(name))
    if chart is not None:
        chart.write_text(_svg(values), encoding="utf-8")


def _measure_folder(folder: DataFolder, seconds: float) -> Iterator[tuple[str, float, str]]:
    """Yield the name, the value and the unit of each measurement of one store."""
    yield "size of the store", folder.store.stat().st_size / 2**20, "MiB"
    yield "snapshot", _in_child(_snapshot_s, folder), "s"
    bodies = write_delivery_bodies(folder.path / "bodies", event_count=EVENTS_PER_DELIVERY)
    with Server(folder) as server:
        yield "start", server.ready_after_s, "s"
        yield "visible", probe(server, FIRST_PROBE_DEPLOYMENT), "s"
        started_at, accepted_before = time.monotonic(), server.ledger().accepted
        burst(server, bodies, key=server.ingest_key, connections=CONNECTIONS, seconds=seconds)
        server.catch_up()
        yield "load", (server.ledger().accepted - accepted_before) / (time.monotonic() - started_at), "events/s"
        yield "server, memory at its peak", server.memory_peak_mib(), "MiB"
        started_at = time.monotonic()
        server.stop()
        yield "stop", time.monotonic() - started_at, "s"
    yield from _measure_reports(folder)


def _in_child(function: Any, folder: DataFolder) -> Any:
    """Return the result of a function in a new process, whose memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (folder,))


def _snapshot_s(folder: DataFolder) -> float:
    loader = Loader(folder, Store(folder.store))
    loader.open_store()
    started_at = time.monotonic()
    loader.publish()
    duration_s = time.monotonic() - started_at
    loader.close()
    if not folder.snapshot.exists():
        raise BenchError("growth: the snapshot was not published.")
    return duration_s


def _measure_reports(folder: DataFolder) -> Iterator[tuple[str, float, str]]:
    """Yield the milliseconds of each report and page, and the memory of the process that read them at its peak."""
    periods = {period: ENDS_AT - timedelta(days=days) if days else None for period, days in PERIOD_DAYS.items()}
    reads: _Reads = {f"{name}, first {PAGE_ROWS}": (name, None, str(PAGE_ROWS)) for name in PAGED}
    reads |= {f"{name}, {period}": (name, since, None) for period, since in periods.items() for name in report_names()}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for title, (name, since, limit) in reads.items():
            yield title, pool.apply(_report_ms, (folder, name, since, limit)), "ms"
        yield "reports, memory at its peak", pool.apply(_memory_peak_mib), "MiB"


def _report_ms(folder: DataFolder, name: str, since: datetime | None, limit: str | None) -> float:
    """Return the milliseconds of a report or page; not a number if it exceeds the memory limit."""
    store = Store(folder.store)
    store.open()
    # The load has added later events.
    until = ENDS_AT if since else None
    durations_ms: list[float] = []
    try:
        while len(durations_ms) < ROUNDS and sum(durations_ms) < LONG_MS:
            with store.reader({**EVERYTHING.variables(), "now": ENDS_AT, "since": since, "until": until}) as reader:
                started_at = time.perf_counter()
                selection, _ = PageRequest(limit=limit).select(reader, name)
                for _ in reader.rows(selection):
                    pass
                durations_ms.append((time.perf_counter() - started_at) * 1_000)
    except Unavailable:
        return math.nan
    finally:
        store.close()
    return median(durations_ms)


def _memory_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _svg(values: dict[int, dict[str, float]]) -> str:
    """Return a chart of the milliseconds of reports of one day, and of first pages, by the size of the store."""
    import vl_convert  # imported late: most benchmarks draw nothing

    shown = [
        "views, 1 day",
        "ai_queries, 1 day",
        "completeness, 1 day",
        *(f"{name}, first {PAGE_ROWS}" for name in PAGED),
    ]
    rows = [
        {"events": f"{size} million", "size": size, "ms": of_size[name], "report": name}
        for size, of_size in values.items()
        for name in shown
    ]
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 480,
        "height": 260,
        "background": "white",
        "data": {"values": rows},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {
                "field": "events",
                "type": "ordinal",
                "sort": {"field": "size"},
                "title": "events in the store",
                "axis": {"labelAngle": 0},
            },
            "y": {"field": "ms", "type": "quantitative", "scale": {"type": "log"}, "title": "duration in ms"},
            "color": {"field": "report", "type": "nominal", "sort": shown, "title": None},
        },
    }
    return vl_convert.vegalite_to_svg(json.dumps(spec))
