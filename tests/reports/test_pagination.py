"""Pagination: pages return every row once while events are loaded, and invalid cursors are refused."""

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.errors import Refused
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports import pagination
from embedsink.reports.catalog import EVENT_VIEW, report_names, uses_window_functions, visible_columns
from embedsink.reports.csv_writer import CsvOptions
from embedsink.reports.format import Format
from embedsink.reports.format_writers import json_chunks, write_rows
from embedsink.reports.pagination import LIMIT_MAX, Cursor, PageRequest
from embedsink.store import reader as reader_module
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader
from embedsink.store.rollups import roll_up
from tests.support.given import write_segment
from tests.support.histories import NOW, Event, Scope, histories, scopes
from tests.support.rows import replace_events
from tests.support.stores import open_copy, open_store

# One session with an event of each type that adds a row to a report.
EVERY_TYPE: list[dict[str, object]] = [
    {"type": "ready", "embedTenant": "acme", "deploymentId": 1},
    {"type": "view"},
    {"type": "download", "title": "Sales"},
    {"type": "ai-query", "query": "why?"},
    {"type": "ai-query", "query": "why?", "status": "completed", "at": "10:01"},
    {"type": "error"},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    yield store
    store.close()


def load(store: Store, folder: Path, number: int) -> None:
    events = [event | {"session": f"s{number}"} for event in EVERY_TYPE]
    store.load(inspect(write_segment(folder, events, number=number)))


def page(reader: Reader, view: str, request: PageRequest) -> tuple[list[dict[str, Any]], Cursor | None]:
    selection, following = request.select(reader, view)
    return json.loads(b"".join(json_chunks(reader, selection))), following


def paged_views(reader: Reader) -> list[str]:
    """Return the paginated views, so that new views are tested automatically."""
    return [view for view in (*report_names(), EVENT_VIEW) if "ingest_seq" in visible_columns(reader, view)]


def test_pages_neither_repeat_nor_skip_rows_that_are_loaded_between_them(store: Store, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        load(store, tmp_path, number)
    with store.reader(EVERYTHING.variables()) as reader:
        views = paged_views(reader)
    assert {"ai_query", EVENT_VIEW} <= set(views)
    numbers = itertools.count(4)
    for view in views:
        arrivals: list[int] = []
        cursor: str | None = None
        for number_of_page in itertools.count():
            with store.reader(EVERYTHING.variables()) as reader:
                rows, following = page(reader, view, PageRequest(limit="2", cursor=cursor, query_id=view))
            arrivals += [row["ingest_seq"] for row in rows]
            if following is None:
                break
            cursor = following.encode(view)
            if number_of_page < 5:
                load(store, tmp_path, next(numbers))
        with store.reader(EVERYTHING.variables()) as reader:
            rows, _ = page(reader, view, PageRequest())
        assert arrivals == sorted(row["ingest_seq"] for row in rows), view
        assert len(arrivals) == len(set(arrivals)) > 3


@pytest.mark.parametrize("limit", ["3", "6", "10", None])
def test_a_page_excludes_rows_that_are_loaded_while_it_is_read(store: Store, tmp_path: Path, limit: str | None) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING.variables()) as reader, reader.consistent():
        selection, following = PageRequest(limit=limit).select(reader, EVENT_VIEW)
        load(store, tmp_path, 2)
        rows = json.loads(b"".join(json_chunks(reader, selection)))
    assert len(rows) == min(int(limit or 6), 6)
    assert (following is not None) == (limit == "3")
    with store.reader(EVERYTHING.variables()) as reader:
        assert len(page(reader, EVENT_VIEW, PageRequest())[0]) == 12


@pytest.mark.parametrize(
    "page_request", [PageRequest(limit="2"), PageRequest(limit="2", columns="status,query")], ids=str
)
def test_a_page_of_a_windowed_view_is_computed_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_request: PageRequest
) -> None:
    for number in (1, 2, 3):
        load(store, tmp_path, number)
    sent: list[str] = []
    execute = Reader._execute

    def recorded(self: Reader, sql: str, parameters: list[object] | None = None) -> Any:
        sent.append(sql)
        return execute(self, sql, parameters)

    monkeypatch.setattr(Reader, "_execute", recorded)
    for write in (Format.JSON, Format.PARQUET):
        sent.clear()
        with store.reader(EVERYTHING.variables()) as reader, (tmp_path / "page").open("wb") as file:
            selection, following = page_request.select(reader, "ai_query")
            write_rows(reader, selection, file, write, csv=CsvOptions())
        assert sum("ai_query" in sql for sql in sent) == 1
    assert following is not None
    with store.reader(EVERYTHING.variables()) as reader:
        last_page, last = page(reader, "ai_query", replace(page_request, cursor=following.encode("")))
        all_rows, _ = page(reader, "ai_query", replace(page_request, limit=None))
    assert (len(last_page), len(all_rows), last) == (1, 3, None)


@given(
    history=histories,
    scope=scopes,
    limit=st.integers(1, 4),
    events_per_row=st.integers(1, 3),
    rollup=st.integers(1, 20),
)
def test_the_pages_of_any_history_have_the_rows_of_the_report(
    opened: Store, history: list[Event], scope: Scope, limit: int, events_per_row: int, rollup: int
) -> None:
    """A page reads the events up to an ingest_seq that is too low at first, before and after a rollup."""
    connection = opened._load_connection()
    for table in ("session_15min", "question_stage", "rollup_batch"):
        connection.execute(f"truncate {table}")
    numbered = [asdict(event) | {"ingest_seq": number} for number, event in enumerate(history)]
    replace_events(connection, numbered)
    roll_up(connection, event_count_min=1, event_count_max=rollup)
    with pytest.MonkeyPatch.context() as patch, opened.reader({**EVERYTHING.variables(), "now": NOW} | scope) as reader:
        patch.setattr(reader_module, "_EVENTS_PER_ROW", events_per_row)
        for view in ("sessions", "ai_query", "download_audit", EVENT_VIEW):
            names = visible_columns(reader, view)
            reader.set_variables(after=None, up_to=None)
            rows = [row for rows in reader.rows(SelectQuery(view, names, is_by_ingest_seq=True)) for row in rows]
            found, cursor = [], None
            for _ in range(len(rows) + 1):
                selection, next_cursor = PageRequest(limit=str(limit), cursor=cursor).select(reader, view)
                found += [row for rows in reader.rows(selection) for row in rows]
                if next_cursor is None:
                    break
                cursor = next_cursor.encode("")
            assert found == rows


def test_windowed_views_are_detected_in_their_sql(store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        assert {view for view in paged_views(reader) if uses_window_functions(view)} == {"ai_query", "sessions"}


def test_a_page_with_the_last_row_has_no_next_page(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING.variables()) as reader:
        count = len(EVERY_TYPE)
        for limit, has_next in ((count - 1, True), (count, False), (count + 1, False)):
            rows, following = page(reader, EVENT_VIEW, PageRequest(limit=str(limit)))
            assert (len(rows), following is not None) == (min(limit, count), has_next)


@pytest.mark.parametrize("columns", [None, "ingest_seq,type"])
def test_events_without_a_limit_are_sorted_by_arrival(store: Store, tmp_path: Path, columns: str | None) -> None:
    for number in (2, 3, 1):  # Segment 1 was damaged, repaired and loaded last.
        load(store, tmp_path, number)
    scopes: list[dict[str, object]] = [{}, {"since": datetime(2026, 11, 2)}, {"deployments": [1]}]
    for scope in scopes:
        with store.reader({**EVERYTHING.variables(), **scope}) as reader:
            selection, _ = PageRequest(columns).select(reader, EVENT_VIEW)
            arrivals = [row["ingest_seq"] for row in json.loads(b"".join(json_chunks(reader, selection)))]
        with open_copy(store, {**EVERYTHING.variables(), **scope}) as snapshot:
            frame, _ = snapshot.frame(selection)
        assert arrivals == sorted(arrivals) == list(frame["ingest_seq"])
        assert len(arrivals) == 3 * len(EVERY_TYPE)


def test_a_page_may_omit_ingest_seq(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING.variables()) as reader:
        rows, following = page(reader, EVENT_VIEW, PageRequest(columns="type", limit="2"))
    assert rows == [{"type": "ready"}, {"type": "view"}]
    assert following is not None


def test_a_report_without_ingest_seq_has_a_limit_but_no_pages(store: Store, tmp_path: Path) -> None:
    for number in (1, 2):
        load(store, tmp_path, number)
    with store.reader({**EVERYTHING.variables(), "interval": "hour"}) as reader:
        rows, following = page(reader, "views", PageRequest(limit="1"))
        assert (len(rows), following) == (1, None)
        with pytest.raises(Refused, match=r"^cursor: this report is not paginated\."):
            page(reader, "views", PageRequest(cursor="AQ", query_id="views"))


def test_all_pages_have_the_period_of_the_first(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    since = datetime(2026, 11, 2, 10, 0)
    with store.reader({**EVERYTHING.variables(), "since": since}) as reader:
        _, following = page(reader, EVENT_VIEW, PageRequest(limit="1", query_id="q"))
    assert following is not None
    assert following.since == since
    with store.reader({**EVERYTHING.variables(), "since": datetime(2026, 11, 2, 10, 1)}) as reader:
        rows, _ = page(reader, EVENT_VIEW, PageRequest(cursor=following.encode("q"), query_id="q"))
    assert len(rows) == len(EVERY_TYPE) - 1


instants = st.none() | st.datetimes()


@given(after=st.integers(-(2**63), 2**63 - 1), since=instants, until=instants, query=st.text())
def test_a_cursor_survives_encoding_and_needs_no_escaping(
    after: int, since: datetime | None, until: datetime | None, query: str
) -> None:
    cursor = Cursor(after, since, until)
    text = cursor.encode(query)
    assert Cursor.decode(text, query) == cursor
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    with pytest.raises(Refused):
        Cursor.decode(text, query + " ")


@given(text=st.text())
def test_other_text_is_not_a_cursor(text: str) -> None:
    with pytest.raises(Refused, match=r"^cursor: .* is not valid for this query"):
        Cursor.decode(text, "query")


@given(index=st.integers(0, 43), letter=st.sampled_from("ABCDwxyz0189-_"))
def test_a_mistyped_cursor_is_refused(index: int, letter: str) -> None:
    text = Cursor(2**32 + 7, None, None).encode("query")
    changed = text[:index] + letter + text[index + 1 :]
    if changed != text:
        with pytest.raises(Refused):
            Cursor.decode(changed, "query")


@given(after=st.integers(-(2**63), 2**63 - 1), since=st.integers(-(2**63), 2**63 - 1))
def test_a_forged_cursor_is_refused_or_valid(after: int, since: int) -> None:
    numbers = (1, after, since, since)
    forged = base64.urlsafe_b64encode(
        pagination._CURSOR_STRUCT.pack(*numbers, pagination._digest(numbers, "query", None))
    ).decode()
    try:
        cursor = Cursor.decode(forged, "query")
    except Refused:
        return
    assert cursor.after == after


def test_ingest_seq_is_the_last_column_of_a_paginated_report(store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        for view in paged_views(reader):
            if view != EVENT_VIEW:
                last = reader.columns(view)[-1]
                assert (last.name, last.type) == ("ingest_seq", "BIGINT")


@pytest.mark.parametrize("limit", ["0", "-1", "100001", "1e3", "ten", "", " 5", "05", "９", "9" * 5000])
def test_a_limit_outside_its_bounds_is_refused(store: Store, limit: str) -> None:
    message = f"is not an integer from 1 to {LIMIT_MAX:,}."
    with store.reader(EVERYTHING.variables()) as reader, pytest.raises(Refused, match=f"^limit: .* {message}"):
        PageRequest(limit=limit).select(reader, "views")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("vew", 'columns: column "vew" does not exist. Did you mean "view_count"?'),
        ("sesion", 'columns: column "sesion" does not exist. Did you mean "session_count"?'),
        ("view_coun", 'columns: column "view_coun" does not exist. Did you mean "view_count"?'),
        ("surface,zzz", 'columns: column "zzz" does not exist. Valid names: period_start, deployment, '),
        ("surface,surface", 'columns: column "surface" is listed twice. Give it once.'),
        ("", 'columns: column "" does not exist.'),
        ("surface,", 'columns: column "" does not exist.'),
        ('surface" from event --', 'column "surface\\" from event --" does not exist.'),
        ("*", 'columns: column "*" does not exist.'),
    ],
)
def test_unknown_or_repeated_columns_are_refused(store: Store, columns: str, message: str) -> None:
    with store.reader(EVERYTHING.variables()) as reader, pytest.raises(Refused) as refused:
        PageRequest(columns=columns).select(reader, "views")
    assert message in str(refused.value)
