"""Daily totals: reports are the same before and after the deletion of events, and show only what the reader may see."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embedsink.journal.segment import inspect
from embedsink.key_scope import KeyScope
from embedsink.store import totals
from embedsink.store.database import Store
from embedsink.store.reader import Reader
from embedsink.store.sql_files import read_sql
from tests.support.given import write_segment

MONDAY = datetime(2026, 11, 2)
NOW = datetime(2027, 1, 15)
REPORTS = ("views", "downloads", "error_rates", "ai_queries", "tenants")
# The columns that can't be added over days.
DISTINCT = ("session_count", "viewer_count", "session_with_error_count", "error_free_session_rate")
FILTERS: list[dict[str, Any]] = [
    {},
    {"deployments": [1, 2]},
    {"tenant": "a"},
    {"tenant": "a", "deployments": [2], "surface": "dashboard"},
]
TYPES: list[dict[str, Any]] = [
    {"type": "view"},
    {"type": "view"},
    {"type": "download", "surface": "dashboard", "rowCount": 7},
    {"type": "drilldown", "surface": "dashboard"},
    {"type": "error"},
    {"type": "error", "fatal": True},
    {"type": "ai-query"},
    {"type": "ai-query"},
    {"type": "ai-query", "status": "completed", "agentId": "x"},
    {"type": "ai-query", "status": "error"},
    {"type": "ai-query", "chatId": "c1"},
    {"type": "x-feedback", "chatId": "c1"},
    {"type": "x-feedback", "chatId": "c1", "rating": "down", "text": "Wrong"},
    {"type": "view", "internal": True},
]


def events_of(day: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return events of sessions that begin on a day and may end on the next, some of which arrive late."""
    events: list[dict[str, Any]] = []
    for session in range(rng.randint(1, 4)):
        shared = {
            "session": f"{day} {session}",
            "viewer": rng.choice(["u1", "u2", None]),
            "surface": rng.choice(["dashboard", "chat"]),
            "deployment": rng.choice([1, 2, None]),
            "tenant": rng.choice(["a", "b", None]),
        }
        at = MONDAY + timedelta(days=day, hours=rng.choice([3, 12, 23]), minutes=rng.randint(40, 59))
        if shared["deployment"] is None and rng.random() < 0.7:
            events.append(shared | {"type": "ready", "surface": "app", "deploymentId": 2, "at": at.isoformat()})
        for _ in range(rng.randint(1, 8)):
            at += timedelta(minutes=rng.choice([1, 6, 31]))
            events.append(shared | rng.choice(TYPES) | {"at": at.isoformat()})
    return events


def load(store: Store, folder: Path, days: list[list[dict[str, Any]]], *, first: int = 0) -> None:
    """Load a segment for each day, as if at the end of the next day."""
    for number, events in enumerate(days, first + 1):
        for index, event in enumerate(events):
            event["id"] = number * 1_000 + index
            event["received"] = event["at"]
        store.load(inspect(write_segment(folder, events, number=number)))
    store._load_connection().execute(
        "update loaded_segment set loaded_at = $1 + to_days(1 + split_part(segment, '-', 1)::integer)", [MONDAY]
    )


def expire(store: Store, *, days: int) -> int:
    """Total and delete what was loaded before a number of days had passed. Return the number of totaled days."""
    before = MONDAY + timedelta(days=days)
    day_count = 0
    while count := store.add_daily_totals(loaded_before=before):
        day_count += count
    limit, next_seq = store.retention_limit(before, {}), 0
    while (expired := store.expire(limit, first=next_seq)).next_seq is not None:
        next_seq = expired.next_seq
    store.finish_expiry()
    return day_count


def read(store: Store, report: str, **scope: Any) -> list[dict[str, Any]]:
    variables = {**KeyScope(None, scope.pop("tenants", None), True).variables(), "now": NOW, **scope}
    with store.reader(variables) as reader:
        return rows_of(reader, report)


def answers(store: Store, filters: Sequence[dict[str, Any]] = FILTERS, **scope: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each report with each filter, by report and filter."""
    with store.reader({**KeyScope(None, None, True).variables(), "now": NOW, **scope}) as reader:
        found: dict[str, list[dict[str, Any]]] = {}
        for filter in filters:
            reader.set_variables(**dict.fromkeys(("deployments", "surface", "tenant")) | filter)
            found |= {f"{report} {filter}": rows_of(reader, report) for report in REPORTS}
        return found


def rows_of(reader: Reader, report: str) -> list[dict[str, Any]]:
    names = [column.name for column in reader.columns(report)]
    return [dict(zip(names, row, strict=True)) for rows in reader.rows(report) for row in rows]


def without_distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not is_distinct(name)} for row in rows]


def is_distinct(name: str) -> bool:
    return name in DISTINCT or "_p50" in name or "_p95" in name


def offending(store: Store) -> dict[str, list[Any]]:
    checks = {name: store._load_connection().execute(sql).fetchall() for name, sql in read_sql("checks").items()}
    return {name: rows for name, rows in checks.items() if rows}


@pytest.fixture
def empty_store(store: Store) -> Iterator[Store]:
    tables = "select table_name from duckdb_tables() where database_name = 'store' and table_name <> 'migration'"
    for (table,) in store._load_connection().execute(tables).fetchall():
        store._load_connection().execute(f"truncate {table}")
    yield store
    assert offending(store) == {}


def test_every_report_is_the_same_after_the_deletion(empty_store: Store, folder: Path) -> None:
    store, rng = empty_store, random.Random(1)
    days = [events_of(day, rng) for day in range(6)]
    for late in (1, 2, 3):  # An event arrives days later.
        days[late + 2].append(days[late].pop())
    load(store, folder, days[:3])
    while store.roll_up():
        pass
    load(store, folder, days[3:], first=3)
    one_day: dict[str, Any] = {"since": MONDAY + timedelta(days=1), "until": MONDAY + timedelta(days=2)}
    before = answers(store), answers(store, **one_day), answers(store, FILTERS[:1], interval="week")
    for limit in (3, 6):
        expire(store, days=limit)
    check_same(answers(store), before[0], is_exact=lambda name: not name.startswith("tenants"))
    # Distinct counts of two deployments can't be added.
    check_same(answers(store, **one_day), before[1], is_exact=lambda name: "tenants {'deployments': [1, 2]" not in name)
    check_same(answers(store, FILTERS[:1], interval="week"), before[2], is_exact=lambda name: False)
    assert store._load_connection().execute("select count(*) from event").fetchall() != [(0,)]


def check_same(
    after: dict[str, list[dict[str, Any]]],
    before: dict[str, list[dict[str, Any]]],
    *,
    is_exact: Callable[[str], bool],
) -> None:
    """Check that all rows are the same; unless `is_exact`, distinct counts may be null."""
    for name, rows in before.items():
        if is_exact(name):
            assert after[name] == rows, name
        assert without_distinct(after[name]) == without_distinct(rows), name
        for row, expected in zip(after[name], rows, strict=True):
            assert all(row[column] in (None, expected[column]) for column in row), name


def views_on(*days: int, **fields: Any) -> list[list[dict[str, Any]]]:
    """Return a list for each of six days, which has a view event on some of them."""
    at = [(MONDAY + timedelta(days=day, hours=10)).isoformat() for day in range(6)]
    return [[{"type": "view", "at": at[day], "session": f"s{day}"} | fields] if day in days else [] for day in range(6)]


def days_of(store: Store, report: str = "views", **scope: Any) -> list[int]:
    """Return the days of which a report has a row, by their number after the Monday."""
    return [(row["period_start"] - MONDAY).days for row in read(store, report, **scope)]


def marked_days(store: Store, report: str = "views", **scope: Any) -> tuple[date, date] | None:
    variables = {**KeyScope(None, scope.pop("tenants", None), True).variables(), **scope}
    with store.reader(variables) as reader:
        return reader.totaled_days(report)


def deleted_days(store: Store, report: str = "views", **scope: Any) -> list[int]:
    """Return the first and the last day that a report lacks, by their number after the Monday."""
    variables = {**KeyScope(None, scope.pop("tenants", None), True).variables(), **scope}
    with store.reader(variables) as reader:
        return [(day - MONDAY.date()).days for day in reader.deleted_days(report) or ()]


def test_a_period_without_a_whole_totaled_day_has_no_totals(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, views_on(0, 1, 2, 4))
    assert expire(empty_store, days=4) == 3  # Day 3 has no events.
    assert days_of(empty_store) == [0, 1, 2, 4]
    noon = MONDAY + timedelta(days=1, hours=12)
    assert days_of(empty_store, since=noon) == [2, 4]
    assert days_of(empty_store, until=noon) == [0]
    assert marked_days(empty_store, until=noon) == (MONDAY.date(), MONDAY.date())
    assert marked_days(empty_store, since=MONDAY + timedelta(days=3)) is None
    assert days_of(empty_store, timezone="UTC") == [0, 1, 2, 4]
    assert deleted_days(empty_store, timezone="UTC") == []
    requests: list[dict[str, Any]] = [
        {"interval": "hour"},
        {"timezone": "Europe/Berlin"},
        {"internal": "include"},
        {"internal": "only"},
        {"vendor": "looker"},
        {"dimensions": ["department"]},
        {"department": "Sales"},
        {"viewer_group": "Analysts"},
    ]
    for request in requests:
        assert marked_days(empty_store, **request) is None, request
        assert 0 not in days_of(empty_store, **request), request
        # Day 2 is totaled, but still has its event.
        assert deleted_days(empty_store, **request) == [0, 1], request


def test_a_report_marks_the_deleted_days_of_its_period(empty_store: Store, folder: Path) -> None:
    assert deleted_days(empty_store, timezone="Europe/Berlin") == []
    load(empty_store, folder, views_on(0, 1, 2, 4))
    expire(empty_store, days=4)
    noon = MONDAY + timedelta(days=1, hours=12)
    assert deleted_days(empty_store, since=noon) == [1, 1]  # The report has no totals of a part of a day.
    assert deleted_days(empty_store, until=noon) == [1, 1]
    assert deleted_days(empty_store, until=noon, timezone="Europe/Berlin") == [0, 1]
    assert deleted_days(empty_store, until=MONDAY + timedelta(days=1), interval="hour") == [0, 0]
    assert deleted_days(empty_store, since=MONDAY + timedelta(days=2), interval="hour") == []
    assert deleted_days(empty_store, "sessions") == deleted_days(empty_store, "event_in_scope") == [0, 1]
    assert deleted_days(empty_store, "views_by_directory", dimensions=["department"]) == [0, 1]
    assert deleted_days(empty_store, tenants=frozenset({"a"})) == [0, 1]
    assert deleted_days(empty_store, until=MONDAY) == []


def test_the_newest_totaled_day_is_marked_once_its_events_are_deleted(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, views_on(0, 1))
    assert expire(empty_store, days=3) == 2
    assert deleted_days(empty_store, interval="hour") == [0, 0]
    expire(empty_store, days=4)
    assert deleted_days(empty_store, interval="hour") == [0, 1]


def test_late_events_hide_only_the_mark_of_their_own_day(empty_store: Store, folder: Path) -> None:
    [first, second, third, *_] = views_on(0, 1, 2)
    load(empty_store, folder, [first, [], third, second])
    assert expire(empty_store, days=3) == 2
    assert deleted_days(empty_store, interval="hour") == [0, 0], "all events of the second day are stored"


def test_late_events_of_earlier_days_hide_no_mark(empty_store: Store, folder: Path) -> None:
    [first, second, *_], [late, *_] = views_on(0, 1), views_on(0)
    load(empty_store, folder, [first, second, [], late])
    assert expire(empty_store, days=4) == 2
    assert deleted_days(empty_store, interval="hour") == [0, 1]


def test_a_key_sees_totals_of_its_deployments_only_and_with_tenants_none(empty_store: Store, folder: Path) -> None:
    days = [
        [*first, *second]
        for first, second in zip(views_on(0, 1, 5, tenant="a"), views_on(0, 2, deployment=2, tenant="b"), strict=True)
    ]
    load(empty_store, folder, days)
    expire(empty_store, days=4)
    assert days_of(empty_store, deployments=[1]) == [0, 1, 5]
    assert {row["deployment"] for row in read(empty_store, "views", deployments=[1])} == {1}
    assert marked_days(empty_store, deployments=[2]) == (date(2026, 11, 2), date(2026, 11, 4))
    assert marked_days(empty_store, deployments=[1]) == (date(2026, 11, 2), date(2026, 11, 3))
    assert [row["tenant"] for row in read(empty_store, "tenants", deployments=[2])] == ["b"]
    empty_scopes: list[dict[str, Any]] = [{"deployments": [3]}, {"deployments": []}, {"tenant": "c"}]
    for scope in empty_scopes:
        for report in ("views", "tenants"):
            assert (read(empty_store, report, **scope), marked_days(empty_store, report, **scope)) == ([], None)
    for tenants in (frozenset({"a"}), frozenset({"a", "b"})):
        for report in ("views", "tenants"):
            assert marked_days(empty_store, report, tenants=tenants) is None
        assert days_of(empty_store, tenants=tenants) == ([5] if tenants == {"a"} else [2, 5])
        assert {row["active_day_count"] for row in read(empty_store, "tenants", tenants=tenants)} == {1}


def test_an_answer_after_midnight_counts_once(empty_store: Store, folder: Path) -> None:
    question = {"type": "ai-query", "at": "2026-11-02T23:59:50"}
    answer = {"type": "ai-query", "at": "2026-11-03T00:00:10", "status": "completed"}
    load(empty_store, folder, [[question], [answer]])
    assert expire(empty_store, days=3) == 2
    assert [(row["submitted_count"], row["completed_count"]) for row in read(empty_store, "ai_queries")] == [(1, 1)]


def test_later_events_of_a_totaled_day_do_not_change_its_totals(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, views_on(0, 1))
    assert expire(empty_store, days=3) == 2
    before = answers(empty_store, FILTERS[:1])
    revision = empty_store.revisions.of(None)
    assert expire(empty_store, days=3) == 0
    load(empty_store, folder, [views_on(0, session="late")[0]], first=6)
    assert answers(empty_store, FILTERS[:1]) == before
    assert expire(empty_store, days=9) == 0
    assert answers(empty_store, FILTERS[:1]) == before
    assert empty_store.revisions.of(None) != revision


def test_a_wrong_clock_does_not_total_a_day_that_has_not_ended(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, [views_on(0)[0], [], []])
    empty_store._load_connection().execute("update event set occurred_at = occurred_at + to_days(30)")
    assert expire(empty_store, days=4) == 0
    assert read(empty_store, "views") == []


def test_totals_hold_no_viewers_sessions_and_texts(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, [events_of(day, random.Random(day)) for day in range(3)])
    empty_store._load_connection().execute("update event set viewer = 'secret-' || viewer, query = 'secret-question'")
    while empty_store.add_daily_totals(loaded_before=MONDAY + timedelta(days=9)):
        pass
    daily_tables = "select table_name from duckdb_tables() where database_name = 'store' and table_name like 'daily%'"
    tables = [name for (name,) in empty_store._load_connection().execute(daily_tables).fetchall()]
    assert len(tables) == len(REPORTS)
    for table in tables:
        columns = empty_store._load_connection().execute(f"describe {table}").fetchall()
        assert not {name for name, *_ in columns} & {"viewer", "session", "query", "path", "page", "title"}
        rows = empty_store._load_connection().execute(f"from {table}").fetchall()
        assert rows
        assert "secret" not in str(rows)


def test_totals_name_only_the_most_frequent_tenants_deployments_and_agents_of_a_day(
    empty_store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "NAMED_MAX", 2)
    counts = {"a": 4, "b": 3, "c": 2, "d": 1}
    senders = [(tenant, number) for number, (tenant, count) in enumerate(counts.items(), 1) for _ in range(count)]
    types = [{"type": "view"}, {"type": "download", "surface": "dashboard"}, {"type": "ai-query", "agentId": "x"}]
    events = [
        {"surface": "dashboard", "tenant": tenant, "deployment": number, "viewer": f"u{number}", "at": at, **type}
        for tenant, number in senders
        for at, type in zip(("2026-11-02T10:00", "2026-11-02T11:00", "2026-11-02T12:00"), types, strict=True)
    ]
    load(empty_store, folder, [events])
    expire(empty_store, days=3)
    for report, column in (
        ("views", "view_count"),
        ("downloads", "download_count"),
        ("error_rates", "view_count"),
        ("ai_queries", "submitted_count"),
    ):
        assert [(row["deployment"], row[column]) for row in read(empty_store, report)] == [(1, 4), (2, 3), (None, 3)]
        assert [row[column] for row in read(empty_store, report, tenant="c")] == []
    assert [row["viewer_count"] for row in read(empty_store, "views")] == [1, 1, 2]
    named = {row["tenant"]: row["view_count"] for row in read(empty_store, "tenants")}
    assert named == {"a": 4, "b": 3, None: 3}


def test_a_day_with_exactly_the_limit_names_all(
    empty_store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "NAMED_MAX", 2)
    view = {"type": "view", "deployment": None, "at": "2026-11-02T10:00"}
    load(empty_store, folder, [[view | {"tenant": tenant} for tenant in ("a", "b", None, None, None)]])
    expire(empty_store, days=3)
    assert {row["tenant"]: row["view_count"] for row in read(empty_store, "tenants")} == {"a": 1, "b": 1, None: 3}


@pytest.mark.parametrize(("late_days", "deployments"), [(360, [1]), (370, [None])])
def test_totals_of_invented_days_name_nothing(
    empty_store: Store, folder: Path, late_days: int, deployments: list[int | None]
) -> None:
    load(empty_store, folder, [[{"type": "view", "tenant": "a", "deployment": 1, "at": "2026-11-02T10:00"}]])
    empty_store._load_connection().execute("update event set received_at = occurred_at + to_days($1)", [late_days])
    expire(empty_store, days=3)
    assert [row["deployment"] for row in read(empty_store, "views")] == deployments


def test_deleted_totals_leave_the_events_that_are_stored(empty_store: Store, folder: Path) -> None:
    load(empty_store, folder, views_on(0, 1, 2))
    expire(empty_store, days=3)
    revision = empty_store.revisions.of([1])
    assert empty_store.delete_daily_totals() == 2
    assert empty_store.revisions.of([1]) != revision
    assert days_of(empty_store) == [1, 2]
    assert empty_store.delete_daily_totals() == 0


def test_totals_survive_a_salvage(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb")
    store.open()
    load(store, tmp_path, [events_of(day, random.Random(3)) for day in range(5)])
    expire(store, days=4)
    before = answers(store, FILTERS[:1])
    store.checkpoint()
    store.close()
    rebuilt = Store(tmp_path / "rebuilt.duckdb")
    rebuilt.open()
    for _ in range(2):  # The second file has nothing new.
        rebuilt.salvage([tmp_path / "store.duckdb"], journal_numbers=[])
        assert answers(rebuilt, FILTERS[:1]) == before
    assert offending(rebuilt) == {}
    rebuilt.close()


@pytest.mark.parametrize("lost_table", ["totaled_day", "daily_view"])
def test_a_salvage_copies_all_totals_of_a_file_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost_table: str
) -> None:
    days = [events_of(day, random.Random(3)) for day in range(5)]
    for name in ("newest.duckdb", "older.duckdb"):
        store = Store(tmp_path / name)
        store.open()
        load(store, tmp_path, days)
        expire(store, days=4)
        if name == "newest.duckdb":
            before = answers(store, FILTERS[:1])
            store._load_connection().execute(f"drop table {lost_table} cascade")  # as if it were unreadable
        store.checkpoint()
        store.close()
    rebuilt = Store(tmp_path / "rebuilt.duckdb")
    rebuilt.open()
    rebuilt.salvage([tmp_path / "newest.duckdb", tmp_path / "older.duckdb"], journal_numbers=[])
    is_logged = [record.message for record in caplog.records] == ["daily_totals_not_salvaged"]
    assert is_logged == (lost_table == "daily_view"), "files of earlier versions have no table `totaled_day`"
    assert answers(rebuilt, FILTERS[:1]) == before
    assert offending(rebuilt) == {}
    rebuilt.close()
