"""How long each report takes over millions of events, beside the same SELECT typed by hand without any scope.

By hand, one would read the table `event`, and write the period into the WHERE. So each report is made once more, with
base views that do just that, and literals for variables. Both are asked by turns, in one program that has a server's
memory and threads.
"""

import multiprocessing
import re
import resource
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.child import BenchError
from bench.finding import Finding, Goal
from bench.finding import show as show_all
from bench.server import fresh_folder
from embedsink.errors import Refused
from embedsink.reports.catalog import report_names
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import EVERYTHING, Reader
from embedsink.store.sql_files import read_views

ENDS_AT = datetime(2026, 11, 21)
PERIOD_DAYS = {"1 day": 1, "30 days": 30, "all time": None}
ROUNDS = 3
# What takes longer is asked once: whether its columns were read before it makes no difference.
LONG_MS = 1_000
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
        fill_elsewhere(folder.store, event_count)
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
    limit_mib = StoreLimits().memory_bytes_max / 1_048_576
    return [*findings, Finding("reports, memory at its peak", peak_mib, "MiB", goal=Goal(at_most=limit_mib))]


def show(findings: list[Finding], console: Console) -> None:
    """Print one row a report, with its milliseconds and its ratio to the SELECT by hand; then what is of none."""
    found = {finding.what: finding for finding in findings}
    table = Table(
        caption="ms it took, ms that the busiest thread computed, and × the same SELECT by hand "
        f"(goal ≤ {BY_HAND_MAX}); !!: misses its goal"
    )
    table.add_column("report", no_wrap=True)
    for period in reversed(PERIOD_DAYS):
        for heading in (period, "busiest", "by hand"):
            table.add_column(heading, justify="right", no_wrap=True)
    for name in report_names():
        if f"{name}, 1 day" in found:
            of_period = ("", ", busiest thread", ", by hand")
            cells = [found.pop(f"{name}, {period}{of}") for period in reversed(PERIOD_DAYS) for of in of_period]
            table.add_row(name, *map(_cell, cells))
    console.print(table)
    show_all(list(found.values()), console)


def _cell(finding: Finding) -> str:
    text = f"{finding.value:,.0f}" if finding.unit == "ms" else f"{finding.value:.2f} ×"
    return f"[red]{text} !![/]" if finding.is_met is False else text


def _measure(store: Store, name: str, period: str, since: datetime | None) -> Iterator[Finding]:
    scoped, by_hand = [], []
    for _ in range(ROUNDS):
        scoped.append(_ask(store, name, since))
        by_hand.append(_ask(store, f"{name}_by_hand", None))
        if scoped[0].took_ms > LONG_MS:
            break
    goal = None
    if period == "30 days":
        goal = Goal(at_most=THIRTY_DAYS_MS_MAX)
    elif period == "all time" and name in DAILY_COUNTERS:
        goal = Goal(at_most=DAILY_COUNTER_MS_MAX)
    took = [asked.took_ms for asked in scoped]
    yield Finding(f"{name}, {period}", median(took), "ms", took, goal)
    busy = [asked.busy_ms for asked in scoped]
    yield Finding(f"{name}, {period}, busiest thread", median(busy), "ms", busy)
    ratios = [mine.took_ms / other.took_ms for mine, other in zip(scoped, by_hand, strict=True)]
    yield Finding(f"{name}, {period}, by hand", median(ratios), "x", ratios, Goal(at_most=BY_HAND_MAX))


@dataclass(frozen=True, slots=True)
class _Asked:
    """How long an answer took, and how long the busiest thread computed: the least that it takes on a quiet machine."""

    took_ms: float
    busy_ms: float


def _ask(store: Store, view: str, since: datetime | None) -> _Asked:
    with store.reader({**EVERYTHING, "since": since, "now": ENDS_AT}) as reader:
        started_at, before = time.perf_counter(), _computed_ms()
        for _ in reader.rows(view):
            pass
        took_ms = (time.perf_counter() - started_at) * 1_000
        busy_ms = max(ms - before.get(thread, 0) for thread, ms in _computed_ms().items())
        return _Asked(took_ms, busy_ms)


def _computed_ms() -> dict[str, float]:
    # schedstat: nanoseconds on a processor come first. Only Linux tells them for each thread.
    found = Path("/proc/self/task").glob("*/schedstat")
    return {path.parent.name: int(path.read_text(encoding="utf-8").split()[0]) / 1e6 for path in found}


def fill_elsewhere(path: Path, event_count: int) -> None:
    """Make the events of a year, in a program of its own, so that its memory is not counted."""
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
    while store.roll_up():
        pass
    store.checkpoint()
    store.close()


def _make_by_hand(store: Store, since: datetime | None) -> None:
    """Every view and macro once more under the name `…_by_hand`, as one would write it without scope variables."""
    period = f"occurred_at >= timestamp '{since}'" if since else "true"
    waiting = read_views()
    for name in ("event_on_any_surface", "event_at_any_time", "event_of_any_tenant"):
        waiting[name] = f"create or replace view {name} as select * from event"
    # Texts need no number that would be the same tomorrow.
    waiting["digest_of"] = "create or replace macro digest_of(text) as text"
    waiting["question_key_of"] = (
        "create or replace macro question_key_of(session, chat, query) as hash(session, chat, query)"
    )
    waiting["event_in_scope"] = f"create or replace view event_in_scope as select * from event where {period}"
    for name in ("event_between", "session_context_between"):
        del waiting[name]
    waiting = {name: _by_hand(sql, waiting, since) for name, sql in waiting.items()}
    with store.reader(EVERYTHING) as writer:
        # Views that build on others wait for them.
        while waiting:
            left = {name: sql for name, sql in waiting.items() if not _is_made(writer, sql)}
            if len(left) == len(waiting):
                raise BenchError(f"reports: {', '.join(left)} can't be made by hand.")
            waiting = left


def _by_hand(sql: str, names: Collection[str], since: datetime | None) -> str:
    sql = re.split(r"(?m)^comment on", sql)[0]
    any_name = "|".join(names)
    sql = re.sub(rf"(?i)\b(view|macro)\s+({any_name})\b", r"\1 \2_by_hand", sql)
    sql = re.sub(rf"(?i)\b(from|join)\s+({any_name})\b(?!\s+as\b|\()", r"\1 \2_by_hand as \2", sql)
    sql = re.sub(rf"\b({any_name})\(", r"\1_by_hand(", sql)
    sql = sql.replace("getvariable('since')", f"timestamp '{since}'" if since else "null")
    # The server's clock is what it is, for both.
    return re.sub(r"getvariable\('(?!now')\w+'\)", "null", sql)


def _is_made(writer: Reader, sql: str) -> bool:
    try:
        writer.run(sql)
    except Refused:
        return False
    return True
