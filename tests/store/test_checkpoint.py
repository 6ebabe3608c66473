"""Checkpoints beside open readers: neither waits for the other, except after the deletion of fields."""

import re
import threading
import time
from collections.abc import Callable
from datetime import datetime

import pytest

from embedsink.errors import Unavailable
from embedsink.ingest.records import rejection_count_lines, replay_line
from embedsink.key_scope import EVERYTHING
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.store import checkpoints
from embedsink.store.erasure import delete_person
from embedsink.store.open_readers import OpenReaders
from embedsink.store.purge import PurgeFilter
from embedsink.store.schema import transaction
from embedsink.store.sql_files import sql_folder
from tests.support.envelopes import RECEIVED_AT, event_or_action, view
from tests.support.loaded_store import LoadedStore

LATER = datetime(2100, 1, 1)
CONTEXT = {"session": "s1", "viewer": "ann"}
SECOND_SQL = "select sum(sin(range)) from range(30_000_000)"  # It takes about a second.
# It takes minutes.
SLOW_SQL = "select sum(sin(a.range * b.range)) from range(1_000_000) a, range(1_000_000) b"


def ready(deployment: int) -> dict[str, object]:
    payload = {"deploymentId": deployment, "embedTenant": "acme", "mode": "signed"}
    return {"context": CONTEXT, "events": [event_or_action("event:ready", payload), view(), 5]}


def load_ready(loaded: LoadedStore, deployment: int) -> None:
    loaded.bodies(ready(deployment))


def count_rejection(loaded: LoadedStore) -> None:
    loaded.lines(rejection_count_lines({"empty": 2}, received_at=RECEIVED_AT, key_id="k_1", deployment=7))


def replay(loaded: LoadedStore) -> None:
    [(quarantine_id,)] = loaded.query("select quarantine_id from quarantine order by all limit 1")
    line = replay_line(str(quarantine_id), received_at=RECEIVED_AT)
    loaded.lines(line, line)
    assert loaded.query("select count(*), count(replayed_at) from quarantine") == [(2, 1)]


def expire_next(loaded: LoadedStore, *, segment_number: int) -> None:
    limit = loaded.store.retention_limit(LATER, {})
    assert loaded.store.expire(limit, below=(segment_number + 1) << 32).row_count == 2


def erase(loaded: LoadedStore) -> None:
    variables = Person("ann").variables(Privacy(secrets=[bytes(32)]))
    connection = loaded.store._load_connection()
    with transaction(connection):
        assert delete_person(connection, variables).event_count > 0


def expire_fields(loaded: LoadedStore) -> None:
    assert loaded.store.expire_fields(question_before=None, extra_before=LATER, hash_question=str) == 1


def test_no_change_but_the_deletion_of_fields_waits_for_readers(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_EARLIER_READERS_S_MAX", 0.1)
    monkeypatch.setattr(OpenReaders, "end", lambda self, **limits: pytest.fail("a checkpoint ended readers"))
    changes: dict[str, Callable[[LoadedStore], object]] = {
        "load": lambda loaded: load_ready(loaded, 12),
        "load a known session": lambda loaded: load_ready(loaded, 13),
        "count a rejection": count_rejection,
        "add to a count": count_rejection,
        "replay": replay,
        "purge": lambda loaded: loaded.store.purge(PurgeFilter()),
        "roll up": lambda loaded: loaded.store.roll_up(),
        "expire": lambda loaded: expire_next(loaded, segment_number=1),
        "expire a known session": lambda loaded: expire_next(loaded, segment_number=2),
        "load again": lambda loaded: load_ready(loaded, 14),
        "erase": erase,
    }
    for name, change in changes.items():
        with loaded_store.store.reader(EVERYTHING.variables()) as reader, reader.consistent():
            before = reader.dicts("rejections")
            change(loaded_store)
            loaded_store.store.checkpoint()
            assert reader.dicts("rejections") == before, name
    assert loaded_store.query("select count(*) from event") == [(0,)]


def test_a_checkpoint_after_a_deletion_of_fields_waits_for_earlier_readers(loaded_store: LoadedStore) -> None:
    loaded_store.bodies(view({"unknown": 1}))

    def read() -> None:
        with loaded_store.store.reader(EVERYTHING.variables()) as reader, reader.consistent():
            reader.dicts("views")
            is_reading.set()
            is_changed.wait()
            time.sleep(0.3)
            has_ended.set()

    is_reading, is_changed, has_ended = threading.Event(), threading.Event(), threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    is_reading.wait()
    expire_fields(loaded_store)
    is_changed.set()
    loaded_store.store.checkpoint()
    assert has_ended.is_set(), "the checkpoint did not wait"
    thread.join()


def test_a_checkpoint_interrupts_a_slow_earlier_reader_only(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_EARLIER_READERS_S_MAX", 0.3)
    loaded_store.bodies(view({"unknown": 1}))
    loaded_store.store._checkpoints.has_wide_rows = True
    errors: list[Unavailable] = []

    def read() -> None:
        with loaded_store.store.reader(EVERYTHING.variables()) as reader, reader.consistent():
            reader.dicts("views")
            is_reading.set()
            with pytest.raises(Unavailable) as caught:
                reader._fetch_all(SLOW_SQL)
            errors.append(caught.value)

    is_reading = threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    is_reading.wait()
    expire_fields(loaded_store)
    checkpoint = threading.Thread(target=loaded_store.store.checkpoint)
    checkpoint.start()
    time.sleep(0.1)
    with loaded_store.store.reader(EVERYTHING.variables()) as later:
        assert checkpoint.is_alive(), "later readers wait for the checkpoint"
        later._fetch_all(SECOND_SQL)
    checkpoint.join()
    thread.join()
    assert str(errors[0]) == "store: the report was ended by the maintenance of the store. Retry."
    assert loaded_store.store.unwritten_bytes == 0


def test_no_other_sql_updates_rows() -> None:
    updating = re.compile(r"^\s*update\b|\bdo update\b|\bwhen matched\b", re.MULTILINE | re.IGNORECASE)
    files = (path for path in sql_folder().rglob("*.sql") if updating.search(path.read_text(encoding="utf-8")))
    assert {f"{path.parent.name}/{path.name}" for path in files} == {
        "retention/5_clear_extra.sql",
        "retention/7_hash_questions.sql",
    }
