"""The quarantine: replay within the scope of the key, limits, retention and purge."""

import json
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

import httpx2
import orjson
import pytest
from uuid_utils import uuid7

import embedsink.transfer.quarantine
from embedsink import retention_schedule
from embedsink.errors import Unavailable
from embedsink.ingest.records import delivery_lines
from embedsink.journal.segment import Segment, number_of
from embedsink.journal.writer import as_future
from embedsink.key_scope import EVERYTHING
from embedsink.loader.disk_space import StoreDiskSpace
from embedsink.loader.publisher import Publisher
from embedsink.loader.quarantine_purge import QuarantinePurge
from embedsink.protocol.delivery import ParsedDelivery, Rejection, Rules
from embedsink.protocol.messages import CONTEXT_FIELDS, catalog_for
from embedsink.protocol.strict_json import encode
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.ledger import LoadCounts
from embedsink.store.sql_files import read_sql
from embedsink.transfer.quarantine import ReplayCounts
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import ID, event_or_action, view
from tests.support.redaction import storable
from tests.support.servers import running_server, wait_until


def reject(
    server: Server, envelope: object, *, key: str, sent_at: float | None = None, context: dict[str, Any] | None = None
) -> None:
    """Quarantine an envelope, as an older version that does not know its type would."""
    entry = server.engine.keys.find(key)
    assert entry
    rejection = Rejection(0, Reason.UNKNOWN_TYPE, "type: is not known.", encode(envelope))

    async def submit() -> None:
        delivery = ParsedDelivery(1_763_596_800_000, catalog_for(Rules().service_name), rejected=[rejection])
        delivery.sent_at = sent_at
        delivery.context = context or {}
        lines = delivery_lines(storable(delivery), key_id=entry.key_id, new_id=uuid7)
        await as_future(partial(server.engine.submit_counted, lines, accepted=0, quarantined=1))

    server._runner.run(submit())


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Server]:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        yield server


def replayed(server: Server, admin: str) -> ReplayCounts:
    response = server.request("POST", "/api/v1/quarantine/replay", key=admin)
    assert response.status_code == 200, response.text
    return ReplayCounts(**response.json())


def test_a_replay_accepts_valid_inputs_within_the_scope_of_their_key(quick: Server) -> None:
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
    # Simulates a key whose entry was deleted from keys.json.
    digest = next(digest for digest, key in quick.engine.keys._keys.items() if key.scope.deployments == frozenset({7}))
    del quick.engine.keys._keys[digest]

    assert len(quick.rows("/api/v1/quarantine", key=admin, count=45)) == 45
    assert replayed(quick, admin) == ReplayCounts(replayed=41, rejected=4)
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
def test_a_replay_retains_microseconds_of_sent_at(quick: Server, sent_us: int) -> None:
    key, admin = quick.key(), quick.key("admin")
    reject(quick, view(), key=key, sent_at=sent_us / 1_000)
    quick.rows("/api/v1/quarantine", key=admin)
    assert replayed(quick, admin) == ReplayCounts(replayed=1)
    quick.rows("/api/v1/reports/views", key=admin)
    with quick.engine.store.reader(EVERYTHING.variables()) as reader:
        times = reader._fetch_all("select epoch_us(event.sent_at), epoch_us(quarantine.sent_at) from event, quarantine")
    assert times == [(sent_us, sent_us)]
    assert [line["sent_at"] for line in quick.journaled() if line["kind"] == "event"] == [sent_us / 1_000]


def test_a_replay_retains_the_context(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    context = {"deployment": 12, "session": "s", "viewer": "u", "tenant": "t", "page": "/", "vendor": "looker"}
    assert context.keys() == CONTEXT_FIELDS
    reject(quick, view(), key=key, context=context)
    [rejection] = quick.rows("/api/v1/quarantine", key=admin)
    assert {name: rejection[name] for name in context} == context
    assert replayed(quick, admin) == ReplayCounts(replayed=1)
    assert [line["context"] for line in quick.journaled() if line["kind"] == "event"] == [context]


def test_envelopes_without_ids_count_once_when_replayed_twice(quick: Server) -> None:
    admin = quick.key("admin")
    reject(quick, {"events": [view(), view(), view()], "lost": {"queue_overflow": 2}}, key=quick.key())
    [row] = quick.rows("/api/v1/quarantine", key=admin)
    assert [replayed(quick, admin), replayed(quick, admin)] == [ReplayCounts(replayed=1), ReplayCounts()]
    own = UUID(row["quarantine_id"])
    names = [UUID(line["id"]) for line in quick.journaled() if line["kind"] == "event"]
    assert names == [own, uuid5(own, "1"), uuid5(own, "2")]
    [lost] = [line for line in quick.journaled() if line["kind"] == "lost"]
    assert lost["id"], "without an id, a loss would count twice"


def test_a_replay_includes_rejections_that_are_not_loaded_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Store.load

    def load_slowly(store: Store, *segments: Segment) -> LoadCounts:
        time.sleep(0.3)
        return load(store, *segments)

    with open_server(tmp_path, segment_seal_s=0.05) as server:
        monkeypatch.setattr(Store, "load", load_slowly)
        admin = server.key("admin")
        reject(server, view(), key=server.key())
        assert replayed(server, admin) == ReplayCounts(replayed=1)


def test_a_damaged_newest_segment_does_not_block_a_replay(tmp_path: Path) -> None:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        admin = server.key("admin")
        reject(server, view(), key=server.key())
        server.rows("/api/v1/quarantine", key=admin)
    newest = max((tmp_path / "journal").iterdir())
    (tmp_path / "journal" / f"{number_of(newest) + 1:012d}-00000000.ndjson").write_bytes(b"damaged")
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        assert replayed(server, admin) == ReplayCounts(replayed=1)
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        assert replayed(server, admin) == ReplayCounts()


def test_a_replay_is_refused_while_loading_stalls(quick: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StoreRefused("there is no room")

    monkeypatch.setattr(Store, "load", refuse)
    monkeypatch.setattr(embedsink.transfer.quarantine, "LOADING_STALL_S_MAX", 0.5)
    reject(quick, view(), key=quick.key())
    response = quick.request("POST", "/api/v1/quarantine/replay", key=quick.key("admin"))
    assert (response.status_code, problem(response)) == (503, "not_ready")
    assert "there is no room" in response.json()["detail"]
    monkeypatch.undo()


def test_one_input_can_be_replayed(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for path in ("/one", "/other"):
        reject(quick, view({"path": path}), key=key)
    listed = quick.rows("/api/v1/quarantine", key=admin, count=2)
    quarantine_id = next(row["quarantine_id"] for row in listed if "/one" in row["raw"])
    for expected in ({"replayed": 1, "rejected": 0, "untried": 0}, {"replayed": 0, "rejected": 0, "untried": 0}):
        response = quick.request("POST", f"/api/v1/quarantine/replay?id={quarantine_id}", key=admin)
        assert response.json() == expected
        quick.rows("/api/v1/reports/views", key=admin)
        wait_until(lambda: rows_replayed(quick, admin) == [quarantine_id], description="it is marked as replayed")
    assert [line["envelope"]["payload"]["path"] for line in quick.journaled() if line["kind"] == "event"] == ["/one"]


def rows_replayed(server: Server, admin: str) -> list[str]:
    rows = server.get("/api/v1/quarantine", key=admin).json()
    return [row["quarantine_id"] for row in rows if row["replayed_at"]]


def test_a_replay_counts_inputs_that_can_never_become_valid(quick: Server) -> None:
    several, admin = quick.key(deployments=[12, 13]), quick.key("admin")
    for body in (view(), [view(id=ID), view({"path": "/other"}, id=ID)], {"still": "wrong"}):
        quick.post(body, key=several if body == view() else quick.key())
    listed = quick.rows("/api/v1/quarantine", key=admin, count=3)
    assert sorted(row["reason"] for row in listed) == ["id_conflict", "out_of_scope", "wrong_source"]
    assert replayed(quick, admin) == ReplayCounts(replayed=0, rejected=1, untried=2)
    for row in listed:
        result = quick.request("POST", f"/api/v1/quarantine/replay?id={row['quarantine_id']}", key=admin).json()
        assert (result["rejected"], result["untried"]) == ((1, 0) if row["reason"] == "wrong_source" else (0, 1))


@pytest.mark.parametrize("query", ["id=x", "id=", "ids=1"])
def test_a_malformed_id_is_refused_and_replays_nothing(quick: Server, query: str) -> None:
    admin = quick.key("admin")
    reject(quick, view(), key=quick.key())
    quick.rows("/api/v1/quarantine", key=admin)
    assert problem(quick.request("POST", f"/api/v1/quarantine/replay?{query}", key=admin)) == "bad_parameter"
    assert [line["kind"] for line in quick.journaled()] == ["quarantined"]


def test_large_envelopes_are_replayed_within_the_memory_limit(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for _ in range(100):
        reject(quick, {"x": "0123456789" * 6_000}, key=key)
    quick.rows("/api/v1/quarantine", key=admin, count=100)
    assert replayed(quick, admin) == ReplayCounts(replayed=0, rejected=100)


def test_a_replay_counts_envelopes_and_shares_its_fsyncs(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    for number in range(100):
        reject(quick, view({"path": f"/{number}"}), key=key)
    reject(quick, [view(), view(), view()], key=key)
    quick.rows("/api/v1/quarantine", key=admin, count=100)
    before, groups = quick.engine.counters["accepted"], quick.engine.journal.counters.group_count
    assert replayed(quick, admin) == ReplayCounts(replayed=101, rejected=0)
    assert quick.engine.counters["accepted"] - before == 103
    assert quick.engine.journal.counters.group_count - groups < 10


def test_a_request_for_one_rejection_returns_its_complete_text(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    envelope = {"x": "0123456789" * 5_000}
    assert quick.post(envelope, key=key).status_code == 422
    [row] = quick.rows("/api/v1/quarantine", key=admin, count=1)
    assert len(row["raw"]) == 16_384
    [complete] = quick.get(f"/api/v1/quarantine?id={row['quarantine_id']}", key=admin).json()
    assert json.loads(complete["raw"]) == envelope
    response = quick.get("/api/v1/quarantine?id=1234", key=admin)
    assert (response.status_code, problem(response)) == (400, "bad_parameter")


def test_the_beginning_of_an_unreadable_body_is_stored_and_not_replayed(quick: Server) -> None:
    key, admin = quick.key(), quick.key("admin")
    body = b'{"x": "' + b"0123456789" * 5_000
    assert quick.post(body, key=key).status_code == 400
    [row] = quick.rows("/api/v1/quarantine", key=admin, count=1)
    assert row["raw"].encode() == body[:8_192]
    assert (row["whole_bytes"], row["whole_sha256"]) == (len(body), sha256(body).hexdigest())
    assert "Only the first 8,192 of its 50,007 bytes are stored." in row["detail"]
    assert replayed(quick, admin) == ReplayCounts(untried=1)


def reasons(server: Server, admin: str) -> dict[str, int]:
    rows = server.get("/api/v1/reports/rejections.json", key=admin).json()
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["reason"]] += row["quarantined_count"]
    return counts


@pytest.mark.parametrize("limits", [{"quarantine_count_per_day": 4}, {"quarantine_bytes_per_day": 2_500}])
def test_rejections_beyond_the_daily_limit_of_a_key_are_counted(tmp_path: Path, limits: dict[str, Any]) -> None:
    with open_server(tmp_path, segment_seal_s=0.05, **limits) as server:
        key, other, admin = server.key(), server.key(), server.key("admin")
        for _ in range(4):
            response = server.post([view(), 1, {}], key=key)
            assert (response.status_code, len(response.json()["rejected"])) == (202, 2)
            assert server.post(b"{", key=key).status_code == 400
        server.post([2], key=other)
        expected = {"not_an_object": 5, "wrong_source": 4, "not_json": 4}
        wait_until(lambda: reasons(server, admin) == expected, description="all of them are counted")
        stored = server.get("/api/v1/quarantine", key=admin).json()
        assert 3 <= len(stored) <= 9
        assert "2" in [row["raw"] for row in stored], "each key has its own limit"
        assert server.engine.counters["quarantined"] == 13
        assert server.engine.counters["not_stored"] == 13 - len(stored)
        status = server.engine.loader.status
        assert (status.received_count, status.accepted_count, status.quarantined_count) == (17, 4, 13)
        with server.engine.store.reader(EVERYTHING.variables()) as reader:
            assert reader._fetch_all(read_sql("checks")["ledger_adds_up"]) == []


def test_the_daily_limit_of_a_key_survives_a_restart(tmp_path: Path) -> None:
    for expected in (3, 3):
        with open_server(tmp_path, segment_seal_s=0.05, quarantine_count_per_day=3) as server:
            key = server.key() if not (tmp_path / "key").exists() else (tmp_path / "key").read_text()
            (tmp_path / "key").write_text(key)
            admin = server.key("admin")
            for _ in range(5):
                server.post([1], key=key)
            counted = partial(reasons, server, admin)
            wait_until(lambda counted=counted: sum(counted().values()) % 5 == 0, description="all of them are counted")  # type: ignore[misc]
            assert len(server.rows("/api/v1/quarantine", key=admin, count=expected)) == expected


@pytest.mark.parametrize("limits", [{"quarantine_free_bytes_min": 2**60}, {"journal_bytes_max": 2**20}])
def test_rejections_are_only_counted_when_the_disk_or_the_journal_is_nearly_full(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    with open_server(tmp_path, **limits) as server:
        space = server.engine.journal.capacity
        if "journal_bytes_max" in limits:
            space.add(600_000)
        wait_until(lambda: not has_room(server), description="the journal has measured")
        assert server.post([view(), 1], key=server.key()).json()["accepted"] == 1
        lines = [json.loads(line) for line in server.journal_bytes().splitlines()]
        kinds = [line["kind"] for line in lines if "kind" in line]
        assert kinds == ["event", "counted"]


def has_room(server: Server) -> bool:
    server.get("/readyz")  # Its test write makes the journal measure the free space.
    return server.engine.journal.capacity.has_headroom(free_bytes_min=server.engine.settings.quarantine_free_bytes_min)


def test_a_counted_rejection_has_the_deployment_of_a_scoped_key(tmp_path: Path) -> None:
    with open_server(tmp_path, segment_seal_s=0.05, quarantine_count_per_day=0) as server:
        scoped, free, read = server.key(deployments=[12]), server.key(), server.key("read", deployments=[12])
        for key in (scoped, free):
            server.post({"context": {"deployment": 12}, "events": [1]}, key=key)
        wait_until(lambda: sum(reasons(server, server.key("admin")).values()) == 2, description="both are counted")
        assert reasons(server, read) == {"not_an_object": 1}, "an unscoped key does not prove the deployment"


def purged(server: Server, admin: str, query: str = "") -> int:
    response = server.request("DELETE", f"/api/v1/quarantine{query}", key=admin)
    assert response.status_code == 200, response.text
    count: int = response.json()["purged"]
    return count


def test_a_purge_respects_its_filters_and_includes_rejections_not_loaded_yet(quick: Server) -> None:
    key, other, admin = quick.key(), quick.key(), quick.key("admin")
    quick.post([1, {}, view()], key=key)
    quick.post([2], key=other)
    entry = quick.engine.keys.find(other)
    assert entry is not None
    assert purged(quick, admin, "?before=1d") == 0
    assert purged(quick, admin, "?reason=wrong_source") == 1
    assert purged(quick, admin, f"?key={entry.key_id}") == 1
    assert [row["raw"] for row in quick.get("/api/v1/quarantine", key=admin).json()] == ["1"]
    assert purged(quick, admin) == 1
    assert quick.get("/api/v1/quarantine", key=admin).json() == []
    assert reasons(quick, admin) == {"not_an_object": 2, "wrong_source": 1}


@pytest.mark.parametrize("query", ["?before=never", "?reason=nothing", "?since=1d", "?before="])
def test_a_purge_with_a_wrong_parameter_purges_nothing(quick: Server, query: str) -> None:
    admin = quick.key("admin")
    quick.post([1], key=quick.key())
    quick.rows("/api/v1/quarantine", key=admin)
    assert problem(quick.request("DELETE", f"/api/v1/quarantine{query}", key=admin)) == "bad_parameter"
    assert len(quick.get("/api/v1/quarantine", key=admin).json()) == 1


def test_only_an_unscoped_admin_key_may_purge(quick: Server) -> None:
    for key, reason in (
        (quick.key(), "wrong_kind"),
        (quick.key("read"), "wrong_kind"),
        (quick.key("admin", deployments=[1]), "out_of_scope"),
    ):
        assert problem(quick.request("DELETE", "/api/v1/quarantine", key=key)) == reason


@pytest.mark.server
def test_purged_rejections_do_not_return_after_a_crash_or_a_rebuild(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data, EMBEDSINK_SEGMENT_SEAL_S="0.05") as running:
        admin = running.key("admin")
        assert running.post([view(), 1], key=running.key()).status == 202
        authorization = {"Authorization": f"Bearer {admin}"}
        assert httpx2.delete(f"{running.url}/api/v1/quarantine", headers=authorization).json()["purged"] == 1
        running.kill()
    for is_rebuilt in (False, True):
        if is_rebuilt:
            (data / "store.duckdb").unlink()
        with open_server(data, segment_seal_s=0.05) as server:
            assert reasons(server, admin) == {"not_an_object": 1}
            assert server.get("/api/v1/quarantine", key=admin).json() == []


def test_rejections_are_purged_after_the_retention_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_schedule, "INTERVAL_S", 0.2)
    with open_server(tmp_path, segment_seal_s=0.05, quarantine_retention_days=0) as server:
        key, admin = server.key(), server.key("admin")
        server.post([1], key=key)
        server.rows("/api/v1/quarantine", key=admin)
        age = "update loaded_segment set loaded_at = loaded_at - interval 31 days"
        server.engine.loader.tasks.submit(lambda: server.engine.store._load_connection().execute(age)).result()
        server.post([2], key=key)
        server.rows("/api/v1/quarantine", key=admin, count=2)
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        wait_until(lambda: rejected_count(server) == 1, description="the old rejection is purged")
        assert reasons(server, admin) == {"not_an_object": 2}
        assert [row["raw"] for row in server.get("/api/v1/quarantine", key=admin).json()] == ["2"]


def test_a_clock_that_jumps_does_not_empty_the_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    store = cast(Store, SimpleNamespace(purge=lambda which: pytest.fail("it was purged")))
    purge = QuarantinePurge(store, cast(Publisher, None), cast(StoreDiskSpace, None), days=30)
    assert not purge.purge_when_due(), "a wrong clock can be corrected within an hour of the start"
    started_at, monotonic = time.time(), time.monotonic
    monkeypatch.setattr(time, "time", lambda: started_at + 40 * 86_400)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 3_600)
    assert not purge.purge_when_due()
    assert purge.seconds_to_next() == pytest.approx(3_600, abs=5)


def test_the_first_purge_replaces_the_snapshots_of_a_killed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[bool] = []
    monkeypatch.setattr(retention_schedule, "INTERVAL_S", 0.0)
    store = SimpleNamespace(purge=lambda which: 0)
    publisher = SimpleNamespace(replace_snapshots=lambda: replaced.append(True))
    disk_space = SimpleNamespace(require=lambda: None)
    purge = QuarantinePurge(cast(Store, store), cast(Publisher, publisher), cast(StoreDiskSpace, disk_space), days=30)
    for _ in range(2):
        assert not purge.purge_when_due()
    assert replaced == [True]


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


def test_a_purge_while_the_server_stops_is_unavailable(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        server.engine.loader.tasks.close()
        response = server.request("DELETE", "/api/v1/quarantine", key=server.key("admin"))
        assert (response.status_code, problem(response)) == (503, "not_ready")


def test_a_list_is_serialized_outside_the_event_loop(quick: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    class RecordingOrjson:
        OPT_NAIVE_UTC, OPT_UTC_Z = orjson.OPT_NAIVE_UTC, orjson.OPT_UTC_Z

        @staticmethod
        def dumps(value: object, option: int) -> bytes:
            threads.append(threading.current_thread())
            return orjson.dumps(value, option=option)

    monkeypatch.setattr(embedsink.transfer.quarantine, "orjson", RecordingOrjson)
    assert quick.get("/api/v1/quarantine", key=quick.key("read")).json() == []
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_a_second_replay_is_refused_while_one_runs(quick: Server) -> None:
    admin = quick.key("admin")
    quick._runner.run(quick.engine.replay_lock.acquire())
    try:
        response = quick.request("POST", "/api/v1/quarantine/replay", key=admin)
        assert (response.status_code, problem(response)) == (503, "overloaded")
    finally:
        quick.engine.replay_lock.release()


def test_reports_beyond_the_queue_limit_are_refused(tmp_path: Path) -> None:
    with open_server(tmp_path, report_concurrency_max=1, report_waiting_max=0) as server:
        key = server.key("read")
        assert server.get("/api/v1/reports/views", key=key).status_code == 200
        slot = server.engine.limiters.reports.slot("k_other")
        server._runner.run(slot.__aenter__())
        try:
            for path in ("/api/v1/reports/views", "/api/v1/quarantine"):
                response = server.get(path, key=key)
                assert (response.status_code, problem(response)) == (503, "overloaded")
        finally:
            server._runner.run(slot.__aexit__(None, None, None))
