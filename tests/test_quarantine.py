"""Replay: what was rejected is accepted when it is valid by now, as far as its key reaches, and once."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid5

import orjson
import pytest

import embedsink.http.quarantine
import embedsink.quarantine
from embedsink.envelope import Parsed, Rejection, Rules
from embedsink.envelope.body import encode
from embedsink.envelope.catalog import catalog_for
from embedsink.journal import wait_for
from embedsink.quarantine import Replay
from embedsink.reasons import Reason
from embedsink.segment import Segment, number_of
from embedsink.store import EVERYTHING, Ledger, Store, StoreRefused
from tests.envelope.sending import ID, event_or_action, view
from tests.http.asking import Server, open_server, problem
from tests.servers import wait_until


def reject(server: Server, envelope: object, *, key: str, sent_at: float | None = None) -> None:
    """Quarantine an envelope as if an older program had not known it."""
    known = server.sink.keys.find(key)
    assert known
    parsed = Rejection(0, Reason.UNKNOWN_TYPE, "type: is not known.", encode(envelope))

    async def keep() -> None:
        delivery = Parsed(1_763_596_800_000, catalog_for(Rules().service_name), rejected=[parsed])
        delivery.sent_at = sent_at
        await wait_for(lambda settled: server.sink.keep(delivery, settled, key_id=known.key_id))

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
    digest = next(digest for digest, key in quick.sink.keys._keys.items() if key.deployments == frozenset({7}))
    del quick.sink.keys._keys[digest]

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
    with quick.sink.store.reader(EVERYTHING) as reader:
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
    monkeypatch.setattr(embedsink.quarantine, "STANDSTILL_S_MAX", 0.5)
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


def test_whole_bodies_are_replayed_in_the_usual_memory(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for _ in range(24):
        assert quick.post(b'{"x":"' + b"0123456789" * 100_000, key=key).status_code == 400
    quick.rows("/api/v1/quarantine", key=admin, count=24)
    assert replayed(quick, admin) == Replay(replayed=0, rejected=24)


def test_a_replay_counts_envelopes_and_shares_its_fsyncs(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for number in range(100):
        reject(quick, view({"path": f"/{number}"}), key=key)
    reject(quick, [view(), view(), view()], key=key)
    quick.rows("/api/v1/quarantine", key=admin, count=100)
    before, groups = quick.sink.counters["accepted"], quick.sink.journal.counters.group_count
    assert replayed(quick, admin) == Replay(replayed=101, rejected=0)
    assert quick.sink.counters["accepted"] - before == 103
    assert quick.sink.journal.counters.group_count - groups < 10


def test_one_rejection_is_shown_whole_by_its_id(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    body = b'{"x": "' + b"0123456789" * 5_000
    assert quick.post(body, key=key).status_code == 400
    [row] = quick.rows("/api/v1/quarantine", key=admin, count=1)
    assert len(row["raw"]) == 16_384
    [whole] = quick.get(f"/api/v1/quarantine?id={row['quarantine_id']}", key=admin).json()
    assert whole["raw"].encode() == body
    answer = quick.get("/api/v1/quarantine?id=1234", key=admin)
    assert (answer.status_code, problem(answer)) == (400, "bad_parameter")


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

    monkeypatch.setattr(embedsink.http.quarantine, "orjson", Noted)
    assert quick.get("/api/v1/quarantine", key=quick.key("read")).json() == []
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread(), "the loop's"


def test_one_replay_at_a_time(quick: Server) -> None:
    admin = quick.key("admin")
    quick._runner.run(quick.sink.replaying.acquire())
    try:
        answer = quick.ask("POST", "/api/v1/quarantine/replay", key=admin)
        assert (answer.status_code, problem(answer)) == (503, "overloaded")
    finally:
        quick.sink.replaying.release()


def test_reports_beyond_those_that_may_wait_are_refused(tmp_path: Path) -> None:
    with open_server(tmp_path, report_concurrency_max=1, report_waiting_max=0) as server:
        key = server.key("read")
        assert server.get("/api/v1/reports/views", key=key).status_code == 200
        server._runner.run(server.sink.report_slots.__aenter__())
        try:
            for path in ("/api/v1/reports/views", "/api/v1/quarantine"):
                answer = server.get(path, key=key)
                assert (answer.status_code, problem(answer)) == (503, "overloaded")
        finally:
            server._runner.run(server.sink.report_slots.__aexit__())
