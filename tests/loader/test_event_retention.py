"""The retention of events on a real server, which is killed meanwhile."""

import json
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.privacy.hashing import SecretFile, hash_text
from tests.support.envelopes import event_or_action, view
from tests.support.servers import offending_rows, running_server, wait_until
from tests.support.stores import make_folder

RETENTION: dict[str, Any] = {"EMBEDSINK_RETENTION_DAYS": "7", "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.2"}
# Runs begin at once, and delete in many steps.
OFTEN = """
import embedsink.loader.event_retention as retention
import embedsink.store.expiry as expiry
import embedsink.store.rewrite as rewrite
retention.RETENTION_INTERVAL_S = 0.3
expiry.EXPIRED_AT_ONCE = 300
rewrite._FREE_BLOCKS_MIN = 1
rewrite.FREE_SHARE_MIN = 0.01
"""
OLD, NEW = "old-person", "new-person"


def deliver(server: Any, key: str, viewer: str, count: int) -> None:
    events = [view({"title": f"{viewer} {number} {'x' * 200}"}) for number in range(count)]
    for start in range(0, count, 500):
        delivery = {
            "context": {"deployment": 1, "viewer": viewer, "session": viewer},
            "events": events[start : start + 500],
        }
        assert server.post(delivery, key=key).status == 202


def make_old(data: Path, *, days: int) -> None:
    """Change the times of all events of a store, while no server runs."""
    with duckdb.connect(str(data / "store.duckdb")) as connection:
        connection.execute("update loaded_segment set loaded_at = loaded_at - to_days($1)", [days])
        connection.execute("update event set occurred_at = occurred_at - to_days($1)", [days])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with 3,000 events of nine days ago, and 10 new ones."""
    data = make_folder(tmp_path / "data").path
    with running_server(data, **RETENTION) as server:
        key = server.key()
        deliver(server, key, OLD, 3_000)
        server.stop()
    make_old(data, days=9)
    with running_server(data, **RETENTION) as server:
        deliver(server, server.key(), NEW, 10)
        server.stop()
    return data


def viewers(server: Any, key: str) -> dict[str, int]:
    response = server.get("/api/v1/events.csv?columns=viewer&limit=10000", key=key)
    if response.status == 503:
        return {}  # The file is being exchanged.
    rows = response.body.decode().split()[1:]
    return {viewer: rows.count(viewer) for viewer in set(rows)}


def contains_old(path: Path) -> bool:
    return OLD.encode() in path.read_bytes()


def test_old_events_are_deleted_and_the_files_shrink(data: Path) -> None:
    size = (data / "store.duckdb").stat().st_size
    with running_server(data, injected=OFTEN, **RETENTION) as server:
        admin = server.key("admin")
        wait_until(lambda: viewers(server, admin) == {NEW: 10}, description="the old events are deleted")
        wait_until(lambda: (data / "store.duckdb").stat().st_size < size, description="the store shrinks")
        wait_until(lambda: b'"events_expired"' in server.log.read_bytes(), description="it is logged")
        assert b'"daily_totals_added"' in server.log.read_bytes()
        response = server.get("/api/v1/reports/views", key=admin)
        assert sum(row["view_count"] for row in json.loads(response.body)) == 3_010
        assert {name.lower() for name in response.headers} >= {"x-daily-totals"}
        deliver(server, server.key(), NEW, 5)
        wait_until(lambda: viewers(server, admin) == {NEW: 15}, description="new events are loaded")
        wait_until(lambda: not contains_old(data / "analytics.duckdb"), description="the snapshot has no old events")
        server.stop()
        assert b'"count": 3000' in server.log.read_bytes()
    assert not contains_old(data / "store.duckdb")


def test_a_run_after_a_restart_finishes_what_a_killed_one_began(data: Path) -> None:
    with duckdb.connect(str(data / "store.duckdb")) as connection:
        # A killed server has deleted the events, but nothing that was derived from them.
        connection.execute("insert into expired_session values ('k1', 'gone', 3)")
    (data / "rebuilt.duckdb").write_bytes(OLD.encode())
    with running_server(data, injected=OFTEN, **RETENTION | {"EMBEDSINK_RETENTION_DAYS": "30"}) as server:
        assert not (data / "rebuilt.duckdb").exists()
        admin = server.key("admin")
        wait_until(lambda: viewers(server, admin) == {OLD: 3_000, NEW: 10}, description="the server reads the store")
        time.sleep(2)
        server.stop()
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        assert connection.execute("select count(*) from expired_session").fetchall() == [(0,)]


def test_a_kill_at_any_moment_deletes_no_new_event(data: Path) -> None:
    for delay_s in (0.0, 0.1, 0.2, 0.35, 0.5, 0.8):
        with running_server(data, injected=OFTEN, checks_store=False, **RETENTION) as server:
            time.sleep(delay_s)
            server.kill()
    with running_server(data, injected=OFTEN, **RETENTION) as server:
        admin = server.key("admin")
        wait_until(lambda: viewers(server, admin) == {NEW: 10}, description="the old events are deleted")
        server.stop()
    assert offending_rows(data) == {}
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        totals = "select sum(accepted_count), sum(deleted_count) from loaded_segment"
        assert connection.execute(totals).fetchall() == [(3_010, 3_000)]
        assert connection.execute("select sum(view_count) from daily_view where tenant is null").fetchall() == [
            (3_000,)
        ]


def test_events_within_the_retention_stay(data: Path) -> None:
    with running_server(data, injected=OFTEN, **(RETENTION | {"EMBEDSINK_RETENTION_DAYS": "10"})) as server:
        admin = server.key("admin")
        wait_until(lambda: viewers(server, admin) == {OLD: 3_000, NEW: 10}, description="all are loaded")
        time.sleep(1.5)
        # The run after the start may exchange the file.
        wait_until(lambda: viewers(server, admin) != {}, description="the store is open")
        assert viewers(server, admin) == {OLD: 3_000, NEW: 10}


def test_questions_and_unknown_fields_are_deleted_while_events_stay(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    question = event_or_action(
        "event:ai-query", {"query": "Which customers left?", "status": "submitted", "mood": "sad"}
    )
    with running_server(data) as server:
        assert server.post(question, key=server.key()).status == 202
        server.stop()
    make_old(data, days=9)
    limits: dict[str, Any] = {"EMBEDSINK_QUESTION_RETENTION_DAYS": "7", "EMBEDSINK_EXTRA_RETENTION_DAYS": "7"}
    with running_server(data, injected=OFTEN, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2", **limits) as server:
        admin = server.key("admin")

        def stored() -> list[Any]:
            response = server.get("/api/v1/events.ndjson?columns=query,extra", key=admin)
            return [json.loads(line) for line in response.body.splitlines()] if response.status == 200 else []

        [secret] = SecretFile(data / "privacy_secrets.json").read()
        remaining = {"query": hash_text("query", "Which customers left?", secret)}
        wait_until(lambda: stored() == [remaining], description="the text and the unknown field are deleted")
        wait_until(lambda: b'"fields_expired"' in server.log.read_bytes(), description="it is logged")
        assert b"events_expired" not in server.log.read_bytes()
