"""The time of each report over millions of events, and its ratio to the same SELECT written by hand without scope.

A SELECT by hand reads the table `event`, with the period in its WHERE clause. So each report has a copy, named
`…_by_hand`, whose base views do that. The copy has literals instead of variables. The report and its copy run
interleaved, in one process with a server's memory limit and threads.
"""

import multiprocessing
import re
import resource
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import duckdb
import typer
from rich.table import Table

from bench.options import REPOSITORY, DataRoot, Events
from bench.results import Goal, Result, median_of, ratio_of
from bench.server import BenchError, fresh_folder
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import report_names
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.sql_files import read_views

ENDS_AT = datetime(2026, 11, 21)
PERIOD_DAYS = {"1 day": 1, "30 days": 30, "all time": None}
# The ends of the names of a report's results.
_METRICS = ("", ", busiest thread", ", by hand")
ROUNDS = 3
# Slower reports run once, because cached columns make no difference to them.
LONG_MS = 1_000
BY_HAND_RATIO_MAX = 1.5
THIRTY_DAYS_MS_MAX = 1_000
DAILY_COUNTERS = ("views", "downloads", "error_rates")
DAILY_COUNTER_MS_MAX = 250
_FILL_LIMITS = StoreLimits(memory_bytes=2 * 1_073_741_824, threads=2)


def measure(
    names: Annotated[list[str] | None, typer.Argument(help="The reports to run. Default: all.")] = None,
    events: Events = 10_000_000,
    data_root: DataRoot = REPOSITORY,
) -> Iterator[Result]:
    """Milliseconds of each report over a day, 30 days and all time, against the same SELECT written by hand."""
    unknown = sorted(set(names or []) - set(report_names()))
    if unknown:
        raise BenchError(f"reports: {unknown[0]} does not exist. Choose from: {', '.join(report_names())}.")
    with fresh_folder(data_root) as folder:
        started_at = time.perf_counter()
        fill_in_child(folder.store, events)
        yield Result("events generated", time.perf_counter() - started_at, "s")
        store = Store(folder.store)
        store.open()
        try:
            for period, days in PERIOD_DAYS.items():
                since = ENDS_AT - timedelta(days=days) if days else None
                _create_by_hand(store, since)
                for name in names or report_names():
                    yield from _measure(store, name, period, since)
        finally:
            store.close()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    limit_mib = StoreLimits().memory_bytes_max / 1_048_576
    yield Result("reports, memory at its peak", peak_mib, "MiB", goal=Goal(at_most=limit_mib))


def reports_table(results: list[Result]) -> tuple[Table, list[Result]]:
    """Return a table with a row for each report, and the results that are not in it."""
    by_name = {result.name: result for result in results}
    table = Table(
        caption="duration in ms, CPU time of the busiest thread in ms, and ratio to the SELECT by hand "
        f"(goal ≤ {BY_HAND_RATIO_MAX}); !!: misses its goal"
    )
    table.add_column("report", no_wrap=True)
    for period in reversed(PERIOD_DAYS):
        for heading in (period, "busiest", "by hand"):
            table.add_column(heading, justify="right", no_wrap=True)
    shown = set()
    for name in report_names():
        result_names = [f"{name}, {period}{metric}" for period in reversed(PERIOD_DAYS) for metric in _METRICS]
        if by_name.keys() >= set(result_names):
            table.add_row(name, *(_cell(by_name[result_name]) for result_name in result_names))
            shown.update(result_names)
    return table, [result for result in results if result.name not in shown]


def _cell(result: Result) -> str:
    text = f"{result.value:,.0f}" if result.unit == "ms" else f"{result.value:.2f} ×"
    return f"[red]{text} !![/]" if result.is_met is False else text


def _measure(store: Store, name: str, period: str, since: datetime | None) -> Iterator[Result]:
    scoped, by_hand = [], []
    for _ in range(ROUNDS):
        scoped.append(_run(store, name, since))
        by_hand.append(_run(store, f"{name}_by_hand", None))
        if scoped[0].duration_ms > LONG_MS:
            break
    goal = None
    if period == "30 days":
        goal = Goal(at_most=THIRTY_DAYS_MS_MAX)
    elif period == "all time" and name in DAILY_COUNTERS:
        goal = Goal(at_most=DAILY_COUNTER_MS_MAX)
    yield median_of(f"{name}, {period}", "ms", [run.duration_ms for run in scoped], goal)
    yield median_of(f"{name}, {period}, busiest thread", "ms", [run.busy_ms for run in scoped])
    ratio = ratio_of("", [run.duration_ms for run in scoped], [run.duration_ms for run in by_hand])
    yield median_of(f"{name}, {period}, by hand", "x", ratio.rounds, Goal(at_most=BY_HAND_RATIO_MAX))


@dataclass(frozen=True, slots=True)
class _Run:
    """The duration of a query, and the CPU time of its busiest thread: the lower bound on a quiet machine."""

    duration_ms: float
    busy_ms: float


def _run(store: Store, view: str, since: datetime | None) -> _Run:
    with store.reader({**EVERYTHING.variables(), "since": since, "now": ENDS_AT}) as reader:
        started_at, before = time.perf_counter(), _cpu_ms()
        for _ in reader.rows(view):
            pass
        duration_ms = (time.perf_counter() - started_at) * 1_000
        busy_ms = max(ms - before.get(thread, 0) for thread, ms in _cpu_ms().items())
        return _Run(duration_ms, busy_ms)


def _cpu_ms() -> dict[str, float]:
    """Return the CPU time of each thread of this process."""
    # The first field of schedstat (Linux only) is the CPU time in nanoseconds.
    files = Path("/proc/self/task").glob("*/schedstat")
    return {path.parent.name: int(path.read_text(encoding="utf-8").split()[0]) / 1e6 for path in files}


def fill_in_child(path: Path, event_count: int) -> None:
    """Generate the events of a year in a child process, whose memory is not measured."""
    child = multiprocessing.get_context("spawn").Process(target=_fill, args=(path, event_count))
    child.start()
    child.join()
    if child.exitcode:
        raise BenchError("reports: generating the events failed. See the traceback above.")


def _fill(path: Path, event_count: int) -> None:
    store = Store(path, _FILL_LIMITS)
    store.open()
    writer = store._load_connection()
    writer.execute(f"set variable event_count = {event_count:d}; set variable ends_at = timestamp '{ENDS_AT}'")
    writer.execute((Path(__file__).parent / "events.sql").read_text(encoding="utf-8"))
    while store.roll_up():
        pass
    store.checkpoint()
    store.close()


def _create_by_hand(store: Store, since: datetime | None) -> None:
    """Create a copy of every view and macro, named `…_by_hand`, without scope variables."""
    is_in_period = f"occurred_at >= timestamp '{since}'" if since else "true"
    pending = read_views()
    for name in ("event_on_any_surface", "event_at_any_time", "event_of_any_tenant"):
        pending[name] = f"create or replace view {name} as select * from event"
    # A query by hand uses plain text and `hash`, because its values need not be equal in all versions of DuckDB.
    pending["digest_of"] = "create or replace macro digest_of(text) as text"
    pending["question_key_of"] = (
        "create or replace macro question_key_of(session, chat, query) as hash(session, chat, query)"
    )
    pending["event_in_scope"] = f"create or replace view event_in_scope as select * from event where {is_in_period}"
    for name in ("event_between", "session_context_between"):
        del pending[name]
    # The file of a report with departments and groups defines several views and macros.
    definitions = re.findall(r"(?m)^create or replace (?:view|macro) (\w+)", "\n".join(pending.values()))
    pending = {name: _by_hand(sql, {*pending, *definitions}, since) for name, sql in pending.items()}
    # Create views after those that they read from.
    while pending:
        failed = {name: sql for name, sql in pending.items() if not _is_created(store, sql)}
        if len(failed) == len(pending):
            raise BenchError(f"reports: {', '.join(failed)} can't be created.")
        pending = failed


def _by_hand(sql: str, names: Collection[str], since: datetime | None) -> str:
    """Return the statement of a view or macro without scope variables, with the suffix `_by_hand` on all names."""
    sql = re.split(r"(?m)^comment on", sql)[0]
    any_name = "|".join(names)
    sql = re.sub(rf"(?i)\b(view|macro)\s+({any_name})\b", r"\1 \2_by_hand", sql)
    sql = re.sub(rf"(?i)\b(from|join)\s+({any_name})\b(?!\s+as\b|\()", r"\1 \2_by_hand as \2", sql)
    sql = re.sub(rf"(_of\()'({any_name})'", r"\1'\2_by_hand'", sql)
    sql = re.sub(rf"\b({any_name})\(", r"\1_by_hand(", sql)
    sql = sql.replace("getvariable('since')", f"timestamp '{since}'" if since else "null")
    # The report and its copy use the same `now`.
    return re.sub(r"getvariable\('(?!now')\w+'\)", "null", sql)


def _is_created(store: Store, sql: str) -> bool:
    try:
        store._load_connection().execute(sql)
    except duckdb.Error:
        return False
    return True
