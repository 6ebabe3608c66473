"""The processor time of a load of new events, by the number of stored events with whose ids it compares them."""

import json
import time
from collections.abc import Iterator
from typing import Annotated
from uuid import uuid4

import typer

from bench.options import REPOSITORY, DataRoot, Rounds
from bench.reports import fill_in_child
from bench.results import Goal, Result, median_of
from bench.server import fresh_folder
from bench.traffic import now_ms, view
from embedsink.ingest.records import delivery_lines
from embedsink.journal.segment import inspect, trailer
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.validation import parse
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits

MILLION = 1_000_000
EVENTS_PER_LOAD = 500
LOADS = 5
# All events of the store, which are those of a year, are in the deduplication window.
LIMITS = StoreLimits(dedup_days=400)
GOAL = Goal(at_most=0.3)

Sizes = Annotated[list[int], typer.Option(min=1, help="A size of the store in million events. Repeat it for more.")]


def measure(sizes: Sizes = [1, 10], rounds: Rounds = 3, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:  # noqa: B006 - typer copies it
    """Seconds of processor time of a load of 500 new events, with and without the runs of hashes of ids."""
    for size in sizes:
        with fresh_folder(data_root) as folder:
            fill_in_child(folder.store, size * MILLION)
            without_runs_s, adding_s, with_runs_s = _measure_store(Store(folder.store, LIMITS), rounds)
        yield median_of(f"{size} M: load", "s", with_runs_s, GOAL)
        yield median_of(f"{size} M: load without runs", "s", without_runs_s)
        yield median_of(f"{size} M: adding all runs", "s", adding_s)


def _measure_store(store: Store, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of loads without runs, of adding all runs, and of loads with them."""
    without_runs_s: list[float] = []
    adding_s: list[float] = []
    with_runs_s: list[float] = []
    for _ in range(rounds):
        store.open()  # ends the runs
        _load_s(store)  # The first load reads the file from the disk.
        without_runs_s += [_load_s(store) for _ in range(LOADS)]
        started_at = time.thread_time()
        while store.add_id_run():
            pass
        adding_s.append(time.thread_time() - started_at)
        with_runs_s += [_load_s(store) for _ in range(LOADS)]
    store.close()
    return without_runs_s, adding_s, with_runs_s


def _load_s(store: Store) -> float:
    """Load new events; return the seconds of the load."""
    number = store.ledger.last_segment_number() + 1
    body = json.dumps([view() | {"id": str(uuid4())} for _ in range(EVENTS_PER_LOAD)]).encode()
    privacy = Privacy()
    delivery = privacy.redact(privacy.reject_erased(parse(body, now_ms())), is_opted_out=False)
    lines = delivery_lines(delivery, key_id="k_1", new_id=uuid4)
    path = store.path.with_name(f"{number:012d}-00000000.ndjson")
    path.write_bytes(lines + trailer(lines))
    segment = inspect(path)
    started_at = time.thread_time()
    store.load(segment)
    duration_s = time.thread_time() - started_at
    path.unlink()
    return duration_s
