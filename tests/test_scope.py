"""Nobody sees another deployment's events: every report, every face, every scope, and a canary in every text.

Reports, formats, event types and their fields are enumerated, so that a new one is looked at without being named here.
A canary is a word that one deployment alone has sent; so are the deployments' numbers.
"""

import io
import json
import time
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import embedsink
from embedsink.client.http_client import HttpClient
from embedsink.client.notebook import LocalClient, RemoteClient
from embedsink.errors import Refused
from embedsink.http.api.exports import EVENT_FORMATS
from embedsink.protocol.messages import ACTIONS, EVENTS, Kind
from embedsink.reports.catalog import report_names
from embedsink.reports.format import REPORT_FORMATS
from embedsink.store.reader import frame_of_parquet
from tests.servers import Answer, RunningServer, running_server, wait_until

pytestmark = pytest.mark.server

# Numbers that nothing else has. The last one named none: in these events only the unscoped look.
DEPLOYMENTS = (7_100_001, 7_200_002, 7_300_003)
NOBODYS = None
UNKNOWN = 7_900_009
SCOPES: list[list[int] | None] = [None, [DEPLOYMENTS[0]], list(DEPLOYMENTS[:2]), [UNKNOWN]]
FACES = [
    *(f"reports/{name}.{format}" for name in report_names() for format in REPORT_FORMATS),
    *(f"events.{format}" for format in EVENT_FORMATS),
    "summary.zip",
    *(f"reports/{name}/schema" for name in report_names()),
    "quarantine",
    "deployments",
]
NO_REPORTS = ("/schema", "quarantine", "deployments")
# What can be asked beside the scope must not lead out of it.
QUERIES = ["", "?interval=month&timezone=Asia/Tokyo&bom=on&guard=off&limit=1000"]


def canary(deployment: int | None) -> str:
    return f"canary{deployment or 'nobodys'}"


def canaries_in(content: str, deployment: int | None) -> bool:
    return canary(deployment) in content or (deployment is not None and str(deployment) in content)


def texts_of(kind: Kind, deployment: int | None) -> dict[str, Any]:
    """A payload with a canary wherever a text may stand."""
    payload: dict[str, Any] = {f"unknown_{canary(deployment)}": {"nested": canary(deployment)}}
    for name, type_ in get_type_hints(kind.payload).items():
        if get_origin(type_) is Literal:
            payload[name] = get_args(type_)[0]
        elif type_ is str or type_ is Any or str in get_args(type_):
            payload[name] = f"f_{canary(deployment)}.{name}=[1]"
        elif name == "deploymentId":
            payload[name] = deployment
        elif float in get_args(type_):
            payload[name] = 7
        elif dict[str, Any] in get_args(type_):
            payload[name] = {"font": canary(deployment)}
        elif bool in get_args(type_):
            payload[name] = True
    return payload


def envelopes(deployment: int | None, session: str) -> Iterator[dict[str, Any]]:
    now_ms = round(time.time() * 1000)
    for place, (name, kind) in enumerate([*EVENTS.items(), *ACTIONS.items(), ("ai-query", EVENTS["ai-query"])]):
        envelope: dict[str, Any] = {
            "source": "svc-embed",
            "direction": kind.direction,
            "type": f"svc:{kind.direction}:{name}",
            "payload": texts_of(kind, deployment),
            "timestamp": now_ms - 60_000 + place * 1_000,
            "seq": place * 2,
            f"further_{canary(deployment)}": session,
        }
        if kind.surfaces:
            envelope["surface"] = "dashboard"
        if place >= len(EVENTS) + len(ACTIONS):
            envelope["payload"] |= {"status": "completed"}
        yield envelope
    yield {"source": "svc-embed", "direction": "event", "type": f"svc:event:{canary(deployment)}"}  # quarantined


def deliveries(deployment: int | None) -> Iterator[dict[str, Any]]:
    """One that names the deployment in its context, and one where only `ready` does."""
    texts = {name: f"{canary(deployment)}-{name}" for name in ("viewer", "tenant", "page")}
    for place, named in enumerate([{"deployment": deployment}, {}]):
        session = f"{canary(deployment)}-session-{place}"
        yield {
            "context": {**texts, **named, "session": session},
            "events": list(envelopes(deployment, session)),
            "lost": {canary(deployment): 3},
        }


def sync_of(deployment: int, job: str) -> tuple[str, ...]:
    return "deployments", str(deployment), "dbt-sync", job, "result"


def sync_result(deployment: int, job: str) -> dict[str, Any]:
    return {
        "syncJobId": job,
        "generatedFiles": [{"path": f"{canary(deployment)}.yml"}],
        "manifestStats": {"models": 1, "sources": 1, "macros": 1},
        "svcCount": 1,
        "completedAt": datetime.now(UTC).isoformat(),
        "durationMs": 1,
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("scope") / "data"
    with running_server(data, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        ingest, sent = server.key("ingest"), 0
        for deployment in (*DEPLOYMENTS, NOBODYS):
            for delivery in deliveries(deployment):
                sent += server.post(delivery, key=ingest).json()["accepted"]
        assert sent == 2 * 4 * (len(EVENTS) + len(ACTIONS) + 1)
        remote = HttpClient(server.url, server.key("sync"))
        for deployment in DEPLOYMENTS:
            job = f"{canary(deployment)}-job"
            remote.put(*sync_of(deployment, job), body=json.dumps(sync_result(deployment, job)).encode())
        opened = embedsink.open(data)
        wait_until(lambda: (data / "analytics.duckdb").exists(), what="there is a snapshot")
        wait_until(lambda: len(opened.sql("from event")) + len(opened.sql("from action")) == sent, what="all is there")
        yield server


@pytest.fixture(scope="module")
def keys(server: RunningServer) -> dict[str, str]:
    return {str(scope): server.key("read", **({} if scope is None else {"deployments": scope})) for scope in SCOPES}


def content_of(face: str, answer: Answer, folder: Path) -> str:
    """All that a reader could make of an answer: its bytes and headers, and what is packed in them."""
    seen = repr(answer.headers) + answer.body.decode("latin-1")
    if face.endswith(".parquet"):
        file = folder / "rows.parquet"
        file.write_bytes(answer.body)
        seen += frame_of_parquet(file)[0].to_csv()
    if face.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
            seen += "".join(f"{name}\n{archive.read(name).decode()}" for name in archive.namelist())
            assert {f"{name}.csv" for name in report_names()} <= set(archive.namelist())
    return seen


def assert_airtight(content: str, scope: list[int] | None, what: str) -> None:
    if scope is None:
        return
    for other in (*DEPLOYMENTS, NOBODYS):
        if other not in scope:
            assert not canaries_in(content, other), f"{what} shows {other} to {scope}"


@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("face", FACES)
def test_no_byte_of_another_deployment(
    server: RunningServer, keys: dict[str, str], face: str, scope: list[int] | None, tmp_path: Path
) -> None:
    is_rows = not face.endswith(NO_REPORTS)
    for query in QUERIES if is_rows else QUERIES[:1]:
        if face == "summary.zip" and "limit" in query:
            continue
        answer = server.get(f"/api/v1/{face}{query}", key=keys[str(scope)])
        assert answer.status == 200, answer.body
        content = content_of(face, answer, tmp_path)
        assert_airtight(content, scope, face + query)
        if face.startswith(("events", "summary")):
            for own in {*DEPLOYMENTS, NOBODYS} if scope is None else {*scope} - {UNKNOWN}:
                assert canary(own) in content, f"{face}{query} lacks {own}"


@pytest.mark.parametrize("face", [face for face in FACES if not face.endswith(NO_REPORTS)])
def test_a_deployment_outside_the_keys_scope_can_not_be_asked_for(
    server: RunningServer, keys: dict[str, str], face: str
) -> None:
    one, other = DEPLOYMENTS[:2]
    answer = server.get(f"/api/v1/{face}?deployment={one}&deployment={other}", key=keys[str([one])])
    assert answer.status == 403
    assert answer.json()["reason"] == "out_of_scope"


def test_a_sync_is_for_keys_of_its_deployment(server: RunningServer, keys: dict[str, str]) -> None:
    for scope in SCOPES:
        for deployment in DEPLOYMENTS:
            job = f"{canary(deployment)}-job"
            path = "/".join(("/api/v1", *sync_of(deployment, job)))
            answer = server.get(path, key=keys[str(scope)])
            allowed = scope is None or deployment in scope
            assert answer.status == (200 if allowed else 403)
            assert (f"{canary(deployment)}.yml" in answer.body.decode()) == allowed


def test_the_snapshot_is_for_keys_of_every_deployment(server: RunningServer, keys: dict[str, str]) -> None:
    for scope in SCOPES:
        answer = server.get("/api/v1/analytics.duckdb", key=keys[str(scope)])
        assert answer.status == (200 if scope is None else 403)
        assert_airtight(answer.body.decode("latin-1"), scope, "analytics.duckdb")


def test_neither_a_cursor_nor_a_tag_carries_over_what_its_key_saw(server: RunningServer, keys: dict[str, str]) -> None:
    scope = [DEPLOYMENTS[1]]
    scoped = server.key("read", deployments=scope)
    first = server.get("/api/v1/events.ndjson?limit=1", key=keys["None"])
    refused = server.get(f"/api/v1/events.ndjson?limit=1000&cursor={first.headers['x-next-cursor']}", key=scoped)
    assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")
    others = server.get("/api/v1/events.ndjson?limit=1", key=keys[str([DEPLOYMENTS[0]])])
    following = server.get(f"/api/v1/events.ndjson?limit=1000&cursor={others.headers['x-next-cursor']}", key=scoped)
    assert following.status == 200
    assert_airtight(following.body.decode(), scope, "the next page")
    assert canaries_in(following.body.decode(), scope[0])
    same = server.get("/api/v1/events.ndjson?limit=1", key=scoped, **{"If-None-Match": first.headers["etag"]})
    assert same.status == 200


def frames(client: LocalClient | RemoteClient, asked: Any) -> Iterator[str]:
    for name in report_names():
        yield client.report(name, **asked).to_csv()
    yield client.events(**asked).to_csv()


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_frames_show_no_other_deployment(server: RunningServer, keys: dict[str, str], scope: list[int] | None) -> None:
    asked = {} if scope is None else {"deployment": scope}
    faces: Iterable[Iterator[str]] = (
        frames(embedsink.connect(server.url, key=keys[str(scope)]), {}),
        frames(embedsink.open(server.data), asked),
    )
    for face in faces:
        for content in face:
            assert_airtight(content, scope, "a frame")


def test_a_frame_of_another_deployment_is_refused(server: RunningServer, keys: dict[str, str]) -> None:
    connected = embedsink.connect(server.url, key=keys[str([DEPLOYMENTS[0]])])
    with pytest.raises(Refused, match="outside the key's scope"):
        connected.events(deployment=DEPLOYMENTS[1])


def test_every_text_carries_its_canary(server: RunningServer) -> None:
    """What this file relies on: no column of text is without one."""
    opened = embedsink.open(server.data)
    for table in ("event", "action"):
        rows = opened.sql(f"from {table}")
        texts = {name: " ".join(map(str, rows[name])) for name in rows.columns}
        without = {name for name, text in texts.items() if "canary" not in text}
        assert without <= {
            "event_id", "action_id", "ingest_seq", "occurred_at", "client_at", "sent_at", "received_at", "key_id",
            "deployment", "seq", "type", "surface", "mode", "payload_surface", "widget_count", "load_duration_ms",
            "format", "target", "row_count", "status", "fatal", "scheme",
        }  # fmt: skip
