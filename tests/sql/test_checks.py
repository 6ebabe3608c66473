"""sql/checks: no check reports a healthy store, and each detects the fault of its name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.journal.segment import inspect
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from embedsink.store.sql_files import read_sql
from tests.support.given import write_segment
from tests.support.stores import open_store

CHECKS = read_sql("checks")
FAULTS = {
    "directory_is_complete": "insert into directory_user select * from directory_user",
    "ingest_seq_is_unique": "insert into loss (ingest_seq) select min(ingest_seq) from event",
    "envelope_is_complete": "update event set key_id = null where type = 'view'",
    "id_is_unique": "insert into event by name select event_id, ingest_seq + 100 as ingest_seq from event limit 1",
    "ledger_adds_up": "delete from event where ingest_seq = (select min(ingest_seq) from event)",
    "ledger_is_valid": "update loaded_segment set duplicate_count = -1",
    "loss_is_positive": "update loss set lost_count = 0",
    "payload_is_complete": "update event set format = 'doc' where type = 'download'",
    "rejection_count_is_valid": "insert into rejection_count (key_id, rejected_count) values ('k', 1)",
    "rejection_is_unique": "insert into quarantine select * from quarantine",
    "rejection_is_complete": "update quarantine set raw = raw || 'x'",
    "rejection_rest_has_rejection": "delete from quarantine where raw_length > 16384",
    "row_has_loaded_segment": "update loss set ingest_seq = 7::bigint << 32",
    "segment_is_loaded_once": (
        "insert into loaded_segment (segment) select left(segment, 12) || '-1.ndjson' from loaded_segment"
    ),
    "segment_is_not_missing": "delete from loaded_segment where segment like '000000000002-%'",
    "session_ready_matches_events": "update event set deployment = null where type = 'view'",
    "ai_stages_match_events": "update question_stage set question_key = question_key + 1",
    "rollups_match_events": "update session_15min set view_count = view_count + 1",
    "sync_is_complete": "insert into sync select * from sync",
    "totaled_day_is_unique": "insert into daily_view (day) values ('2026-11-02')",
    "time_is_valid": "update event set occurred_at = received_at + interval 61 seconds",
    "type_is_known": "update event set surface = 'chat' where type = 'download'",
}
OTHER_FAULTS = [
    ("directory_is_complete", "update directory_user set user_name = null"),
    ("directory_is_complete", "update directory_user set resource = null, user_name = null"),
    ("directory_is_complete", "insert into directory_group select * from directory_group"),
    ("directory_is_complete", "update directory_group set resource = null"),
    ("directory_is_complete", "delete from directory_group"),
    ("envelope_is_complete", "update event set seq = -1 where type = 'view'"),
    ("ledger_is_valid", "update loaded_segment set byte_count = null"),
    ("ledger_is_valid", "update loaded_segment set segment = 'x'"),
    ("loss_is_positive", "update loss set reason = null"),
    ("payload_is_complete", "update event set path = null where type = 'view'"),
    ("payload_is_complete", "update event set mode = 'public' where type = 'ready'"),
    ("session_ready_matches_events", "update event set tenant = if(type = 'ready', 'acme', null)"),
    ("session_ready_matches_events", "insert into session_ready (key_id, session) values ('k1', 's1')"),
    ("rejection_is_complete", "update quarantine set reason = null"),
    ("rejection_is_complete", "update quarantine set replayed_at = received_at - interval 1 second"),
    ("rejection_is_complete", "delete from quarantine_rest where piece = 2"),
    ("rejection_is_complete", "update quarantine_rest set piece = piece + 1"),
    ("row_has_loaded_segment", "update event set ingest_seq = null"),
    ("row_has_loaded_segment", "update event set ingest_seq = 1::bigint << 32"),
    ("row_has_loaded_segment", "update directory_member set ingest_seq = 7::bigint << 32"),
    ("row_has_loaded_segment", "update sync set ingest_seq = 7::bigint << 32"),
    ("ledger_adds_up", "update loaded_segment set counted_only_count = 1"),
    ("ledger_is_valid", "update loaded_segment set counted_only_count = quarantined_count + 1"),
    ("rejection_is_complete", "update quarantine set whole_sha256 = '0'"),
    ("ledger_adds_up", "update loaded_segment set received_count = received_count + 1"),
    ("ledger_adds_up", "delete from loaded_segment"),
    ("ledger_adds_up", "insert into quarantine (ingest_seq) select min(ingest_seq) from event"),
    ("ai_stages_match_events", "delete from question_stage"),
    ("ai_stages_match_events", "insert into question_stage select * from question_stage"),
    ("ai_stages_match_events", "update question_stage set deployment = 2"),
    ("ai_stages_match_events", "update event set query = query || '?' where type = 'ai-query'"),
    ("rollups_match_events", "delete from session_15min"),
    (
        "rollups_match_events",
        "insert into session_15min by name select began_at, event_count from session_15min",
    ),
    ("rollups_match_events", "update rollup_batch set watermark = 0"),
    ("rollups_match_events", "update session_15min set deployment = 2"),
    ("rollups_match_events", "update session_15min set viewer = 7"),
    ("rollups_match_events", "update session_15min set began_at = began_at + interval 1 day"),
    ("sync_is_complete", "update sync set completed_at = null"),
    ("sync_is_complete", "delete from sync"),
    ("sync_is_complete", "update sync_file set position = 7"),
    ("sync_is_complete", "insert into sync_file select * from sync_file"),
    ("ingest_seq_is_unique", "update sync set ingest_seq = (select min(ingest_seq) from event)"),
    ("totaled_day_is_unique", "insert into totaled_day select date '2026-11-02', now()::timestamp from range(2)"),
    (
        "totaled_day_is_unique",
        "insert into totaled_day values ('2026-11-02', now()); "
        "insert into daily_view (day) select date '2026-11-02' from range(2)",
    ),
    ("time_is_valid", "update event set occurred_at = null"),
    ("time_is_valid", "update event set received_at = now()::timestamp + interval 1 day"),
    ("type_is_known", "update event set type = 'scroll' where type = 'view'"),
    ("type_is_known", "update event set surface = null where type = 'view'"),
    ("type_is_known", "insert into action (type) values ('dance')"),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder / "store.duckdb", StoreLimits(rollup_from_count=1))
    view = {"type": "view", "id": 1}
    store.load(inspect(write_segment(folder, [view, {"type": "download"}, view, {"type": "ai-query"}])))
    # An envelope with the same id and other content is quarantined.
    again: list[dict[str, object]] = [{"type": "error", "id": 1}, {"type": "ready"}, {"sync": "job1"}]
    again += [{"user": "u1", "name": "Ann"}, {"group": "Analysts", "members": ["u1"]}]
    store.load(inspect(write_segment(folder, again, number=2)))
    # A body that needs two more rows in quarantine_rest.
    long = {"type": "scroll", "rejected": "unknown_type", "title": "x" * 40_000}
    store.load(inspect(write_segment(folder, [long, {"lost": {"queue_overflow": 3}}], number=3)))
    store.roll_up()
    yield store
    store.close()


@pytest.fixture
def store(loaded: Store) -> Iterator[Store]:
    """Return a healthy store. The changes of each test are rolled back."""
    loaded._load_connection().execute("begin")
    yield loaded
    loaded._load_connection().execute("rollback")


def failing_rows(store: Store, check: str) -> int:
    return len(store._load_connection().execute(CHECKS[check]).fetchall())


def test_a_healthy_store_has_no_offending_rows(store: Store) -> None:
    assert {check: failing_rows(store, check) for check in CHECKS} == dict.fromkeys(CHECKS, 0)


def test_an_empty_store_has_no_offending_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path / "empty.duckdb")
    assert {check: failing_rows(store, check) for check in CHECKS} == dict.fromkeys(CHECKS, 0)
    store.close()


@pytest.mark.parametrize(("check", "fault"), [*FAULTS.items(), *OTHER_FAULTS])
def test_an_injected_fault_is_found(store: Store, check: str, fault: str) -> None:
    store._load_connection().execute(fault)
    assert failing_rows(store, check) > 0


def test_every_check_detects_its_fault_and_recommends_an_action() -> None:
    assert FAULTS.keys() == CHECKS.keys()
    assert [name for name, sql in CHECKS.items() if "-- What to do: " not in sql] == []
