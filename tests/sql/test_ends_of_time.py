"""Events of the first and the last day of the calendar, whose local time may be in no valid year."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.model import Gauge
from embedsink.dashboards.period import period_of
from embedsink.dashboards.query import query_section
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import EVENT_VIEW, all_reports, report_names, visible_columns
from embedsink.reports.format import Format
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader
from tests.reports.test_format_writers import arrow_rows, parquet, written
from tests.support.given import ACTIONS, REQUIRED, write_segment
from tests.support.stores import open_copy, open_store

# Zones some hours before and after UTC, and zones with offsets in seconds before standard time.
ZONES = (
    None,
    "America/Havana",
    "America/New_York",
    "Asia/Kolkata",
    "Europe/Berlin",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
)
INTERVALS = ("hour", "day", "week", "month")
ENDS = ("0001-01-01T00:00:00", "0001-01-01T13:00:00", "9999-12-31T11:00:00", "9999-12-31T23:59:59")


def given() -> Iterator[dict[str, object]]:
    for at, type_ in product(ENDS, REQUIRED):
        common = {"at": at, "session": at, "viewer": at, "seq": 2, "publicId": "d1"}
        yield {"type": type_, **common}
    for at, type_ in product(ENDS, ACTIONS):
        yield {"type": type_, "direction": "action", "at": at, "session": at}
    for at in ENDS:
        yield {"type": "ai-query", "status": "completed", "at": at, "session": at}
        yield {"type": "scroll", "rejected": "unknown_type", "at": at}
        yield {"lost": {"queue_overflow": 3}, "at": at}
        yield {"sync": at, "at": at}
        yield {"user": at, "deactivated": at, "at": at}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder / "store.duckdb")
    store.load(inspect(write_segment(folder, given())))
    yield store
    store.close()


def reader_of(store: Store, zone: str | None, interval: str = "day") -> Reader:
    return store.reader(scope_of(zone, interval))


def scope_of(zone: str | None, interval: str = "day") -> dict[str, object]:
    return {**EVERYTHING.variables(), "timezone": zone, "interval": interval}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*report_names(), EVENT_VIEW])
@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati"])
def test_each_report_is_written_in_each_format(name: str, zone: str, store: Store, tmp_path: Path) -> None:
    with reader_of(store, zone) as reader:
        selection = SelectQuery(name, visible_columns(reader, name))
        types = {column.name: column.type for column in reader.selected_columns(selection)}
        listed = json.loads(written(reader, selection, Format.JSON))
        assert listed
        _, *cells = csv.reader(io.StringIO(written(reader, selection, Format.CSV).decode(), newline=""))
        stored = parquet(written(reader, selection, Format.PARQUET), tmp_path)
        _, tuples = arrow_rows(written(reader, selection, Format.ARROW))
    with open_copy(store, scope_of(zone)) as snapshot:
        frame, _ = snapshot.frame(selection)
    assert len(listed) == len(cells) == len(frame) == len(stored) == len(tuples)
    read: dict[str, Any] = {"TIMESTAMP": datetime.fromisoformat, "DATE": date.fromisoformat}
    for index, (column, type_) in enumerate(types.items()):
        if type_ in read:
            expected = [None if row[column] is None else read[type_](row[column]) for row in listed]
            assert [one[index] for one in tuples] == expected
            assert [read[type_](one[index]) if one[index] else None for one in cells] == expected


@pytest.mark.parametrize("zone", ZONES)
def test_each_period_begins_in_a_valid_year_and_has_its_events(zone: str | None, store: Store) -> None:
    for interval in INTERVALS:
        with reader_of(store, zone, interval) as reader:
            rows = [row for rows in reader.rows(SelectQuery("views", ("period_start", "view_count"))) for row in rows]
        assert sum(count for _, count in rows) == len(ENDS)
        starts = sorted(start for start, _ in rows)
        assert all(isinstance(start, datetime) for start in starts)
        assert starts[0] < datetime(1, 1, 1, 1)
        assert datetime(9999, 11, 30) <= starts[-1] <= datetime(9999, 12, 31, 23, 59, 59)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_every_dashboard_section_accepts_the_first_and_last_day(zone: str, store: Store) -> None:
    params = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59.5Z", "timezone": zone}
    now = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
    period = period_of(params, now=now)
    with store.reader(period.scope.variables()) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        for name, dashboard in read_dashboards().items():
            for section in dashboard.sections:
                answers = query_section(reader, section, period, reports=reports, now=now)
                assert answers.keys() == {tile.id for tile in section.tiles if not isinstance(tile, Gauge)}, name
                if name == "overview" and section.id == "use":
                    assert answers["views"].value == len(ENDS)


def test_local_days_beyond_the_calendar_count_as_its_first_or_last_day(store: Store) -> None:
    for zone in ZONES:
        with reader_of(store, zone) as reader:
            days = [day for rows in reader.rows(SelectQuery("activity", ("day",))) for (day,) in rows]
        assert (min(days), max(days)) == (date(1, 1, 1), date(9999, 12, 31))
