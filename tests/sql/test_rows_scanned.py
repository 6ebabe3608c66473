"""Reports of one day scan about as many rows in a long history as in a short one."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import report_names
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import Reader
from tests.support.stores import open_store

REPOSITORY = Path(__file__).parents[2]
ENDS_AT = datetime(2026, 11, 21)
DAY = {"since": ENDS_AT - timedelta(days=2), "until": ENDS_AT - timedelta(days=1)}
# As many events in the last days, and four times as many in all. One and four million events in as many days have
# the same ratios, but take longer to generate.
HISTORIES = {"short": (500_000, 180), "long": (2_000_000, 720)}
RATIO_MAX = 1.5
# DuckDB skips rows by vectors and segments, so a scan of few rows includes a varying number of their neighbors.
NEIGHBORS_MAX = 20_480
GENERATING = StoreLimits(memory_bytes=1 << 30, threads=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Store]]:
    with ExitStack() as closing:
        stores = {}
        for name, (event_count, day_count) in HISTORIES.items():
            stores[name] = open_store(tmp_path_factory.mktemp(name) / "store.duckdb", GENERATING)
            closing.callback(stores[name].close)
            _generate(stores[name], event_count, day_count)
        yield stores


def _generate(store: Store, event_count: int, day_count: int) -> None:
    connection = store._load_connection()
    connection.execute(f"set variable event_count = {event_count}; set variable day_count = {day_count}")
    connection.execute(f"set variable ends_at = timestamp '{ENDS_AT}'")
    connection.execute((REPOSITORY / "bench" / "events.sql").read_text())
    while store.roll_up():
        pass
    store.checkpoint()


def rows_scanned(store: Store, view: str, scope: dict[str, Any]) -> int:
    with store.reader({**EVERYTHING.variables(), "now": ENDS_AT} | scope) as reader:
        return _rows_scanned(reader, view)


def _rows_scanned(reader: Reader, view: str) -> int:
    [(_, plan)] = reader._fetch_all(f"explain (analyze, format json) from {view}")
    return _sum_of_scans(json.loads(plan))


def _sum_of_scans(operator: dict[str, Any]) -> int:
    return int(operator.get("operator_rows_scanned", 0)) + sum(map(_sum_of_scans, operator["children"]))


@pytest.mark.parametrize("report", report_names())
def test_a_report_of_one_day_scans_no_more_rows_in_a_longer_history(report: str, stores: dict[str, Store]) -> None:
    scanned = {name: rows_scanned(store, report, DAY) for name, store in stores.items()}
    assert scanned["long"] <= RATIO_MAX * scanned["short"] + NEIGHBORS_MAX, scanned


def test_the_first_page_of_sessions_scans_no_more_rows_in_a_longer_history(stores: dict[str, Store]) -> None:
    scanned = {}
    for name, store in stores.items():
        with store.reader({**EVERYTHING.variables(), "now": ENDS_AT}) as reader:
            reader._limit_page("sessions", 1_600)
            scanned[name] = _rows_scanned(reader, "sessions")
    assert scanned["long"] <= RATIO_MAX * scanned["short"] + NEIGHBORS_MAX, scanned
