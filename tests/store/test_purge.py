"""Purged and counted rejections: contents are deleted, counts stay."""

from datetime import datetime

import pytest

import embedsink.store.purge
from embedsink.ingest.records import rejection_count_lines, replay_line
from embedsink.store.purge import PurgeFilter
from tests.support.envelopes import RECEIVED_AT, view
from tests.support.loaded_store import LoadedStore, ledger


def test_counted_rejections_share_a_row_per_quarter_of_an_hour(loaded_store: LoadedStore) -> None:
    def counted(minute: int, deployment: int | None = None, **reasons: int) -> bytes:
        at = RECEIVED_AT // 3_600_000 * 3_600_000 + minute * 60_000
        return rejection_count_lines(reasons, received_at=at, key_id="k_1", deployment=deployment)

    assert loaded_store.lines(counted(1, bad_field=2, empty=1), counted(14, bad_field=3)) == ledger(6, quarantined=6)
    assert loaded_store.lines(counted(16, bad_field=4)) == ledger(4, quarantined=4)
    loaded_store.lines(counted(2, bad_field=5), counted(2, 7, bad_field=6), counted(3, 7, bad_field=1))
    rows = "select minute(began_at), deployment, reason, rejected_count, minute(last_received_at) from rejection_count"
    assert loaded_store.query(f"{rows} order by all") == [
        (0, 7, "bad_field", 7, 3),
        (0, None, "bad_field", 10, 14),
        (0, None, "empty", 1, 1),
        (15, None, "bad_field", 4, 16),
    ]
    assert loaded_store.query("select reason, quarantined_count from rejections") == [("bad_field", 21), ("empty", 1)]
    assert loaded_store.query("select sum(received_count), sum(counted_only_count) from loaded_segment") == [(22, 22)]
    assert loaded_store.failed_checks() == {}


def test_a_purge_deletes_contents_and_retains_counts(loaded_store: LoadedStore) -> None:
    for number in range(3):
        loaded_store.bodies([number, {}], view())
    loaded_store.bodies(["x" * 40_000])
    reports = loaded_store.query("select * from rejections order by reason")
    sums = "select sum(received_count), sum(accepted_count), sum(quarantined_count) from loaded_segment"
    ledgers = loaded_store.query(sums)
    purge = loaded_store.store.purge
    assert purge(PurgeFilter(before=datetime(2000, 1, 1))) == 0
    assert purge(PurgeFilter(key_id="k_2")) == 0
    assert purge(PurgeFilter(reason="wrong_source")) == 3
    assert loaded_store.query("select distinct reason from quarantine") == [("not_an_object",)]
    assert loaded_store.failed_checks() == {}
    assert purge(PurgeFilter()) == 4
    assert purge(PurgeFilter()) == 0
    assert loaded_store.query("select (select count(*) from quarantine), (select count(*) from quarantine_rest)") == [
        (0, 0)
    ]
    assert [row[:4] for row in loaded_store.query("select * from rejections order by reason")] == [
        row[:4] for row in reports
    ]
    assert loaded_store.query(sums) == ledgers
    assert loaded_store.query("select count(*) from event") == [(3,)]
    assert loaded_store.failed_checks() == {}


def test_a_purge_works_in_bounded_steps(loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.store.purge, "PURGED_AT_ONCE", 2)
    loaded_store.bodies([1, 2, 3], [4, 5])
    assert [loaded_store.store.purge(PurgeFilter()) for _ in range(4)] == [2, 2, 1, 0]
    assert loaded_store.query("select rejected_count from rejection_count") == [(5,)]
    assert loaded_store.failed_checks() == {}


def test_a_purge_is_counted_in_a_folded_ledger(loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        loaded_store.bodies([number])
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    loaded_store.store.ledger.compact(before=3)
    assert loaded_store.store.purge(PurgeFilter()) == 4
    assert loaded_store.query("select first_number, counted_only_count from loaded_segment order by segment") == [
        (1, 2),
        (None, 1),
        (None, 1),
    ]
    assert loaded_store.failed_checks() == {}


def test_ledgers_of_two_days_stay_separate_after_a_clock_jump(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        loaded_store.bodies([number])
    earlier = "update loaded_segment set loaded_at = loaded_at - interval 3 days where left(segment, 12)::int in (3, 4)"
    loaded_store.store._load_connection().execute(earlier)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    loaded_store.store.ledger.compact(before=7)
    assert loaded_store.query("select first_number, left(segment, 12)::int from loaded_segment order by segment") == [
        (1, 2),
        (3, 4),
        (5, 6),
        (None, 7),
        (None, 8),
    ]
    assert loaded_store.store.purge(PurgeFilter()) == 8
    assert loaded_store.failed_checks() == {}


def test_invented_deployments_do_not_multiply_the_counts_of_purged_rejections(loaded_store: LoadedStore) -> None:
    parts = [{"context": {"deployment": number}, "events": [1]} for number in (7, 7, *range(1_000, 1_150))]
    loaded_store.bodies(*parts)
    assert loaded_store.store.purge(PurgeFilter()) == 152
    assert loaded_store.query("select count(*), sum(rejected_count) from rejection_count") == [(101, 152)]
    assert loaded_store.query("select rejected_count from rejection_count where deployment = 7") == [(2,)]


def test_a_purge_changes_the_revision_of_its_deployments_only(loaded_store: LoadedStore) -> None:
    loaded_store.bodies({"context": {"deployment": 7}, "events": [1]})
    loaded_store.bodies({"context": {"deployment": 8}, "events": [1]})
    before = {deployment: loaded_store.store.revisions.of({deployment}) for deployment in (7, 8)}
    key = "update quarantine set key_id = 'k_2' where deployment = 7"
    loaded_store.store._load_connection().execute(key)
    assert loaded_store.store.purge(PurgeFilter(key_id="k_2")) == 1
    assert loaded_store.store.revisions.of({7}) != before[7]
    assert loaded_store.store.revisions.of({8}) == before[8]


def test_a_count_changes_the_revision_of_its_deployment_only(loaded_store: LoadedStore) -> None:
    before = {deployment: loaded_store.store.revisions.of({deployment}) for deployment in (7, 8)}
    loaded_store.lines(rejection_count_lines({"empty": 2}, received_at=RECEIVED_AT, key_id="k_1", deployment=7))
    assert loaded_store.store.revisions.of({7}) != before[7]
    assert loaded_store.store.revisions.of({8}) == before[8]


def test_a_purge_retains_the_count_of_replayed_rejections(loaded_store: LoadedStore) -> None:
    loaded_store.bodies([1])
    [(quarantine_id,)] = loaded_store.query("select quarantine_id from quarantine")
    loaded_store.lines(replay_line(str(quarantine_id), received_at=RECEIVED_AT + 1))
    loaded_store.store.purge(PurgeFilter())
    assert loaded_store.query("select quarantined_count, replayed_count from rejections") == [(1, 1)]
    assert loaded_store.failed_checks() == {}
