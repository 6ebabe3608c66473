"""A scoped key sees nothing that changes because of other deployments: no byte, no tag, no position, no count."""

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
from tests.support.live_client import Message, listening
from tests.support.servers import Answer, RunningServer, running_server

pytestmark = pytest.mark.server

OWN, OTHER = 7_100_001, 7_200_002
# Long enough for a machine that is busy with other tests.
INSPECT = "/api/v1/inspect?since=1h&wait=30"
REPORTS = [f"reports/{name}.{format}" for name in report_names() for format in REPORT_FORMATS]
FACES = [
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
TEXTUAL = [face for face in FACES if not face.endswith((".parquet", ".arrow"))]
# What may differ between two servers: times, and what is made at random.
MADE = [
    (rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", b"TIME"),
    (rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"UUID"),
    (rb"k_[0-9a-f]{12}", b"KEY"),
    (rb"\b1[0-9]{12}\b", b"MS"),
]
VARYING_HEADERS = ("date", "x-request-id", "etag", "link", "x-next-cursor", "content-length")


class House:
    """A server, a key that sends, and a reader of one deployment."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.ingest = server.key("ingest")
        self.everything = server.key("admin")
        self.reader = server.key("read", deployments=[OWN])

    def send(self, deployment: int | None) -> None:
        """All kinds of traffic of a deployment, and wait until it is loaded."""
        for delivery in sent_of(deployment):
            assert self.server.post(delivery, key=self.ingest).status == 202
        if deployment is not None:
            body = json.dumps(sync_result(deployment, "job") | {"completedAt": "2026-11-20T00:00:00Z"}).encode()
            HttpClient(self.server.url, self.everything).put(*sync_of(deployment, "job"), body=body)
        self.server.post({"garbage": [1]}, key=self.ingest)
        assert self.get(INSPECT, key=self.everything).json()["isComplete"]

    def act_elsewhere(self) -> None:
        """Load events of another deployment and without one, and replay the quarantine."""
        for deployment in (OTHER, None):
            self.send(deployment)
        HttpClient(self.server.url, self.everything).post("quarantine", "replay", members=("replayed",))

    def get(self, path: str, *, key: str | None = None, **headers: str) -> Answer:
        return self.server.get(path, key=key or self.reader, **headers)

    def faces(self, faces: list[str]) -> dict[str, Answer]:
        answers = {face: self.get(f"/api/v1/{face}") for face in faces}
        assert {face: answer.status for face, answer in answers.items() if answer.status != 200} == {}
        return answers


def sent_of(deployment: int | None, cache: dict[int | None, list[dict[str, Any]]] = {}) -> list[dict[str, Any]]:  # noqa: B006
    """The same deliveries, with the same times, for each server."""
    return cache.setdefault(deployment, list(deliveries(deployment)))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server that receives events of the reader's deployment only."""
    with running_server(tmp_path_factory.mktemp("quiet") / "data", EMBEDSINK_SEGMENT_SEAL_S="0.05") as server:
        house = House(server)
        house.send(OWN)
        yield house


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server on which others send before, meanwhile and afterwards."""
    with running_server(tmp_path_factory.mktemp("noisy") / "data", EMBEDSINK_SEGMENT_SEAL_S="0.05") as server:
        house = House(server)
        house.act_elsewhere()
        house.send(OWN)
        house.act_elsewhere()
        yield house


def packed(answer: Answer) -> bytes:
    """What is in an answer, without when it was packed."""
    if not answer.body.startswith(b"PK"):
        return answer.body
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        return b"\n".join(name.encode() + archive.read(name) for name in archive.namelist())


def content_of(face: str, answer: Answer) -> object:
    """The bytes; of Arrow the values, since what lies below a null is not defined there."""
    if not face.endswith(".arrow"):
        return answer.body
    with InputStream.from_readable(io.BytesIO(answer.body)) as stream:
        return nanoarrow.Array(nanoarrow.c_array_stream(stream)).to_pylist()


def told_in(message: Message) -> tuple[object, ...]:
    return message.name, message.id, message.content


def comparable(answer: Answer) -> tuple[bytes, dict[str, str]]:
    content = packed(answer)
    for made, name in MADE:
        content = re.sub(made, name, content)
    headers = {name: value for name, value in answer.headers.items() if name not in VARYING_HEADERS}
    return content, headers | {"has a tag": str("etag" in answer.headers)}


def test_every_answer_is_the_same_whether_others_send_or_not(quiet: House, noisy: House) -> None:
    without, beside = quiet.faces(TEXTUAL), noisy.faces(TEXTUAL)
    for face in TEXTUAL:
        assert comparable(beside[face]) == comparable(without[face]), face


def test_nothing_changes_when_others_send(noisy: House) -> None:
    # Reports that look at the clock may change by themselves, and their tags do each minute.
    faces = [face for face in FACES if not (face in REPORTS and depends_on_clock(face[8:].partition(".")[0]))]
    before = noisy.faces(faces)
    noisy.act_elsewhere()
    after = noisy.faces(faces)
    for face in faces:
        if "sections" in face:
            continue  # The period goes on with the clock.
        if face != "summary.zip":
            assert content_of(face, after[face]) == content_of(face, before[face]), face
            assert after[face].headers.get("etag") == before[face].headers.get("etag"), face
            assert after[face].headers.get("x-next-cursor") == before[face].headers.get("x-next-cursor"), face
        if face.startswith(("reports/", "events")):
            again = noisy.get(f"/api/v1/{face}", **{"If-None-Match": before[face].headers["etag"]})
            assert again.status == 304, face


def test_a_tag_changes_with_all_that_a_reader_may_see(noisy: House) -> None:
    tags = [noisy.get("/api/v1/reports/views").headers["etag"]]

    def is_new() -> bool:
        assert noisy.get(INSPECT, key=noisy.everything).json()["isComplete"]
        tags.append(noisy.get("/api/v1/reports/views").headers["etag"])
        return tags[-1] not in tags[:-1]

    def send(deployment: int | None, *events: Any, session: str = "late", **more: Any) -> None:
        context = {"session": session} | ({} if deployment is None else {"deployment": deployment})
        noisy.server.post({"context": context, "events": list(events), **more}, key=noisy.ingest)

    view, ready = _view_and_ready()
    send(None, view)
    assert not is_new(), "it has no deployment"
    send(OWN, view)
    assert is_new()
    send(None, ready)
    assert is_new(), "the session is now known to be the deployment's, and so is its first event"
    send(None, view)
    assert is_new()
    send(None, lost={"queue_overflow": 2})
    assert is_new()
    send(OWN, view | {"payload": {"surface": "moon"}}, session="wrong")
    assert is_new(), "a rejection is one of its own"
    send(OTHER, view, session="theirs")
    assert not is_new()


def _view_and_ready() -> tuple[dict[str, Any], dict[str, Any]]:
    events = {event["type"]: event for event in sent_of(OWN)[1]["events"]}
    return events["svc:event:view"], events["svc:event:ready"]


def test_no_answer_shows_an_arrival(noisy: House) -> None:
    for path in ("reports/download_audit.json", "reports/sessions.json", "quarantine"):
        rows = noisy.get(f"/api/v1/{path}").json()
        assert rows
        assert {row["ingest_seq"] for row in rows} == {None}
    assert noisy.get("/api/v1/reports/download_audit.json", key=noisy.everything).json()[0]["ingest_seq"] > 2**32


def test_pages_go_on_by_a_cursor_that_says_nothing(noisy: House) -> None:
    def pages(key: str) -> Iterator[list[dict[str, Any]]]:
        cursor = ""
        while True:
            answer = noisy.get(f"/api/v1/events.ndjson?limit=4{cursor}", key=key)
            yield [json.loads(line) for line in answer.body.splitlines()]
            if "x-next-cursor" not in answer.headers:
                return
            cursor = f"&cursor={answer.headers['x-next-cursor']}"

    paged = [row["event_id"] for page in pages(noisy.reader) for row in page]
    whole = [json.loads(line)["event_id"] for line in noisy.get("/api/v1/events.ndjson").body.splitlines()]
    assert sorted(paged) == sorted(whole)
    assert len(set(paged)) == len(paged) > 4
    # With an ingest_seq of its own choice a reader would find out the numbers of its rows.
    plain = noisy.get("/api/v1/events.ndjson?limit=4", key=noisy.everything).headers["x-next-cursor"]
    refused = noisy.get(f"/api/v1/events.ndjson?limit=4&cursor={plain}")
    assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")


def test_the_server_says_nothing_of_itself_to_a_scoped_key(noisy: House) -> None:
    path = "/api/v1/dashboards/pipeline/sections/server"
    assert {one["value"] for one in noisy.get(path).json()["charts"].values()} == {None}
    assert None not in {one["value"] for one in noisy.get(path, key=noisy.everything).json()["charts"].values()}


def test_a_stream_tells_of_no_load_of_others(noisy: House) -> None:
    url = noisy.server.url
    with listening(url, noisy.reader, "rows=on&recent=100") as stream:
        connected, recent = stream.message("connected"), stream.message("recent")
        noisy.act_elsewhere()
        with listening(url, noisy.reader, "rows=on&recent=100") as again:
            assert told_in(again.message("connected")) == told_in(connected)
            assert told_in(again.message("recent")) == told_in(recent)
        assert {row["ingest_seq"] for row in recent.content["rows"]} == {None}
        noisy.send(OWN)
        first = stream.message("loaded")
    assert first.content["after"] == connected.content["segment"] == connected.id
    assert first.content["segment"] == first.id != connected.id
    assert first.content["revision"] != connected.content["revision"]
    assert re.fullmatch("[0-9a-f]{16}", first.id)


def test_a_scoped_reader_that_reconnects_receives_missed_events_once(noisy: House) -> None:
    url, (view, _) = noisy.server.url, _view_and_ready()

    def send(title: str, deployment: int = OWN) -> None:
        event = view | {"payload": view["payload"] | {"title": title}}
        noisy.server.post({"context": {"deployment": deployment}, "events": [event]}, key=noisy.ingest)
        assert noisy.get(INSPECT, key=noisy.everything).json()["isComplete"]

    with listening(url, noisy.reader, "rows=on") as stream:
        stream.message("connected")
        send("had")
        had = stream.message("loaded").id
    send("theirs", OTHER)
    send("missed")
    for query, last_event_id in (("", had), (f"&after={had}", None)):
        with listening(url, noisy.reader, f"rows=on{query}", last_event_id=last_event_id) as stream:
            assert stream.message("connected").id == had
            update = stream.message("loaded")
            assert update.content["after"] == had
            assert [json.loads(row["envelope"])["payload"]["title"] for row in update.content["rows"]] == ["missed"]
    with listening(url, noisy.reader, "rows=on", last_event_id=update.id) as stream:
        assert stream.message("connected").id == update.id
        assert stream.is_silent(0.3)


def test_a_scoped_reader_may_come_with_an_id_of_an_earlier_process(noisy: House) -> None:
    with listening(noisy.server.url, noisy.reader, last_event_id="41") as stream:
        assert stream.message("connected").content
    refused = noisy.get("/api/v1/events/live?after=moon")
    assert refused.status == 400


def test_an_inspection_does_not_wait_for_others(quiet: House) -> None:
    quiet.server.post({"context": {"deployment": OTHER}, "events": [_view_and_ready()[0]]}, key=quiet.ingest)
    assert quiet.get("/api/v1/inspect?since=1h&wait=0").json()["isComplete"]


def test_encrypted_numbers_are_a_permutation() -> None:
    cipher, other = NumberCipher(), NumberCipher()
    numbers = [0, 1, 2, 41, 2**32, 2**63 - 1, 2**64 - 1]
    hidden = [cipher.encrypt(number) for number in numbers]
    assert [cipher.decrypt(number) for number in hidden] == numbers
    assert len(set(hidden)) == len(numbers)
    assert all(0 <= number < 2**64 for number in hidden)
    assert [other.encrypt(number) for number in numbers] != hidden


def test_only_so_many_deployments_are_remembered() -> None:
    revisions = Revisions()
    revisions.renew()
    revisions.record_change([1], number=1)
    before, others = revisions.of([1]), revisions.of([2])
    revisions.record_change(range(10, 10 + DEPLOYMENTS_MAX), number=2)
    assert (revisions.of([1]), revisions.of([2])) == (before, others)
    revisions.record_change([3], number=3)
    assert revisions.of([1]) != before, "it may have changed"
    assert revisions.last_number([1]) == 3
    assert len(revisions._changes) == 1
