"""The store: a segment's rows are loaded once, each envelope has one outcome, and no accepted event blocks loading."""

import base64
import contextlib
import json
import re
import resource
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import duckdb
import pytest

import embedsink.store.purge
from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.ingest.records import body_rejection_line, delivery_lines, rejection_count_lines, replay_line, sync_line
from embedsink.journal.segment import inspect, trailer
from embedsink.protocol.dbt_sync import COUNT_FIELD, Sync, digest_of
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.messages import catalog_for
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.store import database, limits, schema
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import SqlUnfit, StoreBroken, StoreRefused, StoreTooSmall, unavailable_if_broken
from embedsink.store.ledger import Ledger
from embedsink.store.limits import StoreLimits
from embedsink.store.purge import PurgeFilter
from embedsink.store.query import SelectQuery
from embedsink.store.reader import EVERYTHING, ROLLUP_VARIABLES, VARIABLES, Reader
from embedsink.store.schema import transaction
from embedsink.store.sql_files import read_sql, read_views
from tests.support.envelopes import ID, RECEIVED_AT, event_or_action, view
from tests.support.stores import make_older, open_store

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OTHER_ID = ID[:-1] + "f"


class Loading:
    """A store, and the segments that are loaded into it: one segment per call."""

    def __init__(self, folder: Path, limits: StoreLimits | None = None) -> None:
        self.folder = folder
        self.store = open_store(folder / "store.duckdb", limits)
        self.count = 0

    def bodies(self, *bodies: object, received_at: int = RECEIVED_AT) -> Ledger:
        """Parse these bodies and load them."""
        parsed = [parse(json.dumps(body).encode(), received_at) for body in bodies]
        return self.lines(*[delivery_lines(one, key_id="k_1", new_id=uuid4) for one in parsed])

    def lines(self, *lines: bytes) -> Ledger:
        """Load these journal lines."""
        self.count += 1
        segment = self.folder / f"{self.count:012d}-00000000.ndjson"
        segment.write_bytes(b"".join(line + trailer(line) for line in lines))
        return self.store.load(inspect(segment))

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the store."""
        return self.store._loading().execute(sql).fetchall()

    def offending(self) -> dict[str, int]:
        """Return the checks that report rows, with their counts."""
        found = {name: len(self.ask(sql)) for name, sql in read_sql("checks").items()}
        return {name: count for name, count in found.items() if count}


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[Loading]:
    loading = Loading(tmp_path)
    yield loading
    assert loading.offending() == {}
    loading.store.close()


def ledger(received: int, *, accepted: int = 0, duplicate: int = 0, quarantined: int = 0) -> Ledger:
    return Ledger(1, received, accepted, duplicate, quarantined)


def test_an_id_twice_in_a_delivery_counts_once(loading: Loading) -> None:
    assert loading.bodies([view(id=ID), view(id=ID)]) == ledger(2, accepted=1, duplicate=1)


def test_an_id_again_in_a_later_segment_counts_once(loading: Loading) -> None:
    loading.bodies(view(id=ID))
    assert loading.bodies(view(id=ID.upper())) == ledger(1, duplicate=1)
    assert loading.ask("select count(*) from event") == [(1,)]


def test_a_retry_with_another_context_and_clock_is_a_duplicate(loading: Loading) -> None:
    loading.bodies({"events": [view(id=ID)]})
    retry = {"sentAt": RECEIVED_AT, "context": {"session": "s1"}, "events": [view(id=ID)]}
    assert loading.bodies(retry) == ledger(1, duplicate=1)


def test_an_id_is_deduplicated_for_seven_days(loading: Loading) -> None:
    loading.bodies(view(id=ID), view(id=OTHER_ID))
    assert loading.bodies(view(id=ID), received_at=RECEIVED_AT + 7 * DAY_MS) == ledger(1, duplicate=1)


def receive_hourly(loading: Loading, hours: int, *, start: int) -> int:
    """Load an event in each of this many hours. Return the end of the last hour."""
    for hour in range(hours):
        loading.bodies(view(), received_at=start + hour * HOUR_MS)
    return start + hours * HOUR_MS


def test_an_id_is_accepted_again_after_its_deduplication_hours(tmp_path: Path) -> None:
    loading = Loading(tmp_path, StoreLimits(dedup_days=1))
    loading.bodies(view(id=ID))
    end = receive_hourly(loading, 24, start=RECEIVED_AT + HOUR_MS)
    assert loading.bodies(view(id=ID), received_at=end - 1) == ledger(1, duplicate=1)
    assert loading.bodies(view(id=ID), received_at=end) == ledger(1, accepted=1)
    # A check reports it, because an id can count twice only in this way.
    assert loading.offending() == {"id_is_unique": 1}
    loading.store.close()


@pytest.mark.parametrize(
    "jumps_ms",
    [[365 * DAY_MS], [-365 * DAY_MS], [365 * DAY_MS, -365 * DAY_MS], [-365 * DAY_MS, 365 * DAY_MS], [30 * DAY_MS] * 5],
    ids=["forward", "backward", "forward_and_backward", "backward_and_forward", "forward_five_times"],
)
def test_a_retry_counts_once_however_the_clock_jumps(loading: Loading, jumps_ms: list[int]) -> None:
    loading.bodies({"events": [view(id=ID)], "lost": {"quota": 3}})
    now = RECEIVED_AT
    for jump_ms in jumps_ms:
        now += jump_ms
        loading.bodies(view(), received_at=now)
        assert loading.bodies(view(id=ID), received_at=now + 1_000) == ledger(1, duplicate=1)
        loading.store.checkpoint()
        loading.store.close()
        loading.store.open()  # a restart in between
    loading.bodies({"events": [view(id=ID)], "lost": {"quota": 3}}, received_at=now + 2_000)
    assert loading.ask("select count(*) from event where event_id = $id$" + ID + "$id$") == [(1,)]
    assert loading.ask("select sum(lost_count)::bigint from loss") == [(3,)]


def test_a_clock_jump_shortens_deduplication_by_at_most_an_hour(tmp_path: Path) -> None:
    loading = Loading(tmp_path, StoreLimits(dedup_days=1))
    loading.bodies(view(id=ID))
    end = receive_hourly(loading, 22, start=RECEIVED_AT + HOUR_MS)
    loading.bodies(view(), received_at=end + 365 * DAY_MS)
    assert loading.bodies(view(id=ID), received_at=end + 365 * DAY_MS) == ledger(1, duplicate=1)
    assert loading.ask("select count(*) from journal_hour") == [(24,)]
    loading.store.close()


def test_a_replay_is_deduplicated_from_the_days_before_the_rejection(tmp_path: Path) -> None:
    loading = Loading(tmp_path, StoreLimits(dedup_days=1))
    loading.bodies(view(id=ID))  # sent again before the replay
    end = receive_hourly(loading, 30, start=RECEIVED_AT + HOUR_MS)
    replayed = delivery_lines(parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT), key_id="k_1", new_id=uuid4)
    assert loading.lines(replayed, replay_line(str(uuid4()), received_at=end)) == ledger(1, duplicate=1)
    loading.store.close()


def test_events_that_arrive_within_an_hour_begin_one_hour(loading: Loading) -> None:
    for minute in range(60):
        loading.bodies(view(), received_at=RECEIVED_AT + minute * 60_000)
    assert loading.ask("select first_ingest_seq >> 32 from journal_hour") == [(1,)]


def test_a_store_from_before_hours_starts_with_the_hours_of_its_loads(tmp_path: Path) -> None:
    loading = Loading(tmp_path, StoreLimits(dedup_days=1))
    for _ in range(26):
        loading.bodies(view())
    loading.bodies(view(id=ID))
    connection = loading.store._loading()
    # As the previous version left it.
    connection.execute(
        "update loaded_segment set loaded_at = timestamp '2026-11-01' + to_hours(left(segment, 12)::int)"
    )
    make_older(loading.store, before="0006")

    loading.store.open()
    assert loading.ask("select count(*), min(first_ingest_seq >> 32), max(began_at) from journal_hour") == [
        (27, 1, datetime(2026, 11, 2, 3))
    ]
    assert loading.bodies(view(id=ID)) == ledger(1, duplicate=1)
    # The retry began the 28th hour. It is compared with that hour and the 24 before.
    assert loading.ask("select getvariable('dedup_from') >> 32") == [(4,)]
    assert loading.offending() == {}
    loading.store.close()


@pytest.mark.parametrize("first_in_same_segment", [True, False])
def test_an_id_with_other_content_is_quarantined_and_the_first_wins(
    loading: Loading, first_in_same_segment: bool
) -> None:
    first, second = view({"path": "/first"}, id=ID), view({"path": "/second", "novel": 1}, id=ID)
    if first_in_same_segment:
        assert loading.bodies(first, second) == ledger(2, accepted=1, quarantined=1)
    else:
        assert loading.bodies(first) == ledger(1, accepted=1)
        assert loading.bodies(second) == ledger(1, quarantined=1)

    assert loading.ask("select path from event") == [("/first",)]
    [(reason, detail, raw)] = loading.ask("select reason, detail, raw from quarantine")
    assert (reason, ID in detail) == ("id_conflict", True)
    assert json.loads(raw)["payload"]["path"] == "/second"


def test_an_action_and_an_event_may_have_the_same_id(loading: Loading) -> None:
    action = event_or_action("action:refresh", id=ID)
    assert loading.bodies([view(id=ID), action]) == ledger(2, accepted=2)
    assert loading.bodies([view(id=ID), action]) == ledger(2, duplicate=2)


@pytest.mark.parametrize("other", [{"deploymentId": 13}, {"embedTenant": "other"}])
def test_a_ready_that_names_another_deployment_or_tenant_is_a_conflict(loading: Loading, other: dict[str, Any]) -> None:
    payload = {"embedTenant": "acme", "deploymentId": 12, "mode": "signed"}
    ready = event_or_action("event:ready", payload, id=ID)
    assert loading.bodies(ready, ready) == ledger(2, accepted=1, duplicate=1)
    assert loading.bodies(event_or_action("event:ready", payload | other, id=ID)) == ledger(1, quarantined=1)


def test_rejections_losses_and_replays_are_rows(loading: Loading) -> None:
    delivery = {"context": {"session": "s1"}, "events": [view(), view(id=7), 5], "lost": {"queue_overflow": 3}}
    assert loading.bodies(delivery) == ledger(3, accepted=1, quarantined=2)
    assert loading.ask("select reason, lost_count, session from loss") == [("queue_overflow", 3, "s1")]
    rejected = loading.ask('select "index", reason, raw, session, replayed_at from quarantine order by "index"')
    assert [row[:2] for row in rejected] == [(1, "bad_field"), (2, "not_an_object")]
    assert rejected[1][2:] == ("5", "s1", None)

    [(quarantine_id,)] = loading.ask('select quarantine_id from quarantine where "index" = 2')
    assert loading.lines(replay_line(str(quarantine_id), received_at=RECEIVED_AT)) == ledger(0)
    assert loading.ask('select "index" from quarantine where replayed_at is not null') == [(2,)]


@pytest.mark.parametrize(
    ("sent_after_ms", "moved_by_ms"), [(0, 0), (-60_000, 0), (-60_001, 60_001), (3_600_000, -3_600_000)]
)
def test_a_wrong_clock_is_corrected_and_transit_is_not(loading: Loading, sent_after_ms: int, moved_by_ms: int) -> None:
    at = RECEIVED_AT - 500_000
    loading.bodies({"sentAt": RECEIVED_AT + sent_after_ms, "events": [view(timestamp=at)]})
    [(occurred_at, client_at)] = loading.ask("select epoch_ms(occurred_at), epoch_ms(client_at) from event")
    assert (occurred_at, client_at) == (at + moved_by_ms, at)


def test_nothing_happens_later_than_a_minute_after_it_was_received(loading: Loading) -> None:
    loading.bodies(view(timestamp=RECEIVED_AT + DAY_MS))
    assert loading.ask("select epoch_ms(occurred_at) from event") == [(RECEIVED_AT + 60_000,)]


def test_every_action_is_stored_with_its_payload(loading: Loading) -> None:
    theme = {"font": "Inter", "colors": {"a": "#fff"}}
    loading.bodies(
        event_or_action("action:set-theme", {"embedTheme": theme}),
        event_or_action("action:set-color-scheme"),
        event_or_action("action:set-locale"),
        event_or_action("action:set-filter"),
        event_or_action("action:navigate"),
        event_or_action("action:refresh"),
    )
    rows = loading.ask("select type, theme, scheme, locale, filter_url_parameter, path from action order by ingest_seq")
    assert json.loads(rows[0][1]) == theme
    assert [(row[0], row[2:]) for row in rows] == [
        ("set-theme", (None, None, None, None)),
        ("set-color-scheme", ("dark", None, None, None)),
        ("set-locale", (None, "de", None, None)),
        ("set-filter", (None, None, "f_orders.region=[1]", None)),
        ("navigate", (None, None, None, "/dashboards/costs")),
        ("refresh", (None, None, None, None)),
    ]


def sync(**fields: Any) -> bytes:
    """Return the journal line of a dbt sync's result."""
    result: dict[str, Any] = {
        "syncJobId": "job1",
        "generatedFiles": [{"path": "b.yml"}, {"path": "a.yml"}],
        "manifestStats": {"models": 3, "sources": 2, "macros": 1},
        COUNT_FIELD: 4,
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


def test_a_sync_is_a_row_with_its_files_and_is_no_envelope(loading: Loading) -> None:
    assert loading.lines(sync(extra={"branch": "dbt"})) == ledger(0)
    assert loading.ask("select * exclude (ingest_seq, digest, received_at) from sync") == [
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
    assert loading.ask("select position, path from sync_file order by position") == [(0, "b.yml"), (1, "a.yml")]
    with loading.store.reader({"deployments": [1]}) as reader:
        [[row]] = reader.rows("sync_result")
    assert row[-1] == ["b.yml", "a.yml"]


def test_a_sync_counts_once_in_a_segment_and_in_a_later_one(loading: Loading) -> None:
    loading.lines(sync(), sync(), sync(deployment=2), sync(result={"syncJobId": "job2", "generatedFiles": []}))
    loading.lines(sync(), sync(deployment=3))
    rows = loading.ask("select deployment, sync_job_id from sync order by all")
    assert rows == [(1, "job1"), (1, "job2"), (2, "job1"), (3, "job1")]
    assert loading.ask("select count(*) from sync_file") == [(6,)]


def test_the_first_result_of_a_job_stays(loading: Loading) -> None:
    loading.lines(sync(), sync(result={"durationMs": 6_000}))
    loading.lines(sync(result={"durationMs": 7_000}))
    assert loading.ask("select duration_ms from sync") == [(5_000,)]


def test_syncs_and_envelopes_share_a_segment(loading: Loading) -> None:
    event = delivery_lines(parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT), key_id="k_1", new_id=uuid4)
    assert loading.lines(sync(), event, sync(deployment=2), event) == ledger(2, accepted=1, duplicate=1)
    assert loading.ask("select count(*) from sync") == [(2,)]


@pytest.mark.parametrize("count", [1, 40_000])
def test_a_sync_of_the_largest_size_is_loaded_in_the_usual_memory(loading: Loading, count: int) -> None:
    files = [{"path": f"{place:06}" + "x" * (4_000 if count == 1 else 0)} for place in range(count)]
    for number in range(3):
        loading.lines(sync(result={"syncJobId": f"job{number}", "generatedFiles": files}))
    assert loading.ask("select count(*) from sync_file") == [(3 * count,)]


@pytest.mark.parametrize("year", [1, 9999])
def test_a_sync_of_the_first_and_the_last_year_never_jams_the_store(loading: Loading, year: int) -> None:
    instant = datetime(year, 12, 31, 23, 59, 59, 999_999)
    microseconds = (instant - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    loading.lines(sync(completed_at=microseconds))
    assert loading.ask("select completed_at from sync") == [(instant,)]
    for report in ("sync_impact", "deployment_in_scope"):
        assert len(loading.ask(f"select * from {report}")) == 1


def test_a_store_from_before_syncs_retains_its_rows_and_accepts_syncs(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    loading.bodies(view(id=ID))
    make_older(loading.store, before="0002")

    loading.store.open()
    assert loading.ask("select name from migration order by name") == [(name,) for name in read_sql("migrations")]
    assert loading.ask("select event_id::varchar from event") == [(ID,)]
    loading.lines(sync())
    assert loading.ask("select sync_job_id from sync") == [("job1",)]
    assert loading.offending() == {}
    loading.store.close()


@pytest.mark.parametrize("in_one_segment", [True, False])
def test_a_repeated_loss_report_counts_once(loading: Loading, in_one_segment: bool) -> None:
    body = {"context": {"session": "s1"}, "events": [view(id=ID)], "lost": {"queue_overflow": 3, "too_old": 1}}
    # The answer was lost, and the next delivery has more events and more losses.
    again = body | {"events": [view(id=ID.upper()), view(id=OTHER_ID)], "lost": {"queue_overflow": 5, "too_old": 1}}
    for bodies in ([body, body, again, body],) if in_one_segment else ([body], [body], [again], [body]):
        loading.bodies(*bodies)
    lost = "select reason, sum(lost_count)::bigint from loss group by reason order by reason"
    assert loading.ask(lost) == [("queue_overflow", 5), ("too_old", 1)]
    assert loading.ask("select lost_count from completeness") == [(6,)]

    loading.bodies(body | {"events": [view(id=OTHER_ID)]})
    assert loading.ask(lost) == [("queue_overflow", 8), ("too_old", 2)]


def test_a_loss_report_is_recognized_by_a_rejected_envelope(loading: Loading) -> None:
    for _ in range(2):
        loading.bodies({"events": [view(id=ID, surface="moon")], "lost": {"queue_overflow": 3}})
    assert loading.ask("select lost_count from loss") == [(3,)]


def test_losses_without_an_id_count_each_time(loading: Loading) -> None:
    # As the previous version wrote them.
    line = b'{"kind":"lost","received_at":%d,"key_id":"k_1","reason":"quota","lost_count":3}\n' % RECEIVED_AT
    loading.lines(line, line)
    loading.lines(line)
    loading.bodies({"events": [view()], "lost": {"quota": 3}}, {"events": [], "lost": {"quota": 3}})
    assert loading.ask("select lost_count, loss_id from loss") == [(3, None)] * 5


def test_a_loss_report_is_deduplicated_as_long_as_an_event(loading: Loading) -> None:
    body = {"events": [view(id=ID)], "lost": {"quota": 3}}
    loading.bodies(body)
    loading.bodies(body, received_at=RECEIVED_AT + 7 * DAY_MS)
    assert loading.ask("select sum(lost_count)::bigint from loss") == [(3,)]
    # Without an id it can't be recognized.
    loading.bodies({"events": [], "lost": {"quota": 3}}, received_at=RECEIVED_AT + 30 * DAY_MS)
    assert loading.ask("select sum(lost_count)::bigint from loss") == [(6,)]


def test_a_store_from_before_loss_ids_retains_its_losses_and_accepts_more(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    loading.bodies({"events": [view(id=ID)], "lost": {"quota": 3}})
    make_older(loading.store, before="0003")

    loading.store.open()
    assert loading.ask("select lost_count, loss_id from loss") == [(3, None)]
    for _ in range(2):
        loading.bodies({"events": [view(id=OTHER_ID)], "lost": {"quota": 4}})
    assert loading.ask("select lost_count from completeness") == [(7,)]
    assert loading.offending() == {}
    loading.store.close()


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
def test_valid_content_never_jams_the_store(loading: Loading, payload: dict[str, Any]) -> None:
    assert loading.bodies(view(payload)) == ledger(1, accepted=1)
    [(path, extra)] = loading.ask("select path, extra from event")
    assert path == payload.get("path", "/dashboards/sales")
    kept = json.loads(extra) if extra else {}
    assert kept.keys() == payload.keys() - {"path", "title"}


@pytest.mark.parametrize("at", [-62_135_596_800_000, -1, 0, 253_402_300_799_999])
def test_the_first_and_the_last_instant_never_jam_the_store(loading: Loading, at: int) -> None:
    for sent_at in (None, -62_135_596_800_000, 253_402_300_799_999):
        assert loading.bodies({"sentAt": sent_at, "events": [view(timestamp=at)]}) == ledger(1, accepted=1)


@pytest.mark.parametrize(
    "at_us", [-62_135_596_800_000_000, -62_135_596_799_999_750, -500, 1_763_596_800_000_125, 253_402_300_799_998_500]
)
def test_raw_times_are_stored_to_the_microsecond(loading: Loading, at_us: int) -> None:
    at, last = at_us / 1_000, 253_402_300_799_999
    loading.bodies({"sentAt": at, "events": [view(timestamp=last)]})
    loading.bodies({"sentAt": last, "events": [view(timestamp=at)]})
    loading.bodies({"sentAt": at, "events": [view(surface="moon")]})
    times = loading.ask("select epoch_us(sent_at), epoch_us(client_at) from event order by ingest_seq")
    assert times == [(at_us, last * 1_000), (last * 1_000, at_us)]
    assert loading.ask("select epoch_us(sent_at) from quarantine") == [(at_us,)]


def test_a_clock_of_the_last_year_is_corrected_to_the_microsecond(loading: Loading) -> None:
    last = 253_402_300_799_999
    loading.bodies({"sentAt": last, "events": [view(timestamp=last - 5_000)]})
    assert loading.ask("select epoch_us(occurred_at) from event") == [((RECEIVED_AT - 5_000) * 1_000,)]


@pytest.mark.parametrize("byte", [b"\x01", b'"', b"\xff", "ä".encode()])
def test_the_beginning_and_the_digest_of_the_largest_body_are_stored(loading: Loading, byte: bytes) -> None:
    body = b"x" + byte * (1_048_575 // len(byte))
    rejection = Rejection(None, Reason.NOT_JSON, "body: is not JSON.", body)
    line = body_rejection_line(rejection, received_at=RECEIVED_AT, key_id="k_1", new_id=uuid4)
    assert loading.lines(line) == ledger(1, quarantined=1)
    columns = "select raw, raw_encoding, raw_length, whole_bytes, whole_sha256, detail from quarantine"
    [(raw, encoding, length, whole_bytes, digest, detail)] = loading.ask(columns)
    assert len(raw) == length
    kept = base64.b64decode(raw) if encoding else raw.encode()
    assert body.startswith(kept)
    assert 8_189 <= len(kept) <= 8_192
    assert (encoding is None) == (byte != b"\xff")
    assert (whole_bytes, digest) == (len(body), sha256(body).hexdigest())
    assert detail.endswith(f"Only the first 8,192 of its {len(body):,} bytes are stored.")
    assert loading.offending() == {}


@pytest.mark.parametrize(("size", "is_whole"), [(65_536, True), (65_537, False)])
def test_the_beginning_of_an_envelope_beyond_the_limit_is_stored(loading: Loading, size: int, is_whole: bool) -> None:
    parsed = ParsedDelivery(
        RECEIVED_AT, catalog_for("svc"), rejected=[Rejection(0, Reason.TOO_LARGE, "too large", b"x" * size)]
    )
    loading.lines(delivery_lines(parsed, key_id="k_1", new_id=uuid4))
    assert loading.ask("select whole_bytes from quarantine") == [(None if is_whole else size,)]
    kept = (
        "select (select sum(length(raw)) from quarantine) + coalesce((select sum(length(raw)) from quarantine_rest), 0)"
    )
    assert loading.ask(kept) == [(size if is_whole else 8_192,)]
    assert loading.offending() == {}


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
    loading.store.fold_ledger(before=3)
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
    loading.store._loading().execute(earlier)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 2)
    loading.store.fold_ledger(before=7)
    assert loading.ask("select first_number, left(segment, 12)::int from loaded_segment order by segment") == [
        (1, 2),
        (3, 4),
        (5, 6),
        (None, 7),
        (None, 8),
    ]
    assert loading.store.purge(PurgeFilter()) == 8
    assert loading.offending() == {}


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
    loading = Loading(tmp_path, limits)
    loading.bodies(view(id=ID))
    conflict = view({"path": "/other"}, id=ID)
    assert loading.bodies(conflict, conflict) == ledger(2, quarantined=2)
    assert loading.bodies(conflict, conflict, conflict) == ledger(3, quarantined=3)
    assert loading.ask("select count(*) from quarantine") == [(kept_count,)]
    assert loading.ask("select quarantined_count from rejections where reason = 'id_conflict'") == [(5,)]
    assert loading.ask("select sum(counted_only_count) from loaded_segment") == [(5 - kept_count,)]
    assert loading.bodies(conflict, received_at=RECEIVED_AT + DAY_MS).quarantined_count == 1
    assert loading.offending() == {}
    loading.store.close()


def test_invented_deployments_do_not_multiply_the_counts_of_purged_rejections(loading: Loading) -> None:
    parts = [{"context": {"deployment": number}, "events": [1]} for number in (7, 7, *range(1_000, 1_150))]
    loading.bodies(*parts)
    assert loading.store.purge(PurgeFilter()) == 152
    assert loading.ask("select count(*), sum(rejected_count) from rejection_count") == [(101, 152)]
    assert loading.ask("select rejected_count from rejection_count where deployment = 7") == [(2,)]


@pytest.mark.parametrize("page", [{"is_by_ingest_seq": True}, {"is_page": True, "limit": 1_000}])
def test_rows_are_stored_in_the_order_of_arrival(loading: Loading, page: dict[str, Any]) -> None:
    loading.store._loading().execute(
        "insert into event by name select uuid() as event_id, (1::bigint << 32) + i as ingest_seq, "
        "timestamp '2026-11-20' as occurred_at, occurred_at as received_at, 'k' as key_id, 12 as deployment, i as seq, "
        "'view' as type, 'dashboard' as surface from range(300_000, 0, -1) t(i)"
    )
    with loading.store.reader({"deployments": [12], "hides_ingest_seq": True}) as reader:
        selection = SelectQuery("event_in_scope", columns=("ingest_seq", "seq"), **page)
        if selection.is_page:
            reader.page(selection)
        found = [row[1] for rows in reader.rows(selection) for row in rows]
    assert found == list(range(1, page.get("limit", 300_000) + 1))
    loading.store._loading().execute("delete from event")  # They have no ledger and no payload.


def test_a_purge_moves_the_revision_of_those_deployments_alone(loading: Loading) -> None:
    loading.bodies({"context": {"deployment": 7}, "events": [1]})
    loading.bodies({"context": {"deployment": 8}, "events": [1]})
    before = {deployment: loading.store.revisions.of({deployment}) for deployment in (7, 8)}
    key = "update quarantine set key_id = 'k_2' where deployment = 7"
    loading.store._loading().execute(key)
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


def test_an_unreadable_segment_changes_nothing(loading: Loading) -> None:
    good = delivery_lines(parse(json.dumps(view()).encode(), RECEIVED_AT), key_id="k_1", new_id=uuid4)
    with pytest.raises(SqlUnfit):
        loading.lines(good, b'{"kind":"event","received_at":"never"}\n')
    assert loading.ask("select (select count(*) from event), (select count(*) from loaded_segment)") == [(0, 0)]


def test_a_load_that_ends_before_its_commit_leaves_no_row(loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    def ending_early(folder: str) -> dict[str, str]:
        found = read_sql(folder)
        return found | {
            name: sql + "; select error('ends here')" for name, sql in found.items() if name == "loaded_segment"
        }

    with monkeypatch.context() as patch:
        patch.setattr("embedsink.store.insert.read_sql", ending_early)
        with pytest.raises(SqlUnfit, match="ends here"):
            loading.bodies(view(id=ID))
    assert loading.ask("select (select count(*) from event), (select count(*) from loaded_segment)") == [(0, 0)]


def test_a_store_with_a_newer_schema_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    with contextlib.closing(duckdb.connect(str(path))) as newer:
        newer.execute("create table migration (name varchar, applied_at timestamp)")
        newer.execute("insert into migration values ('9999_later', now()::timestamp)")
    before = path.read_bytes()

    with pytest.raises(Misconfigured, match="9999_later, which is newer than this embedsink"):
        Store(path).open()

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.duckdb"
    store = Store(path)
    store.open()
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


def test_views_are_created_again_only_if_their_files_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    create = schema.create_views

    def noted(connection: duckdb.DuckDBPyConnection) -> None:
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
        with store.reader(EVERYTHING) as reader:
            known = {view for view in ("views", "answer") if reader.columns(view)}
        store.close()
        return known

    monkeypatch.setattr(schema, "create_views", noted)
    assert [views(), views()] == [{"views"}] * 2
    assert len(made) == 1
    with monkeypatch.context() as patch:
        patch.setattr(schema, "read_views", changed)
        assert [views(), views()] == [{"views", "answer"}] * 2
        assert len(made) == 2
        patch.setattr(schema, "create_views", interrupted)
        assert views() == {"views", "answer"}, "nothing is made"
        patch.setattr(schema, "read_views", read_views)
        with pytest.raises(EmbedsinkError):
            views()
    assert [views(), views()] == [{"views"}] * 2
    assert len(made) == 3


def test_the_revision_changes_with_every_load_and_never_repeats(loading: Loading) -> None:
    revisions = [loading.store.revisions.of(None)]
    loading.bodies(view())
    revisions.append(loading.store.revisions.of(None))
    loading.store.checkpoint()
    assert loading.store.revisions.of(None) == revisions[-1]
    with pytest.raises(SqlUnfit):
        loading.lines(b'{"kind":"event","received_at":"never"}\n')
    assert loading.store.revisions.of(None) == revisions[-1]
    loading.store.close()
    loading.store.open()
    revisions.append(loading.store.revisions.of(None))
    assert len(set(revisions)) == len(revisions)


def test_the_file_is_attached_again_after_many_loads_when_no_reader_is_open(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attached_at() -> object:
        return loading.ask("select database_oid from duckdb_databases() where database_name = 'store'")

    loading.bodies(view(id=None))
    first, revision = attached_at(), loading.store.revisions.of(None)
    loading.store.checkpoint()
    assert attached_at() == first, "not for so little"
    monkeypatch.setattr(database, "_REATTACH_BYTES", 1)
    with loading.store.reader(EVERYTHING) as reader:
        loading.store.checkpoint()
        assert attached_at() == first
        assert reader.first_row("select * from event")[1] == 1
    loading.store.checkpoint()
    assert attached_at() != first
    assert (loading.store.is_open, loading.store.revisions.of(None)) == (True, revision)
    loading.bodies(view(id=None))
    assert loading.ask("select count(*) from event") == [(2,)]
    with loading.store.reader(EVERYTHING) as reader:
        assert reader.first_row("select * from event")[1] == 2


def test_a_store_that_cannot_be_attached_again_is_reopened_with_all_rows(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise duckdb.IOException("No space left on device")

    loading.bodies(view(id=None))
    with monkeypatch.context() as patch:
        patch.setattr(database, "_REATTACH_BYTES", 1)
        patch.setattr(database, "attach", refuse)
        with pytest.raises(StoreBroken):
            loading.store.checkpoint()
    loading.store.close()
    loading.store.open()
    assert loading.ask("select count(*) from event") == [(1,)]


@pytest.mark.parametrize("instead", [None, b"another file"])
def test_a_store_that_was_moved_is_never_replaced_by_an_empty_one(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, instead: bytes | None
) -> None:
    loading.bodies(view(id=None))
    loading.store.checkpoint()
    damaged = loading.store.path.rename(loading.store.path.with_suffix(".moved"))
    if instead:
        loading.store.path.write_bytes(instead)
    monkeypatch.setattr(database, "_REATTACH_BYTES", 1)
    with pytest.raises(StoreBroken, match=r"store\.duckdb: was moved or replaced while it was open"):
        loading.store.checkpoint()
    assert (loading.store.path.read_bytes() if instead else loading.store.path.exists()) == (instead or False)
    loading.store.close()
    damaged.replace(loading.store.path)
    loading.store.open()
    assert loading.ask("select count(*) from event") == [(1,)]


def test_a_query_of_few_columns_does_not_limit_the_next_query(loading: Loading) -> None:
    seen = view({"publicId": "d1"}, id=None, timestamp=RECEIVED_AT)
    failed = event_or_action("event:error", id=None, surface="dashboard", timestamp=RECEIVED_AT + 1)
    loading.bodies({"context": {"deployment": 1, "session": "s1"}, "events": [seen, failed]})
    with loading.store.reader({**EVERYTHING, "since": datetime(2020, 1, 1)}) as reader:
        assert len([row for rows in reader.rows(SelectQuery("dashboards", ("public_id",))) for row in rows]) == 1
        assert reader.first_row("select error_count from dashboards") == ({"error_count": 1}, 1)


def test_segments_of_the_usual_size_fit_into_the_usual_memory(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = parse(json.dumps(view(id=ID)).encode(), RECEIVED_AT)
    line = delivery_lines(parsed, key_id="key_1", new_id=uuid4)
    line = line.replace(b'"title":"', b'"title":"' + b"x" * (450 - len(line)), 1)
    tries = []

    def load_counted(*asked: Any) -> Any:
        tries.append(1)
        return load(*asked)

    load = loading.store._load
    monkeypatch.setattr(loading.store, "_load", load_counted)
    for _ in range(6):
        loading.lines(b"".join(line.replace(ID.encode(), str(uuid4()).encode()) for _ in range(18_000)))
        loading.store.checkpoint_when_due()
    assert len(tries) == 6


def test_the_second_thread_exists_only_while_a_reader_is_open(loading: Loading) -> None:
    def thread_count() -> object:
        return loading.ask("select current_setting('threads')")[0][0]

    assert thread_count() == 1
    with loading.store.reader(EVERYTHING):
        with loading.store.reader(EVERYTHING):
            assert thread_count() == 2
        assert thread_count() == 2
    assert thread_count() == 1


def test_a_brief_query_starts_no_second_thread(loading: Loading) -> None:
    with loading.store.reader(EVERYTHING, is_brief=True):
        assert loading.ask("select current_setting('threads')") == [(1,)]
        with loading.store.reader(EVERYTHING):
            assert loading.ask("select current_setting('threads')") == [(2,)]
        assert loading.ask("select current_setting('threads')") == [(1,)]


def test_a_store_with_texts_in_its_rollups_is_rolled_up_again(tmp_path: Path) -> None:
    limits = StoreLimits(rollup_from_count=1)
    loading = Loading(tmp_path, limits)
    loading.bodies(view(id=ID))
    loading.store.roll_up()
    make_older(loading.store, before="0005")

    loading.store.open()
    assert loading.ask("select count(*) from session_15min union all select count(*) from rollup_batch") == [(0,), (0,)]
    assert loading.store.roll_up()
    assert loading.ask("select sum(view_count)::bigint from session_15min") == [(1,)]
    assert loading.offending() == {}


@pytest.mark.parametrize("failures", [["No space left on device"], ["Out of Memory Error", "No space left on device"]])
def test_a_load_that_was_refused_after_its_commit_changes_the_revision(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    @contextlib.contextmanager
    def losing_the_answer(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with transaction(connection):
            yield
            if len(failures) > 1:
                raise duckdb.IOException(failures.pop(0))
        raise duckdb.IOException(failures.pop())

    before = loading.store.revisions.of(None)
    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", losing_the_answer)
        with pytest.raises(StoreRefused):
            loading.bodies(view(id=ID))
    assert loading.ask("select count(*) from event") == [(1,)]
    assert loading.store.revisions.of(None) != before


def test_readers_of_a_store_that_breaks_get_a_retryable_error(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    loading.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    reader = loading.store.reader(EVERYTHING)
    with files_that_can_not_grow(loading.store.path.stat().st_size), pytest.raises(EmbedsinkError):
        loading.store.checkpoint()

    with pytest.raises(StoreBroken):
        loading.store.loaded_segments()
    for ask in (
        lambda: reader.columns("views"),
        lambda: reader.comment("views"),
        lambda: list(reader.rows("views")),
        lambda: loading.store.reader(EVERYTHING),
    ):
        with pytest.raises(Unavailable, match="store: "):
            ask()
    reader.close()
    loading.store.close()


def test_a_store_that_breaks_in_the_middle_of_a_report_closes_without_ending_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DuckDB 1.5 aborts the process when a connection with a transaction is closed. Then this test has no report.
    monkeypatch.setattr(database, "_CLOSE_TIMEOUT_S", 0.1)
    loading = Loading(tmp_path)
    loading.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    with loading.store.reader(EVERYTHING) as reader, reader.consistent():
        list(reader.rows("views"))
        with files_that_can_not_grow(loading.store.path.stat().st_size), pytest.raises(StoreBroken):
            loading.store.checkpoint()
        with pytest.raises(StoreRefused, match="is still read"):
            loading.store.close()
    loading.store.open()
    # A reader ends an open transaction when it closes.
    reader = loading.store.reader(EVERYTHING)
    reader._execute("begin transaction")
    loading.bodies([view({"title": f"{number}" * 200}, id=None) for number in range(900)])
    list(reader.rows("views"))
    with files_that_can_not_grow(loading.store.path.stat().st_size), pytest.raises(StoreBroken):
        loading.store.checkpoint()
    reader.close()
    loading.store.close()


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
    loading = Loading(tmp_path)
    reader = loading.store.reader(EVERYTHING)
    # It is not opened a second time while a reader is open.
    for act in (loading.store.close, loading.store.open):
        with pytest.raises(StoreRefused, match="is still read"):
            act()
        with pytest.raises(Unavailable, match="is being opened"):
            loading.store.reader(EVERYTHING)
    reader.close()
    with pytest.raises(Unavailable, match="store: "):
        reader.columns("views")
    loading.store.open()
    loading.store.reader(EVERYTHING).close()
    loading.store.close()


def test_rows_interrupted_by_closing_raise_a_retryable_error(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    closing = threading.Timer(0.1, loading.store.close)
    with loading.store.reader(EVERYTHING) as reader:
        closing.start()
        with pytest.raises(Unavailable, match="store: "):
            reader.first_row("select range from range(1_000_000_000)")
    closing.join()
    assert not loading.store.is_open


def test_the_catalog_is_queried_once_for_all_readers_of_an_opened_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = Loading(tmp_path)
    asked: list[str] = []
    ask = Reader._execute

    def noted(reader: Reader, sql: str, parameters: list[object] | None = None) -> duckdb.DuckDBPyConnection:
        asked.append(sql)
        return ask(reader, sql, parameters)

    monkeypatch.setattr(Reader, "_execute", noted)
    for count in (2, 4):
        for name in ("views", "downloads", "none"):
            with loading.store.reader(EVERYTHING) as reader:
                assert bool(reader.columns(name)) == bool(reader.comment(name)) == (name != "none")
        assert len(asked) == count
        loading.store.close()
        loading.store.open()


def test_a_memory_limit_that_cannot_be_raised_makes_the_store_unavailable_and_is_not_counted(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def memory_limit() -> object:
        return loading.ask("select current_setting('memory_limit')")[0][0]

    def refuse(*_: object) -> None:
        raise duckdb.IOException("IO Error: No space left on device")

    loading.bodies(view())
    usual = memory_limit()
    with monkeypatch.context() as patch:
        patch.setattr(limits.Raised, "_set", refuse)
        for act in (loading.store.checkpoint, lambda: loading.store.salvage([], journal_numbers=[])):
            with pytest.raises(StoreRefused):
                act()
    loading.store.checkpoint()
    assert memory_limit() == usual


def test_the_memory_limit_is_half_the_report_memory_and_is_lowered_again(tmp_path: Path) -> None:
    store = Store(
        tmp_path / "store.duckdb", StoreLimits(memory_bytes=100 * 1_048_576, memory_bytes_max=500 * 1_048_576)
    )
    store.open()
    setting = "select current_setting('memory_limit') as setting"
    with store.reader(EVERYTHING) as reader:
        assert reader.first_row(setting) == ({"setting": "250.0 MiB"}, 1)
    assert store._loading().execute(setting).fetchone() == ("124.0 MiB",)
    store.close()


def test_a_report_has_at_least_the_usual_memory(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb", StoreLimits(memory_bytes=100 * 1_048_576, memory_bytes_max=64 * 1_048_576))
    store.open()
    with store.reader(EVERYTHING) as reader:
        assert reader.first_row("select current_setting('memory_limit') as setting")[0]["setting"] == "124.0 MiB"
    store.close()


@pytest.mark.parametrize("misspelt", ["tennant", "Tenant", "deployment"])
def test_a_variable_that_no_view_reads_is_never_dropped(loading: Loading, misspelt: str) -> None:
    with pytest.raises(ValueError, match=misspelt):
        loading.store.reader({**EVERYTHING, misspelt: "acme"})
    with loading.store.reader(EVERYTHING) as reader, pytest.raises(ValueError, match=misspelt):
        reader.narrowed(**{misspelt: "acme"})


def test_every_variable_that_a_view_reads_is_set_for_each_reader() -> None:
    sql = " ".join(read_views().values())
    assert set(re.findall(r"getvariable\('(\w+)'\)", sql)) == {*VARIABLES, *ROLLUP_VARIABLES}


@contextlib.contextmanager
def reading(store: Store, ended: list[object]) -> Iterator[None]:
    """A reader that runs in a thread until it is interrupted. Its exception is appended to `ended`."""
    is_reading = threading.Event()

    def read() -> None:
        with store.reader(EVERYTHING) as reader:
            is_reading.set()
            try:
                reader.first_row("select count(*) from range(100_000_000_000) a where hash(a.range) = 1")
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


def test_a_load_that_lacks_the_memory_of_readers_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_READER_GRACE_S", 0.1)
    loading = Loading(tmp_path)
    load, ended = loading.store._load, list[object]()

    def load_where_nobody_reads(*arguments: Any) -> Any:
        if not ended:
            raise StoreTooSmall("Out of Memory")
        return load(*arguments)

    monkeypatch.setattr(loading.store, "_load", load_where_nobody_reads)
    with reading(loading.store, ended):
        assert loading.bodies(view()) == ledger(1, accepted=1)
        assert len(ended) == 1
        # Readers that come later are not affected.
        loading.store.reader(EVERYTHING).close()


@pytest.mark.parametrize("is_short", [False, True])
def test_a_checkpoint_of_wide_rows_ends_readers_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    monkeypatch.setattr(database, "_READER_GRACE_S", 0.1)
    monkeypatch.setattr(limits.Raised, "can_be", lambda *_: not is_short)
    loading, ended = Loading(tmp_path), list[object]()
    loading.bodies(view({"title": "x" * 60_000}))
    with reading(loading.store, ended):
        loading.store.checkpoint()
        assert len(ended) == is_short
        loading.store.reader(EVERYTHING).close()


def test_readers_wait_for_a_checkpoint_of_wide_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_MEMORY_WAIT_S_MAX", 0.1)
    loading = Loading(tmp_path)
    with loading.store._readers.paused(), pytest.raises(Unavailable, match="needs the memory"):
        loading.store.reader(EVERYTHING)
    loading.store.reader(EVERYTHING).close()
    loading.store.close()


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
    store = Store(tmp_path / "store.duckdb")
    store.open()
    set_, refusals = limits.Raised._set, iter([True] * 6)

    def set_where_there_is_room(raised: Any, connection: duckdb.DuckDBPyConnection) -> None:
        if next(refusals, False):
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 2.0 KiB")
        set_(raised, connection)

    with contextlib.closing(store):
        monkeypatch.setattr(limits.Raised, "_set", set_where_there_is_room)
        with store.reader(EVERYTHING) as reader:
            assert list(reader.rows("views")) == []
        monkeypatch.setattr(database, "_MEMORY_WAIT_S_MAX", 0.1)
        refusals = iter([True] * 1_000)
        with pytest.raises(Unavailable, match="failed to allocate"):
            store.reader(EVERYTHING)


def test_a_store_that_is_up_to_date_is_opened_without_writing_to_it(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    loading.bodies(view(id=ID))
    loading.store.checkpoint()
    loading.store.close()
    before = loading.store.path.stat().st_mtime_ns, loading.store.path.read_bytes()
    loading.store.open()
    with loading.store.reader(EVERYTHING) as reader:
        assert len(list(reader.rows("event"))) == 1
    assert (loading.store.path.stat().st_mtime_ns, loading.store.path.read_bytes()) == before
    loading.store.close()


@pytest.mark.parametrize(
    "error",
    [
        duckdb.OutOfMemoryException("Out of Memory Error: failed to offload data block of size 256.0 KiB"),
        duckdb.IOException("IO Error: Could not write file: No space left on device"),
    ],
    ids=["spill", "write"],
)
def test_a_report_without_disk_space_is_refused_with_that_reason(error: duckdb.Error) -> None:
    refused = pytest.raises(Unavailable, match="disk: has no room for what does not fit into memory")
    with refused as refusal, unavailable_if_broken():
        raise error
    assert refusal.value.reason is Reason.STORAGE_LOW
