"""How long each report takes over millions of events, beside the same SELECT typed by hand without any scope.

By hand, one would read the table `event` and write the period into the WHERE. So each report is made once more, on base
views that do just that. Both are asked by turns, in one program that has a server's memory and threads.
"""

import multiprocessing
import re
import resource
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.server import fresh_folder
from embedsink.errors import Refused
from embedsink.reports import report_names
from embedsink.sqlfiles import read_sql
from embedsink.store import EVERYTHING, Reader, Store, StoreLimits

ENDS_AT = datetime(2026, 11, 21)
PERIOD_DAYS = {"1 day": 1, "30 days": 30, "all time": None}
ROUNDS = {"1 day": 3, "30 days": 3, "all time": 1}
BY_HAND_MAX = 1.5
THIRTY_DAYS_MS_MAX = 1_000
DAILY_COUNTERS = ("views", "downloads", "error_rates")
DAILY_COUNTER_MS_MAX = 250
_FILLING = StoreLimits(memory_bytes=2 * 1_073_741_824, threads=2)


def measure(*, event_count: int, only: list[str], root: Path) -> list[Finding]:
    """Milliseconds of each report over three periods, its ratio to the SELECT by hand, and the memory of it all."""
    unknown = sorted(set(only) - set(report_names()))
    if unknown:
        raise BenchError(f"reports: {unknown[0]} does not exist. There are {', '.join(report_names())}.")
    with fresh_folder(root) as folder:
        started_at = time.perf_counter()
        _fill_elsewhere(folder.store, event_count)
        findings = [Finding("events made", time.perf_counter() - started_at, "s")]
        store = Store(folder.store)
        store.open()
        try:
            for period, days in PERIOD_DAYS.items():
                since = ENDS_AT - timedelta(days=days) if days else None
                _make_by_hand(store, since)
                for name in only or report_names():
                    findings += _measure(store, name, period, since)
        finally:
            store.close()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    return [*findings, Finding("reports, memory at its peak", peak_mib, "MiB")]


def _measure(store: Store, name: str, period: str, since: datetime | None) -> Iterator[Finding]:
    scoped, by_hand = [], []
    for _ in range(ROUNDS[period]):
        scoped.append(_ask_ms(store, name, since))
        by_hand.append(_ask_ms(store, f"{name}_by_hand", None))
    goal = None
    if period == "30 days":
        goal = Goal(at_most=THIRTY_DAYS_MS_MAX)
    elif period == "all time" and name in DAILY_COUNTERS:
        goal = Goal(at_most=DAILY_COUNTER_MS_MAX)
    yield Finding(f"{name}, {period}", median(scoped), "ms", scoped, goal)
    ratios = [mine / other for mine, other in zip(scoped, by_hand, strict=True)]
    yield Finding(f"{name}, {period}, by hand", median(ratios), "x", ratios, Goal(at_most=BY_HAND_MAX))


def _ask_ms(store: Store, view: str, since: datetime | None) -> float:
    with store.reader({**EVERYTHING, "since": since, "now": ENDS_AT}) as reader:
        started_at = time.perf_counter()
        for _ in reader.rows(view):
            pass
        return (time.perf_counter() - started_at) * 1_000


def _fill_elsewhere(path: Path, event_count: int) -> None:
    # In a program of its own, so that its memory is not counted.
    filling = multiprocessing.get_context("spawn").Process(target=_fill, args=(path, event_count))
    filling.start()
    filling.join()
    if filling.exitcode:
        raise BenchError("reports: the events could not be made; see above.")


def _fill(path: Path, event_count: int) -> None:
    store = Store(path, _FILLING)
    store.open()
    with store.reader(EVERYTHING) as writer:
        writer.run(f"set variable event_count = {event_count:d}; set variable ends_at = timestamp '{ENDS_AT}'")
        writer.run((Path(__file__).parent / "events.sql").read_text(encoding="utf-8"))
    store.checkpoint()
    store.close()


def _make_by_hand(store: Store, since: datetime | None) -> None:
    """Every view once more under the name `…_by_hand`, reading what one would read without scope variables."""
    period = f"occurred_at >= timestamp '{since}'" if since else "true"
    waiting = read_sql("views/base") | read_sql("views/reports")
    for name in ("event_on_any_surface", "event_at_any_time"):
        waiting[name] = f"create or replace view {name} as select * from event"
    waiting["event_in_scope"] = f"create or replace view event_in_scope as select * from event where {period}"
    made = re.compile(rf"(?i)\b(view)\s+({'|'.join(waiting)})\b")
    read = re.compile(rf"(?i)\b(from|join)\s+({'|'.join(waiting)})\b(?!\s+as\b)")
    waiting = {
        name: read.sub(r"\1 \2_by_hand as \2", made.sub(r"\1 \2_by_hand", _without_comments(sql)))
        for name, sql in waiting.items()
    }
    with store.reader(EVERYTHING) as writer:
        # Views that build on others wait for them.
        while waiting:
            left = {name: sql for name, sql in waiting.items() if not _is_made(writer, sql)}
            if len(left) == len(waiting):
                raise BenchError(f"reports: {', '.join(left)} can't be made by hand.")
            waiting = left


def _without_comments(sql: str) -> str:
    return re.split(r"(?m)^comment on", sql)[0]


def _is_made(writer: Reader, sql: str) -> bool:
    try:
        writer.run(sql)
    except Refused:
        return False
    return True
