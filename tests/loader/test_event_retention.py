"""The retention of events on a real server, which is killed meanwhile."""

import json
import shutil
import subprocess
import sys
import time
from datetime import date, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import duckdb
import pytest

import embedsink
from embedsink.client.notebook import Client
from embedsink.privacy.hashing import SecretFile, hash_text
from tests.support.envelopes import event_or_action, view
from tests.support.kills import is_killed, kill_at
from tests.support.servers import offending_rows, running_server, wait_until
from tests.support.stores import make_folder

RETENTION: dict[str, Any] = {"EMBEDSINK_RETENTION_DAYS": "7", "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.2"}
# Runs begin at once, and delete in many steps.
OFTEN = """
import embedsink.retention_schedule as schedule
import embedsink.store.expiry as expiry
import embedsink.store.rewrite as rewrite
schedule.INTERVAL_S = 0.3
expiry.EXPIRED_AT_ONCE = 300
rewrite._FREE_BLOCKS_MIN = 1
rewrite.FREE_SHARE_MIN = 0.01
"""
RETENTION_STEPS = (
    "database.add_daily_totals",
    "database.expire_events",
    "database.finish_expiry",
    "database.write_copy",
)
OLD, NEW = "old-person", "new-person"


def deliver(server: Any, key: str, viewer: str, count: int) -> None:
    # Totals of days more than a year ago name no deployments.
    now = time.time_ns() // 1_000_000
    events = [view({"title": f"{viewer} {number} {'x' * 200}"}, timestamp=now) for number in range(count)]
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
        connection.execute("update event set occurred_at = received_at - to_days($1)", [days])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with 3,000 events of nine days ago, and 10 new ones."""
    data = make_folder(tmp_path_factory.mktemp("stored") / "data").path
    with running_server(data, **RETENTION) as server:
        key = server.key()
        deliver(server, key, OLD, 3_000)
        server.stop()
    make_old(data, days=9)
    with running_server(data, **RETENTION) as server:
        deliver(server, server.key(), NEW, 10)
        server.stop()
    return data


@pytest.fixture
def data(stored: Path, tmp_path: Path) -> Path:
    """Return a copy of `stored`."""
    return shutil.copytree(stored, tmp_path / "data")


def answer(server: Any, path: str, key: str) -> Any:
    """Return the answer to a GET. While the server exchanges the file, wait."""
    response: Any = None

    def is_answered() -> bool:
        nonlocal response
        response = server.get(path, key=key)
        return bool(response.status != 503)

    wait_until(is_answered, description="the store is open")
    return response


def viewers(server: Any, key: str) -> dict[str, int]:
    response = server.get("/api/v1/events.csv?columns=viewer&limit=10000", key=key)
    if response.status == 503:
        return {}  # The file is being exchanged.
    rows = response.body.decode().split()[1:]
    return {viewer: rows.count(viewer) for viewer in set(rows)}


def assert_totals_are_marked(server: Any, admin: str) -> None:
    """Check that answers from daily totals say so, and that a key learns nothing of totals outside its scope."""
    for scope, is_marked in (
        ({"deployments": [1]}, True),
        ({"deployments": [2]}, False),
        ({"tenants": ["acme"]}, False),
    ):
        response = answer(server, "/api/v1/reports/views", server.key("read", **scope))
        assert ("x-daily-totals" in response.headers, bool(response.json())) == (is_marked, is_marked)
        # With deployments, the totals are in scope. With tenants, they are not.
        assert ("x-deleted-days" in response.headers) == ("tenants" in scope)
    assert "x-deleted-days" in answer(server, "/api/v1/events.csv", admin).headers
    assert "x-deleted-days" not in answer(server, "/api/v1/reports/rejections", admin).headers
    summary = ZipFile(BytesIO(answer(server, "/api/v1/summary.zip", admin).body))
    manifest = json.loads(summary.read("manifest.json"))
    assert set(manifest["dailyTotals"]) == {"error_rates", "tenants", "views"}
    with_totals = {"views", "downloads", "error_rates", "ai_queries", "tenants"}
    names = {report["name"] for report in manifest["reports"]}
    assert set(manifest["deletedDays"]) == names - with_totals - {"rejections"}
    overview = "/api/v1/dashboards/overview"
    sections = [section["id"] for section in answer(server, overview, admin).json()["sections"]]
    for zone, note in (("UTC", b"Daily totals"), ("Europe/Berlin", b"Events deleted")):
        query = f"since=2025-01-01&timezone={zone}"
        pages = b"".join(answer(server, f"{overview}/sections/{section}?{query}", admin).body for section in sections)
        assert b'"note":"%s: ' % note in pages
        assert (b'"note":"Daily totals' in pages) == (zone == "UTC")
    assert_clients_mark_totals(embedsink.connect(server.url, key=admin), "--url", server.url, "--key", admin)


def assert_clients_mark_totals(client: Client, *source: str) -> None:
    """Check that Python and the command line say which days come from daily totals, and which were deleted."""
    first, last = client.report("views").attrs["daily_totals"]
    assert date.fromisoformat(last) - date.fromisoformat(first) < timedelta(days=2)
    for frame in (client.report("views", interval="hour"), client.events()):
        assert frame.attrs == {"deleted_days": [first, last]}
    for options, title in (
        (("--format", "table"), "Daily totals"),
        (("--format", "csv"), "Daily totals"),
        (("--timezone", "Europe/Berlin"), "Events deleted"),
    ):
        command = [sys.executable, "-m", "embedsink", "report", "views", *options, *source]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stderr == f"{title}: {first} to {last}.\n"


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
        response = answer(server, "/api/v1/reports/views", admin)
        assert sum(row["view_count"] for row in json.loads(response.body)) == 3_010
        assert "x-daily-totals" in response.headers
        assert_totals_are_marked(server, admin)
        deliver(server, server.key(), NEW, 5)
        wait_until(lambda: viewers(server, admin) == {NEW: 15}, description="new events are loaded")
        wait_until(lambda: not contains_old(data / "analytics.duckdb"), description="the snapshot has no old events")
        server.stop()
        assert b'"count": 3000' in server.log.read_bytes()
    assert not contains_old(data / "store.duckdb")
    assert_clients_mark_totals(embedsink.open(data), "--data", str(data))


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


# The server is killed in each step of a run: before or at the end of a transaction, and before the file is exchanged.
@pytest.mark.parametrize(("step", "after"), [(1, True), (3, False), (9, True), (26, True)])
def test_a_kill_in_any_step_deletes_no_new_event(data: Path, step: int, after: bool) -> None:
    injected = OFTEN + kill_at(
        step, RETENTION_STEPS, imports="import embedsink.store.database as database", after=after
    )
    assert is_killed(data, injected, is_finished=lambda server: False, **RETENTION)
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


FIELD_LIMITS: dict[str, Any] = {
    "EMBEDSINK_QUESTION_RETENTION_DAYS": "7",
    "EMBEDSINK_EXTRA_RETENTION_DAYS": "7",
    "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.2",
}


TWO_AT_ONCE = """
import embedsink.store.database as database
import embedsink.store.field_expiry as field_expiry
field_expiry.CHANGED_AT_ONCE = 2
"""


def has_deleted_fields(server: Any) -> bool:
    return b'"fields_expired"' in server.log.read_bytes()


def store_questions(data: Path, count: int) -> None:
    """Make a data folder with stages of questions of eight days ago, with unknown fields."""
    make_folder(data)
    with running_server(data) as server:
        questions = [
            event_or_action("event:ai-query", {"query": f"Which {number}?", "status": "submitted", "mood": "sad"})
            for number in range(count)
        ]
        assert server.post({"events": questions}, key=server.key()).status == 202
        server.stop()
    make_old(data, days=9)


def stored_questions(data: Path) -> list[tuple[str, str | None]]:
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        return connection.execute("select query, extra from event order by ingest_seq").fetchall()


def fields(server: Any, key: str) -> list[tuple[str, str | None]]:
    response = server.get("/api/v1/events.ndjson?columns=query,extra", key=key)
    rows = map(json.loads, response.body.splitlines()) if response.status == 200 else ()
    return [(row["query"], row.get("extra")) for row in rows]


def hashed_questions(data: Path, count: int) -> list[tuple[str, str | None]]:
    [secret] = SecretFile(data / "privacy_secrets.json").read()
    return [(hash_text("query", f"Which {number}?", secret), None) for number in range(count)]


def test_questions_and_unknown_fields_are_deleted_while_events_stay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store_questions(data, 1)
    with running_server(data, injected=OFTEN, **FIELD_LIMITS) as server:
        wait_until(lambda: has_deleted_fields(server), description="it is logged")
        server.stop()
        assert b"events_expired" not in server.log.read_bytes()
    assert stored_questions(data) == hashed_questions(data, 1)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("questions") / "data"
    store_questions(data, 3)
    return data


# The server is killed within the first and the second transaction, and between the rewrite and the exchange.
@pytest.mark.parametrize("step", [1, 2, 4, 7])
def test_a_kill_in_any_step_leaves_no_field_half_deleted(questions: Path, tmp_path: Path, step: int) -> None:
    data = tmp_path / "data"
    shutil.copytree(questions, data)
    before = stored_questions(data)
    functions = ("database.hash_questions", "database.clear_extra", "database.write_copy")
    injected = OFTEN + kill_at(step, functions, imports=TWO_AT_ONCE, after=True)
    assert is_killed(data, injected, is_finished=lambda server: False, **FIELD_LIMITS)
    after = hashed_questions(data, 3)
    for stored, *forms in zip(stored_questions(data), before, after, strict=True):
        assert stored in forms
    assert offending_rows(data) == {}
    with running_server(data, injected=OFTEN, **FIELD_LIMITS) as server:
        admin = server.key("admin")
        wait_until(lambda: fields(server, admin) == after, description="the fields are deleted")
        server.stop()
    assert stored_questions(data) == after
