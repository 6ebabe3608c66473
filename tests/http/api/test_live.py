"""The live stream: messages, scope, limits and end."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import embedsink.http.live_stream
from embedsink.auth.key_store import KeyStore
from embedsink.reports.recent_events import ENVELOPES_BYTES_MAX, ROWS_MAX
from embedsink.store.reader import Reader
from tests.support.app import WAIT_S_MAX, Server, open_server, problem
from tests.support.envelopes import event_or_action, view
from tests.support.live_client import listener_count, open_stream
from tests.support.servers import RunningServer, running_server, wait_until

LIVE = "/api/v1/events/live"
INSPECT = "/api/v1/inspect"
WRONG = event_or_action("event:download", {"format": "doc"})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("live") / "data", EMBEDSINK_LIVE_MAX="3") as server:
        yield server


@pytest.fixture(scope="module")
def key(running: RunningServer) -> str:
    return running.key("ingest")


@pytest.fixture(scope="module")
def reader(running: RunningServer) -> str:
    return running.key("read")


def send(server: RunningServer, key: str, *events: Any, **context: Any) -> float:
    """Send a delivery, and return the time of its acknowledgement."""
    status = server.post({"context": {"session": "s", **context}, "events": list(events)}, key=key).status
    assert status in (202, 422)
    return time.monotonic()


@pytest.fixture(autouse=True)
def _nobody_listens(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, assert that no listener is left."""
    yield
    if "running" in request.fixturenames:
        server = request.getfixturevalue("running")
        wait_until(lambda: listener_count(server) == 0, description="no client listens")


@pytest.mark.alone
def test_an_acknowledged_event_is_streamed_within_two_seconds(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SEGMENT_SEAL_S="1") as server:  # the default
        key = server.key()
        with open_stream(server.url, server.key("read"), "rows=on") as stream:
            assert stream.message("connected").content["segment"] == 0
            for _ in range(3):
                acknowledged_at = send(server, key, view())
                assert stream.message().read_at - acknowledged_at < 2.0


def test_a_load_is_streamed_with_its_counts(running: RunningServer, key: str, reader: str) -> None:
    repeated = view() | {"id": "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}
    with open_stream(running.url, reader) as stream:
        connected = stream.message("connected").content
        events = [repeated, repeated, WRONG, event_or_action("action:refresh")]
        body = {"context": {"session": "s"}, "events": events, "lost": {"queue_overflow": 7}}
        assert running.post(body, key=key).status == 202
        update = stream.message()
    assert update.content == {
        "revision": update.content["revision"],
        "after": connected["segment"],
        "segment": connected["segment"] + 1,
        "counts": {"accepted": 2, "duplicate": 1, "quarantined": 1, "lost": 7, "sync": 0},
        "events": {"view": 1},
        "actions": {"refresh": 1},
    }
    assert update.content["revision"] != connected["revision"]
    assert update.id == str(update.content["segment"])


def test_rows_have_their_envelopes_reasons_and_paths(running: RunningServer, key: str, reader: str) -> None:
    valid = view({"title": "Sales"})
    with open_stream(running.url, reader, "rows=on") as stream:
        stream.message("connected")
        send(running, key, valid, WRONG, viewer="u_42", deployment=12)
        update = stream.message().content
    assert update["droppedCount"] == 0
    accepted, quarantined = update["rows"]
    assert (accepted["outcome"], accepted["type"], accepted["session"]) == ("accepted", "view", "s")
    assert (accepted["viewer"], accepted["deployment"], accepted["reason"]) == ("u_42", 12, None)
    assert json.loads(accepted["envelope"]).items() >= valid.items()
    assert (quarantined["outcome"], quarantined["type"], quarantined["reason"]) == (
        "quarantined",
        "download",
        "bad_field",
    )
    assert quarantined["path"] == "payload.format"
    assert json.loads(quarantined["envelope"]) == WRONG
    assert quarantined["detail"].startswith('payload.format: "doc"')


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("session=mine", ["view", "download"]),
        ("type=download", ["download"]),
        ("type=svc:event:view", ["view", "view"]),
        ("outcome=quarantined", ["download"]),
        ("outcome=accepted&session=mine", ["view"]),
        ("tenant=acme", ["view"]),
        ("deployment=7", ["view"]),
    ],
)
def test_a_stream_can_be_filtered(
    running: RunningServer, key: str, reader: str, query: str, expected: list[str]
) -> None:
    with open_stream(running.url, reader, f"rows=on&{query}") as stream, open_stream(running.url, reader) as all_of_it:
        stream.message("connected")
        all_of_it.message("connected")
        send(running, key, view(), tenant="acme", deployment=7)
        send(running, key, view(), WRONG, session="mine")
        all_of_it.loaded(2)
        rows: list[dict[str, Any]] = []
        while len(rows) < len(expected):
            rows += stream.message().content["rows"]
        assert stream.is_silent(0.3)
    assert [row["type"] for row in rows] == expected


def test_a_stream_can_be_filtered_by_key(running: RunningServer, key: str, reader: str) -> None:
    other = running.key("ingest")
    key_id = KeyStore(running.data / "keys.json").keys()[-1].key_id
    with open_stream(running.url, reader, f"rows=on&key={key_id}") as stream:
        stream.message("connected")
        send(running, key, view({"title": "of one"}))
        send(running, other, view({"title": "of the other"}))
        [row] = stream.message().content["rows"]
    assert "of the other" in row["envelope"]
    assert row["key_id"] == key_id


@pytest.mark.parametrize("kind", ["read", "admin"])
def test_a_scoped_reader_gets_no_messages_of_other_deployments(
    running: RunningServer, key: str, reader: str, kind: str
) -> None:
    scoped = running.key(kind, deployments=[2])
    with open_stream(running.url, scoped, "rows=on&recent=100") as stream, open_stream(running.url, scoped) as counted:
        assert all(row["deployment"] == 2 for row in stream.message("recent").content["rows"])
        counted.message("connected")
        send(running, key, view({"title": "secret of 1"}), WRONG, deployment=1)
        send(running, key, view({"title": "secret without a deployment"}), WRONG)
        # Wait until they are loaded, so that the next message does not contain them.
        running.get("/api/v1/inspect?since=1m", key=reader)
        send(running, key, view({"title": "of 2"}), WRONG, deployment=2)
        update, counts = stream.message().content, counted.message().content["counts"]
    assert "secret" not in json.dumps(update)
    assert [row["deployment"] for row in update["rows"]] == [2, 2]
    assert counts == update["counts"] == {"accepted": 1, "duplicate": None, "quarantined": 1, "lost": 0, "sync": 0}


@pytest.mark.parametrize("way", ["header", "parameter"])
def test_a_resuming_client_gets_every_missed_event_once(
    running: RunningServer, key: str, reader: str, way: str
) -> None:
    with open_stream(running.url, reader, "rows=on&recent=5") as stream, open_stream(running.url, reader) as counted:
        stream.message("recent")
        counted.message("connected")
        send(running, key, view({"title": "had"}))
        last = stream.message()
        counted.loaded(1)
        stream.close()
        send(running, key, view({"title": "missed"}))
        counted.loaded(1)
    query, last_event_id = ("", last.id) if way == "header" else (f"&after={last.id}", None)
    with open_stream(running.url, reader, f"rows=on&recent=5{query}", last_event_id=last_event_id) as stream:
        update = stream.message().content
        assert update["after"] == int(last.id)
        assert [json.loads(row["envelope"])["payload"]["title"] for row in update["rows"]] == ["missed"]
        assert stream.is_silent(0.3)


def test_recent_rows_come_first(running: RunningServer, key: str, reader: str) -> None:
    with open_stream(running.url, reader) as stream:
        stream.message("connected")
        send(running, key, *[view({"title": f"number {number}"}) for number in range(5)], session="recent")
        stream.loaded(5)
    with open_stream(running.url, reader, "recent=2&session=recent") as stream:
        rows = stream.message("recent").content["rows"]
    assert [json.loads(row["envelope"])["payload"]["title"] for row in rows] == ["number 3", "number 4"]


def test_a_large_load_streams_its_newest_rows_and_counts_the_others(
    running: RunningServer, key: str, reader: str
) -> None:
    with open_stream(running.url, reader, "rows=on") as stream:
        stream.message("connected")
        send(running, key, *[view()] * 250)
        updates = stream.loaded(250)
    assert all(len(message.content["rows"]) <= ROWS_MAX for message in updates)
    assert sum(len(message.content["rows"]) + message.content["droppedCount"] for message in updates) == 250


def test_long_envelopes_are_limited_by_bytes(running: RunningServer, key: str, reader: str) -> None:
    with open_stream(running.url, reader, "rows=on&session=long") as stream:
        stream.message("connected")
        send(running, key, *[view({"title": "x" * 60_000})] * 12, session="long")
        updates = stream.loaded(12)
    for message in updates:
        assert 0 < sum(len(row["envelope"]) for row in message.content["rows"]) <= ENVELOPES_BYTES_MAX
    assert sum(message.content["droppedCount"] for message in updates) > 0


def test_a_slow_reader_uses_no_memory_and_gets_correct_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.live_stream, "POLL_INTERVAL_S", 0.001)
    with open_server(tmp_path, segment_seal_s=0.01) as server:
        reads_on = asyncio.Event()
        written: list[bytes] = []

        async def write(piece: bytes) -> None:
            written.append(piece)
            if b"event: loaded" in piece:
                await reads_on.wait()

        def updates() -> list[dict[str, Any]]:
            return [json.loads(piece.partition(b"data: ")[2]) for piece in written if b"event: loaded" in piece]

        with server.streaming(f"{LIVE}?rows=on", server.key("read"), write):
            key = server.key()
            for count in range(1, 6):
                server.post([view()] * 100, key=key)
                wait_until(
                    lambda: server.engine.loader.status.accepted_count == count * 100,  # noqa: B023
                    description="the events are loaded",
                )
                server.get("/healthz")
            assert len(updates()) == 1
            reads_on.set()
            while sum(update["counts"]["accepted"] for update in updates()) < 500:
                server.get("/healthz")
    assert len(updates()) == 2
    assert [len(update["rows"]) for update in updates()] == [ROWS_MAX, ROWS_MAX]
    assert [update["droppedCount"] for update in updates()] == [0, 300]
    assert updates()[1]["after"] == updates()[0]["segment"]


def test_too_many_streams_answer_503(running: RunningServer, key: str, reader: str) -> None:
    with open_stream(running.url, reader) as first, open_stream(running.url, reader), open_stream(running.url, reader):
        wait_until(lambda: listener_count(running) == 3, description="three listen")
        refused = running.get(LIVE, key=reader)
        assert (refused.status, refused.json()["reason"]) == (503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        send(running, key, view())
        first.loaded(1)
    wait_until(lambda: listener_count(running) == 0, description="no client listens")
    with open_stream(running.url, reader) as second_stream:
        assert second_stream.response.status == 200


def test_one_key_cannot_use_all_streams(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_LIVE_MAX="8") as server, ExitStack() as streams:
        greedy, also_greedy, modest = (server.key("read") for _ in range(3))

        def open_one(key: str) -> None:
            assert streams.enter_context(open_stream(server.url, key)).response.status == 200

        for _ in range(6):
            open_one(greedy)
        refused = server.get(LIVE, key=greedy)
        assert (refused.status, refused.json()["reason"]) == (429, "rate_limited")
        assert refused.json()["detail"] == (
            "live: this key uses 6 of the 8 slots (EMBEDSINK_LIVE_MAX), and the free slots are reserved for keys that "
            "use fewer than 2. Close a page or a stream of this key, or retry later."
        )
        assert int(refused.headers["retry-after"]) >= 15
        # an inspection without pending events needs no slot
        assert server.get(f"{INSPECT}?since=1h", key=greedy).status == 200
        for key in (also_greedy, modest):
            open_one(key)
        assert {server.get(LIVE, key=key).json()["reason"] for key in (greedy, also_greedy, modest)} == {"overloaded"}


def test_a_client_that_disconnects_frees_a_stream_of_its_key(tmp_path: Path) -> None:
    with open_server(tmp_path, live_max=4) as server, ExitStack() as streams:
        reader, other = server.key("read"), server.key("read")

        async def ignore(_: bytes) -> None:
            pass

        with server.streaming(LIVE, reader, ignore):
            for key in (reader, other):
                streams.enter_context(server.streaming(LIVE, key, ignore))
            assert server.request("HEAD", LIVE, key=reader).status_code == 429
            assert server.request("HEAD", LIVE, key=other).status_code == 429
            assert server.request("HEAD", LIVE, key=server.key("read")).status_code == 200
        assert server.request("HEAD", LIVE, key=reader).status_code == 200
        assert server.request("HEAD", LIVE, key=reader).status_code == 200  # The HEAD request occupies no slot.


def test_a_stream_ends_within_a_second_when_its_key_is_revoked(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_KEYS_RELOAD_S="0.5") as server:
        key, token = server.key(), server.key("read")
        with open_stream(server.url, token, "rows=on") as stream:
            stream.message("connected")
            KeyStore(server.data / "keys.json").revoke(token, now=time.time())
            revoked_at = time.monotonic()
            assert stream.wait_for_end() - revoked_at < 1.2
            send(server, key, view())
            assert stream.is_silent(0.0)  # The stream has ended, so no message can arrive.


def test_streams_do_not_delay_a_shutdown(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        reader = server.key("read")
        with open_stream(server.url, reader) as stream, open_stream(server.url, reader, "rows=on", is_slow=True):
            stream.message("connected")
            began_at = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began_at < 10.0
            stream.wait_for_end()


def test_a_stream_sends_heartbeats_and_ends_at_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.live_stream, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(embedsink.http.live_stream, "POLL_INTERVAL_S", 0.01)
    with open_server(tmp_path, live_timeout_s=0.4) as server:
        response = server.get(LIVE, key=server.key("read"))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "private, no-store"
    assert response.text.startswith("retry: 1000\nid: 0\nevent: connected\n")
    # On a busy machine, some heartbeats are missing.
    assert 1 <= response.text.count(":\n\n") <= 8


def test_streams_that_began_at_different_times_share_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.live_stream, "POLL_INTERVAL_S", 0.3)
    spans: list[object] = []
    read = embedsink.http.live_stream._read_load

    def counted(reader: Reader, **wants: bool) -> Any:
        spans.append(reader.variable("after"))
        return read(reader, **wants)

    monkeypatch.setattr(embedsink.http.live_stream, "_read_load", counted)
    arrivals: list[int] = []
    with open_server(tmp_path, segment_seal_s=0.02) as server, ExitStack() as streams:
        key, reader = server.key(), server.key("read")

        async def write(piece: bytes) -> None:
            arrivals.extend([1] if b"event: loaded" in piece else [])

        for _ in range(6):
            streams.enter_context(server.streaming(LIVE, reader, write))
            until = time.monotonic() + 0.07  # not a multiple of the interval between messages
            while time.monotonic() < until:
                server.post(view(), key=key)
        began_at = time.monotonic()
        while (took_s := time.monotonic() - began_at) < 2.0 or (len(arrivals) < 12 and took_s < WAIT_S_MAX):
            server.post(view(), key=key)
    assert len(arrivals) >= 12
    # Without sharing, there would be one query per message.
    assert len(spans) <= len(arrivals) / 2


def test_queries_for_recent_rows_do_not_delay_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_looking, may_end = threading.Event(), threading.Event()

    def search(reader: Reader, *, limit: int) -> list[dict[str, Any]]:
        is_looking.set()
        assert may_end.wait(30)
        return []

    monkeypatch.setattr(embedsink.http.live_stream, "newest_ingested", search)
    written: list[bytes] = []

    async def write(piece: bytes) -> None:
        written.append(piece)

    def look_for(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end
            server.get("/healthz")

    with open_server(tmp_path, segment_seal_s=0.02) as server, ExitStack() as streams:
        reader = server.key("read")
        streams.callback(may_end.set)
        streams.enter_context(server.streaming(f"{LIVE}?session=rare&recent=5", reader, write))
        streams.enter_context(server.streaming(LIVE, reader, write))
        look_for(is_looking.is_set)
        server.post(view(), key=server.key())
        look_for(lambda: any(b"event: loaded" in piece for piece in written))
        may_end.set()


@pytest.mark.parametrize("deployments", [None, [12]])
def test_after_is_the_id_of_the_last_message_even_if_other_loads_were_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployments: list[int] | None
) -> None:
    monkeypatch.setattr(embedsink.http.live_stream, "POLL_INTERVAL_S", 0.05)
    written: list[bytes] = []

    async def write(piece: bytes) -> None:
        written.append(piece)

    def is_loaded() -> bool:
        server.get("/healthz")  # The event loop runs only during a request.
        return not server.engine.loader.waiting_since()

    with open_server(tmp_path, segment_seal_s=0.01) as server, ExitStack() as streams:
        key = server.key()
        reader = server.key("read", deployments=deployments)
        streams.enter_context(server.streaming(f"{LIVE}?session=mine", reader, write))
        # A load of the key's deployment may be recorded before the stream can read its position.
        server.engine.store.revisions.record_change([12], number=99)
        for session, deployment in (("other", 13), ("other", 13), ("mine", 12)):
            context = {"session": session, "deployment": deployment}
            server.post({"context": context, "events": [view()]}, key=key)
            wait_until(is_loaded, description="it is loaded")
            polls_until = time.monotonic() + 10 * embedsink.http.live_stream.POLL_INTERVAL_S
            while time.monotonic() < polls_until:
                server.get("/healthz")
        wait_until(lambda: is_loaded() and b"event: loaded" in b"".join(written), description="a load is reported")
    connected, loaded = (json.loads(piece.split(b"data: ")[1]) for piece in written if b"data: " in piece)
    assert loaded["after"] == connected["segment"] != loaded["segment"]


def test_without_listeners_a_load_causes_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path, segment_seal_s=0.01, live_timeout_s=0.01) as server:
        queries: list[object] = []
        monkeypatch.setattr(server.engine.store, "reader", queries.append)
        server.post(view(), key=server.key())
        wait_until(lambda: server.engine.loader.status.accepted_count == 1, description="it is loaded")
        server.get("/healthz")
        assert queries == []
        assert server.engine.load_notifier.listener_count == 0


@pytest.mark.parametrize(
    "query",
    [
        "after=x",
        "after=-1",
        "after=99999999999",
        "rows=yes",
        "recent=0",
        "recent=101",
        "session=a&session=b",
        "sesion=a",
        "since=7d",
        "type=a%00b",
        "type=vew",
        "type=svc:event:dashboard_loaded",
        "outcome=lost",
        "deployment=x",
    ],
)
def test_an_invalid_parameter_answers_400(server: Server, query: str) -> None:
    assert problem(server.get(f"{LIVE}?{query}", key=server.key("read"))) == "bad_parameter"


@pytest.mark.parametrize(
    ("id", "deployments"), [("elsewhere", None), ("0" * 16, None), ("elsewhere", [7]), ("0", [7]), ("abc", [7])]
)
def test_an_invalid_last_event_id_answers_400(server: Server, id: str, deployments: list[int] | None) -> None:
    key = server.key("read", deployments=deployments)
    answer = server.get(LIVE, key=key, headers={"last-event-id": id})
    assert problem(answer) == "bad_parameter"


def test_head_answers_without_a_stream(server: Server) -> None:
    response = server.request("HEAD", LIVE, key=server.key("read"))
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")
