"""Inspections: the received events of a session, and the rejections."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from embedsink.journal.segment import Segment
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.ledger import LoadCounts
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import ID, event_or_action, view
from tests.support.live_client import listener_count
from tests.support.servers import RunningServer, running_server, wait_until

INSPECT = "/api/v1/inspect"
VISIT = [event_or_action(f"event:{name}") for name in ("ready", "view", "dashboard-loaded")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Open a server that loads after a second, which is the default."""
    folder = tmp_path_factory.mktemp("inspect") / "data"
    with running_server(folder, EMBEDSINK_SEGMENT_SEAL_S="1") as server:
        yield server


def send(server: RunningServer, key: str, events: list[Any], **context: Any) -> None:
    assert server.post({"context": context, "events": events}, key=key).status in (202, 422)


def inspect(server: RunningServer, key: str, query: str) -> dict[str, Any]:
    response = server.get(f"{INSPECT}?{query}", key=key)
    assert response.status == 200, response.body
    assert response.headers["cache-control"] == "private, no-store"
    inspection: dict[str, Any] = response.json()
    return inspection


def test_acknowledged_events_are_counted_without_a_sleep(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    for number in range(3):
        send(running, key, VISIT, session=f"visit {number}")
        inspection = inspect(running, reader, f"session=visit+{number}")
        assert inspection == {
            "isComplete": True,
            "acceptedCount": 3,
            "quarantinedCount": 0,
            "lostCount": 0,
            "events": {"ready": 1, "view": 1, "dashboard-loaded": 1},
            "actions": {},
            "rejected": [],
        }


def test_a_client_that_disconnects_while_waiting_frees_its_slot(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SEGMENT_SEAL_S="60") as server:
        send(server, server.key("ingest"), VISIT, session="s")
        leaving = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        with closing(leaving):
            headers = {"Authorization": f"Bearer {server.key('read')}"}
            leaving.request("GET", f"{INSPECT}?session=s&wait=30", headers=headers)
            wait_until(lambda: listener_count(server) == 1, description="it waits")
        wait_until(lambda: listener_count(server) == 0, description="its place is free", timeout_s=5)
        assert b'"event": "bug"' not in server.log.read_bytes()


def test_without_waiting_the_answer_is_incomplete(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    send(running, key, VISIT, session="hurry")
    inspection = inspect(running, reader, "session=hurry&wait=0")
    assert (inspection["isComplete"], inspection["acceptedCount"]) == (False, 0)
    assert inspect(running, reader, "session=hurry")["acceptedCount"] == 3
    assert inspect(running, reader, "session=hurry&wait=0")["isComplete"]


def test_rejections_have_a_reason_and_a_path(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    invalid_envelopes = [event_or_action("event:download", {"format": "doc"}), view() | {"type": "svc:event:scroll"}, 1]
    send(running, key, [*VISIT, *invalid_envelopes, event_or_action("action:refresh")], session="wrong", deployment=12)
    inspection = inspect(running, reader, "session=wrong")
    assert (inspection["acceptedCount"], inspection["quarantinedCount"], inspection["actions"]) == (
        4,
        3,
        {"refresh": 1},
    )
    rejections = [
        (rejection["reason"], rejection["path"], rejection["type"], rejection["deployment"])
        for rejection in inspection["rejected"]
    ]
    assert rejections == [
        ("bad_field", "payload.format", "download", 12),
        ("unknown_type", "type", "scroll", 12),
        ("not_an_object", "envelope", None, 12),
    ]
    assert inspection["rejected"][0]["detail"].startswith('payload.format: "doc" is not one of')


def test_conflicts_found_by_the_loader_are_rejections_and_retries_are_not(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    for title in ("first", "first", "other"):
        send(running, key, [view({"title": title}, id=ID)], session="conflict")
    inspection = inspect(running, reader, "session=conflict")
    assert inspection["events"] == {"view": 1}
    assert [(rejection["reason"], rejection["path"]) for rejection in inspection["rejected"]] == [("id_conflict", "id")]


def test_lost_events_are_counted(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    body = {"context": {"session": "lossy"}, "events": [view()], "lost": {"queue_overflow": 3, "offline": 4}}
    assert running.post(body, key=key).status == 202
    assert inspect(running, reader, "session=lossy")["lostCount"] == 7


def test_a_scoped_reader_counts_its_own_events(running: RunningServer) -> None:
    key = running.key("ingest")
    for deployment in (1, 2):
        send(running, key, [view({"title": f"secret of {deployment}"}), 1], session="shared", deployment=deployment)
    send(running, key, [view(), 1], session="shared")
    scoped = inspect(running, running.key("read", deployments=[2]), "session=shared")
    assert (scoped["acceptedCount"], scoped["quarantinedCount"], scoped["lostCount"]) == (1, 1, 0)
    assert [rejection["deployment"] for rejection in scoped["rejected"]] == [2]
    unscoped = inspect(running, running.key("read"), "session=shared")
    assert (unscoped["acceptedCount"], unscoped["quarantinedCount"]) == (3, 3)
    other_scope = inspect(running, running.key("read", deployments=[3]), "session=shared&since=1h")
    assert (other_scope["acceptedCount"], other_scope["quarantinedCount"], other_scope["rejected"]) == (0, 0, [])


def test_an_inspection_can_be_filtered(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    send(running, key, VISIT, session="narrow", tenant="acme", deployment=7)
    assert inspect(running, reader, "session=narrow&type=view")["events"] == {"view": 1}
    assert inspect(running, reader, "session=narrow&since=1h&tenant=acme&deployment=7")["acceptedCount"] == 3
    assert inspect(running, reader, "session=narrow&until=1h")["acceptedCount"] == 0
    assert inspect(running, reader, "session=narrow&key=k_000000000000")["acceptedCount"] == 0


def test_too_many_waiting_inspections_answer_503(tmp_path: Path) -> None:
    # Nothing is loaded until the segment is full, so the first two inspections wait until the test fills it.
    with running_server(
        tmp_path / "data",
        EMBEDSINK_SEGMENT_SEAL_S="60",
        EMBEDSINK_SEGMENT_BYTES_MAX="8192",
        EMBEDSINK_LIVE_MAX="2",
    ) as server:
        key, reader = server.key("ingest"), server.key("read")
        send(server, key, VISIT, session="registry")
        inspection: list[dict[str, Any]] = []
        waiting = [
            threading.Thread(target=lambda: inspection.append(inspect(server, reader, "session=registry&wait=30")))
            for _ in range(2)
        ]
        for one in waiting:
            one.start()
        wait_until(lambda: listener_count(server) == 2, description="two wait")
        for _ in range(3):
            refused = server.get(f"{INSPECT}?session=registry", key=reader)
            assert (refused.status, refused.json()["reason"]) == (503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
        send(server, key, [view({"title": "x" * 9_000})], session="another")
        for one in waiting:
            one.join()
        assert [(one["isComplete"], one["acceptedCount"]) for one in inspection] == [(True, 3), (True, 3)]
        assert inspect(server, reader, "session=registry")["acceptedCount"] == 3


def test_a_waiting_inspection_uses_a_slot_of_its_key(tmp_path: Path) -> None:
    async def ignore(_: bytes) -> None:
        pass

    with open_server(tmp_path, live_max=4) as server, ExitStack() as streams:
        reader, other = server.key("read"), server.key("read")
        assert server.post(view(), key=server.key()).status_code == 202  # and no segment is sealed
        for _ in range(3):
            streams.enter_context(server.streaming("/api/v1/events/live", reader, ignore))
        assert problem(server.get(f"{INSPECT}?since=1h&wait=1", key=reader)) == "rate_limited"
        assert server.get(f"{INSPECT}?since=1h&wait=0", key=reader).status_code == 200
        assert server.get(f"{INSPECT}?since=1h&wait=1", key=other).status_code == 200


def test_a_key_revoked_during_the_wait_gets_no_data(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        key, reader = server.key(), server.key("read")
        assert server.post(view(), key=key).status_code == 202
        revoking = threading.Timer(0.3, server.revoke, [reader])
        revoking.start()
        answer = server.get(f"{INSPECT}?since=1h&wait=1", key=reader)
        revoking.join()
        assert problem(answer) == "bad_credential"


def test_an_event_committed_despite_its_refusal_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path, segment_seal_s=0.01) as server:
        load = server.engine.store.load

        def load_and_lose_the_answer(*segments: Segment) -> LoadCounts:
            load(*segments)
            monkeypatch.undo()
            raise StoreRefused("the answer to the commit was lost")

        monkeypatch.setattr(server.engine.store, "load", load_and_lose_the_answer)
        assert server.post(view(), key=server.key()).status_code == 202
        inspection = server.get(f"{INSPECT}?since=1h&wait=10", key=server.key("read")).json()
    assert (inspection["isComplete"], inspection["acceptedCount"]) == (True, 1)


def test_waiting_inspections_do_not_delay_a_shutdown(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SEGMENT_SEAL_S="60") as server:
        key, reader = server.key("ingest"), server.key("read")
        send(server, key, VISIT, session="s")
        inspection: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: inspection.append(inspect(server, reader, "session=s&wait=30")))
        waiting.start()
        wait_until(lambda: listener_count(server) == 1, description="it waits")
        began_at = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began_at < 10.0  # far below the wait of 30 s
        waiting.join()
        assert [one["isComplete"] for one in inspection] == [False]


@pytest.mark.parametrize(
    "query",
    ["", "wait=5", "session=", "session=s&wait=31", "session=s&wait=-1", "session=s&limit=1", "since=yesterday"],
)
def test_an_invalid_parameter_answers_400(server: Server, query: str) -> None:
    assert problem(server.get(f"{INSPECT}?{query}", key=server.key("read"))) == "bad_parameter"


def test_a_misspelt_type_is_an_error_and_a_rejected_type_is_found(running: RunningServer) -> None:
    key, reader = running.key("ingest"), running.key("read")
    send(running, key, [view() | {"type": f"svc:event:{name}"} for name in ("view", "veiw", "scroll")], session="slips")
    response = running.get(f"{INSPECT}?session=slips&type=veiw", key=reader)
    assert (response.status, response.json()["reason"]) == (400, "bad_parameter")
    assert response.json()["detail"].startswith('type: "veiw" does not exist. Did you mean "view"? ')
    assert "outcome=quarantined" in response.json()["detail"]
    for requested, types in (
        ("veiw&outcome=quarantined", ["veiw"]),
        ("scroll", ["scroll"]),
        ("svc:event:view", []),
        ("", []),
    ):
        inspection = inspect(running, reader, f"session=slips&type={requested}")
        assert [rejection["type"] for rejection in inspection["rejected"]] == types
