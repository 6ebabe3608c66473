"""Authentication and authorization: every route, every credential, two deployments (spec 5 and 7)."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.errors import Refused
from embedsink.http.authentication import parse_bearer_token
from tests.support.app import EVENTS, PAGE, Server, open_server, problem
from tests.support.envelopes import event_or_action, view

DEPLOYMENTS = (1, 2)
SCOPES: dict[str, list[int] | None] = {"unscoped": None, "one": [1], "both": [1, 2]}
DEAD = ("none", "malformed", "unknown", "expired", "revoked")
# A scim key has no scope.
LIVE = tuple(f"{kind} {scope}" for kind, scope in product(KeyKind, SCOPES) if kind != KeyKind.SCIM or not SCOPES[scope])


@dataclass(frozen=True)
class Route:
    """A route of the matrix; `{}` is replaced by a deployment."""

    method: str
    path: str
    kinds: tuple[str, ...]
    body: Any = None
    is_for_all: bool = False
    status: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.body or ''}".strip()


ROUTES = (
    Route("POST", EVENTS, ("ingest", "admin"), body="context", status=202),
    Route("POST", EVENTS, ("ingest", "admin"), body="ready", status=202),
    Route("GET", "/api/v1/reports", ("read", "admin")),
    Route("GET", "/api/v1/reports/views?deployment={}", ("read", "admin")),
    Route("GET", "/api/v1/reports/views.csv?deployment={}", ("read", "admin")),
    Route("GET", "/api/v1/quarantine?deployment={}", ("read", "admin")),
    Route("GET", "/api/v1/events/live?deployment={}&rows=on&recent=9", ("read", "admin")),
    Route("GET", "/api/v1/inspect?deployment={}&since=7d&wait=0", ("read", "admin")),
    Route("POST", "/api/v1/quarantine/replay", ("admin",), is_for_all=True),
    Route("GET", "/api/v1/deployments", ("read", "admin")),
    Route("GET", "/api/v1/deployments/{}/dbt-sync/job/result", ("read", "sync", "admin")),
    Route("PUT", "/api/v1/deployments/{}/dbt-sync/job/result", ("sync", "admin"), body="sync"),
)


@pytest.fixture(scope="module")
def populated_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with an event and a rejection of each deployment."""
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01, live_timeout_s=0.01) as server:
        key = server.key()
        for deployment in DEPLOYMENTS:
            title = f"secret of {deployment}"
            delivery = {"context": {"deployment": deployment}, "events": [view({"title": title}), view({"path": 1})]}
            assert server.post(delivery, key=key).status_code == 202
            path = f"/api/v1/deployments/{deployment}/dbt-sync/job/result"
            assert server.request("PUT", path, key=server.key("sync"), json=sync_of(deployment)).status_code == 200
        reader = server.key("read")
        server.rows("/api/v1/reports/views", key=reader, count=2)
        server.rows("/api/v1/quarantine", key=reader, count=2)
        server.rows("/api/v1/reports/sync_impact", key=reader, count=2)
        yield server


@pytest.fixture(scope="module")
def credentials(populated_server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    now = time.time()
    other_key_store = KeyStore(tmp_path_factory.mktemp("elsewhere") / "keys.json")
    _, unknown = other_key_store.create(KeyKind.ADMIN, now=now)
    _, expired = KeyStore(populated_server.folder.keys).create(KeyKind.ADMIN, now=now - 100, expires_at=now - 50)
    revoked = populated_server.key("admin")
    populated_server.revoke(revoked)
    dead = {"none": None, "malformed": "es_admin_x", "unknown": unknown, "expired": expired, "revoked": revoked}
    return dead | {
        name: populated_server.key(name.partition(" ")[0], deployments=SCOPES[name.partition(" ")[2]]) for name in LIVE
    }


def sync_of(deployment: int) -> dict[str, Any]:
    return {
        "syncJobId": "job",
        "generatedFiles": [{"path": f"secret of {deployment}"}],
        "manifestStats": {"models": 1, "sources": 1, "macros": 1},
        "svcCount": 1,
        "completedAt": "2025-11-20T00:00:00Z",
        "durationMs": 1,
    }


def ask(server: Server, route: Route, deployment: int, key: str | None) -> httpx2.Response:
    path = route.path.format(deployment)
    if route.body is None:
        return server.request(route.method, path, key=key)
    if route.body == "sync":
        return server.request(route.method, path, key=key, json=sync_of(deployment))
    ready = event_or_action("event:ready", {"deploymentId": deployment if route.body == "ready" else None})
    context = {"deployment": deployment} if route.body == "context" else {}
    return server.post({"context": context, "events": [ready]}, key=key)


def expected(route: Route, credential: str, deployment: int) -> tuple[int, str]:
    kind, _, scope = credential.partition(" ")
    if kind not in route.kinds:
        return 403, "wrong_kind"
    reach = SCOPES[scope]
    targets_one = "{}" in route.path or route.body is not None
    if reach is not None and (route.is_for_all or (targets_one and deployment not in reach)):
        return 403, "out_of_scope"
    return route.status, ""


@pytest.mark.parametrize("credential", DEAD)
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_every_route_with_a_key_answers_401_without_one(
    populated_server: Server, credentials: dict[str, str | None], route: Route, credential: str
) -> None:
    before = len(populated_server.journaled())
    for deployment in DEPLOYMENTS:
        response = ask(populated_server, route, deployment, credentials[credential])
        assert response.status_code == 401
        assert problem(response) == ("no_credential" if credential == "none" else "bad_credential")
        assert response.headers["www-authenticate"].startswith('Bearer realm="embedsink"')
    assert len(populated_server.journaled()) == before


@pytest.mark.parametrize("credential", LIVE)
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_a_live_key_reaches_only_the_resources_of_its_kind(
    populated_server: Server, credentials: dict[str, str | None], route: Route, credential: str
) -> None:
    for deployment in DEPLOYMENTS:
        response = ask(populated_server, route, deployment, credentials[credential])
        status, reason = expected(route, credential, deployment)
        assert response.status_code == status, response.text
        if reason:
            assert problem(response) == reason
            assert "secret" not in response.text
            assert 'error="insufficient_scope"' in response.headers["www-authenticate"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/reports/views",
        "/api/v1/reports/views.csv",
        "/api/v1/reports/sync_impact",
        "/api/v1/quarantine",
    ],
)
@pytest.mark.parametrize("kind", ["read", "admin"])
def test_a_scoped_reader_sees_no_rows_of_other_deployments(populated_server: Server, kind: str, path: str) -> None:
    scoped = populated_server.get(path, key=populated_server.key(kind, deployments=[2]))
    filtered = populated_server.get(f"{path}?deployment=2", key=populated_server.key(kind))
    assert scoped.status_code == 200
    # An ingest_seq counts what all deployments send, so a scoped key does not receive it.
    assert scoped.text == re.sub(r'"ingest_seq":\d+', '"ingest_seq":null', filtered.text)
    assert "secret of 1" not in scoped.text
    assert populated_server.get(path, key=populated_server.key(kind)).content != scoped.content
    other_scope = populated_server.get(path, key=populated_server.key(kind, deployments=[3]))
    assert other_scope.text.count("\n") <= 1
    assert "secret" not in other_scope.text


@pytest.mark.parametrize("kind", ["read", "admin"])
def test_a_scoped_reader_gets_no_hint_of_other_deployments(populated_server: Server, kind: str) -> None:
    for scope, expected in ((None, {1, 2}), ([2], {2}), ([1, 2], {1, 2}), ([3], {3})):
        listed = populated_server.get("/api/v1/deployments", key=populated_server.key(kind, deployments=scope)).json()[
            "deployments"
        ]
        assert {
            deployment["deploymentId"] for deployment in listed if deployment["deploymentId"] < 3 or scope == [3]
        } == expected


def test_all_invalid_keys_get_the_same_body(populated_server: Server, credentials: dict[str, str | None]) -> None:
    responses = [populated_server.get("/api/v1/reports", key=credentials[name]) for name in DEAD if name != "none"]
    responses.append(populated_server.get("/api/v1/reports", headers={"authorization": "Basic dXNlcjpwYXNz"}))
    responses.append(populated_server.get("/api/v1/reports", headers={"authorization": "Bearer"}))
    responses.append(populated_server.get("/api/v1/reports", headers={"authorization": "Bearer   "}))
    responses.append(populated_server.get("/api/v1/reports", headers=[(b"authorization", "Bearer schlüssel".encode())]))
    responses.append(populated_server.get("/api/v1/reports", headers=[(b"authorization", b"Bearer \xff\xfe")]))
    assert {response.status_code for response in responses} == {401}
    assert len({response.content for response in responses}) == 1
    assert len({response.headers["www-authenticate"] for response in responses}) == 1


@pytest.mark.parametrize(
    "prefix", ["", "Api-Key ", "Basic ", "Token ", "DPoP ", "Bearer:", "Bearer=", "Bearer Bearer "]
)
def test_a_key_is_accepted_only_with_the_bearer_prefix(populated_server: Server, prefix: str) -> None:
    key = populated_server.key("admin")
    before = len(populated_server.journaled())
    for method, path, body in (
        ("GET", "/api/v1/reports", None),
        ("GET", "/api/v1/deployments", None),
        ("POST", EVENTS, view()),
    ):
        headers = {"authorization": f"{prefix}{key}"}
        refused = populated_server.request(method, path, headers=headers, json=body)
        assert (refused.status_code, problem(refused)) == (401, "bad_credential")
    assert len(populated_server.journaled()) == before
    for accepted in (f"Bearer {key}", f"bearer {key}"):  # RFC 9110, section 11.1: a scheme is case-insensitive.
        assert populated_server.get("/api/v1/reports", headers={"authorization": accepted}).status_code == 200


def test_only_readers_learn_whether_a_report_exists(populated_server: Server) -> None:
    for key in (None, "es_read_wrong", populated_server.key("ingest")):
        exists, does_not = (populated_server.get(f"/api/v1/reports/{name}", key=key) for name in ("views", "nothing"))
        assert exists.content == does_not.content
        assert exists.status_code == does_not.status_code in (401, 403)
    assert problem(populated_server.get("/api/v1/reports/nothing", key=populated_server.key("read"))) == "not_found"


def test_the_root_path_redirects_all_clients_to_the_dashboards(
    populated_server: Server, credentials: dict[str, str | None]
) -> None:
    for credential, key in credentials.items():
        for method, query in (("GET", ""), ("HEAD", ""), ("GET", f"?key={key}")):
            response = populated_server.request(method, f"/{query}", key=key)
            assert (response.status_code, response.headers["location"]) == (307, "/dashboards/"), credential
            assert response.headers["cache-control"] == "private, no-store"
            assert (response.content, response.headers.get("set-cookie")) == (b"", None)
    assert populated_server.request("POST", "/").status_code == 405


@pytest.mark.parametrize("name", ["access_token", "key"])
def test_a_key_in_the_url_is_not_accepted(populated_server: Server, name: str) -> None:
    for path in ("/api/v1/reports", EVENTS):
        method = "POST" if path == EVENTS else "GET"
        key = populated_server.key("admin")
        for written in (key, key.replace("_", "%5F")):
            response = populated_server.request(method, f"{path}?{name}={written}")
            assert problem(response) == "bad_credential"
            assert key not in response.text


@pytest.mark.parametrize("query", ["since={key}", "access_token={key}", "access_token=other", "tenant=es_read_madrid"])
@pytest.mark.parametrize("kind", KeyKind)
def test_a_key_in_the_url_gets_another_error_than_a_bad_key_in_the_header(query: str, kind: KeyKind) -> None:
    key = new_token(kind)
    for authorization in ([], [f"Bearer {key}"], ["Bearer"]):
        with pytest.raises(Refused, match=r"^url: contains a key or access_token, ") as refused:
            parse_bearer_token(authorization, query.format(key=key))
        assert refused.value.reason == "bad_credential"
        assert key not in str(refused.value)


def test_a_key_in_the_url_is_an_error_only_where_a_key_is_required(populated_server: Server) -> None:
    key = populated_server.key("read")
    for path in ("/api/v1/reports", "/api/v1/reports/views.csv", "/api/v1/reports/nothing"):
        response = populated_server.get(f"{path}?since={key}", key=key)
        assert (response.status_code, problem(response)) == (401, "bad_credential")
        assert response.json()["detail"].startswith("url: ")
    for path, status in (("/healthz", 200), ("/metrics", 200), ("/nothing", 404)):
        assert populated_server.get(f"{path}?access_token={key}").status_code == status


def test_a_parameter_may_begin_like_a_key(populated_server: Server) -> None:
    assert (
        populated_server.get("/api/v1/reports/views?tenant=es_madrid", key=populated_server.key("read")).status_code
        == 200
    )
    assert parse_bearer_token([], "tenant=es_read") is None


def test_two_credentials_are_refused(populated_server: Server) -> None:
    key = populated_server.key()
    headers = [(b"authorization", f"Bearer {key}".encode())] * 2
    response = populated_server.request("POST", EVENTS, headers=headers, json=view())
    assert (response.status_code, problem(response)) == (400, "two_credentials")
    assert 'error="invalid_request"' in response.headers["www-authenticate"]


@pytest.mark.parametrize("type_", ["application/json", "text/plain", "text/plain;charset=UTF-8"])
def test_the_key_may_be_in_the_body(populated_server: Server, type_: str) -> None:
    response = populated_server.post({"events": [view()], "key": populated_server.key()}, type_=type_)
    assert (response.status_code, response.json()["accepted"]) == (202, 1)


@pytest.mark.parametrize(
    ("key", "reason"),
    [("es_ingest_wrong", "bad_credential"), ("", "bad_credential"), (None, "no_credential"), (7, "no_credential")],
)
def test_a_wrong_key_in_the_body_answers_401_and_stores_nothing(
    populated_server: Server, key: Any, reason: str
) -> None:
    before = len(populated_server.journaled())
    assert problem(populated_server.post({"events": [view(), 1], "key": key})) == reason
    assert len(populated_server.journaled()) == before


def test_a_body_without_a_confirmed_key_is_not_stored(server: Server) -> None:
    before = len(server.journaled())
    assert problem(server.post(b'{"events": [')) == "no_credential"
    assert len(server.journaled()) == before


def test_a_key_for_one_deployment_supplies_the_deployment(server: Server) -> None:
    assert server.post(view(), key=server.key(deployments=[7])).status_code == 202
    assert server.journaled()[-1]["context"]["deployment"] == 7


def test_a_revoked_key_is_refused_at_once(server: Server) -> None:
    key = server.key()
    assert server.post(view(), key=key).status_code == 202
    server.revoke(key)
    assert problem(server.post(view(), key=key)) == "bad_credential"


def test_plain_http_is_refused_on_a_server_beyond_loopback(tmp_path: Path) -> None:
    with open_server(tmp_path, https_only=True) as server:
        key = server.key("admin")
        for method, path in (("POST", EVENTS), ("GET", "/api/v1/reports"), ("POST", "/api/v1/quarantine/replay")):
            response = server.request(method, path, key=key, headers={"content-type": "text/plain"})
            assert (response.status_code, problem(response)) == (403, "plain_http")
        secure = server.request("GET", "/api/v1/reports", key=key, base_url="https://test")
        assert secure.status_code == 200


@pytest.mark.parametrize("kind", ["read", "admin"])
def test_a_page_cannot_read_with_a_key_of_other_origins(server: Server, kind: str) -> None:
    key = server.key(kind, origins=[PAGE])
    for path in ("/api/v1/reports", "/api/v1/reports/views", "/api/v1/quarantine"):
        assert server.get(path, key=key, headers={"origin": PAGE}).status_code == 200
        assert server.get(path, key=key).status_code == 200
        assert problem(server.get(path, key=key, headers={"origin": "https://evil.example.com"})) == "wrong_origin"
