"""Purged and counted rejections: contents are deleted, counts stay."""

from datetime import datetime

import pytest

import embedsink.store.purge
from embedsink.ingest.records import rejection_count_lines, replay_line
from embedsink.store.purge import PurgeFilter
from tests.support.envelopes import RECEIVED_AT, view
from tests.support.loading import Loading, ledger


def test_counted_rejections_share_a_row_per_quarter_of_an_hour(loading: Loading) -> None:
    def counted(minute: int, deployment: int | None = None, **reasons: int) -> bytes:
        at = RECEIVED_AT // 3_600_000 * 3_600_000 + minute * 60_000
        return rejection_count_lines(reasons, received_at=at, key_id="k_1", deployment=deployment)

    assert loading.lines(counted(1, bad_field=2, empty=1), counted(14, bad_field=3)) == ledger(6, quarantined=6)
    assert loading.lines(counted(16, bad_field=4)) == ledger(4, quarantined=4)
    loading.lines(counted(2, bad_field=5), counted(2, 7, bad_field=6), counted(3, 7, bad_field=1))
    rows = "select minute(began_at), deployment, reason, rejected_count, minute(last_received_at) from rejection_count"
    assert loading.ask(f"{rows} order by all") == [
        (0, 7, "bad_field", 7, 3),
        (0, None, "bad_field", 10, 14),
        (0, None, "empty", 1, 1),
        (15, None, "bad_field", 4, 16),
    ]
    assert loading.ask("select reason, quarantined_count from rejections") == [("bad_field", 21), ("empty", 1)]
    assert loading.ask("select sum(received_count), sum(counted_only_count) from loaded_segment") == [(22, 22)]
    assert loading.offending() == {}


def test_a_purge_deletes_contents_and_retains_counts(loading: Loading) -> None:
    for number in range(3):
        loading.bodies([number, {}], view())
    loading.bodies(["x" * 40_000])
    reports = loading.ask("select * from rejections order by reason")
    sums = "select sum(received_count), sum(accepted_count), sum(quarantined_count) from loaded_segment"
    ledgers = loading.ask(sums)
    purge = loading.store.purge
    assert purge(PurgeFilter(before=datetime(2000, 1, 1))) == 0
    assert purge(PurgeFilter(key_id="k_2")) == 0
    assert purge(PurgeFilter(reason="wrong_source")) == 3
    assert loading.ask("select distinct reason from quarantine") == [("not_an_object",)]
    assert loading.offending() == {}
    assert purge(PurgeFilter()) == 4
    assert purge(PurgeFilter()) == 0
    assert loading.ask("select (select count(*) from quarantine), (select count(*) from quarantine_rest)") == [(0, 0)]
    assert [row[:4] for row in loading.ask("select * from rejections order by reason")] == [row[:4] for row in reports]
    assert loading.ask(sums) == ledgers
    assert loading.ask("select count(*) from event") == [(3,)]
    assert loading.offending() == {}


def test_a_purge_works_in_bounded_steps(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.store.purge, "PURGED_AT_ONCE", 2)
    loading.bodies([1, 2, 3], [4, 5])
    assert [loading.store.purge(PurgeFilter()) for _ in range(4)] == [2, 2, 1, 0]
    assert loading.ask("select rejected_count from rejection_count") == [(5,)]
    assert loading.offending() == {}


def test_a_purge_is_counted_in_a_folded_ledger(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        loading.bodies([number])
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    loading.store.ledger.compact(before=3)
    assert loading.store.purge(PurgeFilter()) == 4
    assert loading.ask("select first_number, counted_only_count from loaded_segment order by segment") == [
        (1, 2),
        (None, 1),
        (None, 1),
    ]
    assert loading.offending() == {}


def test_ledgers_of_two_days_stay_separate_after_a_clock_jump(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        loading.bodies([number])
    earlier = "update loaded_segment set loaded_at = loaded_at - interval 3 days where left(segment, 12)::int in (3, 4)"
    loading.store._load_connection().execute(earlier)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    loading.store.ledger.compact(before=7)
    assert loading.ask("select first_number, left(segment, 12)::int from loaded_segment order by segment") == [
        (1, 2),
        (3, 4),
        (5, 6),
        (None, 7),
        (None, 8),
    ]
    assert loading.store.purge(PurgeFilter()) == 8
    assert loading.offending() == {}


def test_invented_deployments_do_not_multiply_the_counts_of_purged_rejections(loading: Loading) -> None:
    parts = [{"context": {"deployment": number}, "events": [1]} for number in (7, 7, *range(1_000, 1_150))]
    loading.bodies(*parts)
    assert loading.store.purge(PurgeFilter()) == 152
    assert loading.ask("select count(*), sum(rejected_count) from rejection_count") == [(101, 152)]
    assert loading.ask("select rejected_count from rejection_count where deployment = 7") == [(2,)]


def test_a_purge_moves_the_revision_of_those_deployments_alone(loading: Loading) -> None:
    loading.bodies({"context": {"deployment": 7}, "events": [1]})
    loading.bodies({"context": {"deployment": 8}, "events": [1]})
    before = {deployment: loading.store.revisions.of({deployment}) for deployment in (7, 8)}
    key = "update quarantine set key_id = 'k_2' where deployment = 7"
    loading.store._load_connection().execute(key)
    assert loading.store.purge(PurgeFilter(key_id="k_2")) == 1
    assert loading.store.revisions.of({7}) != before[7]
    assert loading.store.revisions.of({8}) == before[8]


def test_a_count_moves_the_revision_of_its_deployment_alone(loading: Loading) -> None:
    before = {deployment: loading.store.revisions.of({deployment}) for deployment in (7, 8)}
    loading.lines(rejection_count_lines({"empty": 2}, received_at=RECEIVED_AT, key_id="k_1", deployment=7))
    assert loading.store.revisions.of({7}) != before[7]
    assert loading.store.revisions.of({8}) == before[8]


def test_a_purge_retains_the_count_of_replayed_rejections(loading: Loading) -> None:
    loading.bodies([1])
    [(quarantine_id,)] = loading.ask("select quarantine_id from quarantine")
    loading.lines(replay_line(str(quarantine_id), received_at=RECEIVED_AT + 1))
    loading.store.purge(PurgeFilter())
    assert loading.ask("select quarantined_count, replayed_count from rejections") == [(1, 1)]
    assert loading.offending() == {}
