"""`session_ready` has the values of the `ready` events, for any order of arrival."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.sql_files import read_sql
from tests.sql.test_scope import Event, histories, is_in_scope, resolved, rows_in_scope, scopes
from tests.support.given import write_segment
from tests.support.rows import replace_events, replace_rows
from tests.support.stores import make_older, open_store

COLUMNS = SelectQuery("event_in_scope", ("type", "deployment", "tenant"))
READY = {"type": "ready", "deployment": None, "deploymentId": 7, "embedTenant": "acme"}
WHOLE = {"type": "view", "deployment": 7, "tenant": "acme"}
LACKING = {"type": "view", "deployment": None}
RESOLVED = [("ready", 7, "acme"), ("view", 7, "acme")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    yield store
    store.close()


def load(store: Store, number: int, *events: Mapping[str, Any]) -> None:
    store.load(inspect(write_segment(store.path.parent, events, number=number)))


def events(store: Store) -> list[tuple[Any, ...]]:
    with store.reader(EVERYTHING.variables()) as reader:
        return sorted(row for rows in reader.rows(COLUMNS) for row in rows)


def session_count(store: Store) -> int:
    return len(store._load_connection().execute("from session_ready").fetchall())


def test_the_table_is_empty_until_an_event_lacks_a_value_of_its_ready(store: Store) -> None:
    load(store, 1, READY, WHOLE)
    assert session_count(store) == 0
    load(store, 2, WHOLE | {"session": "s2", "tenant": None})
    assert session_count(store) == 1


@pytest.mark.parametrize("history", [(READY, LACKING), (LACKING, READY)])
def test_ready_and_event_may_be_loaded_in_any_order(store: Store, history: tuple[Mapping[str, Any], ...]) -> None:
    for number, event in enumerate(history, 1):
        load(store, number, event)
    assert events(store) == RESOLVED


def test_a_rebuild_fills_the_table_again(store: Store) -> None:
    load(store, 1, READY, LACKING)
    store._load_connection().execute("update session_ready set deployment_min = 1")
    store.reset_derived_tables()
    assert events(store) == RESOLVED


def test_an_older_store_gets_the_table_when_it_is_opened(store: Store) -> None:
    load(store, 1, READY, LACKING)
    make_older(store, before="0009")
    store.open()
    assert events(store) == RESOLVED
    assert store._load_connection().execute(read_sql("checks")["session_ready_matches_events"]).fetchall() == []
    load(store, 2, READY | {"deploymentId": 8})
    assert events(store) == [("ready", 7, "acme"), ("ready", 8, "acme"), ("view", None, "acme")]


@given(history=histories, scope=scopes, size=st.integers(1, 12), is_late=st.booleans())
def test_loads_of_any_size_and_order_agree_with_the_oracle(
    connection: duckdb.DuckDBPyConnection, history: list[Event], scope: dict[str, Any], size: int, is_late: bool
) -> None:
    replace_events(connection, [])
    numbered = [event | {"ingest_seq": (1 + number) << 32} for number, event in enumerate(history)]
    parts = [numbered[first : first + size] for first in range(0, len(numbered), size)]
    loaded: list[Event] = []
    for part in reversed(parts) if is_late else parts:
        loaded += part
        replace_rows(connection, "event", loaded)
        numbers = [event["ingest_seq"] for event in part]
        connection.execute("set variable loaded_from = $1", [min(numbers)])
        connection.execute("set variable loaded_until = $1", [max(numbers) + 1])
        connection.execute(read_sql("load")["session_ready"])
        expected = [event for event in resolved(loaded) if is_in_scope(event, scope)]
        assert rows_in_scope(connection, scope) == sorted(
            (e["ingest_seq"], e["deployment"], e["tenant"]) for e in expected
        )
        assert connection.execute(read_sql("checks")["session_ready_matches_events"]).fetchall() == []
