"""Who may use the SCIM API, and the format of its errors (spec 5.4, RFC 7644, section 3.12)."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.app import Server, open_server
from tests.support.issuer import Issuer, running_issuer
from tests.support.stores import make_folder

ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
USERS = "/api/scim/v2/Users"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("data")
    make_folder(folder)
    (folder / "identity.toml").write_text(issuer.toml(tenants_claim="tenants"))
    with open_server(folder) as server:
        yield server


def users(server: Server, authorization: str | None, **options: Any) -> httpx2.Response:
    headers = {} if authorization is None else {"authorization": authorization}
    return server.request("GET", USERS, headers=headers | options.pop("headers", {}), **options)


def assert_scim_error(response: httpx2.Response, status: int) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/scim+json"
    body = response.json()
    assert (body["schemas"], body["status"]) == ([ERROR], str(status))
    assert body["detail"]


def test_both_schemes_of_authorization_are_accepted(server: Server) -> None:
    for kind in ("scim", "admin"):
        key = server.key(kind)
        for scheme in ("Bearer", "bearer", "Api-Key", "api-key"):
            assert users(server, f"{scheme} {key}").status_code == 200
    assert server.request("GET", "/api/v1/reports", headers={"authorization": f"Api-Key {key}"}).status_code == 401


def test_a_key_that_is_revoked_while_its_request_waits_changes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = server.key("scim")
    waiting_slot = server.engine.limiters.directory.slot

    @asynccontextmanager
    async def slow_slot(key_id: str) -> AsyncIterator[None]:
        async with waiting_slot(key_id):
            server.revoke(key)
            yield

    monkeypatch.setattr(server.engine.limiters.directory, "slot", slow_slot)
    created = server.request("POST", USERS, key=key, json={"schemas": [USER], "userName": "waiting"})
    assert_scim_error(created, 401)
    monkeypatch.undo()
    found = users(server, f"Bearer {server.key('scim')}", params={"filter": 'userName eq "waiting"'})
    assert found.json()["totalResults"] == 0


@pytest.mark.parametrize("ending", ["%0D%0A", "%0A", "%09"])
def test_a_path_with_a_control_character_does_not_exist(server: Server, ending: str) -> None:
    key = server.key("scim")
    created = server.request("POST", USERS, key=key, json={"schemas": [USER], "userName": f"path {ending}"})
    path = f"{USERS}/{created.json()['id']}"
    for method in ("GET", "DELETE"):
        assert_scim_error(server.request(method, path + ending, key=key), 404)
    assert server.request("DELETE", path, key=key).status_code == 204


def test_an_access_token_needs_the_scope(server: Server, issuer: Issuer) -> None:
    def status(**claims: Any) -> int:
        return users(server, f"Bearer {issuer.token(**claims)}").status_code

    assert status(scope="embedsink:scim", tenants="*") == 200
    assert status(scope="embedsink:admin", tenants="*") == 200
    assert status(scope="embedsink:scim", tenants="acme") == 403
    assert status(scope="embedsink:read embedsink:sync embedsink:ingest", tenants="*") == 403


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer x", "Api-Key es_scim_x", "Basic YTpi"])
def test_a_missing_or_invalid_credential_gets_401(server: Server, authorization: str | None) -> None:
    response = users(server, authorization)
    assert_scim_error(response, 401)
    assert response.headers["www-authenticate"].startswith('Bearer realm="embedsink"')


def test_an_expired_key_gets_401(server: Server) -> None:
    key = server.key("scim", expires_at=time.time() + 0.5)
    assert users(server, f"Bearer {key}").status_code == 200
    time.sleep(0.6)
    assert_scim_error(users(server, f"Bearer {key}"), 401)


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("read", {}),
        ("ingest", {}),
        ("sync", {}),
        ("admin", {"deployments": [7]}),
        ("admin", {"tenants": ["acme"]}),
    ],
    ids=["read", "ingest", "sync", "admin of a deployment", "admin of a tenant"],
)
def test_a_key_of_another_kind_or_with_limits_gets_403(server: Server, kind: str, limits: dict[str, Any]) -> None:
    assert_scim_error(users(server, f"Bearer {server.key(kind, **limits)}"), 403)


def test_a_scim_key_is_valid_for_nothing_else(server: Server) -> None:
    key = server.key("scim")
    for path in ("/api/v1/reports", "/api/v1/events.csv", "/api/v1/deployments", "/api/v1/analytics.duckdb"):
        response = server.request("GET", path, key=key)
        assert (response.status_code, response.json()["reason"]) == (403, "wrong_kind")


def test_a_browser_session_is_not_accepted(server: Server) -> None:
    login = server.request("POST", "/login", data={"key": server.key("admin")})
    cookie = login.headers["set-cookie"].partition(";")[0]
    assert server.request("GET", "/api/v1/reports", headers={"cookie": cookie}).status_code == 200
    assert_scim_error(users(server, None, headers={"cookie": cookie}), 401)


def test_a_key_in_the_url_or_two_credentials_are_refused(server: Server) -> None:
    key = server.key("scim")
    assert_scim_error(
        server.request("GET", f"{USERS}?access_token={key}", headers={"authorization": f"Bearer {key}"}), 401
    )
    twice = [("authorization", f"Bearer {key}"), ("authorization", f"Api-Key {key}")]
    assert_scim_error(server.request("GET", USERS, headers=twice), 400)


def test_plain_http_is_refused_beyond_loopback(tmp_path: Path) -> None:
    with open_server(tmp_path, https_only=True) as server:
        key = server.key("scim")
        assert_scim_error(server.request("GET", USERS, key=key), 403)
        assert server.request("GET", USERS, key=key, base_url="https://test").status_code == 200


def test_users_are_listed_by_count_and_start_index(server: Server) -> None:
    key = server.key("scim")
    for number in range(5):
        body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": f"u{number}"}
        created = server.request("POST", USERS, key=key, json=body)
        assert created.status_code == 201
        assert created.headers["location"] == created.json()["meta"]["location"]
        assert created.headers["cache-control"] == "private, no-store"
    pages = [server.request("GET", f"{USERS}?count=2&startIndex={start}", key=key).json() for start in (1, 3, 5)]
    assert [page["totalResults"] for page in pages] == [5, 5, 5]
    assert [page["itemsPerPage"] for page in pages] == [2, 2, 1]
    ids = [user["id"] for page in pages for user in page["Resources"]]
    assert len(set(ids)) == 5
    none = server.request("GET", f"{USERS}?count=0", key=key).json()
    assert (none["totalResults"], none.get("Resources", [])) == (5, [])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/scim/v2/Robots", 404),
        ("DELETE", USERS, 405),
        ("GET", f"{USERS}/missing", 404),
        ("GET", f"{USERS}?filter=userName+zz+1", 400),
    ],
    ids=["unknown path", "wrong method", "unknown user", "wrong filter"],
)
def test_every_error_has_the_format_of_scim(server: Server, method: str, path: str, status: int) -> None:
    assert_scim_error(server.request(method, path, key=server.key("scim")), status)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b'{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"]}', 400),
        (b'{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"a\\u0000b"}', 400),
        (b'{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"a\\ud800"}', 400),
        (b'{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"' + b"a" * 1_048_576 + b'"}', 413),
        (b"[" * 100_000, 400),
    ],
    ids=["no JSON", "no userName", "NUL", "surrogate", "large", "deep"],
)
def test_an_invalid_body_changes_nothing(server: Server, body: bytes, status: int) -> None:
    key = server.key("scim")
    before = server.request("GET", USERS, key=key).json()["totalResults"]
    headers = {"content-type": "application/scim+json"}
    assert_scim_error(server.request("POST", USERS, key=key, content=body, headers=headers), status)
    assert server.request("GET", USERS, key=key).json()["totalResults"] == before


def test_a_version_is_required_by_if_match(server: Server) -> None:
    key = server.key("scim")
    user = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "versioned"}
    created = server.request("POST", USERS, key=key, json=user)
    path, tag = f"{USERS}/{created.json()['id']}", created.headers["etag"]
    assert server.request("GET", path, key=key, headers={"if-none-match": tag}).status_code == 304
    change = user | {"title": "Analyst"}
    assert server.request("PUT", path, key=key, json=change, headers={"if-match": tag}).status_code == 200
    stale = server.request("PUT", path, key=key, json=change | {"title": "x"}, headers={"if-match": tag})
    assert_scim_error(stale, 412)
    patch = {"Operations": [{"op": "replace", "path": "title", "value": "x"}]}
    for method, body in (("PATCH", patch), ("DELETE", None)):
        assert_scim_error(server.request(method, path, key=key, json=body, headers={"if-match": tag}), 412)
        operation = {"method": method, "path": path.removeprefix("/api/scim/v2"), "version": tag, "data": body}
        bulk = server.request("POST", "/api/scim/v2/Bulk", key=key, json={"Operations": [operation]})
        assert [one["status"] for one in bulk.json()["Operations"]] == ["412"], bulk.text
    assert server.request("GET", path, key=key).json()["title"] == "Analyst"
    assert server.request("DELETE", path, key=key).status_code == 204
