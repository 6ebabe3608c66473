"""Pages: every row once, whatever arrives between them, and no cursor but our own."""

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.errors import Refused
from embedsink.journal.segment import inspect
from embedsink.reports import pagination
from embedsink.reports.catalog import EVENTS, is_windowed, report_names, visible_columns
from embedsink.reports.format import Format
from embedsink.reports.formats import Style, json_chunks, write_rows
from embedsink.reports.pagination import LIMIT_MAX, Cursor, RowsAsked
from embedsink.store.database import Store
from embedsink.store.reader import EVERYTHING, Reader
from tests.given import segment
from tests.stores import open_store

# One of each that makes a row somewhere, for one session and several viewers.
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
    store.load(inspect(segment(folder, events, number=number)))


def page(reader: Reader, view: str, asked: RowsAsked) -> tuple[list[dict[str, Any]], Cursor | None]:
    selection, following = asked.select(reader, view)
    return json.loads(b"".join(json_chunks(reader, selection))), following


def paged_views(reader: Reader) -> list[str]:
    """Those whose rows arrive one by one: enumerated, so that a new one is looked at without being named here."""
    return [view for view in (*report_names(), EVENTS) if "ingest_seq" in visible_columns(reader, view)]


def test_pages_neither_repeat_nor_skip_rows_that_arrive_meanwhile(store: Store, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        load(store, tmp_path, number)
    with store.reader(EVERYTHING) as reader:
        views = paged_views(reader)
    assert {"ai_query", EVENTS} <= set(views)
    numbers = itertools.count(4)
    for view in views:
        seen: list[int] = []
        cursor: str | None = None
        for place in itertools.count():
            with store.reader(EVERYTHING) as reader:
                rows, following = page(reader, view, RowsAsked(limit="2", cursor=cursor, question=view))
            seen += [row["ingest_seq"] for row in rows]
            if following is None:
                break
            cursor = following.encode(view)
            if place < 5:
                load(store, tmp_path, next(numbers))
        with store.reader(EVERYTHING) as reader:
            rows, _ = page(reader, view, RowsAsked())
        assert seen == sorted(row["ingest_seq"] for row in rows), view
        assert len(seen) == len(set(seen)) > 3


@pytest.mark.parametrize("limit", ["3", "6", "10", None])
def test_a_page_is_of_one_moment_whatever_is_loaded_while_it_is_read(
    store: Store, tmp_path: Path, limit: str | None
) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING) as reader, reader.consistent():
        selection, following = RowsAsked(limit=limit).select(reader, EVENTS)
        load(store, tmp_path, 2)
        rows = json.loads(b"".join(json_chunks(reader, selection)))
    assert len(rows) == min(int(limit or 6), 6)
    assert (following is not None) == (limit == "3")
    with store.reader(EVERYTHING) as reader:
        assert len(page(reader, EVENTS, RowsAsked())[0]) == 12


@pytest.mark.parametrize("asked", [RowsAsked(limit="2"), RowsAsked(limit="2", columns="status,query")], ids=str)
def test_a_page_whose_rows_depend_on_others_is_found_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: RowsAsked
) -> None:
    for number in (1, 2, 3):
        load(store, tmp_path, number)
    sent: list[str] = []
    ask = Reader._ask

    def noted(self: Reader, sql: str, parameters: list[object] | None = None) -> Any:
        sent.append(sql)
        return ask(self, sql, parameters)

    monkeypatch.setattr(Reader, "_ask", noted)
    for write in (Format.JSON, Format.PARQUET):
        sent.clear()
        with store.reader(EVERYTHING) as reader, (tmp_path / "page").open("wb") as file:
            selection, following = asked.select(reader, "ai_query")
            write_rows(reader, selection, file, write, style=Style())
        assert sum("ai_query" in sql for sql in sent) == 1
    assert following is not None
    with store.reader(EVERYTHING) as reader:
        rest, last = page(reader, "ai_query", replace(asked, cursor=following.encode("")))
        everything, _ = page(reader, "ai_query", replace(asked, limit=None))
    assert (len(rest), len(everything), last) == (1, 3, None)


def test_it_is_told_by_their_sql_whether_rows_depend_on_others(store: Store) -> None:
    with store.reader(EVERYTHING) as reader:
        assert {view for view in paged_views(reader) if is_windowed(view)} == {"ai_query", "sessions"}


def test_a_page_that_is_just_full_is_the_last(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING) as reader:
        count = len(EVERY_TYPE)
        for limit, has_next in ((count - 1, True), (count, False), (count + 1, False)):
            rows, following = page(reader, EVENTS, RowsAsked(limit=str(limit)))
            assert (len(rows), following is not None) == (min(limit, count), has_next)


@pytest.mark.parametrize("columns", [None, "ingest_seq,type"])
def test_events_without_a_limit_are_in_the_order_of_arrival(store: Store, tmp_path: Path, columns: str | None) -> None:
    for number in (2, 3, 1):  # Segment 1 was damaged, mended and loaded last.
        load(store, tmp_path, number)
    scopes: list[dict[str, object]] = [{}, {"since": datetime(2026, 11, 2)}, {"deployments": [1]}]
    for scope in scopes:
        with store.reader({**EVERYTHING, **scope}) as reader:
            selection, _ = RowsAsked(columns).select(reader, EVENTS)
            arrivals = [row["ingest_seq"] for row in json.loads(b"".join(json_chunks(reader, selection)))]
            frame, _ = reader.frame(selection)
        assert arrivals == sorted(arrivals) == list(frame["ingest_seq"])
        assert len(arrivals) == 3 * len(EVERY_TYPE)


def test_a_page_needs_no_arrival_among_its_columns(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    with store.reader(EVERYTHING) as reader:
        rows, following = page(reader, EVENTS, RowsAsked(columns="type", limit="2"))
    assert rows == [{"type": "ready"}, {"type": "view"}]
    assert following is not None


def test_other_reports_have_first_rows_but_no_pages(store: Store, tmp_path: Path) -> None:
    for number in (1, 2):
        load(store, tmp_path, number)
    with store.reader({**EVERYTHING, "interval": "hour"}) as reader:
        rows, following = page(reader, "views", RowsAsked(limit="1"))
        assert (len(rows), following) == (1, None)
        with pytest.raises(Refused, match=r"^cursor: these rows have no order of ingest_seq\."):
            page(reader, "views", RowsAsked(cursor="AQ", question="views"))


def test_the_period_of_the_first_page_holds_on_every_page(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path, 1)
    since = datetime(2026, 11, 2, 10, 0)
    with store.reader({**EVERYTHING, "since": since}) as reader:
        _, following = page(reader, EVENTS, RowsAsked(limit="1", question="q"))
    assert following is not None
    assert following.since == since
    with store.reader({**EVERYTHING, "since": datetime(2026, 11, 2, 10, 1)}) as reader:
        rows, _ = page(reader, EVENTS, RowsAsked(cursor=following.encode("q"), question="q"))
    assert len(rows) == len(EVERY_TYPE) - 1


instants = st.none() | st.datetimes()


@given(after=st.integers(-(2**63), 2**63 - 1), since=instants, until=instants, question=st.text())
def test_a_cursor_comes_back_as_it_was_and_fits_into_an_address(
    after: int, since: datetime | None, until: datetime | None, question: str
) -> None:
    cursor = Cursor(after, since, until)
    text = cursor.encode(question)
    assert Cursor.decode(text, question) == cursor
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    with pytest.raises(Refused):
        Cursor.decode(text, question + " ")


@given(text=st.text())
def test_any_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(Refused, match=r"^cursor: .* does not belong to this question"):
        Cursor.decode(text, "question")


@given(place=st.integers(0, 43), letter=st.sampled_from("ABCDwxyz0189-_"))
def test_a_slip_of_the_keyboard_is_seen(place: int, letter: str) -> None:
    text = Cursor(2**32 + 7, None, None).encode("question")
    changed = text[:place] + letter + text[place + 1 :]
    if changed != text:
        with pytest.raises(Refused):
            Cursor.decode(changed, "question")


@given(after=st.integers(-(2**63), 2**63 - 1), since=st.integers(-(2**63), 2**63 - 1))
def test_a_cursor_that_was_made_up_is_refused_or_is_one(after: int, since: int) -> None:
    numbers = (1, after, since, since)
    made_up = base64.urlsafe_b64encode(
        pagination._BYTES.pack(*numbers, pagination._digest(numbers, "question", None))
    ).decode()
    try:
        cursor = Cursor.decode(made_up, "question")
    except Refused:
        return
    assert cursor.after == after


def test_arrival_is_the_last_column_of_a_report_that_has_pages(store: Store) -> None:
    with store.reader(EVERYTHING) as reader:
        for view in paged_views(reader):
            if view != EVENTS:
                last = reader.columns(view)[-1]
                assert (last.name, last.type) == ("ingest_seq", "BIGINT")


@pytest.mark.parametrize("limit", ["0", "-1", "100001", "1e3", "ten", "", " 5", "05", "９", "9" * 5000])
def test_a_limit_is_an_integer_within_its_bounds(store: Store, limit: str) -> None:
    told = f"is not an integer from 1 to {LIMIT_MAX:,}."
    with store.reader(EVERYTHING) as reader, pytest.raises(Refused, match=f"^limit: .* {told}"):
        RowsAsked(limit=limit).select(reader, "views")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("vew", 'columns: column "vew" does not exist. Did you mean "view_count"?'),
        ("sesion", 'columns: column "sesion" does not exist. Did you mean "session_count"?'),
        ("view_coun", 'columns: column "view_coun" does not exist. Did you mean "view_count"?'),
        ("surface,zzz", 'columns: column "zzz" does not exist. There are period_start, deployment, '),
        ("surface,surface", 'columns: column "surface" stands twice. Give it once.'),
        ("", 'columns: column "" does not exist.'),
        ("surface,", 'columns: column "" does not exist.'),
        ('surface" from event --', 'column "surface\\" from event --" does not exist.'),
        ("*", 'columns: column "*" does not exist.'),
    ],
)
def test_columns_are_known_and_stand_once(store: Store, columns: str, told: str) -> None:
    with store.reader(EVERYTHING) as reader, pytest.raises(Refused) as refused:
        RowsAsked(columns=columns).select(reader, "views")
    assert told in str(refused.value)
