"""The report `activity` agrees with an oracle that counts the viewers of the days up to each day."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import INSTANTS, NOW, Event, Scope, events_in_scope, histories, report_rows, scopes

DAY = timedelta(days=1)
# Day offsets inside and outside the window of 30 days, and future days.
_apart = st.sampled_from([-40, -31, -30, -29, -8, -7, -6, -1, 0, 0, 0, 1, 13, 14, 15, 16])
spread = st.builds(
    lambda history, steps: [
        Event(**vars(event) | {"occurred_at": event.occurred_at + step * DAY})
        for event, step in zip(history, steps, strict=False)
    ],
    histories,
    st.lists(_apart, min_size=40, max_size=40),
)


def expected_rows(history: list[Event], scope: Scope) -> list[tuple[object, ...]]:
    """Return the rows of the oracle, which collects the viewers of each day."""
    zone = ZoneInfo(scope.get("timezone", "UTC"))
    last = _day(min(NOW, scope.get("until", datetime.max) - timedelta(microseconds=1)), zone)
    days: dict[int | None, dict[date, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in events_in_scope(history, {name: value for name, value in scope.items() if name != "since"}):
        if event.viewer is not None:
            days[event.deployment][_day(event.occurred_at, zone)].add(event.viewer)
    first = _day(scope["since"], zone) if "since" in scope else date.min
    rows = []
    for deployment, of in days.items():
        for day in {seen_on + step * DAY for seen_on in of for step in range(30)}:
            lengths = (1, 7, 30) if day <= last else (1, 1, 1)
            counts = [len(set[str]().union(*(of.get(day - step * DAY, ()) for step in range(n)))) for n in lengths]
            if day >= first and counts[2]:
                rows.append((day, deployment, *counts))
    return sorted(rows, key=lambda row: (row[0], row[1] is None, row[1] or 0))


def _day(instant: datetime, zone: ZoneInfo) -> date:
    return instant.replace(tzinfo=UTC).astimezone(zone).date()


@given(history=spread, scope=scopes)
def test_the_days_of_any_history_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: Scope
) -> None:
    assert report_rows(connection, "activity", history, scope) == expected_rows(history, scope)


def test_a_day_after_the_clock_counts_only_viewers_of_that_day(connection: duckdb.DuckDBPyConnection) -> None:
    history = [Event("view", NOW - DAY, 0, viewer="u1"), Event("view", NOW + DAY, 1, viewer="u2")]
    rows = report_rows(connection, "activity", history, {"until": INSTANTS[0] + 60 * DAY})
    assert rows == [
        (date(2026, 11, 16), 1, 1, 1, 1),
        (date(2026, 11, 17), 1, 0, 1, 1),
        (date(2026, 11, 18), 1, 1, 1, 1),
    ]
