"""Traffic of other deployments changes no response to a scoped key: no byte, entity tag, position or count."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import nanoarrow
import pytest
from nanoarrow.ipc import InputStream

from embedsink.client.http_client import HttpClient
from embedsink.http.api.exports import EVENT_FORMATS
from embedsink.reports.catalog import depends_on_clock, report_names
from embedsink.reports.format import REPORT_FORMATS
from embedsink.reports.number_cipher import NumberCipher
from embedsink.store.revisions import DEPLOYMENTS_MAX, Revisions
from tests.reports.test_scope import deliveries, sync_of, sync_result
from tests.support.live_client import Message, open_stream
from tests.support.servers import RunningServer, ServerResponse, running_server

pytestmark = pytest.mark.server

OWN, OTHER = 7_100_001, 7_200_002
# Long enough for a machine that is busy with other tests.
INSPECT = "/api/v1/inspect?since=1h&wait=30"
REPORTS = [f"reports/{name}.{format}" for name in report_names() for format in REPORT_FORMATS]
PATHS = [
    *REPORTS,
    *(f"events.{format}" for format in EVENT_FORMATS),
    "events.ndjson?limit=3",
    "summary.zip",
    "quarantine",
    "deployments",
    "inspect?since=1h&wait=30",
    f"deployments/{OWN}/dbt-sync/job/result",
    "dashboards/pipeline/sections/server",
    "dashboards/pipeline/sections/flow",
    "dashboards/overview/sections/use",
]
TEXT_PATHS = [path for path in PATHS if not path.endswith((".parquet", ".arrow"))]
# Values that differ between two servers: times, and random values.
VARYING_PATTERNS = [
    (rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", b"TIME"),
    (rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"UUID"),
    (rb"k_[0-9a-f]{12}", b"KEY"),
    (rb"\b1[0-9]{12}\b", b"MS"),
]
VARYING_HEADERS = ("date", "x-request-id", "etag", "link", "x-next-cursor", "content-length")


class KeyedServer:
    """A server, an ingest key, an admin key, and a read key for one deployment."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.ingest_key = server.key("ingest")
        self.admin_key = server.key("admin")
        self.read_key = server.key("read", deployments=[OWN])

    def send(self, deployment: int | None) -> None:
        """Send all kinds of traffic of a deployment, and wait until it is loaded."""
        for delivery in deliveries_of(deployment):
            assert self.server.post(delivery, key=self.ingest_key).status == 202
        if deployment is not None:
            body = json.dumps(sync_result(deployment, "job") | {"completedAt": "2026-11-20T00:00:00Z"}).encode()
            HttpClient(self.server.url, self.admin_key).put(*sync_of(deployment, "job"), body=body)
        self.server.post({"garbage": [1]}, key=self.ingest_key)
        assert self.get(INSPECT, key=self.admin_key).json()["isComplete"]

    def send_as_others(self) -> None:
        """Load events of another deployment and without one, and replay the quarantine."""
        for deployment in (OTHER, None):
            self.send(deployment)
        HttpClient(self.server.url, self.admin_key).post("quarantine", "replay", required_members=("replayed",))

    def get(self, path: str, *, key: str | None = None, **headers: str) -> ServerResponse:
        return self.server.get(path, key=key or self.read_key, **headers)

    def get_all(self, paths: list[str]) -> dict[str, ServerResponse]:
        responses = {path: self.get(f"/api/v1/{path}") for path in paths}
        assert {path: response.status for path, response in responses.items() if response.status != 200} == {}
        return responses


def deliveries_of(deployment: int | None, cache: dict[int | None, list[dict[str, Any]]] = {}) -> list[dict[str, Any]]:  # noqa: B006
    """Return deliveries that have the same times for each server."""
    return cache.setdefault(deployment, list(deliveries(deployment)))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """Start a server that receives events of the reader's deployment only."""
    with running_server(tmp_path_factory.mktemp("alone") / "data", EMBEDSINK_SEGMENT_SEAL_S="0.05") as server:
        keyed_server = KeyedServer(server)
        keyed_server.send(OWN)
        yield keyed_server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """Start a server that also receives events of other deployments, before and after those of the reader's."""
    with running_server(tmp_path_factory.mktemp("shared") / "data", EMBEDSINK_SEGMENT_SEAL_S="0.05") as server:
        keyed_server = KeyedServer(server)
        keyed_server.send_as_others()
        keyed_server.send(OWN)
        keyed_server.send_as_others()
        yield keyed_server


def uncompressed(response: ServerResponse) -> bytes:
    """Return the body of a response. Of a ZIP archive, return its files without the time of compression."""
    return uncompressed_body(response.body)


def uncompressed_body(body: bytes) -> bytes:
    """Return a body. Of a ZIP archive, return its files without the time of compression."""
    if not body.startswith(b"PK"):
        return body
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return b"\n".join(name.encode() + archive.read(name) for name in archive.namelist())


def content_of(path: str, response: ServerResponse) -> object:
    """Return the bytes of a body. Of an Arrow body, return the values, because the bytes of a null are undefined."""
    if not path.endswith(".arrow"):
        return response.body
    with InputStream.from_readable(io.BytesIO(response.body)) as stream:
        return nanoarrow.Array(nanoarrow.c_array_stream(stream)).to_pylist()


def fields_of(message: Message) -> tuple[object, ...]:
    return message.name, message.id, message.content


def comparable(response: ServerResponse) -> tuple[bytes, dict[str, str]]:
    content = uncompressed(response)
    for pattern, name in VARYING_PATTERNS:
        content = re.sub(pattern, name, content)
    headers = {name: value for name, value in response.headers.items() if name not in VARYING_HEADERS}
    return content, headers | {"has a tag": str("etag" in response.headers)}


def test_responses_are_equal_with_and_without_traffic_of_other_deployments(
    alone: KeyedServer, shared: KeyedServer
) -> None:
    alone_responses, shared_responses = alone.get_all(TEXT_PATHS), shared.get_all(TEXT_PATHS)
    for path in TEXT_PATHS:
        assert comparable(shared_responses[path]) == comparable(alone_responses[path]), path


def test_traffic_of_other_deployments_changes_no_response(shared: KeyedServer) -> None:
    # Reports that depend on the clock may change without a load, and their tags change each minute.
    paths = [path for path in PATHS if not (path in REPORTS and depends_on_clock(path[8:].partition(".")[0]))]
    before = shared.get_all(paths)
    shared.send_as_others()
    after = shared.get_all(paths)
    for path in paths:
        if "sections" in path:
            continue  # The period moves with the clock.
        if path != "summary.zip":
            assert content_of(path, after[path]) == content_of(path, before[path]), path
            assert after[path].headers.get("etag") == before[path].headers.get("etag"), path
            assert after[path].headers.get("x-next-cursor") == before[path].headers.get("x-next-cursor"), path
        if path.startswith(("reports/", "events")):
            second_response = shared.get(f"/api/v1/{path}", **{"If-None-Match": before[path].headers["etag"]})
            assert second_response.status == 304, path


def test_the_etag_changes_with_all_data_in_the_readers_scope(shared: KeyedServer) -> None:
    tags = [shared.get("/api/v1/reports/views").headers["etag"]]

    def is_new() -> bool:
        assert shared.get(INSPECT, key=shared.admin_key).json()["isComplete"]
        tags.append(shared.get("/api/v1/reports/views").headers["etag"])
        return tags[-1] not in tags[:-1]

    def send(deployment: int | None, *events: Any, session: str = "late", **fields: Any) -> None:
        context = {"session": session} | ({} if deployment is None else {"deployment": deployment})
        shared.server.post({"context": context, "events": list(events), **fields}, key=shared.ingest_key)

    view, ready = _view_and_ready()
    send(None, view)
    assert not is_new(), "the event has no deployment"
    send(OWN, view)
    assert is_new()
    send(None, ready)
    assert is_new(), "the session now has a deployment, and so does its first event"
    send(None, view)
    assert is_new()
    send(None, lost={"queue_overflow": 2})
    assert is_new()
    send(OWN, view | {"payload": {"surface": "moon"}}, session="wrong")
    assert is_new(), "the rejection belongs to the deployment"
    send(OTHER, view, session="theirs")
    assert not is_new()


def _view_and_ready() -> tuple[dict[str, Any], dict[str, Any]]:
    events = {event["type"]: event for event in deliveries_of(OWN)[1]["events"]}
    return events["svc:event:view"], events["svc:event:ready"]


def test_ingest_seq_is_null_for_a_scoped_key(shared: KeyedServer) -> None:
    for path in ("reports/download_audit.json", "reports/sessions.json", "quarantine"):
        rows = shared.get(f"/api/v1/{path}").json()
        assert rows
        assert {row["ingest_seq"] for row in rows} == {None}
    assert shared.get("/api/v1/reports/download_audit.json", key=shared.admin_key).json()[0]["ingest_seq"] > 2**32


def test_opaque_cursors_lead_through_all_pages(shared: KeyedServer) -> None:
    def pages(key: str) -> Iterator[list[dict[str, Any]]]:
        cursor = ""
        while True:
            response = shared.get(f"/api/v1/events.ndjson?limit=4{cursor}", key=key)
            yield [json.loads(line) for line in response.body.splitlines()]
            if "x-next-cursor" not in response.headers:
                return
            cursor = f"&cursor={response.headers['x-next-cursor']}"

    paged_ids = [row["event_id"] for page in pages(shared.read_key) for row in page]
    unpaged = [json.loads(line)["event_id"] for line in shared.get("/api/v1/events.ndjson").body.splitlines()]
    assert sorted(paged_ids) == sorted(unpaged)
    assert len(set(paged_ids)) == len(paged_ids) > 4
    # With an ingest_seq of its choice, a reader could learn the numbers of its rows.
    plain = shared.get("/api/v1/events.ndjson?limit=4", key=shared.admin_key).headers["x-next-cursor"]
    refused = shared.get(f"/api/v1/events.ndjson?limit=4&cursor={plain}")
    assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")


def test_server_metrics_are_empty_for_a_scoped_key(shared: KeyedServer) -> None:
    path = "/api/v1/dashboards/pipeline/sections/server"
    assert {one["value"] for one in shared.get(path).json()["charts"].values()} == {None}
    assert None not in {one["value"] for one in shared.get(path, key=shared.admin_key).json()["charts"].values()}


def test_a_stream_is_not_changed_by_loads_of_other_deployments(shared: KeyedServer) -> None:
    url = shared.server.url
    with open_stream(url, shared.read_key, "rows=on&recent=100") as stream:
        connected, recent = stream.message("connected"), stream.message("recent")
        shared.send_as_others()
        with open_stream(url, shared.read_key, "rows=on&recent=100") as second_stream:
            assert fields_of(second_stream.message("connected")) == fields_of(connected)
            assert fields_of(second_stream.message("recent")) == fields_of(recent)
        assert {row["ingest_seq"] for row in recent.content["rows"]} == {None}
        shared.send(OWN)
        first = stream.message("loaded")
    assert first.content["after"] == connected.content["segment"] == connected.id
    assert first.content["segment"] == first.id != connected.id
    assert first.content["revision"] != connected.content["revision"]
    assert re.fullmatch("[0-9a-f]{16}", first.id)


def test_a_scoped_reader_that_reconnects_receives_missed_events_once(shared: KeyedServer) -> None:
    url, (view, _) = shared.server.url, _view_and_ready()

    def send(title: str, deployment: int = OWN) -> None:
        event = view | {"payload": view["payload"] | {"title": title}}
        shared.server.post({"context": {"deployment": deployment}, "events": [event]}, key=shared.ingest_key)
        assert shared.get(INSPECT, key=shared.admin_key).json()["isComplete"]

    with open_stream(url, shared.read_key, "rows=on") as stream:
        stream.message("connected")
        send("first")
        last_id = stream.message("loaded").id
    send("theirs", OTHER)
    send("missed")
    for query, last_event_id in (("", last_id), (f"&after={last_id}", None)):
        with open_stream(url, shared.read_key, f"rows=on{query}", last_event_id=last_event_id) as stream:
            assert stream.message("connected").id == last_id
            update = stream.message("loaded")
            assert update.content["after"] == last_id
            assert [json.loads(row["envelope"])["payload"]["title"] for row in update.content["rows"]] == ["missed"]
    with open_stream(url, shared.read_key, "rows=on", last_event_id=update.id) as stream:
        assert stream.message("connected").id == update.id
        assert stream.is_silent(0.3)


def test_a_last_event_id_of_an_earlier_process_is_accepted(shared: KeyedServer) -> None:
    with open_stream(shared.server.url, shared.read_key, last_event_id="00000000000041af") as stream:
        assert stream.message("connected").content
    refused = shared.get("/api/v1/events/live?after=moon")
    assert refused.status == 400


def test_an_inspection_does_not_wait_for_events_of_other_deployments(alone: KeyedServer) -> None:
    alone.server.post({"context": {"deployment": OTHER}, "events": [_view_and_ready()[0]]}, key=alone.ingest_key)
    assert alone.get("/api/v1/inspect?since=1h&wait=0").json()["isComplete"]


def test_encrypted_numbers_are_a_permutation() -> None:
    cipher, other = NumberCipher(), NumberCipher()
    numbers = [0, 1, 2, 41, 2**32, 2**63 - 1, 2**64 - 1]
    hidden = [cipher.encrypt(number) for number in numbers]
    assert [cipher.decrypt(number) for number in hidden] == numbers
    assert len(set(hidden)) == len(numbers)
    assert all(0 <= number < 2**64 for number in hidden)
    assert [other.encrypt(number) for number in numbers] != hidden


def test_the_number_of_recorded_deployments_is_limited() -> None:
    revisions = Revisions()
    revisions.renew()
    revisions.record_change([1], number=1)
    before, others = revisions.of([1]), revisions.of([2])
    revisions.record_change(range(10, 10 + DEPLOYMENTS_MAX), number=2)
    assert (revisions.of([1]), revisions.of([2])) == (before, others)
    revisions.record_change([3], number=3)
    assert revisions.of([1]) != before, "an evicted deployment counts as changed"
    assert revisions.segment_of_last_change([1]) == 3
    assert len(revisions._changes) == 1
