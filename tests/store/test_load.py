"""LoadedStore: each envelope has one outcome, ids count once, and no accepted event blocks the next one."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from embedsink.ingest.records import body_rejection_line, delivery_lines, replay_line, sync_line
from embedsink.key_scope import EVERYTHING
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync, digest_of
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.messages import catalog_for
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.store import database
from embedsink.store.duckdb_errors import SqlFailed, StoreTooSmall
from embedsink.store.limits import StoreLimits
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql
from tests.support.envelopes import ID, RECEIVED_AT, event_or_action, view
from tests.support.loaded_store import LoadedStore, ledger
from tests.support.redaction import storable, storable_rejection
from tests.support.stores import make_older

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OTHER_ID = ID[:-1] + "f"


def test_an_id_twice_in_a_delivery_counts_once(loaded_store: LoadedStore) -> None:
    assert loaded_store.bodies([view(id=ID), view(id=ID)]) == ledger(2, accepted=1, duplicate=1)


def test_an_id_repeated_in_a_later_segment_counts_once(loaded_store: LoadedStore) -> None:
    loaded_store.bodies(view(id=ID))
    assert loaded_store.bodies(view(id=ID.upper())) == ledger(1, duplicate=1)
    assert loaded_store.query("select count(*) from event") == [(1,)]


def test_a_retry_with_another_context_and_clock_is_a_duplicate(loaded_store: LoadedStore) -> None:
    loaded_store.bodies({"events": [view(id=ID)]})
    retry = {"sentAt": RECEIVED_AT, "context": {"session": "s1"}, "events": [view(id=ID)]}
    assert loaded_store.bodies(retry) == ledger(1, duplicate=1)


def test_an_id_is_deduplicated_for_seven_days(loaded_store: LoadedStore) -> None:
    loaded_store.bodies(view(id=ID), view(id=OTHER_ID))
    assert loaded_store.bodies(view(id=ID), received_at=RECEIVED_AT + 7 * DAY_MS) == ledger(1, duplicate=1)


def receive_hourly(loaded_store: LoadedStore, hours: int, *, start: int) -> int:
    """Load an event in each of this many hours. Return the end of the last hour."""
    for hour in range(hours):
        loaded_store.bodies(view(), received_at=start + hour * HOUR_MS)
    return start + hours * HOUR_MS


@pytest.mark.slow
def test_an_id_is_accepted_again_after_its_deduplication_hours(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path, StoreLimits(dedup_days=1))
    loaded_store.bodies(view(id=ID))
    end = receive_hourly(loaded_store, 24, start=RECEIVED_AT + HOUR_MS)
    assert loaded_store.bodies(view(id=ID), received_at=end - 1) == ledger(1, duplicate=1)
    assert loaded_store.bodies(view(id=ID), received_at=end) == ledger(1, accepted=1)
    # The check reports this, because an id can count twice only here.
    assert loaded_store.failed_checks() == {"id_is_unique": 1}
    loaded_store.store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "jumps_ms",
    [[365 * DAY_MS], [-365 * DAY_MS], [365 * DAY_MS, -365 * DAY_MS], [-365 * DAY_MS, 365 * DAY_MS], [30 * DAY_MS] * 5],
    ids=["forward", "backward", "forward_and_backward", "backward_and_forward", "forward_five_times"],
)
def test_a_retry_counts_once_after_any_clock_jump(loaded_store: LoadedStore, jumps_ms: list[int]) -> None:
    loaded_store.bodies({"events": [view(id=ID)], "lost": {"quota": 3}})
    now = RECEIVED_AT
    for jump_ms in jumps_ms:
        now += jump_ms
        loaded_store.bodies(view(), received_at=now)
        assert loaded_store.bodies(view(id=ID), received_at=now + 1_000) == ledger(1, duplicate=1)
        loaded_store.store.checkpoint()
        loaded_store.store.close()
        loaded_store.store.open()  # a restart in between
    loaded_store.bodies({"events": [view(id=ID)], "lost": {"quota": 3}}, received_at=now + 2_000)
    assert loaded_store.query("select count(*) from event where event_id = $id$" + ID + "$id$") == [(1,)]
    assert loaded_store.query("select sum(lost_count)::bigint from loss") == [(3,)]


@pytest.mark.slow
def test_a_clock_jump_shortens_deduplication_by_at_most_an_hour(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path, StoreLimits(dedup_days=1))
    loaded_store.bodies(view(id=ID))
    end = receive_hourly(loaded_store, 22, start=RECEIVED_AT + HOUR_MS)
    loaded_store.bodies(view(), received_at=end + 365 * DAY_MS)
    assert loaded_store.bodies(view(id=ID), received_at=end + 365 * DAY_MS) == ledger(1, duplicate=1)
    assert loaded_store.query("select count(*) from journal_hour") == [(24,)]
    loaded_store.store.close()


@pytest.mark.slow
def test_a_replay_is_deduplicated_from_the_days_before_the_rejection(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path, StoreLimits(dedup_days=1))
    loaded_store.bodies(view(id=ID))  # resent before the replay
    end = receive_hourly(loaded_store, 30, start=RECEIVED_AT + HOUR_MS)
    replayed = delivery_lines(
        storable(parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT)), key_id="k_1", new_id=uuid4
    )
    assert loaded_store.lines(replayed, replay_line(str(uuid4()), received_at=end)) == ledger(1, duplicate=1)
    loaded_store.store.close()


@pytest.mark.slow
def test_events_of_one_hour_add_one_row_to_journal_hour(loaded_store: LoadedStore) -> None:
    for minute in range(60):
        loaded_store.bodies(view(), received_at=RECEIVED_AT + minute * 60_000)
    assert loaded_store.query("select first_ingest_seq >> 32 from journal_hour") == [(1,)]


@pytest.mark.slow
def test_an_older_store_without_journal_hours_gets_the_hours_of_its_loads(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path, StoreLimits(dedup_days=1))
    for _ in range(26):
        loaded_store.bodies(view())
    loaded_store.bodies(view(id=ID))
    connection = loaded_store.store._load_connection()
    # The state of a store of the previous version.
    connection.execute(
        "update loaded_segment set loaded_at = timestamp '2026-11-01' + to_hours(left(segment, 12)::int)"
    )
    make_older(loaded_store.store, before="0006")

    loaded_store.store.open()
    assert loaded_store.query("select count(*), min(first_ingest_seq >> 32), max(began_at) from journal_hour") == [
        (27, 1, datetime(2026, 11, 2, 3))
    ]
    assert loaded_store.bodies(view(id=ID)) == ledger(1, duplicate=1)
    # The retry began the 28th hour. It is compared with that hour and the 24 before.
    assert loaded_store.query("select getvariable('dedup_from') >> 32") == [(4,)]
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()


@pytest.mark.parametrize("first_in_same_segment", [True, False])
def test_an_id_with_other_content_is_quarantined_and_the_first_wins(
    loaded_store: LoadedStore, first_in_same_segment: bool
) -> None:
    first, second = view({"path": "/first"}, id=ID), view({"path": "/second", "novel": 1}, id=ID)
    if first_in_same_segment:
        assert loaded_store.bodies(first, second) == ledger(2, accepted=1, quarantined=1, conflict=1)
    else:
        assert loaded_store.bodies(first) == ledger(1, accepted=1)
        assert loaded_store.bodies(second) == ledger(1, quarantined=1, conflict=1)

    assert loaded_store.query("select path from event") == [("/first",)]
    [(reason, detail, raw)] = loaded_store.query("select reason, detail, raw from quarantine")
    assert (reason, ID in detail) == ("id_conflict", True)
    assert json.loads(raw)["payload"]["path"] == "/second"


def test_an_action_and_an_event_may_have_the_same_id(loaded_store: LoadedStore) -> None:
    action = event_or_action("action:refresh", id=ID)
    assert loaded_store.bodies([view(id=ID), action]) == ledger(2, accepted=2)
    assert loaded_store.bodies([view(id=ID), action]) == ledger(2, duplicate=2)


@pytest.mark.parametrize("other", [{"deploymentId": 13}, {"embedTenant": "other"}])
def test_a_ready_that_names_another_deployment_or_tenant_is_a_conflict(
    loaded_store: LoadedStore, other: dict[str, Any]
) -> None:
    payload = {"embedTenant": "acme", "deploymentId": 12, "mode": "signed"}
    ready = event_or_action("event:ready", payload, id=ID)
    assert loaded_store.bodies(ready, ready) == ledger(2, accepted=1, duplicate=1)
    assert loaded_store.bodies(event_or_action("event:ready", payload | other, id=ID)) == ledger(
        1, quarantined=1, conflict=1
    )


@pytest.mark.parametrize(("text", "is_wide"), [("x" * 100, False), ("x" * 9_000, True)])
def test_only_long_lines_raise_the_memory_of_checkpoints(
    loaded_store: LoadedStore, text: str, *, is_wide: bool
) -> None:
    assert loaded_store.lines(replay_line(ID, received_at=RECEIVED_AT)) == ledger(0)
    assert not loaded_store.store._checkpoints.has_wide_rows
    loaded_store.bodies([view({"title": text}), view()])
    assert loaded_store.store._checkpoints.has_wide_rows == is_wide


def test_rejections_losses_and_replays_are_rows(loaded_store: LoadedStore) -> None:
    delivery = {"context": {"session": "s1"}, "events": [view(), view(id=7), 5], "lost": {"queue_overflow": 3}}
    assert loaded_store.bodies(delivery) == ledger(3, accepted=1, quarantined=2)
    assert loaded_store.query("select reason, lost_count, session from loss") == [("queue_overflow", 3, "s1")]
    rejected = loaded_store.query('select "index", reason, raw, session, replayed_at from quarantine order by "index"')
    assert [row[:2] for row in rejected] == [(1, "bad_field"), (2, "not_an_object")]
    assert rejected[1][2:] == ("5", "s1", None)

    [(quarantine_id,)] = loaded_store.query('select quarantine_id from quarantine where "index" = 2')
    assert loaded_store.lines(replay_line(str(quarantine_id), received_at=RECEIVED_AT)) == ledger(0)
    assert loaded_store.query('select "index" from quarantine where replayed_at is not null') == [(2,)]


@pytest.mark.parametrize(
    ("sent_after_ms", "moved_by_ms"), [(0, 0), (-60_000, 0), (-60_001, 60_001), (3_600_000, -3_600_000)]
)
def test_a_wrong_clock_is_corrected_and_transit_is_not(
    loaded_store: LoadedStore, sent_after_ms: int, moved_by_ms: int
) -> None:
    at = RECEIVED_AT - 500_000
    loaded_store.bodies({"sentAt": RECEIVED_AT + sent_after_ms, "events": [view(timestamp=at)]})
    [(occurred_at, client_at)] = loaded_store.query("select epoch_ms(occurred_at), epoch_ms(client_at) from event")
    assert (occurred_at, client_at) == (at + moved_by_ms, at)


def test_no_event_is_later_than_a_minute_after_its_receipt(loaded_store: LoadedStore) -> None:
    loaded_store.bodies(view(timestamp=RECEIVED_AT + DAY_MS))
    assert loaded_store.query("select epoch_ms(occurred_at) from event") == [(RECEIVED_AT + 60_000,)]


def test_every_action_is_stored_with_its_payload(loaded_store: LoadedStore) -> None:
    theme = {"font": "Inter", "colors": {"a": "#fff"}}
    loaded_store.bodies(
        event_or_action("action:set-theme", {"embedTheme": theme}),
        event_or_action("action:set-color-scheme"),
        event_or_action("action:set-locale"),
        event_or_action("action:set-filter"),
        event_or_action("action:navigate"),
        event_or_action("action:refresh"),
    )
    rows = loaded_store.query(
        "select type, theme, scheme, locale, filter_url_parameter, path from action order by ingest_seq"
    )
    assert json.loads(rows[0][1]) == theme
    assert [(row[0], row[2:]) for row in rows] == [
        ("set-theme", (None, None, None, None)),
        ("set-color-scheme", ("dark", None, None, None)),
        ("set-locale", (None, "de", None, None)),
        ("set-filter", (None, None, "f_orders.region=[1]", None)),
        ("navigate", (None, None, None, "/dashboards/costs")),
        ("refresh", (None, None, None, None)),
    ]


@pytest.mark.parametrize(
    ("payload", "theme", "extra"),
    [
        ({"font": "Inter"}, {"font": "Inter"}, None),
        ({"embedTheme": None, "font": "Inter"}, {"font": "Inter"}, None),
        ({"embedTheme": {"font": "Inter"}, "novel": 1}, {"font": "Inter"}, {"novel": 1}),
        ({"embedTheme": None}, None, None),
        ({}, None, None),
    ],
)
def test_a_theme_is_the_field_embed_theme_or_else_the_payload(
    loaded_store: LoadedStore, payload: dict[str, Any], theme: object, extra: object
) -> None:
    loaded_store.bodies(event_or_action("action:set-theme") | {"payload": payload})
    [row] = loaded_store.query("select theme, extra from action")
    assert [None if text is None else json.loads(text) for text in row] == [theme, extra]


def sync(**fields: Any) -> bytes:
    """Return the journal line of a dbt sync's result."""
    result: dict[str, Any] = {
        "syncJobId": "job1",
        "generatedFiles": [{"path": "b.yml"}, {"path": "a.yml"}],
        "manifestStats": {"models": 3, "sources": 2, "macros": 1},
        CUBE_COUNT_FIELD: 4,
        "completedAt": "2025-11-20T02:00:00+02:00",
        "durationMs": 5_000,
    }
    result |= fields.pop("result", {})
    members: dict[str, Any] = {
        "deployment": 1,
        "job_id": result["syncJobId"],
        "received_at": RECEIVED_AT,
        "completed_at": 1_763_596_800_000_000,
        "digest": digest_of(result),
        "result": result,
    }
    return sync_line(Sync(**members | fields), key_id="k_1")


def test_a_sync_is_a_row_with_its_files_and_is_no_envelope(loaded_store: LoadedStore) -> None:
    assert loaded_store.lines(sync(extra={"branch": "dbt"})) == ledger(0)
    assert loaded_store.query("select * exclude (ingest_seq, digest, received_at) from sync") == [
        (
            "k_1",
            1,
            "job1",
            datetime(2025, 11, 20),
            "2025-11-20T02:00:00+02:00",
            5_000,
            4,
            3,
            2,
            1,
            '{"branch":"dbt"}',
        )
    ]
    assert loaded_store.query("select position, path from sync_file order by position") == [(0, "b.yml"), (1, "a.yml")]
    with loaded_store.store.reader({**EVERYTHING.variables(), "deployments": [1]}) as reader:
        [[row]] = reader.rows("sync_result")
    assert row[-1] == ["b.yml", "a.yml"]


def test_a_sync_counts_once_in_a_segment_and_in_a_later_one(loaded_store: LoadedStore) -> None:
    loaded_store.lines(sync(), sync(), sync(deployment=2), sync(result={"syncJobId": "job2", "generatedFiles": []}))
    loaded_store.lines(sync(), sync(deployment=3))
    rows = loaded_store.query("select deployment, sync_job_id from sync order by all")
    assert rows == [(1, "job1"), (1, "job2"), (2, "job1"), (3, "job1")]
    assert loaded_store.query("select count(*) from sync_file") == [(6,)]


def test_the_first_result_of_a_job_is_permanent(loaded_store: LoadedStore) -> None:
    loaded_store.lines(sync(), sync(result={"durationMs": 6_000}))
    loaded_store.lines(sync(result={"durationMs": 7_000}))
    assert loaded_store.query("select duration_ms from sync") == [(5_000,)]


def test_syncs_and_envelopes_share_a_segment(loaded_store: LoadedStore) -> None:
    event = delivery_lines(storable(parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT)), key_id="k_1", new_id=uuid4)
    assert loaded_store.lines(sync(), event, sync(deployment=2), event) == ledger(2, accepted=1, duplicate=1)
    assert loaded_store.query("select count(*) from sync") == [(2,)]


@pytest.mark.parametrize("count", [1, 40_000])
def test_a_sync_of_the_largest_size_is_loaded_in_the_usual_memory(loaded_store: LoadedStore, count: int) -> None:
    files = [{"path": f"{index:06}" + "x" * (4_000 if count == 1 else 0)} for index in range(count)]
    for number in range(3):
        loaded_store.lines(sync(result={"syncJobId": f"job{number}", "generatedFiles": files}))
    assert loaded_store.query("select count(*) from sync_file") == [(3 * count,)]


@pytest.mark.parametrize("year", [1, 9999])
def test_a_sync_of_the_first_or_last_year_never_blocks_the_store(loaded_store: LoadedStore, year: int) -> None:
    instant = datetime(year, 12, 31, 23, 59, 59, 999_999)
    microseconds = (instant - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    loaded_store.lines(sync(completed_at=microseconds))
    assert loaded_store.query("select completed_at from sync") == [(instant,)]
    for report in ("sync_impact", "deployment_in_scope"):
        assert len(loaded_store.query(f"select * from {report}")) == 1


def test_a_store_from_before_syncs_retains_its_rows_and_accepts_syncs(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies(view(id=ID))
    make_older(loaded_store.store, before="0002")

    loaded_store.store.open()
    assert loaded_store.query("select name from migration order by name") == [
        (name,) for name in read_sql("migrations")
    ]
    assert loaded_store.query("select event_id::varchar from event") == [(ID,)]
    loaded_store.lines(sync())
    assert loaded_store.query("select sync_job_id from sync") == [("job1",)]
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()


def test_a_store_from_before_vendors_retains_its_rows_and_accepts_vendors(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies(view(id=ID))
    make_older(loaded_store.store, before="0016")

    loaded_store.store.open()
    loaded_store.bodies({"context": {"vendor": "looker"}, "events": [view(id=OTHER_ID)]})
    assert loaded_store.query("select event_id::varchar, vendor from event order by ingest_seq") == [
        (ID, None),
        (OTHER_ID, "looker"),
    ]
    with loaded_store.store.reader({**EVERYTHING.variables(), "vendor": "looker"}) as reader:
        assert [row["view_count"] for row in reader.dicts("views")] == [1]
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()


@pytest.mark.parametrize("in_one_segment", [True, False])
def test_a_repeated_loss_report_counts_once(loaded_store: LoadedStore, in_one_segment: bool) -> None:
    body = {"context": {"session": "s1"}, "events": [view(id=ID)], "lost": {"queue_overflow": 3, "too_old": 1}}
    # The response was lost, so the next delivery repeats the loss and adds events and losses.
    again = body | {"events": [view(id=ID.upper()), view(id=OTHER_ID)], "lost": {"queue_overflow": 5, "too_old": 1}}
    for bodies in ([body, body, again, body],) if in_one_segment else ([body], [body], [again], [body]):
        loaded_store.bodies(*bodies)
    lost = "select reason, sum(lost_count)::bigint from loss group by reason order by reason"
    assert loaded_store.query(lost) == [("queue_overflow", 5), ("too_old", 1)]
    assert loaded_store.query("select lost_count from completeness") == [(6,)]

    loaded_store.bodies(body | {"events": [view(id=OTHER_ID)]})
    assert loaded_store.query(lost) == [("queue_overflow", 8), ("too_old", 2)]


def test_a_loss_report_is_recognized_by_a_rejected_envelope(loaded_store: LoadedStore) -> None:
    for _ in range(2):
        loaded_store.bodies({"events": [view(id=ID, surface="moon")], "lost": {"queue_overflow": 3}})
    assert loaded_store.query("select lost_count from loss") == [(3,)]


def test_losses_without_an_id_count_each_time(loaded_store: LoadedStore) -> None:
    # Rows of the previous version.
    line = b'{"kind":"lost","received_at":%d,"key_id":"k_1","reason":"quota","lost_count":3}\n' % RECEIVED_AT
    loaded_store.lines(line, line)
    loaded_store.lines(line)
    loaded_store.bodies({"events": [view()], "lost": {"quota": 3}}, {"events": [], "lost": {"quota": 3}})
    assert loaded_store.query("select lost_count, count(loss_id), count(distinct loss_id) from loss group by all") == [
        (3, 5, 5)
    ]


def test_a_loss_report_is_deduplicated_as_long_as_an_event(loaded_store: LoadedStore) -> None:
    body = {"events": [view(id=ID)], "lost": {"quota": 3}}
    loaded_store.bodies(body)
    loaded_store.bodies(body, received_at=RECEIVED_AT + 7 * DAY_MS)
    assert loaded_store.query("select sum(lost_count)::bigint from loss") == [(3,)]
    # A loss without an id can't be recognized as repeated.
    loaded_store.bodies({"events": [], "lost": {"quota": 3}}, received_at=RECEIVED_AT + 30 * DAY_MS)
    assert loaded_store.query("select sum(lost_count)::bigint from loss") == [(6,)]


def test_a_store_from_before_loss_ids_retains_its_losses_and_accepts_more(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.bodies({"events": [view(id=ID)], "lost": {"quota": 3}})
    make_older(loaded_store.store, before="0003")

    loaded_store.store.open()
    assert loaded_store.query("select lost_count, loss_id from loss") == [(3, None)]
    for _ in range(2):
        loaded_store.bodies({"events": [view(id=OTHER_ID)], "lost": {"quota": 4}})
    assert loaded_store.query("select lost_count from completeness") == [(7,)]
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()


def nested(depth: int) -> object:
    return {"a": nested(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    "payload",
    [
        {"path": "/\u2028😀\\\"\n\r\t\x01'; drop table event; --", "title": "\u202eabc\ufeff"},
        {"x": 10**30, "y": 1e308, "z": -(10**40), "w": 1e-320},
        {"d": nested(27)},
        {"Path": "/other", "PATH": "/third", "SURFACE": 1, "kind": "lost", "id": 1},
        {"": 1, "a.b": 2, '"': 3, "$": 4},
        {"path": "x" * 60_000},
    ],
    ids=["text", "numbers", "depth", "case", "names", "length"],
)
def test_valid_content_never_blocks_the_store(loaded_store: LoadedStore, payload: dict[str, Any]) -> None:
    assert loaded_store.bodies(view(payload)) == ledger(1, accepted=1)
    [(path, extra)] = loaded_store.query("select path, extra from event")
    assert path == payload.get("path", "/dashboards/sales")
    kept = json.loads(extra) if extra else {}
    assert kept.keys() == payload.keys() - {"path", "title"}


@pytest.mark.parametrize("at", [-62_135_596_800_000, -1, 0, 253_402_300_799_999])
def test_the_first_and_the_last_instant_never_block_the_store(loaded_store: LoadedStore, at: int) -> None:
    for sent_at in (None, -62_135_596_800_000, 253_402_300_799_999):
        assert loaded_store.bodies({"sentAt": sent_at, "events": [view(timestamp=at)]}) == ledger(1, accepted=1)


@pytest.mark.parametrize(
    "at_us", [-62_135_596_800_000_000, -62_135_596_799_999_750, -500, 1_763_596_800_000_125, 253_402_300_799_998_500]
)
def test_raw_times_are_stored_to_the_microsecond(loaded_store: LoadedStore, at_us: int) -> None:
    at, last = at_us / 1_000, 253_402_300_799_999
    loaded_store.bodies({"sentAt": at, "events": [view(timestamp=last)]})
    loaded_store.bodies({"sentAt": last, "events": [view(timestamp=at)]})
    loaded_store.bodies({"sentAt": at, "events": [view(surface="moon")]})
    times = loaded_store.query("select epoch_us(sent_at), epoch_us(client_at) from event order by ingest_seq")
    assert times == [(at_us, last * 1_000), (last * 1_000, at_us)]
    assert loaded_store.query("select epoch_us(sent_at) from quarantine") == [(at_us,)]


def test_a_clock_of_the_last_year_is_corrected_to_the_microsecond(loaded_store: LoadedStore) -> None:
    last = 253_402_300_799_999
    loaded_store.bodies({"sentAt": last, "events": [view(timestamp=last - 5_000)]})
    assert loaded_store.query("select epoch_us(occurred_at) from event") == [((RECEIVED_AT - 5_000) * 1_000,)]


@pytest.mark.parametrize("byte", [b"\x01", b'"', b"\xff", "ä".encode()])
def test_the_beginning_and_the_digest_of_the_largest_body_are_stored(loaded_store: LoadedStore, byte: bytes) -> None:
    body = b"x" + byte * (1_048_575 // len(byte))
    rejection = Rejection(None, Reason.NOT_JSON, "body: is not JSON.", body)
    line = body_rejection_line(storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=uuid4)
    assert loaded_store.lines(line) == ledger(1, quarantined=1)
    columns = "select raw, raw_encoding, raw_length, whole_bytes, whole_sha256, detail from quarantine"
    [(raw, encoding, length, whole_bytes, digest, detail)] = loaded_store.query(columns)
    assert len(raw) == length
    kept = base64.b64decode(raw) if encoding else raw.encode()
    assert body.startswith(kept)
    assert 8_189 <= len(kept) <= 8_192
    assert (encoding is None) == (byte != b"\xff")
    assert (whole_bytes, digest) == (len(body), sha256(body).hexdigest())
    assert detail.endswith(f"Only the first 8,192 of its {len(body):,} bytes are stored.")
    assert loaded_store.failed_checks() == {}


@pytest.mark.parametrize(("size", "is_whole"), [(65_536, True), (65_537, False)])
def test_the_beginning_of_an_envelope_beyond_the_limit_is_stored(
    loaded_store: LoadedStore, size: int, is_whole: bool
) -> None:
    parsed = ParsedDelivery(
        RECEIVED_AT, catalog_for("svc"), rejected=[Rejection(0, Reason.TOO_LARGE, "too large", b"x" * size)]
    )
    loaded_store.lines(delivery_lines(storable(parsed), key_id="k_1", new_id=uuid4))
    assert loaded_store.query("select whole_bytes from quarantine") == [(None if is_whole else size,)]
    kept = (
        "select (select sum(length(raw)) from quarantine) + coalesce((select sum(length(raw)) from quarantine_rest), 0)"
    )
    assert loaded_store.query(kept) == [(size if is_whole else 8_192,)]
    assert loaded_store.failed_checks() == {}


@pytest.mark.parametrize(
    ("limits", "kept_count"),
    [
        (StoreLimits(quarantine_count_per_day=3), 3),
        (StoreLimits(quarantine_bytes_per_day=1_000), 2),
        (StoreLimits(quarantine_free_bytes_min=2**62), 0),
        (StoreLimits(), 5),
    ],
)
def test_conflicts_are_stored_within_the_budget_of_their_key_and_day(
    tmp_path: Path, limits: StoreLimits, kept_count: int
) -> None:
    loaded_store = LoadedStore(tmp_path, limits)
    loaded_store.bodies(view(id=ID))
    conflict = view({"path": "/other"}, id=ID)
    assert loaded_store.bodies(conflict, conflict) == ledger(2, quarantined=2, conflict=2)
    assert loaded_store.bodies(conflict, conflict, conflict) == ledger(3, quarantined=3, conflict=3)
    assert loaded_store.query("select count(*) from quarantine") == [(kept_count,)]
    assert loaded_store.query("select quarantined_count from rejections where reason = 'id_conflict'") == [(5,)]
    assert loaded_store.query("select sum(counted_only_count) from loaded_segment") == [(5 - kept_count,)]
    assert loaded_store.bodies(conflict, received_at=RECEIVED_AT + DAY_MS).quarantined_count == 1
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()


def test_an_unreadable_segment_changes_nothing(loaded_store: LoadedStore) -> None:
    good = delivery_lines(storable(parse(json.dumps(view()).encode(), RECEIVED_AT)), key_id="k_1", new_id=uuid4)
    with pytest.raises(SqlFailed):
        loaded_store.lines(good, b'{"kind":"event","received_at":"never"}\n')
    assert loaded_store.query("select (select count(*) from event), (select count(*) from loaded_segment)") == [(0, 0)]


def test_a_load_that_ends_before_its_commit_leaves_no_row(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ending_early(folder: str) -> dict[str, str]:
        statements = read_sql(folder)
        return statements | {
            name: sql + "; select error('ends here')" for name, sql in statements.items() if name == "loaded_segment"
        }

    with monkeypatch.context() as patch:
        patch.setattr("embedsink.store.insert.read_sql", ending_early)
        with pytest.raises(SqlFailed, match="ends here"):
            loaded_store.bodies(view(id=ID))
    assert loaded_store.query("select (select count(*) from event), (select count(*) from loaded_segment)") == [(0, 0)]


def test_a_load_that_failed_after_its_commit_is_not_repeated(
    loaded_store: LoadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
        raise StoreTooSmall("the answer to the commit was lost")

    monkeypatch.setattr(database, "transaction", losing_the_answer)
    assert loaded_store.bodies(view(id=ID)) == ledger(1, accepted=1)
    assert loaded_store.failed_checks() == {}
