"""Scoped keys never read events of other deployments, in any report, format or resource.

Reports, formats, event types and fields are enumerated, so that new ones are tested too. Each text of a deployment
contains a canary, a word that no other deployment sends.
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
from embedsink.protocol.messages import ACTIONS, EVENTS, MessageType
from embedsink.reports.catalog import report_names
from embedsink.reports.format import REPORT_FORMATS
from embedsink.store.frames import frame_of_parquet
from tests.support.servers import RunningServer, ServerResponse, running_server, wait_until

pytestmark = pytest.mark.server

# Numbers that occur nowhere else. Only unscoped keys read events without a deployment.
DEPLOYMENTS = (7_100_001, 7_200_002, 7_300_003)
NO_DEPLOYMENT = None
UNKNOWN = 7_900_009
SCOPES: list[list[int] | None] = [None, [DEPLOYMENTS[0]], list(DEPLOYMENTS[:2]), [UNKNOWN]]
RESOURCES = [
    *(f"reports/{name}.{format}" for name in report_names() for format in REPORT_FORMATS),
    *(f"events.{format}" for format in EVENT_FORMATS),
    "summary.zip",
    *(f"reports/{name}/schema" for name in report_names()),
    "quarantine",
    "deployments",
]
# The resources that contain every text of a deployment.
WITH_EVERY_TEXT = ("events", "summary")
# Parameters besides the scope.
QUERIES = ["", "?interval=month&timezone=Asia/Tokyo&bom=on&guard=off&limit=1000"]


def has_rows(resource: str) -> bool:
    return not resource.endswith(("/schema", "quarantine", "deployments"))


def canary(deployment: int | None) -> str:
    return f"canary{deployment or 'none'}"


def canaries_in(content: str, deployment: int | None) -> bool:
    return canary(deployment) in content or (deployment is not None and str(deployment) in content)


def texts_of(kind: MessageType, deployment: int | None) -> dict[str, Any]:
    """Return a payload with a canary in each text."""
    payload: dict[str, Any] = {f"unknown_{canary(deployment)}": {"nested": canary(deployment)}}
    for name, type_ in get_type_hints(kind.payload).items():
        if get_origin(type_) is Literal:
            payload[name] = get_args(type_)[0]
        elif type_ is str or type_ is Any or str in get_args(type_):
            payload[name] = f"f_{canary(deployment)}.{name}=[1]"
        elif name == "filters":
            payload[name] = {canary(deployment): [canary(deployment)]}
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
    for index, (name, kind) in enumerate([*EVENTS.items(), *ACTIONS.items(), ("ai-query", EVENTS["ai-query"])]):
        envelope: dict[str, Any] = {
            "source": "svc-embed",
            "direction": kind.direction,
            "type": f"svc:{kind.direction}:{name}",
            "payload": texts_of(kind, deployment),
            "timestamp": now_ms - 60_000 + index * 1_000,
            "seq": index * 2,
            f"further_{canary(deployment)}": session,
        }
        if kind.surfaces:
            envelope["surface"] = "dashboard"
        if index >= len(EVENTS) + len(ACTIONS):
            envelope["payload"] |= {"status": "completed"}
        yield envelope
    yield {"source": "svc-embed", "direction": "event", "type": f"svc:event:{canary(deployment)}"}  # quarantined


def deliveries(deployment: int | None) -> Iterator[dict[str, Any]]:
    """Yield a delivery with the deployment in its context, and one with it in `ready` only."""
    texts = {name: f"{canary(deployment)}-{name}" for name in ("viewer", "tenant", "page", "vendor")}
    for index, named in enumerate([{"deployment": deployment}, {}]):
        session = f"{canary(deployment)}-session-{index}"
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
        for deployment in (*DEPLOYMENTS, NO_DEPLOYMENT):
            for delivery in deliveries(deployment):
                sent += server.post(delivery, key=ingest).json()["accepted"]
        assert sent == 2 * 4 * (len(EVENTS) + len(ACTIONS) + 1)
        remote = HttpClient(server.url, server.key("sync"))
        for deployment in DEPLOYMENTS:
            job = f"{canary(deployment)}-job"
            remote.put(*sync_of(deployment, job), body=json.dumps(sync_result(deployment, job)).encode())
        opened = embedsink.open(data)
        wait_until(lambda: (data / "analytics.duckdb").exists(), description="a snapshot exists")
        wait_until(
            lambda: len(opened.sql("from event")) + len(opened.sql("from action")) == sent,
            description="all events are in the snapshot",
        )
        yield server


@pytest.fixture(scope="module")
def keys(server: RunningServer) -> dict[str, str]:
    return {str(scope): server.key("read", **({} if scope is None else {"deployments": scope})) for scope in SCOPES}


def content_of(resource: str, response: ServerResponse, folder: Path) -> str:
    """Return the text of a response: its headers, its body, and the rows and files in it."""
    content = repr(response.headers) + response.body.decode("latin-1")
    if resource.endswith(".parquet"):
        file = folder / "rows.parquet"
        file.write_bytes(response.body)
        content += frame_of_parquet(file)[0].to_csv()
    if resource.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(response.body)) as archive:
            content += "".join(f"{name}\n{archive.read(name).decode()}" for name in archive.namelist())
            assert {f"{name}.csv" for name in report_names()} <= set(archive.namelist())
    return content


def assert_no_leak(content: str, scope: list[int] | None, source: str) -> None:
    if scope is None:
        return
    for other in (*DEPLOYMENTS, NO_DEPLOYMENT):
        if other not in scope:
            assert not canaries_in(content, other), f"{source} shows {other} to {scope}"


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_a_response_has_no_text_of_another_deployment(
    server: RunningServer,
    keys: dict[str, str],
    scope: list[int] | None,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    own = {*DEPLOYMENTS, NO_DEPLOYMENT} if scope is None else {*scope} - {UNKNOWN}
    # A key without a scope may read every text, so its responses are only checked for missing texts.
    for resource in RESOURCES if scope else [name for name in RESOURCES if name.startswith(WITH_EVERY_TEXT)]:
        # The parameters change the rows and not their format, so one format of each report has both queries.
        for query in QUERIES if resource.endswith((".csv", ".ndjson")) else QUERIES[:1]:
            with subtests.test(resource + query):
                response = server.get(f"/api/v1/{resource}{query}", key=keys[str(scope)])
                assert response.status == 200, response.body
                content = content_of(resource, response, tmp_path)
                assert_no_leak(content, scope, resource + query)
                if resource.startswith(WITH_EVERY_TEXT):
                    assert [deployment for deployment in own if canary(deployment) not in content] == []


def test_requesting_a_deployment_outside_the_scope_is_refused(
    server: RunningServer, keys: dict[str, str], subtests: pytest.Subtests
) -> None:
    own, other = DEPLOYMENTS[:2]
    for resource in filter(has_rows, RESOURCES):
        with subtests.test(resource):
            response = server.get(f"/api/v1/{resource}?deployment={own}&deployment={other}", key=keys[str([own])])
            assert response.status == 403
            assert response.json()["reason"] == "out_of_scope"


def test_a_sync_result_is_read_by_keys_of_its_deployment(server: RunningServer, keys: dict[str, str]) -> None:
    for scope in SCOPES:
        for deployment in DEPLOYMENTS:
            job = f"{canary(deployment)}-job"
            path = "/".join(("/api/v1", *sync_of(deployment, job)))
            response = server.get(path, key=keys[str(scope)])
            allowed = scope is None or deployment in scope
            assert response.status == (200 if allowed else 403)
            assert (f"{canary(deployment)}.yml" in response.body.decode()) == allowed


def test_the_snapshot_is_read_by_unscoped_keys_only(server: RunningServer, keys: dict[str, str]) -> None:
    for scope in SCOPES:
        response = server.get("/api/v1/analytics.duckdb", key=keys[str(scope)])
        assert response.status == (200 if scope is None else 403)
        assert_no_leak(response.body.decode("latin-1"), scope, "analytics.duckdb")


def test_cursors_and_etags_of_another_key_reveal_nothing(server: RunningServer, keys: dict[str, str]) -> None:
    scope = [DEPLOYMENTS[1]]
    scoped = server.key("read", deployments=scope)
    first = server.get("/api/v1/events.ndjson?limit=1", key=keys["None"])
    refused = server.get(f"/api/v1/events.ndjson?limit=1000&cursor={first.headers['x-next-cursor']}", key=scoped)
    assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")
    others = server.get("/api/v1/events.ndjson?limit=1", key=keys[str([DEPLOYMENTS[0]])])
    following = server.get(f"/api/v1/events.ndjson?limit=1000&cursor={others.headers['x-next-cursor']}", key=scoped)
    assert following.status == 200
    assert_no_leak(following.body.decode(), scope, "the next page")
    assert canaries_in(following.body.decode(), scope[0])
    same = server.get("/api/v1/events.ndjson?limit=1", key=scoped, **{"If-None-Match": first.headers["etag"]})
    assert same.status == 200


def frames(client: LocalClient | RemoteClient, params: Any) -> Iterator[str]:
    for name in report_names():
        yield client.report(name, **params).to_csv()
    yield client.events(**params).to_csv()


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_frames_have_no_text_of_another_deployment(
    server: RunningServer, keys: dict[str, str], scope: list[int] | None
) -> None:
    params = {} if scope is None else {"deployment": scope}
    sources: Iterable[Iterator[str]] = (
        frames(embedsink.connect(server.url, key=keys[str(scope)]), {}),
        frames(embedsink.open(server.data), params),
    )
    for source in sources:
        for content in source:
            assert_no_leak(content, scope, "a frame")


def test_a_frame_of_a_deployment_outside_the_scope_is_refused(server: RunningServer, keys: dict[str, str]) -> None:
    connected = embedsink.connect(server.url, key=keys[str([DEPLOYMENTS[0]])])
    with pytest.raises(Refused, match="outside the key's scope"):
        connected.events(deployment=DEPLOYMENTS[1])


def test_every_text_column_has_a_canary(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    for table in ("event", "action"):
        rows = opened.sql(f"from {table}")
        texts = {name: " ".join(map(str, rows[name])) for name in rows.columns}
        without = {name for name, text in texts.items() if "canary" not in text}
        assert without <= {
            "event_id", "action_id", "ingest_seq", "occurred_at", "client_at", "sent_at", "received_at", "key_id",
            "deployment", "seq", "type", "surface", "mode", "payload_surface", "widget_count", "load_duration_ms",
            "format", "target", "row_count", "status", "fatal", "scheme", "is_internal", "rating",
        }  # fmt: skip
