"""A temporary table returns the rows of its view, and only queries that it covers use it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.period import period_of
from embedsink.dashboards.query import PAIR_REPORTS, query_section
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import all_reports
from embedsink.store.database import Store
from embedsink.store.reader import Reader
from tests.support.given import write_segment
from tests.support.stores import open_store

DAY = datetime(2026, 11, 2)


def stage(minute: int, status: str, query: str = "why", **fields: Any) -> dict[str, Any]:
    at = DAY + timedelta(minutes=minute)
    return {"type": "ai-query", "at": at.isoformat(), "status": status, "query": query, "session": "s1", **fields}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    store.load(inspect(write_segment(tmp_path, HISTORY)))
    yield store
    store.close()


HISTORY = [
    stage(0, "submitted"),
    stage(1, "completed"),
    stage(24 * 60 - 1, "submitted", "over midnight"),
    stage(24 * 60 + 1, "completed", "over midnight"),
    stage(24 * 60 + 5, "submitted", "never"),
    stage(24 * 60 + 6, "error", "of another", deployment=2, session="s2"),
]
PERIODS = [(DAY, DAY + timedelta(days=1)), (DAY + timedelta(days=1), DAY + timedelta(days=2)), (DAY, None)]


def rows(reader: Reader, report: str) -> list[tuple[Any, ...]]:
    return [row for batch in reader.rows(report) for row in batch]


@pytest.mark.parametrize("report", PAIR_REPORTS)
def test_each_period_has_the_same_rows_with_and_without_a_temp_table(report: str, store: Store) -> None:
    with (
        store.reader(EVERYTHING.variables()) as plain,
        store.reader(EVERYTHING.variables()) as keeping,
        keeping.consistent(),
    ):
        keeping.materialize("ai_pair", since=DAY, until=None)
        for since, until in PERIODS:
            cached_rows = rows(keeping.set_variables(since=since, until=until), report)
            assert cached_rows == rows(plain.set_variables(since=since, until=until), report)
            assert cached_rows


def test_a_temp_table_has_the_rows_of_its_view(store: Store, tmp_path: Path) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        reader.materialize("ai_pair", since=DAY, until=None)
        before = rows(reader, "ai_queries")
        store.load(inspect(write_segment(tmp_path, [stage(3, "submitted", "later")], number=2)))
        assert rows(reader, "ai_queries") == before
        # The temporary table covers no longer period.
        assert sum(row[4] for row in rows(reader.set_variables(since=None), "ai_queries")) == 4


def test_other_periods_and_times_read_the_view(store: Store) -> None:
    # Within ten minutes after an unanswered question, its status is still pending.
    ends = DAY + timedelta(days=1, minutes=5, seconds=30)
    scope = {**EVERYTHING.variables(), "now": ends}
    later = ends + timedelta(days=1)
    changes: list[dict[str, datetime | None]] = [{"until": None}, {"until": later}, {"now": later}]
    for changed in changes:
        with store.reader(scope) as plain, store.reader(scope) as keeping, keeping.consistent():
            keeping.materialize("ai_pair", since=DAY, until=ends)
            within = rows(keeping.set_variables(since=DAY, until=ends), "ai_query")
            assert within == rows(plain.set_variables(since=DAY, until=ends), "ai_query")
            rows_read = rows(keeping.set_variables(**changed), "ai_query")
            assert rows_read == rows(plain.set_variables(**changed), "ai_query")
            assert rows_read != within


def test_a_temp_table_does_not_change_the_store(store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader, reader.consistent():
        reader.materialize("ai_pair", since=DAY, until=None)
        names = [column.name for column in reader.columns("ai_pair")]
        assert len(names) == len(set(names))
        assert reader.columns("temp_ai_pair") == []


@pytest.mark.parametrize(("compare", "kept_from"), [(True, DAY - timedelta(days=1)), (False, DAY)])
def test_a_section_pairs_ai_queries_once_for_all_tiles(
    store: Store, monkeypatch: pytest.MonkeyPatch, compare: bool, kept_from: datetime
) -> None:
    kept: list[tuple[str, datetime | None]] = []
    materialize = Reader.materialize

    def record_and_materialize(self: Reader, view: str, *, since: datetime | None, until: datetime | None) -> None:
        kept.append((view, since))
        materialize(self, view, since=since, until=until)

    monkeypatch.setattr(Reader, "materialize", record_and_materialize)
    now = DAY + timedelta(days=2)
    period_params = {"since": DAY.isoformat(), "until": (DAY + timedelta(days=1)).isoformat()}
    period = period_of(period_params if compare else period_params | {"compare": "off"}, now=now)
    [section] = read_dashboards()["ai-questions"].sections
    with store.reader({**EVERYTHING.variables(), "now": now}) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        query_section(reader, section, period, reports=reports, now=now)
    assert kept == [("ai_pair", kept_from)]


@pytest.mark.parametrize("scope", [{"deployments": [2]}, {"surface": "app"}, {"tenant": "x"}])
def test_another_scope_reads_the_same_rows_as_without_a_temp_table(scope: dict[str, Any], store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader, reader.consistent():
        reader.materialize("ai_pair", since=None, until=None)
        everything = rows(reader, "ai_query")
        narrow = rows(reader.set_variables(**scope), "ai_query")
        assert len(narrow) == (1 if "deployments" in scope else 0)
        assert rows(reader.set_variables(**dict.fromkeys(scope)), "ai_query") == everything


def test_a_temp_table_of_a_finished_transaction_is_not_used(store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        for _ in range(2):
            with reader.consistent():
                reader.materialize("ai_pair", since=None, until=None)
                inside = rows(reader, "ai_query")
            assert rows(reader.set_variables(since=DAY), "ai_query") == inside
