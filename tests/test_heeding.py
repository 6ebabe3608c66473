"""Views heed `ready` events from the very load on that brings an event which needs one."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedsink.journal.segment import inspect
from embedsink.store import database, schema
from embedsink.store import heeding as views
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.heeding import Seen, choose_form, heed_ready, heeds_ready
from embedsink.store.query import SelectQuery
from embedsink.store.reader import EVERYTHING, Reader
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql
from tests.given import segment
from tests.rows import replace_events
from tests.stores import make_folder, open_store
from tests.test_event_in_scope import Event, histories, is_seen, resolved, scopes, seen
from tests.test_loader import load_all, opened

SHOWN = SelectQuery("event_in_scope", ("type", "deployment", "tenant"))
READY = {"type": "ready", "deployment": None, "deploymentId": 7, "embedTenant": "acme"}
WHOLE = {"type": "view", "deployment": 7, "tenant": "acme"}
LACKING = {"type": "view", "deployment": None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    yield store
    store.close()


def load(store: Store, number: int, *events: Mapping[str, Any]) -> None:
    load_together(store, (number, events))


def load_together(store: Store, *segments: tuple[int, Sequence[Mapping[str, Any]]]) -> None:
    store.load(*(inspect(segment(store.path.parent, events, number=number)) for number, events in segments))


def shown(store: Store) -> list[tuple[Any, ...]]:
    with store.reader(EVERYTHING) as reader:
        return shown_to(reader)


def shown_to(reader: Reader) -> list[tuple[Any, ...]]:
    return sorted(row for rows in reader.rows(SHOWN) for row in rows)


def heeds(store: Store) -> bool:
    return heeds_ready(store._loading())


def make_plain(connection: duckdb.DuckDBPyConnection) -> None:
    for sql in read_sql("macros/plain").values():
        connection.execute(sql)


def test_nothing_is_looked_for_until_an_event_lacks_what_a_ready_says(store: Store) -> None:
    load(store, 1, READY, WHOLE)
    assert not heeds(store)
    load(store, 2, WHOLE | {"session": "s2", "tenant": None})
    assert heeds(store)
    with store.reader(EVERYTHING) as reader:
        assert {row[1:] for rows in reader.rows(SHOWN) for row in rows} == {(7, "acme"), (7, None)}


@pytest.mark.parametrize("given", [(READY, LACKING), (LACKING, READY)])
def test_what_lacks_something_is_resolved_by_the_load_that_completes_the_pair(
    store: Store, given: tuple[Mapping[str, Any], ...]
) -> None:
    for number, event in enumerate(given, 1):
        load(store, number, event)
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme")]


def test_who_reads_meanwhile_goes_on_with_what_it_saw(store: Store) -> None:
    load(store, 1, READY, WHOLE)
    with store.reader(EVERYTHING) as reader, reader.consistent():
        before = shown_to(reader)
        load(store, 2, LACKING)
        assert shown_to(reader) == before
        assert shown(store) == [*before, ("view", 7, "acme")]


def test_a_load_that_fails_leaves_the_next_one_to_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Store) -> None:
        raise duckdb.OutOfMemoryException("planted")

    load(store, 1, READY)
    with monkeypatch.context() as failing:
        failing.setattr(Store, "_ledger", fail)
        with pytest.raises(StoreRefused):
            load(store, 2, LACKING)
    assert not heeds(store)
    load(store, 2, LACKING)
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme")]


def test_each_segment_of_a_load_is_looked_at(store: Store) -> None:
    load(store, 1, READY)
    load_together(store, (2, [LACKING]), (3, [WHOLE]))
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme"), ("view", 7, "acme")]


def test_a_ready_that_names_its_deployment_alone_is_known_later_too(store: Store) -> None:
    load(store, 1, READY | {"embedTenant": None})
    load(store, 2, WHOLE | {"tenant": None})
    load(store, 3, LACKING)
    assert {row[1:] for row in shown(store)} == {(7, None)}


def test_a_store_that_is_begun_anew_is_looked_at_anew(store: Store) -> None:
    load(store, 1, READY, LACKING)
    store.close()
    store.path.unlink()
    store.open()
    load(store, 2, READY, LACKING)
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme")]


def test_a_store_that_is_opened_goes_on_as_it_was(store: Store) -> None:
    for number, heeding in ((1, False), (2, True)):
        load(store, number, LACKING if heeding else READY)
        store.close()
        store.open()
        assert heeds(store) is heeding
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme")]


def test_the_first_load_after_a_start_looks_at_its_own_events_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "data")
    segment(folder.journal, [WHOLE], number=1)
    with opened(folder) as loader:
        load_all(loader)
    looked: list[int] = []
    look = views._look

    def note(connection: duckdb.DuckDBPyConnection, first_arrival: int) -> Seen:
        looked.append(first_arrival)
        return look(connection, first_arrival)

    monkeypatch.setattr(views, "_look", note)
    with opened(folder) as loader:
        loader.run_once(is_last=False)
        segment(folder.journal, [WHOLE], number=2)
        loader.run_once(is_last=False)
    assert looked == [0, 2 << 32]


def test_a_rebuild_looks_anew(store: Store) -> None:
    load(store, 1, READY, LACKING)
    make_plain(store._loading())
    assert (None, None) in {row[1:] for row in shown(store)}
    store.derive_anew()
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme")]
    store._loading().execute("delete from event where type = 'view'")
    store.derive_anew()
    assert not heeds(store)
    load(store, 2, LACKING)
    assert heeds(store), "what is loaded then is looked at as before"


def test_a_load_whose_commit_was_not_answered_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
        raise duckdb.IOException("No space left on device")

    load(store, 1, WHOLE)
    with monkeypatch.context() as failing:
        failing.setattr(database, "transaction", losing_the_answer)
        with pytest.raises(StoreRefused):
            load(store, 2, READY)
    load(store, 3, LACKING)
    assert shown(store) == [("ready", 7, "acme"), ("view", 7, "acme"), ("view", 7, "acme")]


def test_views_that_are_made_anew_look_anew(store: Store) -> None:
    load(store, 1, READY, LACKING)
    for is_lacking in (True, False):
        store._loading().execute("comment on table migration is 'of other files'")
        store.close()
        store.open()
        assert heeds(store) is is_lacking
        store._loading().execute("delete from event where type = 'view'")


def test_another_plain_form_makes_all_views_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(folder: str, pattern: str = "*.sql") -> dict[str, str]:
        return {
            name: sql + "\n" if folder == "macros/plain" else sql for name, sql in read_sql(folder, pattern).items()
        }

    before = schema._digest()
    monkeypatch.setattr(schema, "read_sql", changed)
    assert schema._digest() != before


@settings(max_examples=100, deadline=None)
@given(
    history=histories,
    scope=scopes,
    size=st.integers(1, 12),
    late=st.booleans(),
    forgets=st.sets(st.integers(0, 12)),
)
def test_the_plain_form_stays_only_where_it_shows_what_the_oracle_sees(
    connection: duckdb.DuckDBPyConnection,
    history: list[Event],
    scope: dict[str, Any],
    size: int,
    late: bool,
    forgets: set[int],
) -> None:
    replace_events(connection, [])
    make_plain(connection)
    # A segment for each, loaded in parts, and some of them behind those that come after them.
    numbered = [event | {"arrival": (1 + place) << 32} for place, event in enumerate(history)]
    parts = [numbered[first : first + size] for first in range(0, len(numbered), size)]
    loaded: list[Event] = []
    seen_before: Seen | None = None
    for place, part in enumerate(reversed(parts) if late else parts):
        loaded += part
        replace_events(connection, loaded)
        seen_before = heed_ready(
            connection,
            None if place in forgets else seen_before,
            loaded_from=min(event["arrival"] for event in part) >> 32,
        )
        expected = [event for event in resolved(loaded) if is_seen(event, scope)]
        assert seen(connection, loaded, scope) == sorted((e["arrival"], e["deployment"], e["tenant"]) for e in expected)


@settings(max_examples=50, deadline=None)
@given(history=histories.map(lambda rows: [row for row in rows if row["type"] != "ready"]), place=st.integers(0, 12))
def test_it_stays_where_nothing_can_be_supplied(
    connection: duckdb.DuckDBPyConnection, history: list[Event], place: int
) -> None:
    homeless: Event = {"type": "view", "key_id": "k1", "session": None, "deployment": None, "tenant": None}
    silent: Event = {"type": "ready", "key_id": "k1", "session": "s1", "deployment": None, "tenant": None}
    around = {"surface": "app", "occurred_at": None, "arrival": 99}
    replace_events(connection, [*history[:place], homeless | around, silent | around])
    choose_form(connection)
    assert not heeds_ready(connection)
    assert not heed_ready(connection, None, loaded_from=0).is_needed
    assert not heeds_ready(connection)
