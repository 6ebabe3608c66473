"""The store: its schema, its memory, and its readers while it loads, breaks or closes."""

import contextlib
import json
import re
import resource
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import duckdb
import pytest

from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.ingest.records import delivery_lines
from embedsink.key_scope import EVERYTHING
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.store import database, limits, open_readers, schema
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreRefused, StoreTooSmall, unavailable_if_broken
from embedsink.store.limits import StoreLimits
from embedsink.store.query import SelectQuery
from embedsink.store.reader import ROLLUP_VARIABLES, VARIABLES
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql, read_views
from embedsink.store.view_catalog import View, read_catalog
from tests.support.envelopes import ID, RECEIVED_AT, event_or_action, view
from tests.support.loaded_store import LoadedStore, ledger
from tests.support.redaction import storable
from tests.support.stores import make_older, open_copy, open_store


@pytest.mark.parametrize("page", [{"is_by_ingest_seq": True}, {"is_page": True, "limit": 1_000}])
def test_rows_are_stored_in_the_order_of_arrival(loaded_store: LoadedStore, page: dict[str, Any]) -> None:
    loaded_store.store._load_connection().execute(
        "insert into event by name select uuid() as event_id, (1::bigint << 32) + i as ingest_seq, "
        "timestamp '2026-11-20' as occurred_at, occurred_at as received_at, 'k' as key_id, 12 as deployment, i as seq, "
        "'view' as type, 'dashboard' as surface from range(300_000, 0, -1) t(i)"
    )
    with loaded_store.store.reader({**EVERYTHING.variables(), "deployments": [12], "hides_ingest_seq": True}) as reader:
        selection = SelectQuery("event_in_scope", columns=("ingest_seq", "seq"), **page)
        if selection.is_page:
            reader.page(selection)
        order = [row[1] for rows in reader.rows(selection) for row in rows]
    assert order == list(range(1, page.get("limit", 300_000) + 1))
    loaded_store.store._load_connection().execute("delete from event")  # These rows have no ledger and no payload.


def test_a_store_with_a_newer_schema_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    with contextlib.closing(duckdb.connect(str(path))) as newer:
        newer.execute("create table migration (name varchar, applied_at timestamp)")
        newer.execute("insert into migration values ('9999_later', now()::timestamp)")
    before = path.read_bytes()

    with pytest.raises(Misconfigured, match="9999_later, which is newer than this version of embedsink"):
        Store(path).open()

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.duckdb"
    store = open_store(path)
    store.close()
    with contextlib.closing(duckdb.connect(str(path))) as connection:
        tables = connection.execute("select table_name from duckdb_tables() order by all").fetchall()

    def with_a_faulty_one(folder: str) -> dict[str, str]:
        faulty = {"9998_faulty": "create table half (n int); select error('killed here')"}
        return read_sql(folder) | (faulty if folder == "migrations" else {})

    with monkeypatch.context() as patch:
        patch.setattr(schema, "read_sql", with_a_faulty_one)
        # The file is intact, so it must not be moved to damaged/.
        with pytest.raises(Misconfigured, match=r"killed here\)\. Nothing was changed"):
            Store(path).open()

    with contextlib.closing(duckdb.connect(str(path), read_only=True)) as connection:
        assert connection.execute("select table_name from duckdb_tables() order by all").fetchall() == tables
        assert ("9998_faulty",) not in connection.execute("select name from migration").fetchall()


@pytest.mark.slow
def test_views_are_created_again_only_if_their_files_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    create = schema.create_views

    def recorded(connection: duckdb.DuckDBPyConnection) -> None:
        made.append("made")
        create(connection)

    def changed() -> dict[str, str]:
        return read_views() | {"answer": "create view answer as select 42 as number"}

    def interrupted(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("drop view views")
        raise duckdb.IOException("the disk has failed")

    def views() -> set[str]:
        store = Store(tmp_path / "store.duckdb")
        store.open()
        with store.reader(EVERYTHING.variables()) as reader:
            known = {view for view in ("views", "answer") if reader.columns(view)}
        store.close()
        return known

    monkeypatch.setattr(schema, "create_views", recorded)
    assert [views(), views()] == [{"views"}] * 2
    assert len(made) == 1
    with monkeypatch.context() as patch:
        patch.setattr(schema, "read_views", changed)
        assert [views(), views()] == [{"views", "answer"}] * 2
        assert len(made) == 2
        patch.setattr(schema, "create_views", interrupted)
        assert views() == {"views", "answer"}, "no view is created again"
        patch.setattr(schema, "read_views", read_views)
        with pytest.raises(EmbedsinkError):
            views()
    assert [views(), views()] == [{"views"}] * 2
    assert len(made) == 3


def test_the_revision_changes_with_every_load_and_never_repeats(loaded_store: LoadedStore) -> None:
    revisions = [loaded_store.store.revisions.of(None)]
    loaded_store.bodies(view())
    revisions.append(loaded_store.store.revisions.of(None))
    loaded_store.store.checkpoint()
    assert loaded_store.store.revisions.of(None) == revisions[-1]
    with pytest.raises(SqlFailed):
        loaded_store.lines(b'{"kind":"event","received_at":"never"}\n')
    assert loaded_store.store.revisions.of(None) == revisions[-1]
    loaded_store.store.close()
    loaded_store.store.open()
    revisions.append(loaded_store.store.revisions.of(None))
    assert len(set(revisions)) == len(revisions)


def test_the_file_is_attached_again_after_many_loads_when_no_reader_is_open(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attached_at() -> object:
        return loaded_store.query("select database_oid from duckdb_databases() where database_name = 'store'")

    loaded_store.bodies(view(id=None))
    first, revision = attached_at(), loaded_store.store.revisions.of(None)
    loaded_store.store.checkpoint()
    assert attached_at() == first, "the file was attached again"
    monkeypatch.setattr(database, "_REATTACH_BYTES", 1)
    with loaded_store.store.reader(EVERYTHING.variables()) as reader:
        loaded_store.store.checkpoint()
        assert attached_at() == first
        assert len(reader._fetch_all("select * from event")) == 1
    loaded_store.store.checkpoint()
    assert attached_at() != first
    assert (loaded_store.store.is_open, loaded_store.store.revisions.of(None)) == (True, revision)
    loaded_store.bodies(view(id=None))
    assert loaded_store.query("select count(*) from event") == [(2,)]
    with loaded_store.store.reader(EVERYTHING.variables()) as reader:
        assert len(reader._fetch_all("select * from event")) == 2


def test_a_store_that_cannot_be_attached_again_is_reopened_with_all_rows(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise duckdb.IOException("No space left on device")

    loaded_store.bodies(view(id=None))
    with monkeypatch.context() as patch:
        patch.setattr(database, "_REATTACH_BYTES", 1)
        patch.setattr(database, "attach", refuse)
        with pytest.raises(StoreBroken):
            loaded_store.store.checkpoint()
    loaded_store.store.close()
    loaded_store.store.open()
    assert loaded_store.query("select count(*) from event") == [(1,)]


@pytest.mark.parametrize("instead", [None, b"another file"])
def test_a_store_that_was_moved_is_never_replaced_by_an_empty_one(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch, instead: bytes | None
) -> None:
    loaded_store.bodies(view(id=None))
    loaded_store.store.checkpoint()
    damaged = loaded_store.store.path.rename(loaded_store.store.path.with_suffix(".moved"))
    if instead:
        loaded_store.store.path.write_bytes(instead)
    monkeypatch.setattr(database, "_REATTACH_BYTES", 1)
    with pytest.raises(StoreBroken, match=r"store\.duckdb: was moved or replaced while it was open"):
        loaded_store.store.checkpoint()
    assert (loaded_store.store.path.read_bytes() if instead else loaded_store.store.path.exists()) == (instead or False)
    loaded_store.store.close()
    damaged.replace(loaded_store.store.path)
    loaded_store.store.open()
    assert loaded_store.query("select count(*) from event") == [(1,)]


def test_a_query_of_few_columns_does_not_limit_the_next_query(loaded_store: LoadedStore) -> None:
    envelope = view({"publicId": "d1"}, id=None, timestamp=RECEIVED_AT)
    failed = event_or_action("event:error", id=None, surface="dashboard", timestamp=RECEIVED_AT + 1)
    loaded_store.bodies({"context": {"deployment": 1, "session": "s1"}, "events": [envelope, failed]})
    with open_copy(loaded_store.store, {**EVERYTHING.variables(), "since": datetime(2020, 1, 1)}) as reader:
        assert len([row for rows in reader.rows(SelectQuery("dashboards", ("public_id",))) for row in rows]) == 1
        assert reader.first_row("select error_count from dashboards") == ({"error_count": 1}, 1)


@pytest.mark.slow
def test_segments_of_the_usual_size_fit_into_the_usual_memory(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT)
    line = delivery_lines(storable(parsed), key_id="key_1", new_id=uuid4)
    line = line.replace(b'"title":"', b'"title":"' + b"x" * (450 - len(line)), 1)
    tries = []

    def load_counted(*arguments: Any) -> Any:
        tries.append(1)
        return load(*arguments)

    load = loaded_store.store._load
    monkeypatch.setattr(loaded_store.store, "_load", load_counted)
    for _ in range(6):
        loaded_store.lines(b"".join(line.replace(ID.encode(), str(uuid4()).encode()) for _ in range(18_000)))
        loaded_store.store.checkpoint_when_due()
    assert len(tries) == 6


def test_the_second_thread_exists_only_while_a_reader_is_open(loaded_store: LoadedStore) -> None:
    def thread_count() -> object:
        return loaded_store.query("select current_setting('threads')")[0][0]

    assert thread_count() == 1
    with loaded_store.store.reader(EVERYTHING.variables()):
        with loaded_store.store.reader(EVERYTHING.variables()):
            assert thread_count() == 2
        assert thread_count() == 2
    assert thread_count() == 1


def test_a_brief_query_starts_no_second_thread(loaded_store: LoadedStore) -> None:
    with loaded_store.store.reader(EVERYTHING.variables(), is_short=True):
        assert loaded_store.query("select current_setting('threads')") == [(1,)]
        with loaded_store.store.reader(EVERYTHING.variables()):
            assert loaded_store.query("select current_setting('threads')") == [(2,)]
        assert loaded_store.query("select current_setting('threads')") == [(1,)]


def test_a_store_with_texts_in_its_rollups_is_rolled_up_again(tmp_path: Path) -> None:
    limits = StoreLimits(rollup_from_count=1)
    loaded_store = LoadedStore(tmp_path, limits)
    loaded_store.bodies(view(id=ID))
    loaded_store.store.roll_up()
    make_older(loaded_store.store, before="0005")

    loaded_store.store.open()
    assert loaded_store.query("select count(*) from session_15min union all select count(*) from rollup_batch") == [
        (0,),
        (0,),
    ]
    assert loaded_store.store.roll_up()
    assert loaded_store.query("select sum(view_count)::bigint from session_15min") == [(1,)]
    assert loaded_store.failed_checks() == {}


@pytest.mark.parametrize("failures", [["No space left on device"], ["Out of Memory Error", "No space left on device"]])
def test_a_load_that_was_refused_after_its_commit_changes_the_revision(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    @contextlib.contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
            if len(failures) > 1:
                raise duckdb.IOException(failures.pop(0))
        raise duckdb.IOException(failures.pop())

    before = loaded_store.store.revisions.of(None)
    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", losing_the_answer)
        with pytest.raises(StoreRefused):
            loaded_store.bodies(view(id=ID))
    assert loaded_store.query("select count(*) from event") == [(1,)]
    assert loaded_store.store.revisions.of(None) != before


def test_readers_of_a_store_that_breaks_get_a_retryable_error(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    reader = loaded_store.store.reader(EVERYTHING.variables())
    with files_that_can_not_grow(loaded_store.store.path.stat().st_size), pytest.raises(EmbedsinkError):
        loaded_store.store.checkpoint()

    with pytest.raises(StoreBroken):
        loaded_store.store.ledger.loaded_segment_sizes()
    for ask in (
        lambda: reader.columns("views"),
        lambda: reader.comment("views"),
        lambda: list(reader.rows("views")),
        lambda: loaded_store.store.reader(EVERYTHING.variables()),
    ):
        with pytest.raises(Unavailable, match="store: "):
            ask()
    reader.close()
    loaded_store.store.close()


def test_a_store_that_breaks_during_a_report_closes_without_ending_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DuckDB 1.5 aborts the process when a connection with a transaction is closed. Pytest would
    # then end without a report.
    monkeypatch.setattr(database, "_CLOSE_TIMEOUT_S", 0.1)
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    with loaded_store.store.reader(EVERYTHING.variables()) as reader, reader.consistent():
        list(reader.rows("views"))
        with files_that_can_not_grow(loaded_store.store.path.stat().st_size), pytest.raises(StoreBroken):
            loaded_store.store.checkpoint()
        with pytest.raises(StoreRefused, match="is still being read"):
            loaded_store.store.close()
    loaded_store.store.open()
    # Closing a reader ends its transaction.
    reader = loaded_store.store.reader(EVERYTHING.variables())
    reader._execute("begin transaction")
    loaded_store.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    list(reader.rows("views"))
    with files_that_can_not_grow(loaded_store.store.path.stat().st_size), pytest.raises(StoreBroken):
        loaded_store.store.checkpoint()
    reader.close()
    loaded_store.store.close()


@contextlib.contextmanager
def files_that_can_not_grow(byte_count: int) -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_store_closes_when_its_last_reader_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_CLOSE_TIMEOUT_S", 0.1)
    loaded_store = LoadedStore(tmp_path)
    reader = loaded_store.store.reader(EVERYTHING.variables())
    # The store is not opened again while a reader is open.
    for act in (loaded_store.store.close, loaded_store.store.open):
        with pytest.raises(StoreRefused, match="is still being read"):
            act()
        with pytest.raises(Unavailable, match="is being opened"):
            loaded_store.store.reader(EVERYTHING.variables())
    reader.close()
    with pytest.raises(Unavailable, match="store: "):
        reader.columns("views")
    loaded_store.store.open()
    loaded_store.store.reader(EVERYTHING.variables()).close()
    loaded_store.store.close()


def test_rows_interrupted_by_closing_raise_a_retryable_error(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    closing = threading.Timer(0.1, loaded_store.store.close)
    with loaded_store.store.reader(EVERYTHING.variables()) as reader:
        closing.start()
        with pytest.raises(Unavailable, match="store: "):
            reader._fetch_all("select range from range(1_000_000_000)")
    closing.join()
    assert not loaded_store.store.is_open


def test_the_catalog_is_queried_once_for_all_readers_of_an_opened_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_store = LoadedStore(tmp_path)
    catalogs: list[dict[str, View]] = []

    def read_and_count(connection: duckdb.DuckDBPyConnection) -> dict[str, View]:
        catalogs.append(read_catalog(connection))
        return catalogs[-1]

    monkeypatch.setattr("embedsink.store.reader.read_catalog", read_and_count)
    for count in (1, 2):
        for name in ("views", "downloads", "none"):
            with loaded_store.store.reader(EVERYTHING.variables()) as reader:
                assert bool(reader.columns(name)) == bool(reader.comment(name)) == (name != "none")
        assert len(catalogs) == count
        loaded_store.store.close()
        loaded_store.store.open()


def test_an_operation_that_cannot_raise_the_memory_limit_is_refused_and_not_counted(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def memory_limit() -> object:
        return loaded_store.query("select current_setting('memory_limit')")[0][0]

    def refuse(*_: object) -> None:
        raise duckdb.IOException("IO Error: No space left on device")

    loaded_store.bodies(view())
    usual = memory_limit()
    with monkeypatch.context() as patch:
        patch.setattr(limits.RaisableSetting, "_apply", refuse)
        for act in (loaded_store.store.checkpoint, lambda: loaded_store.store.salvage([], journal_numbers=[])):
            with pytest.raises(StoreRefused):
                act()
    loaded_store.store.checkpoint()
    assert memory_limit() == usual


def test_the_memory_limit_is_half_the_report_memory_and_is_lowered_again(tmp_path: Path) -> None:
    store = Store(
        tmp_path / "store.duckdb", StoreLimits(memory_bytes=100 * 1_048_576, memory_bytes_max=500 * 1_048_576)
    )
    store.open()
    setting = "select current_setting('memory_limit') as setting"
    with store.reader(EVERYTHING.variables()) as reader:
        assert reader._fetch_all(setting) == [("250.0 MiB",)]
    assert store._load_connection().execute(setting).fetchone() == ("124.0 MiB",)
    store.close()


def test_a_report_has_at_least_the_usual_memory(tmp_path: Path) -> None:
    store = open_store(
        tmp_path / "store.duckdb", StoreLimits(memory_bytes=100 * 1_048_576, memory_bytes_max=64 * 1_048_576)
    )
    with store.reader(EVERYTHING.variables()) as reader:
        assert reader._fetch_all("select current_setting('memory_limit')") == [("124.0 MiB",)]
    store.close()


@pytest.mark.parametrize("misspelt", ["tennant", "Tenant", "deployment"])
def test_a_variable_that_no_view_reads_is_refused(loaded_store: LoadedStore, misspelt: str) -> None:
    with pytest.raises(ValueError, match=misspelt):
        loaded_store.store.reader({**EVERYTHING.variables(), misspelt: "acme"})
    with loaded_store.store.reader(EVERYTHING.variables()) as reader, pytest.raises(ValueError, match=misspelt):
        reader.set_variables(**{misspelt: "acme"})


def test_every_variable_that_a_view_reads_is_set_for_each_reader() -> None:
    sql = " ".join([*read_views().values(), *read_sql("audit").values()])
    assert set(re.findall(r"getvariable\('(\w+)'\)", sql)) == {*VARIABLES, *ROLLUP_VARIABLES}


@contextlib.contextmanager
def reading(store: Store, ended: list[object]) -> Iterator[None]:
    """Run a reader in a thread until it is interrupted. Append its exception to `ended`."""
    is_reading = threading.Event()

    def read() -> None:
        with store.reader(EVERYTHING.variables()) as reader:
            is_reading.set()
            try:
                reader._fetch_all("select count(*) from range(100_000_000_000) a where hash(a.range) = 1")
            except Unavailable as error:
                ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert is_reading.wait(5)
    try:
        yield
    finally:
        store.close()
        thread.join()


def test_a_load_without_memory_ends_the_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_readers, "_GRACE_S", 0.1)
    loaded_store = LoadedStore(tmp_path)
    load, ended = loaded_store.store._load, list[object]()

    def load_where_nobody_reads(*arguments: Any) -> Any:
        if not ended:
            raise StoreTooSmall("Out of Memory")
        return load(*arguments)

    monkeypatch.setattr(loaded_store.store, "_load", load_where_nobody_reads)
    with reading(loaded_store.store, ended):
        assert loaded_store.bodies(view()) == ledger(1, accepted=1)
        assert len(ended) == 1
        # Later readers are not affected.
        loaded_store.store.reader(EVERYTHING.variables()).close()


@pytest.mark.parametrize("is_short", [False, True])
def test_a_checkpoint_of_wide_rows_ends_readers_if_memory_is_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    monkeypatch.setattr(open_readers, "_GRACE_S", 0.1)
    monkeypatch.setattr(limits.RaisableSetting, "accepts", lambda *_: not is_short)
    loaded_store, ended = LoadedStore(tmp_path), list[object]()
    loaded_store.bodies(view({"title": "x" * 60_000}))
    with reading(loaded_store.store, ended):
        loaded_store.store.checkpoint()
        assert len(ended) == is_short
        loaded_store.store.reader(EVERYTHING.variables()).close()


def test_readers_wait_for_a_checkpoint_of_wide_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_MEMORY_WAIT_S_MAX", 0.1)
    loaded_store = LoadedStore(tmp_path)
    with loaded_store.store._readers.paused(), pytest.raises(Unavailable, match="has paused new readers"):
        loaded_store.store.reader(EVERYTHING.variables())
    loaded_store.store.reader(EVERYTHING.variables()).close()
    loaded_store.store.close()


class ConnectionWithoutMemory:
    """A connection whose first rollbacks lack memory."""

    def __init__(self, failure_count: int) -> None:
        self.failure_count = failure_count

    def execute(self, sql: str) -> None:
        self.failure_count -= 1
        if self.failure_count >= 0:
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 4.0 KiB")


def test_a_rollback_waits_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = ConnectionWithoutMemory(3)
    schema.roll_back(cast("duckdb.DuckDBPyConnection", connection))
    assert connection.failure_count == -1
    monkeypatch.setattr(schema, "_ROLL_BACK_S_MAX", 0.05)
    with pytest.raises(StoreBroken, match="failed to allocate"):
        schema.roll_back(cast("duckdb.DuckDBPyConnection", ConnectionWithoutMemory(1_000)))


def test_a_reader_waits_while_a_load_uses_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "store.duckdb")
    set_, refusals = limits.RaisableSetting._apply, iter([True] * 6)

    def set_where_there_is_room(raised: Any, connection: duckdb.DuckDBPyConnection) -> None:
        if next(refusals, False):
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 2.0 KiB")
        set_(raised, connection)

    with contextlib.closing(store):
        monkeypatch.setattr(limits.RaisableSetting, "_apply", set_where_there_is_room)
        with store.reader(EVERYTHING.variables()) as reader:
            assert list(reader.rows("views")) == []
        monkeypatch.setattr(database, "_MEMORY_WAIT_S_MAX", 0.1)
        refusals = iter([True] * 1_000)
        with pytest.raises(Unavailable, match="failed to allocate"):
            store.reader(EVERYTHING.variables())


def test_a_store_that_is_up_to_date_is_opened_without_writing_to_it(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies(view(id=ID))
    loaded_store.store.checkpoint()
    loaded_store.store.close()
    before = loaded_store.store.path.stat().st_mtime_ns, loaded_store.store.path.read_bytes()
    loaded_store.store.open()
    with loaded_store.store.reader(EVERYTHING.variables()) as reader:
        assert len(list(reader.rows("event"))) == 1
    assert (loaded_store.store.path.stat().st_mtime_ns, loaded_store.store.path.read_bytes()) == before
    loaded_store.store.close()


@pytest.mark.parametrize(
    "error",
    [
        duckdb.OutOfMemoryException("Out of Memory Error: failed to offload data block of size 256.0 KiB"),
        duckdb.IOException("IO Error: Could not write file: No space left on device"),
    ],
    ids=["spill", "write"],
)
def test_a_report_without_disk_space_is_refused_with_that_reason(error: duckdb.Error) -> None:
    refused = pytest.raises(Unavailable, match="disk: has no space to spill this query to")
    with refused as refusal, unavailable_if_broken():
        raise error
    assert refusal.value.reason is Reason.STORAGE_LOW
