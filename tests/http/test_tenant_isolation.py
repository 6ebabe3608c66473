"""A key that is limited to tenants sees only their rows. Nothing depends on other tenants of the same deployment."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from embedsink.client.http_client import HttpClient
from embedsink.reports.catalog import depends_on_clock
from tests.http.test_isolation import (
    INSPECT,
    OTHER,
    OWN,
    PATHS,
    REPORTS,
    TEXT_PATHS,
    KeyedServer,
    comparable,
    content_of,
    deliveries_of,
    fields_of,
)
from tests.reports.test_scope import RESOURCES, WITH_EVERY_TEXT, canary, has_rows, sync_of, sync_result
from tests.reports.test_scope import content_of as text_of
from tests.support.live_client import open_stream
from tests.support.servers import running_server

pytestmark = pytest.mark.server

# Others send more rejections a day than are stored.
SETTINGS: dict[str, Any] = {"EMBEDSINK_SEGMENT_SEAL_S": "0.05", "EMBEDSINK_QUARANTINE_COUNT_PER_DAY": "20"}
SYNC_PATH = f"deployments/{OWN}/dbt-sync/job/result"


def tenants_of(number: int) -> list[str]:
    """Return the tenants that the deliveries of `deliveries_of` name: in the context, and in `ready` events."""
    return [f"{canary(number)}-tenant", f"f_{canary(number)}.embedTenant=[1]"]


def in_one_deployment(delivery: dict[str, Any], *, has_tenant: bool) -> dict[str, Any]:
    """Return a delivery with the deployment `OWN` instead of its own, and without a tenant unless `has_tenant`."""
    context = dict(delivery["context"])
    if "deployment" in context:
        context["deployment"] = OWN
    if not has_tenant:
        del context["tenant"]
    events = []
    for event in delivery["events"]:
        payload = dict(event.get("payload", {}))
        if "deploymentId" in payload:
            payload["deploymentId"] = OWN
        if "embedTenant" in payload and not has_tenant:
            payload["embedTenant"] = None
        events.append(event | ({"payload": payload} if "payload" in event else {}))
    return delivery | {"context": context, "events": events}


class TenantServer(KeyedServer):
    """A server whose read key is limited to the tenants of `OWN`. All traffic belongs to one deployment."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.read_key = server.key("read", tenants=tenants_of(OWN))
        self.others_key = server.key("ingest")
        self._job_count = 0

    def send(self, number: int | None) -> None:
        """Send all kinds of traffic of the tenants of a number, or without a tenant, and wait until it is loaded."""
        key = self.ingest_key if number == OWN else self.others_key
        for delivery in deliveries_of(number):
            body = in_one_deployment(delivery, has_tenant=number is not None)
            assert self.server.post(body, key=key).status == 202
            if number != OWN:
                self._send_special(body)
        assert self.get(INSPECT, key=self.admin_key).json()["isComplete"]

    def _send_special(self, delivery: dict[str, Any]) -> None:
        """Send what is only counted, what is old, and what belongs to the deployment."""
        event = delivery["events"][0]
        old = event | {"timestamp": event["timestamp"] - 30 * 86_400_000, "id": str(uuid4())}
        for events in ([old], [old], [{"garbage": 1}] * 30):  # the second one is a duplicate
            self.server.post(delivery | {"events": events}, key=self.others_key)
        self.server.post({"garbage": [1]}, key=self.others_key)
        self._job_count += 1
        job = f"{canary(OTHER)}-{self._job_count}"
        body = json.dumps(sync_result(OWN, job)).encode()
        HttpClient(self.server.url, self.admin_key).put(*sync_of(OWN, job), body=body)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    """Start a server that receives events of the reader's tenants only."""
    with running_server(tmp_path_factory.mktemp("alone") / "data", **SETTINGS) as server:
        tenant_server = TenantServer(server)
        tenant_server.send(OWN)
        yield tenant_server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    """Start a server that also receives events of other tenants, before and after those of the reader's."""
    with running_server(tmp_path_factory.mktemp("shared") / "data", **SETTINGS) as server:
        tenant_server = TenantServer(server)
        tenant_server.send_as_others()
        tenant_server.send(OWN)
        tenant_server.send_as_others()
        yield tenant_server


def test_responses_are_equal_with_and_without_traffic_of_other_tenants(
    alone: TenantServer, shared: TenantServer, subtests: pytest.Subtests
) -> None:
    paths = [path for path in TEXT_PATHS if path != SYNC_PATH]
    alone_responses, shared_responses = alone.get_all(paths), shared.get_all(paths)
    for path in paths:
        with subtests.test(path):
            assert comparable(shared_responses[path]) == comparable(alone_responses[path])


def test_traffic_of_other_tenants_changes_no_response(shared: TenantServer, subtests: pytest.Subtests) -> None:
    # Reports that depend on the clock may change without a load.
    paths = [
        path
        for path in PATHS
        if path != SYNC_PATH and not (path in REPORTS and depends_on_clock(path[8:].partition(".")[0]))
    ]
    before = shared.get_all(paths)
    shared.send_as_others()
    after = shared.get_all(paths)
    for path in paths:
        with subtests.test(path):
            assert "etag" not in before[path].headers
            if "sections" in path or path == "summary.zip":
                continue  # The period, or the time of compression, moves with the clock.
            assert content_of(path, after[path]) == content_of(path, before[path])
            assert after[path].headers.get("x-next-cursor") == before[path].headers.get("x-next-cursor")


def test_readers_of_two_tenants_share_no_section(shared: TenantServer) -> None:
    path = "/api/v1/dashboards/overview/sections/use"
    other_key = shared.server.key("read", tenants=tenants_of(OTHER))
    own, other = shared.get(path).body, shared.get(path, key=other_key).body
    assert comparable_section(own) != comparable_section(other)
    assert comparable_section(shared.get(path).body) == comparable_section(own)


def comparable_section(body: bytes) -> Any:
    """Return the charts of a section without its period, which moves with the clock."""
    return json.loads(body)["charts"]


def test_a_plain_cursor_is_refused(shared: TenantServer) -> None:
    path = "/api/v1/events.ndjson?limit=4"
    plain = shared.get(path, key=shared.admin_key).headers["x-next-cursor"]
    refused = shared.get(f"{path}&cursor={plain}")
    assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")


def test_a_limited_admin_can_neither_replay_nor_purge(shared: TenantServer) -> None:
    key = shared.server.key("admin", tenants=tenants_of(OWN))
    for method, path in (("POST", "/api/v1/quarantine/replay"), ("DELETE", "/api/v1/quarantine")):
        headers = {"Authorization": f"Bearer {key}"}
        refused = httpx2.request(method, f"{shared.server.url}{path}", headers=headers)
        assert (refused.status_code, refused.json()["reason"]) == (403, "out_of_scope")


def test_an_overloaded_stream_answers_503_or_retries(tmp_path: Path) -> None:
    settings: dict[str, Any] = SETTINGS | {"EMBEDSINK_REPORT_TIMEOUT_S": "0.001"}
    with running_server(tmp_path / "data", **settings) as server:
        key = server.key("read", tenants=["acme"])
        response = httpx2.get(f"{server.url}/api/v1/events/live", headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 503
        assert '"bug"' not in server.log.read_text()


def test_a_response_has_every_own_text_and_none_of_another_tenant(
    shared: TenantServer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for resource in RESOURCES:
        with subtests.test(resource):
            response = shared.get(f"/api/v1/{resource}")
            assert response.status == 200, response.body
            content = text_of(resource, response, tmp_path)
            assert canary(OTHER) not in content
            assert canary(None) not in content
            if resource.startswith(WITH_EVERY_TEXT):
                assert canary(OWN) in content


def test_a_stream_is_not_changed_by_loads_of_other_tenants(shared: TenantServer) -> None:
    url = shared.server.url
    with open_stream(url, shared.read_key, "rows=on&recent=100") as stream:
        connected, recent = stream.message("connected"), stream.message("recent")
        shared.send_as_others()
        assert stream.is_silent(0.7)
        with open_stream(url, shared.read_key, "rows=on&recent=100") as second_stream:
            assert fields_of(second_stream.message("connected")) == fields_of(connected)
            assert fields_of(second_stream.message("recent")) == fields_of(recent)
        assert canary(OTHER) not in json.dumps(recent.content)
        shared.send(OWN)
        first = stream.message("loaded")
        assert first.content["after"] == connected.content["segment"] == connected.id
        assert first.content["segment"] == first.id != connected.id
        assert first.content["revision"] != connected.content["revision"]
        last = first
        while not stream.is_silent(1.0):
            last = stream.message("loaded")
    shared.send_as_others()
    with open_stream(url, shared.read_key, "rows=on", last_event_id=last.id) as stream:
        assert stream.message("connected").id == last.id
        assert stream.is_silent(0.7)
    with open_stream(url, shared.read_key, "rows=on") as stream:
        again = stream.message("connected")
        assert (again.id, again.content["revision"]) == (last.id, last.content["revision"])


def test_a_reader_that_reconnects_receives_missed_events_once(shared: TenantServer) -> None:
    url = shared.server.url
    with open_stream(url, shared.read_key, "rows=on") as stream:
        last_id = stream.message("connected").id
    shared.send(OWN)
    with open_stream(url, shared.read_key, "rows=on", last_event_id=last_id) as stream:
        assert stream.message("connected").id == last_id
        assert stream.message("loaded").content["rows"]


def test_requesting_another_tenant_or_everything_is_refused(shared: TenantServer, subtests: pytest.Subtests) -> None:
    other = tenants_of(OTHER)[0]
    for resource in filter(has_rows, RESOURCES):
        with subtests.test(resource):
            response = shared.get(f"/api/v1/{resource}?tenant={other}")
            assert (response.status, response.json()["reason"]) == (403, "out_of_scope")
    for path in ("analytics.duckdb", SYNC_PATH, f"dashboards/overview/sections/use?tenant={other}"):
        with subtests.test(path):
            response = shared.get(f"/api/v1/{path}")
            assert (response.status, response.json()["reason"]) == (403, "out_of_scope")
            assert "etag" not in response.headers


def test_an_own_tenant_narrows_the_rows(shared: TenantServer) -> None:
    rows = shared.get(f"/api/v1/events.ndjson?tenant={tenants_of(OWN)[0]}").body.splitlines()
    assert {json.loads(row)["tenant"] for row in rows} == {tenants_of(OWN)[0]}


def test_a_key_with_both_limits_reads_only_rows_within_both(shared: TenantServer) -> None:
    def count(deployment: int, tenants: list[str]) -> int:
        key = shared.server.key("read", deployments=[deployment], tenants=tenants)
        return len(shared.get("/api/v1/events.ndjson", key=key).body.splitlines())

    all_count = len(shared.get("/api/v1/events.ndjson").body.splitlines())
    assert count(OWN, tenants_of(OWN)) == all_count > 0
    assert count(OWN, ["acme, Inc."]) == 0
    assert count(OTHER, tenants_of(OWN)) == 0


def test_server_metrics_are_empty_for_a_limited_key(shared: TenantServer) -> None:
    path = "/api/v1/dashboards/pipeline/sections/server"
    assert {one["value"] for one in shared.get(path).json()["charts"].values()} == {None}


def test_an_inspection_does_not_wait_for_events_of_other_tenants(alone: TenantServer) -> None:
    event = deliveries_of(OTHER)[0]["events"][0]
    body = {"context": {"deployment": OWN, "tenant": tenants_of(OTHER)[0]}, "events": [event]}
    alone.server.post(body, key=alone.ingest_key)
    assert alone.get("/api/v1/inspect?since=1h&wait=0").json()["isComplete"]
    # A worker process validates a large body, and must return its tenant too.
    large = body | {"events": [event | {"id": str(uuid4()), "payload": event["payload"] | {"x": "x" * 60_000}}]}
    assert alone.server.post(large, key=alone.ingest_key).status == 202
    assert alone.get("/api/v1/inspect?since=1h&wait=0").json()["isComplete"]


def test_a_limited_ingest_key_writes_only_its_tenants(shared: TenantServer) -> None:
    key = shared.server.key("ingest", tenants=["acme"])
    view = {
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "app", "path": "/acme"},
        "timestamp": round(time.time() * 1000),
        "surface": "app",
    }
    assert shared.server.post({"context": {"deployment": 3}, "events": [view]}, key=key).status == 202
    refused = shared.server.post({"context": {"tenant": "globex"}, "events": [view]}, key=key)
    assert (refused.status, refused.json()["reason"]) == (403, "out_of_scope")
    assert shared.get(INSPECT, key=shared.admin_key).json()["isComplete"]
    rows = shared.get("/api/v1/events.ndjson?tenant=acme", key=shared.admin_key).body.splitlines()
    assert [json.loads(row)["path"] for row in rows] == ["/acme"]
