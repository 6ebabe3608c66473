"""Replay: what was rejected is accepted when it is valid by now, as far as its key reaches, and once."""

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid5

import orjson
import pytest
from uuid_utils import uuid7

import embedsink.http.api.quarantine
import embedsink.transfer.replay
from embedsink.errors import Unavailable
from embedsink.ingest.records import journal_lines
from embedsink.journal.segment import Segment, number_of
from embedsink.journal.writer import wait_for
from embedsink.loader import tasks
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.loader.tasks import QuarantinePurge
from embedsink.protocol.messages import catalog_for
from embedsink.protocol.strict_json import encode
from embedsink.protocol.validation import Parsed, Rejection, Rules
from embedsink.reasons import Reason
from embedsink.store.database import Ledger, Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.reader import EVERYTHING
from embedsink.store.sql_files import read_sql
from embedsink.transfer.replay import Replay
from tests.envelope.sending import ID, event_or_action, view
from tests.http.asking import Server, open_server, problem
from tests.servers import wait_until


def reject(server: Server, envelope: object, *, key: str, sent_at: float | None = None) -> None:
    """Quarantine an envelope as if an older program had not known it."""
    known = server.engine.keys.find(key)
    assert known
    parsed = Rejection(0, Reason.UNKNOWN_TYPE, "type: is not known.", encode(envelope))

    async def keep() -> None:
        delivery = Parsed(1_763_596_800_000, catalog_for(Rules().service_name), rejected=[parsed])
        delivery.sent_at = sent_at
        lines = journal_lines(delivery, key_id=known.key_id, new_id=uuid7)
        await wait_for(partial(server.engine.submit, lines, accepted=0, quarantined=1))

    server._runner.run(keep())


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Server]:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        yield server


def replayed(server: Server, admin: str) -> Replay:
    answer = server.ask("POST", "/api/v1/quarantine/replay", key=admin)
    assert answer.status_code == 200, answer.text
    return Replay(**answer.json())


def test_what_is_valid_by_now_is_accepted_as_far_as_its_key_reaches(quick: Server) -> None:
    admin, free, scoped = quick.key("admin"), quick.key(), quick.key(deployments=[12, 13])
    gone = quick.key(deployments=[7])
    ready = {"embedTenant": None, "mode": "signed", "surface": "app", "deploymentId": 99}
    for key, envelope in (
        (free, view()),
        (scoped, view()),
        (scoped, event_or_action("event:ready", ready)),
        (gone, event_or_action("event:ready", ready)),
        (free, {"still": "wrong"}),
        *[(free, view({"path": f"/{number}"})) for number in range(40)],
    ):
        reject(quick, envelope, key=key)
    # As if its entry had been taken out of keys.json.
    digest = next(digest for digest, key in quick.engine.keys._keys.items() if key.deployments == frozenset({7}))
    del quick.engine.keys._keys[digest]

    assert len(quick.rows("/api/v1/quarantine", key=admin, count=45)) == 45
    assert replayed(quick, admin) == Replay(replayed=41, rejected=4)
    quick.rows("/api/v1/reports/views", key=admin)
    accepted = [line["envelope"]["type"] for line in quick.journaled() if line["kind"] == "event"]
    assert accepted.count("svc:event:view") == 41
    assert "svc:event:ready" not in accepted


@pytest.mark.parametrize(
    "sent_us",
    [
        1_763_596_801_500_250,
        1_763_596_700_000_001,
        1_763_596_700_000_999,
        -62_135_596_799_999_500,
        1_763_596_800_000_000,
    ],
)
def test_a_replay_keeps_fractions_of_a_millisecond_of_when_it_was_sent(quick: Server, sent_us: int) -> None:
    key, admin = quick.key(), quick.key("admin")
    reject(quick, view(), key=key, sent_at=sent_us / 1_000)
    quick.rows("/api/v1/quarantine", key=admin)
    assert replayed(quick, admin) == Replay(replayed=1)
    quick.rows("/api/v1/reports/views", key=admin)
    with quick.engine.store.reader(EVERYTHING) as reader:
        times, _ = reader.first_row(
            "select epoch_us(event.sent_at) as now, epoch_us(quarantine.sent_at) as before from event, quarantine"
        )
    assert times == {"now": sent_us, "before": sent_us}
    assert [line["sent_at"] for line in quick.journaled() if line["kind"] == "event"] == [sent_us / 1_000]


def test_envelopes_without_ids_count_once_however_soon_they_are_replayed_again(quick: Server) -> None:
    admin = quick.key("admin")
    reject(quick, {"events": [view(), view(), view()], "lost": {"queue_overflow": 2}}, key=quick.key())
    [row] = quick.rows("/api/v1/quarantine", key=admin)
    assert [replayed(quick, admin), replayed(quick, admin)] == [Replay(replayed=1), Replay()]
    own = UUID(row["quarantine_id"])
    names = [UUID(line["id"]) for line in quick.journaled() if line["kind"] == "event"]
    assert names == [own, uuid5(own, "1"), uuid5(own, "2")]
    [lost] = [line for line in quick.journaled() if line["kind"] == "lost"]
    assert lost["id"], "so that it counts once, too"


def test_what_is_not_loaded_yet_is_replayed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Store.load

    def load_slowly(store: Store, *segments: Segment) -> Ledger:
        time.sleep(0.3)
        return load(store, *segments)

    with open_server(tmp_path, segment_seal_s=0.05) as server:
        monkeypatch.setattr(Store, "load", load_slowly)
        admin = server.key("admin")
        reject(server, view(), key=server.key())
        assert replayed(server, admin) == Replay(replayed=1)


def test_a_damaged_newest_segment_keeps_no_replay_waiting(tmp_path: Path) -> None:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        admin = server.key("admin")
        reject(server, view(), key=server.key())
        server.rows("/api/v1/quarantine", key=admin)
    newest = max((tmp_path / "journal").iterdir())
    (tmp_path / "journal" / f"{number_of(newest) + 1:012d}-00000000.ndjson").write_bytes(b"damaged")
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        assert replayed(server, admin) == Replay(replayed=1)
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        assert replayed(server, admin) == Replay()


def test_while_loading_stands_still_a_replay_is_refused_with_the_trouble(
    quick: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreRefused("there is no room")

    monkeypatch.setattr(Store, "load", refuse)
    monkeypatch.setattr(embedsink.transfer.replay, "LOADING_STALL_S_MAX", 0.5)
    reject(quick, view(), key=quick.key())
    answer = quick.ask("POST", "/api/v1/quarantine/replay", key=quick.key("admin"))
    assert (answer.status_code, problem(answer)) == (503, "not_ready")
    assert "there is no room" in answer.json()["detail"]
    monkeypatch.undo()


def test_one_of_them_is_replayed_alone(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for path in ("/one", "/other"):
        reject(quick, view({"path": path}), key=key)
    listed = quick.rows("/api/v1/quarantine", key=admin, count=2)
    one = next(row["quarantine_id"] for row in listed if "/one" in row["raw"])
    for expected in ({"replayed": 1, "rejected": 0, "untried": 0}, {"replayed": 0, "rejected": 0, "untried": 0}):
        answer = quick.ask("POST", f"/api/v1/quarantine/replay?id={one}", key=admin)
        assert answer.json() == expected
        quick.rows("/api/v1/reports/views", key=admin)
        wait_until(lambda: rows_replayed(quick, admin) == [one], what="it says that it was replayed")
    assert [line["envelope"]["payload"]["path"] for line in quick.journaled() if line["kind"] == "event"] == ["/one"]


def rows_replayed(server: Server, admin: str) -> list[str]:
    rows = server.get("/api/v1/quarantine", key=admin).json()
    return [row["quarantine_id"] for row in rows if row["replayed_at"]]


def test_what_can_not_become_valid_is_counted_and_not_tried(quick: Server) -> None:
    several, admin = quick.key(deployments=[12, 13]), quick.key("admin")
    for body in (view(), [view(id=ID), view({"path": "/other"}, id=ID)], {"still": "wrong"}):
        quick.post(body, key=several if body == view() else quick.key())
    listed = quick.rows("/api/v1/quarantine", key=admin, count=3)
    assert sorted(row["reason"] for row in listed) == ["id_conflict", "out_of_scope", "wrong_source"]
    assert replayed(quick, admin) == Replay(replayed=0, rejected=1, untried=2)
    for row in listed:
        told = quick.ask("POST", f"/api/v1/quarantine/replay?id={row['quarantine_id']}", key=admin).json()
        assert (told["rejected"], told["untried"]) == ((1, 0) if row["reason"] == "wrong_source" else (0, 1))


@pytest.mark.parametrize("query", ["id=x", "id=", "ids=1"])
def test_what_is_no_id_is_a_400_and_replays_nothing(quick: Server, query: str) -> None:
    admin = quick.key("admin")
    reject(quick, view(), key=quick.key())
    quick.rows("/api/v1/quarantine", key=admin)
    assert problem(quick.ask("POST", f"/api/v1/quarantine/replay?{query}", key=admin)) == "bad_parameter"
    assert [line["kind"] for line in quick.journaled()] == ["quarantined"]


def test_whole_envelopes_are_replayed_in_the_usual_memory(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for _ in range(100):
        reject(quick, {"x": "0123456789" * 6_000}, key=key)
    quick.rows("/api/v1/quarantine", key=admin, count=100)
    assert replayed(quick, admin) == Replay(replayed=0, rejected=100)


def test_a_replay_counts_envelopes_and_shares_its_fsyncs(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for number in range(100):
        reject(quick, view({"path": f"/{number}"}), key=key)
    reject(quick, [view(), view(), view()], key=key)
    quick.rows("/api/v1/quarantine", key=admin, count=100)
    before, groups = quick.engine.counters["accepted"], quick.engine.journal.counters.group_count
    assert replayed(quick, admin) == Replay(replayed=101, rejected=0)
    assert quick.engine.counters["accepted"] - before == 103
    assert quick.engine.journal.counters.group_count - groups < 10


def test_one_rejection_is_shown_whole_by_its_id(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    envelope = {"x": "0123456789" * 5_000}
    assert quick.post(envelope, key=key).status_code == 422
    [row] = quick.rows("/api/v1/quarantine", key=admin, count=1)
    assert len(row["raw"]) == 16_384
    [whole] = quick.get(f"/api/v1/quarantine?id={row['quarantine_id']}", key=admin).json()
    assert json.loads(whole["raw"]) == envelope
    answer = quick.get("/api/v1/quarantine?id=1234", key=admin)
    assert (answer.status_code, problem(answer)) == (400, "bad_parameter")


def test_of_an_unreadable_body_the_beginning_is_kept_and_no_replay_tries_it(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    body = b'{"x": "' + b"0123456789" * 5_000
    assert quick.post(body, key=key).status_code == 400
    [row] = quick.rows("/api/v1/quarantine", key=admin, count=1)
    assert row["raw"].encode() == body[:8_192]
    assert (row["whole_bytes"], row["whole_sha256"]) == (len(body), sha256(body).hexdigest())
    assert "Only the first 8,192 of its 50,007 bytes are kept." in row["detail"]
    assert replayed(quick, admin) == Replay(untried=1)


def reasons(server: Server, admin: str) -> dict[str, int]:
    rows = server.get("/api/v1/reports/rejections.json", key=admin).json()
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["reason"]] += row["quarantined_count"]
    return counts


@pytest.mark.parametrize("limits", [{"quarantine_count_per_day": 4}, {"quarantine_bytes_per_day": 2_500}])
def test_beyond_what_a_key_may_fill_a_day_rejections_are_counted_and_told(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    with open_server(tmp_path, segment_seal_s=0.05, **limits) as server:
        key, other, admin = server.key(), server.key(), server.key("admin")
        for _ in range(4):
            answer = server.post([view(), 1, {}], key=key)
            assert (answer.status_code, len(answer.json()["rejected"])) == (202, 2)
            assert server.post(b"{", key=key).status_code == 400
        server.post([2], key=other)
        expected = {"not_an_object": 5, "wrong_source": 4, "not_json": 4}
        wait_until(lambda: reasons(server, admin) == expected, what="all of them are counted")
        kept = server.get("/api/v1/quarantine", key=admin).json()
        assert 3 <= len(kept) <= 9
        assert "2" in [row["raw"] for row in kept], "another key has room of its own"
        assert server.engine.counters["quarantined"] == 13
        assert server.engine.counters["unkept"] == 13 - len(kept)
        status = server.engine.loader.status
        assert (status.received_count, status.accepted_count, status.quarantined_count) == (17, 4, 13)
        with server.engine.store.reader(EVERYTHING) as reader:
            assert reader.first_row(read_sql("checks")["ledger_adds_up"])[1] == 0


def test_a_restart_gives_a_key_no_more_than_was_left_of_the_day(tmp_path: Path) -> None:
    for expected in (3, 3):
        with open_server(tmp_path, segment_seal_s=0.05, quarantine_count_per_day=3) as server:
            key = server.key() if not (tmp_path / "key").exists() else (tmp_path / "key").read_text()
            (tmp_path / "key").write_text(key)
            admin = server.key("admin")
            for _ in range(5):
                server.post([1], key=key)
            counted = partial(reasons, server, admin)
            wait_until(lambda counted=counted: sum(counted().values()) % 5 == 0, what="all of them are counted")  # type: ignore[misc]
            assert len(server.rows("/api/v1/quarantine", key=admin, count=expected)) == expected


@pytest.mark.parametrize("limits", [{"quarantine_free_bytes_min": 2**60}, {"journal_bytes_max": 2**20}])
def test_the_quarantine_takes_neither_the_last_of_the_disk_nor_half_of_the_journal(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    with open_server(tmp_path, **limits) as server:
        space = server.engine.journal.space
        if "journal_bytes_max" in limits:
            space.add(600_000)
        wait_until(lambda: not has_room(server), what="the journal has measured")
        assert server.post([view(), 1], key=server.key()).json()["accepted"] == 1
        lines = [json.loads(line) for line in server.journal_bytes().splitlines()]
        kinds = [line["kind"] for line in lines if "kind" in line]
        assert kinds == ["event", "counted"]


def has_room(server: Server) -> bool:
    server.get("/readyz")  # its write makes the journal look at the disk
    return server.engine.journal.space.has_room_to_spare(
        free_bytes_min=server.engine.settings.quarantine_free_bytes_min
    )


def test_what_is_counted_belongs_to_a_deployment_where_the_key_does(tmp_path: Path) -> None:
    with open_server(tmp_path, segment_seal_s=0.05, quarantine_count_per_day=0) as server:
        scoped, free, read = server.key(deployments=[12]), server.key(), server.key("read", deployments=[12])
        for key in (scoped, free):
            server.post({"context": {"deployment": 12}, "events": [1]}, key=key)
        wait_until(lambda: sum(reasons(server, server.key("admin")).values()) == 2, what="both are counted")
        assert reasons(server, read) == {"not_an_object": 1}, "what a free key says is only its word"


def purged(server: Server, admin: str, query: str = "") -> int:
    answer = server.ask("DELETE", f"/api/v1/quarantine{query}", key=admin)
    assert answer.status_code == 200, answer.text
    count: int = answer.json()["purged"]
    return count


def test_a_purge_takes_what_it_names_also_what_is_not_loaded_yet(quick: Server) -> None:
    key, other, admin = quick.key(), quick.key(), quick.key("admin")
    quick.post([1, {}, view()], key=key)
    quick.post([2], key=other)
    known = quick.engine.keys.find(other)
    assert known is not None
    assert purged(quick, admin, "?before=1d") == 0
    assert purged(quick, admin, "?reason=wrong_source") == 1
    assert purged(quick, admin, f"?key={known.key_id}") == 1
    assert [row["raw"] for row in quick.get("/api/v1/quarantine", key=admin).json()] == ["1"]
    assert purged(quick, admin) == 1
    assert quick.get("/api/v1/quarantine", key=admin).json() == []
    assert reasons(quick, admin) == {"not_an_object": 2, "wrong_source": 1}


@pytest.mark.parametrize("query", ["?before=never", "?reason=nothing", "?since=1d", "?before="])
def test_a_purge_that_is_not_understood_purges_nothing(quick: Server, query: str) -> None:
    admin = quick.key("admin")
    quick.post([1], key=quick.key())
    quick.rows("/api/v1/quarantine", key=admin)
    assert problem(quick.ask("DELETE", f"/api/v1/quarantine{query}", key=admin)) == "bad_parameter"
    assert len(quick.get("/api/v1/quarantine", key=admin).json()) == 1


def test_only_an_admin_key_for_all_deployments_purges(quick: Server) -> None:
    for key, reason in (
        (quick.key(), "wrong_kind"),
        (quick.key("read"), "wrong_kind"),
        (quick.key("admin", deployments=[1]), "out_of_scope"),
    ):
        assert problem(quick.ask("DELETE", "/api/v1/quarantine", key=key)) == reason


def test_what_was_purged_does_not_come_back_with_a_killed_server_or_a_new_store(tmp_path: Path) -> None:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        admin = server.key("admin")
        server.post([view(), 1], key=server.key())
        assert purged(server, admin) == 1
        shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    (tmp_path / "store.duckdb").unlink()
    for path in (tmp_path.with_name("killed"), tmp_path):
        with open_server(path, segment_seal_s=0.05) as server:
            admin = server.key("admin")
            assert reasons(server, admin) == {"not_an_object": 1}
            assert server.get("/api/v1/quarantine", key=admin).json() == []


def test_rejections_are_kept_for_some_days_and_then_only_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RETENTION_EVERY_S", 0.2)
    with open_server(tmp_path, segment_seal_s=0.05, quarantine_retention_days=0) as server:
        key, admin = server.key(), server.key("admin")
        server.post([1], key=key)
        server.rows("/api/v1/quarantine", key=admin)
        age = "update loaded_segment set loaded_at = loaded_at - interval 31 days"
        server.engine.loader.tasks.submit(lambda: server.engine.store._loading().execute(age)).result()
        server.post([2], key=key)
        server.rows("/api/v1/quarantine", key=admin, count=2)
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        wait_until(lambda: rejected_count(server) == 1, what="what is old is purged")
        assert reasons(server, admin) == {"not_an_object": 2}
        assert [row["raw"] for row in server.get("/api/v1/quarantine", key=admin).json()] == ["2"]


def test_a_clock_that_jumps_does_not_empty_the_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    store = cast(Store, SimpleNamespace(purge=lambda which: pytest.fail("it was purged")))
    purge = QuarantinePurge(store, cast(Publisher, None), cast(StoreDiskSpace, None), days=30)
    assert not purge.purge_when_due(), "a clock that is wrong at the start has an hour to be set right"
    started_at, monotonic = time.time(), time.monotonic
    monkeypatch.setattr(time, "time", lambda: started_at + 40 * 86_400)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 3_600)
    assert not purge.purge_when_due()
    assert purge.seconds_to_next() == pytest.approx(3_600, abs=5)


def test_refused_rejections_are_not_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable(Reason.STORAGE_LOW, "disk: is full.")

    with open_server(tmp_path, segment_seal_s=0.05, quarantine_count_per_day=2) as server:
        key, admin = server.key(), server.key("admin")
        with monkeypatch.context() as patch:
            patch.setattr(server.engine.journal, "submit", refuse)
            for _ in range(5):
                assert server.post([1], key=key).status_code == 503
        server.post([1, 2], key=key)
        assert len(server.rows("/api/v1/quarantine", key=admin, count=2)) == 2


def rejected_count(server: Server) -> int:
    return len(server.get("/api/v1/quarantine", key=server.key("read")).json())


def test_a_purge_while_the_server_stops_is_told_to_come_again(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        server.engine.loader.tasks.end()
        answer = server.ask("DELETE", "/api/v1/quarantine", key=server.key("admin"))
        assert (answer.status_code, problem(answer)) == (503, "not_ready")


def test_a_long_list_is_written_in_a_thread_where_it_holds_nobody_up(
    quick: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    class Noted:
        OPT_NAIVE_UTC, OPT_UTC_Z = orjson.OPT_NAIVE_UTC, orjson.OPT_UTC_Z

        @staticmethod
        def dumps(value: object, option: int) -> bytes:
            threads.append(threading.current_thread())
            return orjson.dumps(value, option=option)

    monkeypatch.setattr(embedsink.http.api.quarantine, "orjson", Noted)
    assert quick.get("/api/v1/quarantine", key=quick.key("read")).json() == []
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread(), "the loop's"


def test_one_replay_at_a_time(quick: Server) -> None:
    admin = quick.key("admin")
    quick._runner.run(quick.engine.replaying.acquire())
    try:
        answer = quick.ask("POST", "/api/v1/quarantine/replay", key=admin)
        assert (answer.status_code, problem(answer)) == (503, "overloaded")
    finally:
        quick.engine.replaying.release()


def test_reports_beyond_those_that_may_wait_are_refused(tmp_path: Path) -> None:
    with open_server(tmp_path, report_concurrency_max=1, report_waiting_max=0) as server:
        key = server.key("read")
        assert server.get("/api/v1/reports/views", key=key).status_code == 200
        place = server.engine.report_slots.place("k_other")
        server._runner.run(place.__aenter__())
        try:
            for path in ("/api/v1/reports/views", "/api/v1/quarantine"):
                answer = server.get(path, key=key)
                assert (answer.status_code, problem(answer)) == (503, "overloaded")
        finally:
            server._runner.run(place.__aexit__(None, None, None))
