"""The report `export_volumes` agrees with an oracle that reads the whole history, for any period."""

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from statistics import median
from typing import Any

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import replace_events, variables

START = date(2026, 6, 1)
LOOK_BACK_DAYS = 28
NOTHING = (0, 0)


def expected_rows(exports: list[dict[str, Any]], scope: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of the oracle, which follows the definition in docs/reports.md."""
    volumes: dict[tuple[int | None, str | None], dict[date, tuple[int, int]]] = defaultdict(dict)
    for export in exports:
        day, whose = export["occurred_at"].date(), (export["deployment"], export["viewer"])
        if export["deployment"] in scope.get("deployments", [export["deployment"]]):
            download_count, row_count = volumes[whose].get(day, NOTHING)
            volumes[whose][day] = (download_count + 1, row_count + (export["row_count"] or 0))
    first_day = min((day for of_viewer in volumes.values() for day in of_viewer), default=START)
    for whose, of_viewer in volumes.items():
        for day in of_viewer:
            if day >= scope.get("since", datetime.min).date():
                previous_day_count = min(LOOK_BACK_DAYS, (day - first_day).days)
                yield _row(
                    day, whose, volumes, [day - timedelta(days=back) for back in range(1, previous_day_count + 1)]
                )


def _row(day: date, whose: Any, volumes: Any, before: list[date]) -> tuple[Any, ...]:
    def exported(past: date) -> list[int]:
        return [of_viewer.get(past, NOTHING)[1] for of_viewer in volumes.values()]

    download_count, count = volumes[whose][day]
    peers = [count for past in before for count in exported(past) if count]
    usual = _usual([volumes[whose].get(past, NOTHING)[1] for past in before])
    usual = usual and max(usual, math.ceil(_beyond(peers, peers)))
    total, usual_total = sum(exported(day)), _usual([sum(exported(past)) for past in before])
    of_viewer = (download_count, count, usual, usual is not None and count > usual)
    return (day, *whose, *of_viewer, total, usual_total, usual_total is not None and total > usual_total)


def _usual(every_day: list[int]) -> int | None:
    if len(every_day) < 3:
        return None
    return math.ceil(max(1_000, _beyond([count for count in every_day if count], every_day)))


def _beyond(with_rows: list[int], values: list[int]) -> float:
    if not values:
        return 0
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    return max(2 * median(with_rows) if with_rows else 0, middle + 4 * 1.4826 * deviation)


exports = st.builds(
    lambda day, minute, **export: {
        "type": "download",
        "surface": "dashboard",
        "occurred_at": datetime(START.year, START.month, START.day) + timedelta(days=day, minutes=minute),
        **export,
    },
    # Days close together, a month apart, and at both ends of the 28 days.
    day=st.sampled_from([0, 1, 2, 40, 41, 42, 43, 44, 70, 71, 72, 99, 100, 101, 128, 129, 130, 131]),
    minute=st.sampled_from([0, 600, 1439]),
    deployment=st.sampled_from([1, 1, 1, 2, None]),
    viewer=st.sampled_from(["u1", "u1", "u2", None]),
    row_count=st.sampled_from([None, 0, 10, 900, 1_001, 5_000, 7_000, 1_000_000]),
)
since = st.sampled_from([2, 41, 72, 100, 101, 130]).map(lambda days: datetime(2026, 6, 1, 9) + timedelta(days=days))
scopes = st.fixed_dictionaries({}, optional={"since": since, "deployments": st.sampled_from([[1], [2], [1, 2]])})


@given(exports=st.lists(exports, min_size=3, max_size=30), scope=scopes)
def test_the_usual_volume_includes_days_before_the_period(
    connection: duckdb.DuckDBPyConnection, exports: list[dict[str, Any]], scope: dict[str, Any]
) -> None:
    replace_events(connection, [export | {"ingest_seq": ingest_seq} for ingest_seq, export in enumerate(exports)])
    with variables(connection, scope):
        rows = connection.execute("select * from export_volumes").fetchall()
    expected = sorted(expected_rows(exports, scope), key=lambda row: [(cell is None, cell) for cell in row[:3]])
    assert rows == expected
